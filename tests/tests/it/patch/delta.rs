//! Exact deltas: the command and the program for devices make the same new image, through pipes,
//! after an interruption, and within the memory that the delta states.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use ferofs_tests::{
    Content, LoopDevice, Rng, Run, ferofs, ferofs_path, ferofs_with_fault, need, run,
};

use super::growth::number;
use crate::common::erofs_utils::newest;
use crate::common::fixture::Fixture;

/// A fixture with two images, `old` and `new`, which have these options.
pub(super) fn images(options: &str) -> Fixture {
    images_by(|fixture, name| drop(fixture.build(name, options.split(' '))))
}

/// A fixture with two images of its source, which `build` makes.
fn images_by(build: impl Fn(&Fixture, &str)) -> Fixture {
    let fixture = Fixture::empty();
    let write = |name: &str, bytes: &[u8]| fixture.write(name, bytes);
    let mut bytes = Content::Mixed.bytes(3_000_000, &mut Rng::new(1));
    write("file", &bytes);
    build(&fixture, "old");
    (0..bytes.len()).step_by(70_000).for_each(|at| bytes[at] ^= 0x55);
    write("file", &bytes);
    write("new", &Content::Text.bytes(3_000_000, &mut Rng::new(77)));
    build(&fixture, "new");
    fixture
}

pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}

#[test]
fn the_exact_image_comes_through_pipes_and_after_interruptions() {
    let fixture = images("-z lz4 --verity");
    let [old, new, delta, out] = ["old", "new", "delta", "out"].map(|name| fixture.path(name));
    ferofs!("delta create -o", &delta, &old, &new).success();
    let apply = || ferofs!("delta apply");
    apply().args([&old, &delta, &out]).success();
    assert!(is_same(&new, &out));
    let piped = apply().arg(&old).args(["-", "-"]).input(fs::File::open(&delta).unwrap()).success();
    assert!(piped.stdout == fs::read(&new).unwrap());
    // Another old image: the file stays as it is.
    let refused = apply().args([&new, &delta, &out]).run();
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    refused.says("not the image that the delta was made from");
    assert!(is_same(&new, &out));
    if let Some(strace) = need::tool("strace") {
        fs::remove_file(&out).unwrap();
        let stopped = ferofs_with_fault(&strace, "pwrite64", "signal=TERM", 1);
        let stopped = stopped.args(["delta", "apply"]).args([&old, &delta, &out]).failure(1);
        stopped.says("interrupted; NEW does not exist yet, and --resume continues");
        assert!(!out.exists());
        apply().arg("--resume").args([&old, &delta, &out]).success();
        assert!(is_same(&new, &out));
    }
    // The last bytes are missing, and some are wrong.
    let mut part = fs::read(&new).unwrap();
    part.truncate(part.len() - 9000);
    part[3 << 19] ^= 1;
    fs::write(fixture.path(".out.part"), part).unwrap();
    let resumed = apply().args(["--resume", "--json"]).args([&old, &delta, &out]).success();
    assert!(resumed.text().contains("\"resumed\":1048576"), "{resumed:?}");
    assert!(is_same(&new, &out));
    if let Some(device) = need::device_program() {
        fs::remove_file(&out).unwrap();
        Run::new(&device).arg("delta").args([&old, &delta, &out]).success();
        assert!(is_same(&new, &out));
        let shown = Run::new(&device).arg("delta-show").arg(&delta).success().text();
        assert!(shown.starts_with("old image "));
        let same = ferofs!("delta show", &delta).success().text();
        for name in ["root hash ", "digest "] {
            let line = same.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(shown.lines().any(|other| other == line), "{line} is not in {shown}");
        }
    }
}

#[test]
fn lz4_of_erofs_utils_is_encoded_again() {
    let Some(mkfs) = newest("mkfs.erofs") else { return };
    for options in ["-zlz4", "-zlz4hc,12 -C65536", "-zlz4hc -Eztailpacking"] {
        let fixture = images_by(|fixture, name| {
            let run = Run::new(&mkfs).args(["--quiet", "-T1700000000"]).args(options.split(' '));
            run.args([fixture.path(name), fixture.source()]).success();
        });
        let [old, new, delta, out] = ["old", "new", "delta", "out"].map(|name| fixture.path(name));
        for is_portable in [false, true] {
            let create = ferofs!("delta create --json --force -o", &delta, &old, &new);
            let made = create.args(is_portable.then_some("--portable")).success().text();
            let (encoded, carried) = (number(&made, "encoded"), number(&made, "carried"));
            // Content that hardly shrinks is encoded in another way now and then.
            assert!(
                if is_portable { encoded == 0 } else { carried * 4 < encoded },
                "{options}: {made}"
            );
            ferofs!("delta apply --force", &old, &delta, &out).success();
            assert!(is_same(&new, &out), "{options}");
        }
    }
}

#[test]
fn versions_in_names_hide_no_resemblance() {
    let fixture = Fixture::empty();
    let mut rng = Rng::new(5);
    let [mut kernel, mut module] =
        [1_500_000, 300_000].map(|len| Content::Noise.bytes(len, &mut rng));
    let other = Content::Noise.bytes(300_000, &mut rng);
    for (version, image) in [("6.1.0-9", "old"), ("6.1.0-10", "new")] {
        let dir = fixture.source();
        fs::remove_dir_all(&dir).unwrap();
        for (name, bytes) in [("net", &module), ("fs", &other)] {
            let dir = dir.join("modules").join(version).join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("main.ko"), bytes).unwrap();
        }
        fs::write(dir.join(format!("vmlinuz-{version}")), &kernel).unwrap();
        fixture.build(image, ["-z", "lz4"]);
        (kernel[7], module[7]) = (!kernel[7], !module[7]);
    }
    let [old, new, delta, patch] = ["old", "new", "delta", "patch"].map(|name| fixture.path(name));
    ferofs!("delta create -o", &delta, &old, &new).success();
    let source = fixture.source();
    ferofs!("patch create -o", &patch, &old, &source).success();
    for made in [delta, patch] {
        let len = fs::metadata(&made).unwrap().len();
        assert!(len < 20_000, "{}: {len}", made.display());
    }
}

#[test]
fn each_error_names_its_file() {
    let fixture = images("-z lz4");
    let [old, new, delta, out, bad] =
        ["old", "new", "delta", "out", "bad"].map(|name| fixture.path(name));
    let refused = |run: Run, file: &str, reason: &str| {
        let refused = run.run();
        let line = refused.stderr.split_once(": ").map_or("", |(_, line)| line);
        assert!(
            refused.code != 0 && line.starts_with(file) && line.contains(reason),
            "{}",
            refused.stderr
        );
    };
    let create = |old: &Path| ferofs!("delta create -o", &delta, old, &new);
    create(&old).success();
    let whole = fs::read(&delta).unwrap();
    let attach = |image: &Path, options: &[&str]| LoopDevice::attach(image, options);
    let loop_devices = attach(&old, &[]).zip(attach(&new, &["--read-only"]));
    let mut programs = vec![vec![ferofs_path().to_owned(), "delta".into(), "apply".into()]];
    if let Some(device) = need::device_program() {
        programs.push(vec![device, "delta".into()]);
    }
    for program in programs {
        let apply = || Run::new(&program[0]).args(&program[1..]);
        let name = |path: &Path| format!("{}: ", path.display());
        // No header, no piece, and not all pieces.
        for len in [30, 300, whole.len() - 1] {
            fs::write(&bad, &whole[..len]).unwrap();
            refused(
                apply().args([&old, &bad, &out]),
                &name(&bad),
                if len < 32 { "delta" } else { "cut off" },
            );
        }
        fs::write(&bad, [&whole[..], b"x"].concat()).unwrap();
        refused(apply().args([&old, &bad, &out]), &name(&bad), "after the patch or delta");
        refused(ferofs!("delta show", &bad), &name(&bad), "after the patch or delta");
        let _ = fs::remove_file(&out);
        // The new image has another name of an input.
        let link = fixture.path("link");
        for input in [&old, &delta] {
            fs::hard_link(input, &link).unwrap();
            let before = fs::read(input).unwrap();
            refused(apply().args([&old, &delta, &link]), &name(&link), "also");
            assert!(fs::read(input).unwrap() == before, "an input was written");
            fs::remove_file(&link).unwrap();
        }
        if let Some((device, read_only)) = &loop_devices {
            refused(apply().args([&old, &delta]).arg(device), &name(device.path()), "also");
            refused(
                apply().arg("--force").args([&old, &delta]).arg(read_only),
                &name(read_only.path()),
                "`blockdev --setrw`",
            );
        }
        // Other data is replaced by request only.
        fs::write(&out, "a letter").unwrap();
        refused(apply().args([&old, &delta, &out]), &name(&out), "--force replaces it");
        assert_eq!(fs::read(&out).unwrap(), b"a letter");
        apply().arg("--force").args([&old, &delta, &out]).success();
        assert!(is_same(&new, &out));
        fs::remove_file(&out).unwrap();
        // A misspelt device is not a new file in memory, also by a link.
        let (missing, link) =
            (PathBuf::from("/dev/ferofs-test-no-such-device"), fixture.path("slot"));
        let file_system = |dir: &str| fs::metadata(dir).unwrap().dev();
        if file_system("/dev") != file_system("/") {
            symlink(&missing, &link).unwrap();
            for name_of_slot in [&missing, &link] {
                let run = apply().arg("--force").args([&old, &delta, name_of_slot]);
                refused(run, &name(name_of_slot), "no such device");
            }
            fs::remove_file(&link).unwrap();
            let build = ferofs!("build --force", fixture.source(), &missing);
            refused(build, &name(&missing), "no such device");
            assert!(fs::symlink_metadata(&missing).is_err(), "there is a file in /dev");
        }
        let pipe = fixture.path("pipe");
        run!("mkfifo", &pipe).success();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        apply().args([&old, &delta, &pipe]).success();
        assert!(
            reader.join().unwrap() == fs::read(&new).unwrap(),
            "other bytes came through the pipe"
        );
        fs::remove_file(&pipe).unwrap();
        refused(
            apply().arg("--resume").args([&old, &delta, Path::new("-")]),
            "standard output: ",
            "leave out --resume",
        );
        // Nothing was written, so there is no empty file.
        fs::write(&bad, b"other").unwrap();
        refused(apply().args([&bad, &delta, &out]), &name(&bad), "");
        assert!(!out.exists(), "an empty file is left");
        refused(
            apply().args([&fixture.path("none"), &delta, &out]),
            &name(&fixture.path("none")),
            "No such file",
        );
        // A full disk, and a limit of the size of files, as a disk that gets full.
        let shell =
            |script: &str| Run::new(Path::new("sh")).args(["-c", script, "sh"]).args(&program);
        refused(
            shell("\"$@\" > /dev/full").args([old.as_path(), &delta, Path::new("-")]),
            "standard output: ",
            "No space left",
        );
        refused(
            shell("trap '' XFSZ; ulimit -f 1024; \"$@\"").args([&old, &delta, &out]),
            &name(&out),
            "File too large",
        );
        assert!(!out.exists() && !fixture.path(".out.part").exists(), "a part is left");
    }
    drop(loop_devices);
    fs::write(&bad, [0; 9000]).unwrap();
    refused(create(&bad), &format!("{}: ", bad.display()), "not an EROFS image");
    let source = fixture.source();
    refused(create(&source), &format!("{}: ", source.display()), "`ferofs build` makes one of it");
}

#[test]
fn applying_takes_at_most_the_stated_memory() {
    let Some(time) = need::tool("time") else { return };
    for options in [
        "-z lz4",
        "-z lz4,12 -C 64K",
        "-z zstd,9 -C 128K",
        "-z lzma,6 -C 64K",
        "-z deflate,6 -C 64K",
    ] {
        let fixture = images(options);
        let [old, new, delta, out, memory] =
            ["old", "new", "delta", "out", "memory"].map(|name| fixture.path(name));
        ferofs!("delta create -o", &delta, &old, &new).success();
        let shown = ferofs!("delta show --json", &delta).success();
        let bound = number(&shown.text(), "memory");
        let run = Run::new(&time).args(["-f", "%M", "-o"]).arg(&memory).arg(ferofs_path());
        run.args(["delta", "apply"]).args([&old, &delta, &out]).success();
        let peak = fs::read_to_string(&memory).unwrap().trim().parse::<u64>().unwrap() << 10;
        assert!(peak <= bound, "{options}: {peak} bytes, {bound} stated");
        assert!(is_same(&new, &out), "{options}");
    }
}

/// Both images are read when their bytes are needed.
#[test]
fn memory_for_making_a_delta_does_not_grow_with_the_images() {
    let fixture = Fixture::empty();
    let mut bytes = Content::Noise.bytes(300_000_000, &mut Rng::new(3));
    for name in ["old", "new"] {
        fixture.write("file", &bytes);
        fixture.build(name, ["-z", "none"]);
        // All of it moves, and some bytes are new.
        bytes.splice(1_000_000..1_000_000, *b"inserted");
        bytes[200_000_000..200_100_000].reverse();
    }
    let [old, new, delta, out] = ["old", "new", "delta", "out"].map(|name| fixture.path(name));
    let made = ferofs!("delta create -o", &delta, &old, &new).success();
    assert!(made.peak < 200 << 20, "{} bytes of memory", made.peak);
    assert!(fs::metadata(&delta).unwrap().len() < 150_000);
    ferofs!("delta apply", &old, &delta, &out).success();
    assert!(is_same(&new, &out));
}

/// Metadata that copies have is not predicted.
#[test]
fn a_delta_to_a_patched_image_is_as_short_as_the_patch() {
    for options in ["-z none", "-z lz4", "-z lz4 -m 4096"] {
        let fixture = Fixture::empty();
        for number in 0..600 {
            let bytes = Content::Text.bytes(300 + number * 9, &mut Rng::new(number as u64));
            fixture.write(format!("directory-{}/file-{number}", number / 20), &bytes);
        }
        fixture.build("old", options.split(' '));
        fixture.write("directory-7/file-145", b"other content");
        let [old, new, patch, delta] =
            ["old", "new", "patch", "delta"].map(|name| fixture.path(name));
        ferofs!("patch create -o", &patch, &old, fixture.source()).success();
        fs::copy(&old, &new).unwrap();
        ferofs!("patch apply", &new, &patch).success();
        ferofs!("delta create -o", &delta, &old, &new).success();
        let [patch, delta] = [patch, delta].map(|path| fs::metadata(path).unwrap().len());
        assert!(delta < patch + patch / 2 + 200, "{options}: {delta}, the patch {patch}");
    }
}

#[test]
fn pclusters_that_no_compressor_makes_have_old_bytes() {
    let mkfs = newest("mkfs.erofs");
    for (is_portable, options) in
        [(true, "-z lz4 -C 64K -E ^fragments"), (false, "-zzstd -C65536 -Eall-fragments")]
    {
        if !is_portable && mkfs.is_none() {
            continue;
        }
        let fixture = Fixture::empty();
        let mut bytes = Content::Text.bytes(3_000_000, &mut Rng::new(9));
        for image in ["old", "new"] {
            fixture.write("file", &bytes);
            bytes.splice(2_700_000..2_700_000, *b"inserted");
            match &mkfs {
                Some(mkfs) if !is_portable => {
                    let run =
                        Run::new(mkfs).args(["--quiet", "-T1700000000"]).args(options.split(' '));
                    run.args([fixture.path(image), fixture.source()]).success();
                }
                _ => drop(fixture.build(image, options.split(' '))),
            }
        }
        let [old, new, delta, out] = ["old", "new", "delta", "out"].map(|name| fixture.path(name));
        let create = ferofs!("delta create --json -o", &delta, &old, &new);
        let made = create.args(is_portable.then_some("--portable")).success().text();
        assert!(number(&made, "delta") * 6 < number(&made, "new"), "{options}: {made}");
        ferofs!("delta apply", &old, &delta, &out).success();
        assert!(is_same(&new, &out), "{options}");
    }
}

/// Content and most of its pclusters take more than the pclusters alone.
#[test]
fn a_delta_is_not_longer_than_what_it_carries() {
    for options in
        ["-z zstd,3 -C 12K -E 48bit", "-z zstd,3 -C 16K -E 48bit --max-extent-bytes 20000"]
    {
        let fixture = Fixture::empty();
        fixture.build("old", options.split(' '));
        fixture.write("text", Content::Text.bytes(300_000, &mut Rng::new(8)));
        fixture.build("new", options.split(' '));
        let [old, new, delta] = ["old", "new", "delta"].map(|name| fixture.path(name));
        let len = |form: &[&str]| {
            let create = ferofs!("delta create --json --force -o", &delta, &old, &new);
            number(&create.args(form).success().text(), "delta")
        };
        let (own, portable) = (len(&[]), len(&["--portable"]));
        assert!(own < portable + portable / 50, "{options}: {own}, {portable} that carries all");
    }
}

#[test]
fn a_file_with_another_name_is_found_by_its_bytes() {
    let fixture = Fixture::empty();
    let mut bytes = Content::Text.bytes(300_000, &mut Rng::new(6));
    fixture.write("before", &bytes);
    fixture.build("old", ["-z", "lz4", "-E", "^fragments"]);
    fs::remove_file(fixture.source().join("before")).unwrap();
    bytes[290_000] ^= 1;
    fixture.write("later", &bytes);
    fixture.build("new", ["-z", "lz4", "-E", "^fragments"]);
    let [old, new, delta] = ["old", "new", "delta"].map(|name| fixture.path(name));
    let made = ferofs!("delta create --json -o", &delta, &old, &new).success().text();
    assert!(number(&made, "delta") < 2_000, "{made}");
}

#[test]
fn a_level_is_found_beside_pclusters_that_all_levels_make() {
    let fixture = Fixture::empty();
    let mut rng = Rng::new(4);
    let text = Content::Text.bytes(100_000, &mut rng);
    for image in ["old", "new"] {
        fixture.write("text", [&text, image.as_bytes()].concat());
        for number in 0..5 {
            let noise = Content::Noise.bytes(14_000, &mut rng);
            fixture.write(format!("{number}"), [noise, vec![0; 30_000]].concat());
        }
        fixture.build(image, ["-z", "lz4hc,3", "-C", "64K", "-E", "^fragments"]);
    }
    let [old, new, delta] = ["old", "new", "delta"].map(|name| fixture.path(name));
    let made = ferofs!("delta create --json -o", &delta, &old, &new).success().text();
    assert!(number(&made, "carried") == 0, "{made}");
}

#[test]
fn a_small_change_makes_a_small_delta() {
    // Without fragments, padding between thousands of extents moves. With them all data after the
    // change moves, and pclusters of 1 MiB decode to more than 4 MiB. The metabox, and the last
    // LZMA pcluster, have parameters of their own.
    for (options, most) in [
        ("-z lz4 -C 4K -E ^fragments", 6_000),
        ("-z zstd,12 -C 128K -E 48bit,fragments", 6_000),
        ("--preset small", 12_000),
        ("--preset smallest", 12_000),
        ("--preset backup", 12_000),
    ] {
        let mut rng = Rng::new(3);
        let fixture = Fixture::empty();
        for number in 0..115 {
            // A third of it is new.
            let once = Content::Text.bytes(14_000 + rng.below(1_000) as usize, &mut rng);
            fixture.write(format!("{number:03}"), once.repeat(3));
        }
        fixture.build("old", options.split(' '));
        fixture.write("0015", Content::Text.bytes(9_000, &mut rng));
        fixture.build("new", options.split(' '));
        let [old, new, delta, out] = ["old", "new", "delta", "out"].map(|name| fixture.path(name));
        let create = ferofs!("delta create --json -o", &delta, &old, &new);
        let made = create.success().text();
        // The new file takes 3 kB, and an extent of 8 MB 6 kB.
        assert!(
            number(&made, "carried") == 0 && number(&made, "delta") < most,
            "{options}: {made}"
        );
        ferofs!("delta apply", &old, &delta, &out).success();
        assert!(is_same(&new, &out), "{options}");
    }
}
