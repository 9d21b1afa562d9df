//! `dump.erofs` and `fsck.erofs` print what the newest erofs-utils print, line by line, for images
//! of all layouts that either `mkfs.erofs` makes.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ferofs_tests::{Outcome, Rng, Run, run};

use crate::common::erofs_utils::newest;
use crate::common::fixture::{Fixture, chmod};

/// Options of the images; in `{}` is the directory of the images.
const LAYOUTS: [&str; 22] = [
    "",
    "-Eforce-inode-extended",
    "-Enoinline_data",
    "-Enosbcrc -L label",
    "-Edot-omitted",
    "--xattr-prefix=user. --xattr-inode-digest",
    "-zlz4",
    "-zlz4 -Elegacy-compress",
    "-zlz4hc -C65536",
    "-zlz4 -Eztailpacking",
    "-zlzma -C65536 -Efragments",
    "-zzstd -C65536 -Eall-fragments,dedupe",
    "-zdeflate",
    "-zlz4:lzma:zstd",
    "-zlz4 -b512",
    "-zlz4 -E48bit",
    "-zzstd -C65536 -E48bit,fragments",
    "-zlz4 -m4096",
    "--chunksize=4096",
    "--chunksize=65536 -Eforce-chunk-indexes",
    "--chunksize=4096 --blobdev={}/device",
    "--tar=i",
];

/// Command lines; the image and its devices follow.
const LINES: [&str; 40] = [
    "dump.erofs",
    "dump.erofs -s",
    "dump.erofs -S",
    "dump.erofs -S -s",
    "dump.erofs --path=/",
    "dump.erofs --path=/ --ls",
    "dump.erofs --path=/dir --ls -e",
    "dump.erofs --path=/dir/text -e",
    "dump.erofs --path=/dir/random -e",
    "dump.erofs --path=/dir/copy -e",
    "dump.erofs --path=/small.txt -e",
    "dump.erofs --path=/hard",
    "dump.erofs --path=small.txt",
    "dump.erofs --path=/dir//../dir/ -e",
    "dump.erofs --path=/link -e",
    "dump.erofs --path=/fifo -e",
    "dump.erofs --path=/socket",
    "dump.erofs --path=/empty -e",
    "dump.erofs --path=/sparse -e",
    "dump.erofs --path=/dir/sticky",
    "dump.erofs --path=/nothing",
    "dump.erofs --path=/small.txt --ls",
    "dump.erofs -s --path=/small.txt",
    "dump.erofs --cat --path=/dir/text",
    "dump.erofs --cat --path=/sparse",
    "dump.erofs --cat --path=/link",
    "dump.erofs --cat --path=/nothing",
    "dump.erofs --cat -s --path=/small.txt",
    "dump.erofs --cat -e --path=/small.txt",
    "dump.erofs --cat",
    "dump.erofs -s -e",
    "dump.erofs -e",
    "dump.erofs --nid=36",
    "dump.erofs --nid=0x24 --ls",
    "dump.erofs --nid=044 --path=/small.txt",
    "dump.erofs --nid=99999999",
    "fsck.erofs",
    "fsck.erofs -p --no-sbcrc",
    "fsck.erofs -d3 -p",
    "fsck.erofs --path=/nothing",
];

#[test]
fn dump_and_fsck_print_the_same_as_erofs_utils() {
    let Some(peer) = newest("dump.erofs") else { return };
    let peers = peer.parent().unwrap();
    let fixture = Fixture::empty();
    let source = fixture.source();
    make_tree(&source);
    let archive = fixture.path("archive");
    // GNU tar leaves out sockets, and reports this with its exit code.
    run!("tar -C", source.to_str().unwrap(), "-cf", &archive, ".").run();
    let links = fixture.links();
    for builder in [peers, &links] {
        for layout in LAYOUTS {
            let dir = fixture.directory("images");
            let image = dir.join("image");
            let layout = layout.replace("{}", dir.to_str().unwrap());
            let (from, devices) = match layout.as_str() {
                "--tar=i" => (&archive, vec![archive.clone()]),
                _ => (
                    &source,
                    [dir.join("device")]
                        .into_iter()
                        .filter(|file| layout.contains(file.to_str().unwrap()))
                        .collect(),
                ),
            };
            let mkfs = Run::new(builder.join("mkfs.erofs")).args([
                "--quiet",
                "-T1700000000",
                "--mkfs-time",
            ]);
            mkfs.args(layout.split_whitespace()).args([&image, from]).success();
            assert_same_output(
                peers,
                &links,
                &image,
                &devices,
                &format!("{}, {layout}", builder.display()),
            );
            fs::remove_dir_all(dir).unwrap();
        }
        // A merged image has its data in the layers.
        let layers = ["one", "two"].map(|name| fixture.path(name));
        let image = fixture.path("merged");
        let mkfs = || Run::new(builder.join("mkfs.erofs")).arg("--quiet");
        for layer in &layers {
            mkfs().arg("-Enoinline_data").args([layer, &source]).success();
        }
        mkfs().arg(&image).args(&layers).success();
        assert_same_output(
            peers,
            &links,
            &image,
            &layers,
            &format!("{}, merged", builder.display()),
        );
    }
}

/// Fails unless all programs print the same with and without the extra devices.
fn assert_same_output(
    peers: &Path,
    links: &Path,
    image: &Path,
    devices: &[PathBuf],
    context: &str,
) {
    for line in LINES {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let run = |directory: &Path, devices: &[PathBuf]| {
            let devices = devices.iter().map(|device| format!("--device={}", device.display()));
            let run = Run::new(directory.join(program))
                .env("TZ", "EST5")
                .args(arguments.split_whitespace());
            run.args(devices).arg(image).run()
        };
        assert_same(&run(links, devices), &run(peers, devices), &format!("{context}: {line}"));
        // Without the devices, only data is missing. erofs-utils write zeroes for it, and then
        // fail.
        if !devices.is_empty() && program == "dump.erofs" && !line.contains("--cat") {
            assert_same(
                &run(links, &[]),
                &run(peers, &[]),
                &format!("{context}, no devices: {line}"),
            );
        }
    }
}

fn assert_same(own: &Outcome, peer: &Outcome, context: &str) {
    let text = |outcome: &Outcome| {
        let text = outcome.text();
        if !context.contains("sparse -e") {
            return text;
        }
        // erofs-utils print any address for a hole.
        text.lines()
            .map(|line| line.split(" : ").next().unwrap_or_default().to_owned() + "\n")
            .collect()
    };
    // The sign of 0/0 depends on the processor.
    let expected = text(peer).replace(" nan%", " -nan%");
    assert_eq!(text(own), expected, "{context}: {}{}", own.stderr, peer.stderr);
    // Newer features of the format are not experimental in ferofs, and erofs-utils count the extent
    // before a fragment twice.
    let differs = |line: &str| {
        ["EXPERIMENTAL", "No in-memory cache"].iter().any(|text| line.contains(text))
            || line.contains("Compression ratio") && context.contains("fragments")
    };
    let lines = |outcome: &Outcome, information: bool| -> Vec<String> {
        let lines = outcome.stderr.lines().filter(|line| line.starts_with("<I>") == information);
        lines.filter(|line| !differs(line)).map(str::to_owned).collect()
    };
    assert_eq!(lines(own, true), lines(peer, true), "{context}");
    // erofs-utils print an error and exit with 0; ferofs has another exit code then.
    let failed = peer.code != 0 || !lines(peer, false).is_empty();
    assert_eq!(
        own.code != 0,
        failed,
        "{context}: {} {}, {} {}",
        own.code,
        own.stderr,
        peer.code,
        peer.stderr
    );
    assert_eq!(lines(own, false).is_empty(), !failed, "{context}: {}", own.stderr);
}

#[test]
fn what_erofs_utils_ignore_is_an_error() {
    let fixture = Fixture::empty();
    fixture.build("image", [""; 0]);
    fixture.tool("dump.erofs --ls @image").failure(1).says("--path");
    for option in ["--force", "--overwrite", "--preserve", "--no-preserve-owner"] {
        // As erofs-utils, and not as fsck(8).
        let fsck = fixture.tool(&format!("fsck.erofs {option} @image"));
        fsck.fails(1, "needs --extract=DIR");
    }
    assert_eq!(fixture.tool("fsck.erofs -d10 @image").run().code, 1);
}

/// As Linux and erofs-utils: a device too many is that of another image.
#[test]
fn more_devices_than_the_image_has_are_refused() {
    let fixture = Fixture::empty();
    fixture.build("image", [""; 0]);
    for command in ["fsck.erofs", "dump.erofs", "ferofs ls", "ferofs check", "ferofs inspect"] {
        let outcome = fixture.tool(&format!("{command} --device=@image @image")).run();
        assert_ne!(outcome.code, 0, "{command}");
        outcome.says("more devices were given");
    }
}

#[test]
fn a_wrong_checksum_matters_only_to_fsck() {
    let fixture = Fixture::empty();
    let image = fixture.build("image", [""; 0]);
    let mut bytes = fs::read(&image).unwrap();
    // The label.
    bytes[1024 + 64] ^= 1;
    fs::write(&image, bytes).unwrap();
    fixture.tool("fsck.erofs @image").failure(1).says("checksum");
    fixture.tool("fsck.erofs --no-sbcrc @image").success();
    fixture.tool("fsck.erofs --no-sbcrc --extract=@out @image").success();
    fixture.tool("dump.erofs -s @image").success();
}

#[test]
fn fsck_verifies_the_digests_of_files() {
    let fixture = Fixture::empty();
    fixture.write("file", "content of a file, ".repeat(1000));
    fixture.write("empty", "");
    let build = |options: &str| {
        let mkfs = format!("mkfs.erofs --quiet -Enosbcrc {options} @image @source");
        fixture.tool(&mkfs).success();
    };
    let options = "--xattr-inode-digest -d3 @image";
    let fsck = || fixture.tool(&format!("fsck.erofs {options}"));
    build("");
    fsck().failure(1).says("--xattr-inode-digest");
    build("--xattr-inode-digest=user.digest");
    let text = fsck().success().stderr;
    let is_used = text.contains("using xattr \"user.digest\"\n");
    assert!(is_used && text.ends_with("<I> erofs: No errors found\n"), "{text}");
    if let Some(peer) = newest("fsck.erofs") {
        assert_eq!(Run::new(peer).args(fixture.words(options)).success().stderr, text);
    }
    let image = fixture.path("image");
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(17).position(|window| window == b"content of a file").unwrap();
    bytes[at] = b'C';
    fs::write(&image, bytes).unwrap();
    fsck().failure(1).says("file: the content has another digest");
}

/// Files of all types that need no root, of sizes and contents for all layouts.
fn make_tree(root: &Path) {
    let dir = root.join("dir");
    fs::create_dir_all(dir.join("sticky")).unwrap();
    for number in 0..300 {
        fs::write(dir.join(format!("name-{number}.rc")), "").unwrap();
    }
    let text: String = (0..40_000).map(|number| format!("{number}\n")).collect();
    fs::write(dir.join("text"), &text).unwrap();
    fs::write(dir.join("copy"), &text).unwrap();
    let mut random = vec![0; 150_000];
    Rng::new(5).fill(&mut random);
    fs::write(dir.join("random"), random).unwrap();
    fs::write(root.join("small.txt"), &text[..5000]).unwrap();
    fs::hard_link(root.join("small.txt"), root.join("hard")).unwrap();
    for name in ["empty", "a.tx", "b.", ".s", "c.xml2", "d.so"] {
        fs::write(root.join(name), &name[..if name == "empty" { 0 } else { 1 }]).unwrap();
    }
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 70_000).unwrap();
    sparse.set_len(100_000).unwrap();
    symlink("small.txt", root.join("link")).unwrap();
    run!("mkfifo", root.join("fifo")).success();
    drop(UnixListener::bind(root.join("socket")).unwrap());
    chmod(root.join("a.tx"), 0o4755);
    chmod(dir.join("sticky"), 0o1777);
}
