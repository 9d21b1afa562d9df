//! veritysetup and fsverity agree with our hash trees, for images of all layouts and odd sizes.
//!
//! `ferofs build --verity` makes the seal that `ferofs verity format` makes of the same image.

use std::fs;
use std::path::Path;

use ferofs_tests::run::Run;
use ferofs_tests::{ferofs, need, tree};

use crate::common::erofs_utils::mkfs;
use crate::common::fixture::Fixture;

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
const SEALS: [&[&str]; 5] = [
    &[],
    &["--salt", "00ff17"],
    &["--hash", "sha512", "--salt", "-"],
    &["--data-block-size", "1024", "--hash-block-size", "512"],
    &["--hash-block-size", "1024", "--uuid", "d2c9a3b4-0000-4000-8000-00000000abcd"],
];

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().trim().to_owned()
}

/// Seals `image` with these options; returns the root hash.
fn format(image: &Path, options: &[&str]) -> String {
    text(ferofs().args(["verity", "format"]).arg(image).args(options).run().success().stdout)
}

#[test]
fn veritysetup_and_fsverity_agree() {
    let (Some(veritysetup), Some(fsverity)) = (
        need::tool("veritysetup", "hash trees by cryptsetup"),
        need::tool("fsverity", "digests of fs-verity"),
    ) else {
        return;
    };
    let fixture = Fixture::new(&tree::Options::small());
    for (number, options) in IMAGES.iter().enumerate() {
        let made = fixture.path("image");
        mkfs(&fixture, options, &made).success();
        // The last block of some images is incomplete.
        let odd = fs::metadata(&made).unwrap().len();
        for seal in SEALS {
            let (image, tree) = (fixture.path("sealed"), fixture.path("tree"));
            fs::copy(&made, &image).unwrap();
            let root = format(&image, seal);
            let shown =
                ferofs().args(["verity", "show", "--json"]).arg(&image).run().success().stdout;
            let shown = text(shown);
            assert!(
                shown.contains(&format!("\"root_hash\":\"{root}\"")),
                "{number}: {root}: {shown}"
            );
            let (_, offset) = shown.split_once("\"hash_offset\":").unwrap();
            let offset: u64 = offset.split([',', '}']).next().unwrap().parse().unwrap();
            assert!(offset >= odd && offset.is_multiple_of(4096), "{number}: {offset} of {odd}");
            let verify = |tree: &Path, offset: u64| {
                let offset = format!("--hash-offset={offset}");
                Run::new(&veritysetup)
                    .arg("verify")
                    .arg(&image)
                    .arg(tree)
                    .args([&root, &offset])
                    .run()
                    .success();
            };
            verify(&image, offset);
            // The image before the tree, alone: with the tree in a file of its own, and its digest.
            let file = fs::File::options().write(true).open(&image).unwrap();
            file.set_len(offset).unwrap();
            assert_eq!(
                format(&image, &[seal, &["--hash-file", tree.to_str().unwrap()]].concat()),
                root
            );
            verify(&tree, 0);
            ferofs()
                .args(["verity", "verify"])
                .arg(&image)
                .args([&root, "--hash-file"])
                .arg(&tree)
                .run()
                .success();
            if seal.is_empty() {
                let digest = ferofs().args(["verity", "digest"]).arg(&image).run().success().stdout;
                let digest = text(digest);
                let theirs = text(
                    Run::new(&fsverity)
                        .args(["digest", "--compact"])
                        .arg(&image)
                        .run()
                        .success()
                        .stdout,
                );
                assert_eq!(digest, format!("dm-verity: {root}\nfs-verity: sha256:{theirs}"));
            }
        }
    }
}

#[test]
fn a_seal_is_replaced_and_wrong_arguments_are_refused() {
    let (fixture, image) = Fixture::with_image(&tree::Options::small());
    let len = fs::metadata(&image).unwrap().len();
    let root = format(&image, &[]);
    let sealed = fs::read(&image).unwrap();
    assert_ne!(format(&image, &["--salt", "1234"]), root);
    assert_eq!(format(&image, &[]), root);
    assert!(fs::read(&image).unwrap() == sealed, "the same seal as the first one");
    let extracted = fixture.path("extracted");
    ferofs().args(["extract", "--roothash", &root]).args([&image, &extracted]).run().success();
    fixture.assert_same_as_source(&extracted);

    let verity = |arguments: &[&str]| ferofs().arg("verity").args(arguments).arg(&image).run();
    for wrong in [
        &["format", "--salt", "0"][..],
        &["format", "--salt", "zz"],
        &["format", "--hash", "md5"],
        &["format", "--data-block-size", "4095"],
        &["format", "--hash-file", image.to_str().unwrap()],
        &["show", "--hash-offset", "0"],
        &["show", "--hash-offset", "18446744073709551615"],
    ] {
        assert_ne!(verity(wrong).code, 0, "{wrong:?}");
    }
    assert!(fs::read(&image).unwrap() == sealed, "refused commands write nothing");
    let list = |options: &[&str]| ferofs().arg("ls").args(options).arg(&image).run();
    assert_eq!(list(&["--roothash", "12"]).code, 2);
    list(&["--roothash", &"0".repeat(64)]).failure(1);
    list(&["--roothash", &root, "--hash-offset", "4096"]).failure(1);
    list(&["--roothash", &root, "--device", "/dev/null"]).failure(1);
    fs::File::options().write(true).open(&image).unwrap().set_len(len).unwrap();
    list(&["--roothash", &root]).failure(1);
}

#[test]
fn no_output_replaces_another_file_of_the_command() {
    let (fixture, image) = Fixture::with_image(&tree::Options::small());
    let (before, name) = (fs::read(&image).unwrap(), image.display().to_string());
    let tree = fixture.path("tree").display().to_string();
    for wrong in [
        &["--roothash-file", &name][..],
        &["--hash-file", &tree, "--roothash-file", &tree],
        &["--hash-file", &name],
        &["--hash-block-size", "65536"],
        &["--hash-file", &tree, "--data-block-size", "65536"],
    ] {
        ferofs().args(["verity", "format"]).arg(&image).args(wrong).run().failure(1);
        assert!(fs::read(&image).unwrap() == before, "{wrong:?}: the image was changed");
        assert!(!fixture.path("tree").exists(), "{wrong:?}: a tree was written");
    }
    // What follows the image, for example the tree of an interrupted command, is no part of it.
    fs::write(&image, [&before[..], &[0; 4096], &[7; 4096]].concat()).unwrap();
    let refused = ferofs().args(["verity", "format"]).arg(&image).run().failure(1);
    assert!(refused.stderr.contains("other data follows"), "{}", refused.stderr);
}

#[test]
fn a_seal_of_a_part_or_of_hashes_is_refused() {
    let fixture = Fixture::new(&tree::Options { largest: 3_000_000, ..tree::Options::small() });
    let (image, seal) = (fixture.build("image", ["--compress", "lz4"]), fixture.path("seal"));
    let root = format(&image, &["--hash-file", seal.to_str().unwrap()]);
    let (bytes, tree) = (fs::read(&image).unwrap(), fs::read(&seal).unwrap());
    let blocks = bytes.len() as u64 / 4096;
    let check = |image: &[u8], blocks: u64, tree: &[u8]| {
        let (image_path, tree_path) = (fixture.path("forged"), fixture.path("forged-tree"));
        let mut tree = tree.to_vec();
        tree[40..48].copy_from_slice(&blocks.to_le_bytes());
        fs::write(&image_path, image).unwrap();
        fs::write(&tree_path, tree).unwrap();
        let verify =
            ferofs().args(["verity", "verify", "--hash-file"]).args([&tree_path, &image_path]);
        let list = ferofs()
            .args(["ls", "--roothash", &root, "--hash-file"])
            .args([&tree_path, &image_path]);
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
fn a_sealed_image_that_is_cut_off_is_called_so() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "content ".repeat(100_000)).unwrap();
    let (image, beside) =
        (fixture.build("image", ["-z", "none"]), fixture.build("beside", ["-z", "none"]));
    let len = fs::metadata(&image).unwrap().len();
    let tree = fixture.path("tree");
    let root = format(&image, &[]);
    format(&beside, &["--hash-file", tree.to_str().unwrap()]);
    let sealed = fs::metadata(&image).unwrap().len();
    // In the tree, at its start, and in the image.
    for size in [sealed - 4096, len, len - 4096] {
        let cut = fixture.path("cut");
        fs::write(&cut, &fs::read(&image).unwrap()[..size as usize]).unwrap();
        let told =
            ferofs().args(["check", "--roothash", root.trim()]).arg(&cut).run().failure(8).stderr;
        let expected = format!("but the file at byte {size}: it is cut off");
        assert!(
            told.contains("the hash tree ends at byte") && told.contains(&expected),
            "{size}: {told}"
        );
    }
    fs::File::options().write(true).open(&beside).unwrap().set_len(len - 4096).unwrap();
    let check =
        ferofs().args(["check", "--roothash", root.trim(), "--hash-file"]).args([&tree, &beside]);
    let told = check.run().failure(8).stderr;
    let expected =
        format!("the image ends at byte {len} or later, but the file at byte {}", len - 4096);
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn systemd_finds_the_files_beside_an_image() {
    let Some(dissect) = need::tool("systemd-dissect", "sealed images for systemd") else { return };
    require!(need::kernel_erofs("sealed images for systemd"));
    let fixture = Fixture::empty();
    let release = fixture.source().join("usr/lib/os-release");
    fs::create_dir_all(release.parent().unwrap()).unwrap();
    fs::write(release, "ID=sealed\nVERSION_ID=1\n").unwrap();
    // systemd 252 looks for no files beside an image in a tmpfs without user xattrs.
    let dir = tempfile::tempdir_in(ferofs_tests::scratch::target_dir()).unwrap();
    let image = dir.path().join("image.raw");
    ferofs().args(["build", "-z", "lz4"]).arg(fixture.source()).arg(&image).run().success();
    let dissected =
        || text(Run::new(&dissect).arg("--json=short").arg(&image).run().success().stdout);
    // It looks for the root hash beside the image, and then needs the hash tree.
    assert!(!dissected().contains(r#""verity":"external""#), "there is no seal yet");
    let root = format(&image, &["--sidecar", "systemd"]);
    let shown = dissected();
    for expected in [r#""fstype":"erofs""#, r#""verity":"external""#, r#""ID=sealed""#] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("image.roothash")).unwrap().trim(), root);
    let verify =
        Run::new(need::tool("veritysetup", "hash trees by cryptsetup").unwrap()).arg("verify");
    verify.args([&image, &dir.path().join("image.verity")]).arg(root).run().success();
}

const BUILDS: [&[&str]; 8] = [
    &[],
    &["-z", "lz4"],
    &["-z", "lz4hc,9", "-C", "65536", "-E", "ztailpacking,dedupe"],
    &["-z", "zstd,1", "-C", "1M", "-E", "all-fragments"],
    &["-z", "deflate,3", "-E", "48bit", "-m", "4096"],
    &["-z", "lzma,1", "--workers", "1"],
    &["-b", "512"],
    &["--preset", "android"],
];

#[test]
fn an_image_is_sealed_while_it_is_written() {
    let fixture = Fixture::new(&tree::Options { largest: 3_000_000, ..tree::Options::small() });
    for options in BUILDS {
        let fixed = [
            "-T",
            "1700000000",
            "-U",
            "d2c9a3b4-0000-4000-8000-00000000abcd",
            "--verify",
            "--json",
        ];
        let build = |name: &str, more: &[&str]| {
            let image = fixture.path(name);
            let build = ferofs().arg("build").args(fixed).args(options).args(more);
            let build = build.arg(fixture.source()).arg(&image);
            let json = String::from_utf8(build.run().success().stdout).unwrap();
            (image, json)
        };
        let (formatted, _) = build("formatted", &[]);
        let root = ferofs().args(["verity", "format"]).arg(&formatted).run().success().stdout;
        let root = String::from_utf8(root).unwrap().trim().to_owned();
        let (appended, json) = build("appended", &["--verity"]);
        assert!(json.contains(&format!("\"roothash\":\"{root}\"")), "{options:?}: {json}");
        assert!(
            fs::read(&appended).unwrap() == fs::read(&formatted).unwrap(),
            "{options:?}: other bytes"
        );
        ferofs().args(["verity", "verify"]).arg(&appended).arg(&root).run().success();

        let (tree, text) = (fixture.path("tree"), fixture.path("root"));
        let files =
            [format!("--verity={}", tree.display()), format!("--roothash-file={}", text.display())];
        let (plain, _) = build("plain", &[&files[0], &files[1]]);
        let root = fs::read_to_string(text).unwrap();
        ferofs()
            .args(["verity", "verify", "--hash-file"])
            .args([&tree, &plain])
            .arg(&root)
            .run()
            .success();
        let same =
            ferofs().args(["diff", "--quiet", "--roothash", &root, "--hash-file"]).arg(&tree);
        same.arg(&plain).arg(fixture.source()).run().success();
        ferofs()
            .args(["ls", "--roothash", &"0".repeat(64), "--hash-file"])
            .args([&tree, &plain])
            .run()
            .failure(1);
    }
}

#[test]
fn a_sealed_image_is_not_patched() {
    let (fixture, image) = Fixture::with_image(&tree::Options::small());
    let (patch, more) = (fixture.path("patch"), fixture.path("more"));
    fs::create_dir(&more).unwrap();
    fs::write(more.join("new"), "content ".repeat(10_000)).unwrap();
    let sealed = fixture.path("sealed");
    fs::copy(&image, &sealed).unwrap();
    ferofs().args(["patch", "create"]).args([&image, &more]).arg("-o").arg(&patch).run().success();
    ferofs().args(["verity", "format"]).arg(&sealed).run().success();
    let before = fs::read(&sealed).unwrap();
    for command in [&["apply"][..], &["add"]] {
        let change = if command[0] == "apply" { &patch } else { &more };
        let refused = ferofs().arg("patch").args(command).args([&sealed, change]).run().failure(1);
        assert!(refused.stderr.contains("a seal follows the image"), "{}", refused.stderr);
        assert!(fs::read(&sealed).unwrap() == before, "{command:?}: the image was changed");
    }
    let file = fs::File::options().write(true).open(&sealed).unwrap();
    file.set_len(fs::metadata(&image).unwrap().len()).unwrap();
    ferofs().args(["patch", "apply"]).args([&sealed, &patch]).run().success();
}

#[test]
fn a_stream_is_sealed_and_wrong_combinations_are_refused() {
    let fixture = Fixture::new(&tree::Options::small());
    let root = fixture.path("root");
    let stream = ferofs()
        .args(["build", "--verity", "--roothash-file"])
        .arg(&root)
        .arg(fixture.source())
        .arg("-")
        .run();
    let (image, root_file) = (fixture.path("image"), root);
    let root = fs::read_to_string(&root_file).unwrap();
    fs::write(&image, &stream.success().stdout).unwrap();
    let verify = || ferofs().args(["verity", "verify"]).arg(&image);
    verify().arg(&root).run().success();
    verify().arg("--roothash-file").arg(&root_file).run().success();
    assert_eq!(verify().arg(&root).arg("--roothash-file").arg(&root_file).run().code, 2);
    assert_eq!(verify().run().code, 2);
    let wrong = fixture.path("wrong");
    fs::write(&wrong, "0".repeat(64)).unwrap();
    verify().arg("--roothash-file").arg(&wrong).run().failure(1);

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
        let outcome = ferofs().arg("build").args(wrong).arg(fixture.source()).arg(&image).run();
        assert_ne!(outcome.code, 0, "{wrong:?}");
        assert!(fs::read(&image).unwrap() == before, "{wrong:?}: the image was changed");
    }
}
