//! veritysetup and fsverity agree with our hash trees, for images of all layouts and odd sizes.
//!
//! `ferofs build --verity` makes the seal that `ferofs verity format` makes of the same image.

use std::fs;

use ferofs_tests::run::Run;
use ferofs_tests::{ferofs, need, tree};

use crate::common::erofs_utils::mkfs;
use crate::common::fixture::{Fixture, set_len};

/// Options of `mkfs.erofs`.
const IMAGES: [&str; 10] = [
    "",
    "-zlz4",
    "-zlz4hc,9 -C65536 -Eztailpacking",
    "-zzstd,3 -C1048576 -Efragments",
    "-zlzma,1 -Eall-fragments",
    "-zdeflate,3 -E48bit",
    "--chunksize=65536",
    "-b512",
    "-b1024 -zlz4 -Ededupe",
    "-b2048 -E^inline_data",
];

/// Options of `ferofs verity format`.
const SEALS: [&str; 5] = [
    "",
    "--salt 00ff17",
    "--hash sha512 --salt -",
    "--data-block-size 1024 --hash-block-size 512",
    "--hash-block-size 1024 --uuid d2c9a3b4-0000-4000-8000-00000000abcd",
];

/// Seals `@image` with these options; returns the root hash.
fn format(fixture: &Fixture, options: &str) -> String {
    fixture.line(&format!("verity format {options}")).success().text().trim().to_owned()
}

#[test]
fn veritysetup_and_fsverity_agree() {
    let (Some(veritysetup), Some(fsverity)) = (need::tool("veritysetup"), need::tool("fsverity"))
    else {
        return;
    };
    let fixture = Fixture::small();
    for (number, options) in IMAGES.iter().enumerate() {
        let made = fixture.path("made");
        mkfs(&fixture, options, &made).success();
        // The last block of some images is incomplete.
        let odd = fs::metadata(&made).unwrap().len();
        for seal in SEALS {
            let image = fixture.path("image");
            fs::copy(&made, &image).unwrap();
            let root = format(&fixture, &format!("@image {seal}"));
            let shown = fixture.line("verity show --json @image").success().text();
            let named = shown.contains(&format!("\"root_hash\":\"{root}\""));
            assert!(named, "{number}: {root}: {shown}");
            let (_, offset) = shown.split_once("\"hash_offset\":").unwrap();
            let offset: u64 = offset.split([',', '}']).next().unwrap().parse().unwrap();
            assert!(offset >= odd && offset.is_multiple_of(4096), "{number}: {offset} of {odd}");
            let verify = |tree: &str, offset: u64| {
                let line = format!("verify @image @{tree} {root} --hash-offset={offset}");
                Run::new(&veritysetup).args(fixture.words(&line)).success();
            };
            verify("image", offset);
            // The image before the tree, alone: with the tree in a file of its own, and its digest.
            set_len(&image, offset);
            assert_eq!(format(&fixture, &format!("@image {seal} --hash-file @tree")), root);
            verify("tree", 0);
            fixture.line(&format!("verity verify @image {root} --hash-file @tree")).success();
            if seal.is_empty() {
                let digest = fixture.line("verity digest @image").success().text();
                let theirs = Run::new(&fsverity).args(["digest", "--compact"]).arg(&image);
                let theirs = theirs.success().text();
                assert_eq!(digest, format!("dm-verity: {root}\nfs-verity: sha256:{theirs}"));
            }
        }
    }
}

#[test]
fn a_seal_is_replaced_and_wrong_arguments_are_refused() {
    let (fixture, image) = Fixture::small_image();
    let len = fs::metadata(&image).unwrap().len();
    let root = format(&fixture, "@image");
    let sealed = fs::read(&image).unwrap();
    assert_ne!(format(&fixture, "@image --salt 1234"), root);
    assert_eq!(format(&fixture, "@image"), root);
    assert!(fs::read(&image).unwrap() == sealed, "the same seal as the first one");
    let extracted = fixture.path("extracted");
    ferofs!("extract --roothash", &root, &image, &extracted).success();
    fixture.assert_same_as_source(&extracted);

    for wrong in [
        "format --salt 0",
        "format --salt zz",
        "format --hash md5",
        "format --data-block-size 4095",
        "format --hash-file @image",
        "show --hash-offset 0",
        "show --hash-offset 18446744073709551615",
    ] {
        assert_ne!(fixture.line(&format!("verity {wrong} @image")).run().code, 0, "{wrong}");
    }
    assert!(fs::read(&image).unwrap() == sealed, "refused commands write nothing");
    let list = |options: &str| fixture.line(&format!("ls --roothash {options} @image")).run();
    assert_eq!(list("12").code, 2);
    list(&"0".repeat(64)).failure(1);
    list(&format!("{root} --hash-offset 4096")).failure(1);
    list(&format!("{root} --device /dev/null")).failure(2);
    set_len(&image, len);
    list(&root).failure(1);
}

#[test]
fn no_output_replaces_another_file_of_the_command() {
    let (fixture, image) = Fixture::small_image();
    let before = fs::read(&image).unwrap();
    for (wrong, code) in [
        ("--roothash-file @image", 1),
        ("--hash-file @tree --roothash-file @tree", 1),
        ("--hash-file @image", 1),
        ("--hash-block-size 65536", 2),
        ("--hash-file @tree --data-block-size 65536", 1),
    ] {
        fixture.line(&format!("verity format @image {wrong}")).failure(code);
        assert!(fs::read(&image).unwrap() == before, "{wrong}: the image was changed");
        assert!(!fixture.path("tree").exists(), "{wrong}: a tree was written");
    }
    // What follows the image, for example the tree of an interrupted command, is not part of it.
    fs::write(&image, [&before[..], &[0; 4096], &[7; 4096]].concat()).unwrap();
    ferofs!("verity format", &image).failure(1).says("other data follows");
}

#[test]
fn a_seal_of_a_part_or_of_hashes_is_refused() {
    let fixture = Fixture::new(&tree::Options { largest: 3_000_000, ..tree::Options::small() });
    let (image, seal) = (fixture.build("image", ["--compress", "lz4"]), fixture.path("seal"));
    let root = format(&fixture, "@image --hash-file @seal");
    let (bytes, tree) = (fs::read(&image).unwrap(), fs::read(&seal).unwrap());
    let blocks = bytes.len() as u64 / 4096;
    let check = |image: &[u8], blocks: u64, tree: &[u8]| {
        let (image_path, tree_path) = (fixture.path("forged"), fixture.path("forged-tree"));
        let mut tree = tree.to_vec();
        tree[40..48].copy_from_slice(&blocks.to_le_bytes());
        fs::write(&image_path, image).unwrap();
        fs::write(&tree_path, tree).unwrap();
        let verify = ferofs!("verity verify --hash-file", &tree_path, &image_path);
        let list = ferofs!("ls --roothash", &root, "--hash-file", &tree_path, &image_path);
        (verify.arg(&root).run().code, list.run().code)
    };
    assert_eq!(check(&bytes, blocks, &tree), (0, 0), "the seal itself");
    assert_eq!(check(&bytes[..bytes.len() - 4096], blocks - 1, &tree), (1, 1), "a block less");
    // The lowest level of the tree as the image, and the level above as its tree.
    let lowest = blocks.div_ceil(128) as usize * 4096;
    let (above, hashes) = tree.split_at(tree.len() - lowest);
    assert_eq!(check(hashes, lowest as u64 / 4096, above), (1, 1), "hashes as the image");
}

#[test]
fn a_check_names_the_files_that_do_not_agree_with_the_root_hash() {
    let fixture = Fixture::empty();
    for name in ["a", "b", "c"] {
        fixture.write(name, name.repeat(100_000));
    }
    let image = fixture.build("image", ["-z", "none"]);
    let root = format(&fixture, "@image");
    let check = || ferofs!("check --deep --roothash", root.trim(), &image).run();
    check().success();
    let sound = fs::read(&image).unwrap();
    let damage = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&image, bytes).unwrap();
        check().failure(4).stderr
    };
    let at = sound.windows(9000).position(|bytes| bytes == [b'b'; 9000]).unwrap() + 5000;
    let told = damage(at);
    assert!(
        told.contains("/b: extent: a block does not agree with the root hash (byte "),
        "{told}"
    );
    assert!(
        told.contains(&format!(", block {}, file bytes ", at / 4096)) && told.lines().count() == 1,
        "{told}"
    );
    // In the superblock.
    assert!(damage(1100).contains("data block 0 (byte 0) does not have the digest"));
}

#[test]
fn a_sealed_image_that_is_cut_off_is_called_so() {
    let fixture = Fixture::empty();
    fixture.write("file", "content ".repeat(100_000));
    let (image, beside) =
        (fixture.build("image", ["-z", "none"]), fixture.build("beside", ["-z", "none"]));
    let len = fs::metadata(&image).unwrap().len();
    let tree = fixture.path("tree");
    let root = format(&fixture, "@image");
    format(&fixture, "@beside --hash-file @tree");
    let sealed = fs::metadata(&image).unwrap().len();
    // In the tree, at its start, and in the image.
    for size in [sealed - 4096, len, len - 4096] {
        let cut = fixture.path("cut");
        fs::write(&cut, &fs::read(&image).unwrap()[..size as usize]).unwrap();
        let check = ferofs!("check --roothash", root.trim(), &cut).run();
        if size == len {
            check.failure(8).says("no hash tree follows the image: it was never sealed");
            continue;
        }
        let told = check.failure(4).stderr;
        let expected = format!("but the file at byte {size}: it is cut off");
        assert!(
            told.contains("the hash tree ends at byte") && told.contains(&expected),
            "{size}: {told}"
        );
    }
    set_len(&beside, len - 4096);
    let check = ferofs!("check --roothash", root.trim(), "--hash-file", &tree, &beside);
    let told = check.failure(4).stderr;
    let expected =
        format!("the image ends at byte {len} or later, but the file at byte {}", len - 4096);
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn systemd_finds_the_files_beside_an_image() {
    let Some(dissect) = need::tool("systemd-dissect") else { return };
    require!(need::kernel_erofs());
    let fixture = Fixture::empty();
    fixture.write("usr/lib/os-release", "ID=sealed\nVERSION_ID=1\n");
    // systemd 252 looks for no files beside an image in a tmpfs without user xattrs.
    let dir = tempfile::tempdir_in(ferofs_tests::scratch::target_dir()).unwrap();
    let image = dir.path().join("image.raw");
    ferofs!("build -z lz4", fixture.source(), &image).success();
    let dissected = || Run::new(&dissect).arg("--json=short").arg(&image).success().text();
    // It looks for the root hash beside the image, and then needs the hash tree.
    assert!(!dissected().contains(r#""verity":"external""#), "there is no seal yet");
    let root = ferofs!("verity format --sidecar systemd", &image).success().text();
    let shown = dissected();
    for expected in [r#""fstype":"erofs""#, r#""verity":"external""#, r#""ID=sealed""#] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let root = root.trim();
    assert_eq!(fs::read_to_string(dir.path().join("image.roothash")).unwrap().trim(), root);
    let verify = Run::new(need::tool("veritysetup").unwrap()).arg("verify");
    verify.args([&image, &dir.path().join("image.verity")]).arg(root).success();
}

const BUILDS: [&str; 8] = [
    "",
    "-z lz4",
    "-z lz4hc,9 -C 65536 -E ztailpacking,dedupe",
    "-z zstd,1 -C 1M -E all-fragments",
    "-z deflate,3 -E 48bit -m 4096",
    "-z lzma,1 --workers 1",
    "-b 512",
    "--preset android",
];

#[test]
fn an_image_is_sealed_while_it_is_written() {
    let fixture = Fixture::new(&tree::Options { largest: 3_000_000, ..tree::Options::small() });
    for options in BUILDS {
        let build = |name: &str, more: &str| {
            let fixed = "-T 1700000000 -U d2c9a3b4-0000-4000-8000-00000000abcd --verify --json";
            let build = format!("build {fixed} {options} {more} @source @{name}");
            fixture.line(&build).success().text()
        };
        build("image", "");
        let root = format(&fixture, "@image");
        let json = build("appended", "--verity");
        assert!(json.contains(&format!("\"roothash\":\"{root}\"")), "{options}: {json}");
        let [appended, image] =
            ["appended", "image"].map(|name| fs::read(fixture.path(name)).unwrap());
        assert!(appended == image, "{options}: other bytes");
        fixture.line(&format!("verity verify @appended {root}")).success();

        build("plain", "--verity=@tree --roothash-file=@root");
        let root = fs::read_to_string(fixture.path("root")).unwrap();
        for line in [
            &*format!("verity verify --hash-file @tree @plain {root}"),
            &format!("diff --quiet --roothash {root} --hash-file @tree @plain @source"),
        ] {
            fixture.line(line).success();
        }
        let wrong = "0".repeat(64);
        fixture.line(&format!("ls --roothash {wrong} --hash-file @tree @plain")).failure(1);
    }
}

#[test]
fn a_sealed_image_is_not_patched() {
    let (fixture, image) = Fixture::small_image();
    let (patch, more) = (fixture.path("patch"), fixture.path("more"));
    fs::create_dir(&more).unwrap();
    fs::write(more.join("new"), "content ".repeat(10_000)).unwrap();
    let sealed = fixture.path("sealed");
    fs::copy(&image, &sealed).unwrap();
    ferofs!("patch create", &image, &more, "-o", &patch).success();
    ferofs!("verity format", &sealed).success();
    let before = fs::read(&sealed).unwrap();
    for command in [&["apply"][..], &["add"]] {
        let change = if command[0] == "apply" { &patch } else { &more };
        ferofs!("patch")
            .args(command)
            .args([&sealed, change])
            .failure(1)
            .says("a seal follows the image");
        assert!(fs::read(&sealed).unwrap() == before, "{command:?}: the image was changed");
    }
    // The error comes before the source is read.
    let (missing, made) = (fixture.path("missing"), fixture.path("made"));
    let created = ferofs!("patch create", &sealed, &missing, "-o", &made).run();
    let stderr = created.failure(1).stderr;
    assert!(stderr.contains("a seal follows the image") && !made.exists(), "{stderr}");
    let file = fs::File::options().write(true).open(&sealed).unwrap();
    file.set_len(fs::metadata(&image).unwrap().len()).unwrap();
    ferofs!("patch apply", &sealed, &patch).success();
}

#[test]
fn a_stream_is_sealed_and_wrong_combinations_are_refused() {
    let fixture = Fixture::small();
    let root = fixture.path("root");
    let stream = ferofs!("build --verity --roothash-file", &root, fixture.source(), "-").run();
    let (image, root_file) = (fixture.path("image"), root);
    let root = fs::read_to_string(&root_file).unwrap();
    fs::write(&image, &stream.success().stdout).unwrap();
    let verify = || ferofs!("verity verify", &image);
    verify().arg(&root).success();
    verify().arg("--roothash-file").arg(&root_file).success();
    assert_eq!(verify().arg(&root).arg("--roothash-file").arg(&root_file).run().code, 2);
    let usage = verify().run();
    assert_eq!(usage.code, 2);
    // In the order in which clap accepts them.
    usage.says("verify [OPTIONS] <IMAGE> <ROOTHASH|");
    let wrong = fixture.path("wrong");
    fs::write(&wrong, "0".repeat(64)).unwrap();
    verify().arg("--roothash-file").arg(&wrong).failure(1);

    let before = fs::read(&image).unwrap();
    let name = image.display().to_string();
    let tree = fixture.path("tree").display().to_string();
    for wrong in [
        &["--verity", "-E", "offset=4096"][..],
        &[&format!("--verity={name}")],
        &[&format!("--verity={tree}"), "--roothash-file", &tree],
        &["--verity", "--roothash-file", &name],
        &["--roothash-file", "x"],
    ] {
        let outcome = ferofs!("build").args(wrong).arg(fixture.source()).arg(&image).run();
        assert_ne!(outcome.code, 0, "{wrong:?}");
        assert!(fs::read(&image).unwrap() == before, "{wrong:?}: the image was changed");
    }
}
