//! Damaged archives give an error with the member and its position, and leave no image. Unusual but
//! valid archives give the expected tree.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ferofs_tests::tar::{Header, archive, dir, file, hard_link, member, pax, soft_link};
use ferofs_tests::{Run, ferofs, run};

use crate::common::fixture::Fixture;

/// The limit on address space, in bytes: much more than these small builds need.
const MEMORY: u64 = 1 << 30;

fn build(
    fixture: &Fixture,
    bytes: &[u8],
    options: &[&str],
) -> (PathBuf, ferofs_tests::run::Outcome) {
    let (tar, image) = (fixture.path("archive.tar"), fixture.path("image"));
    let _ = fs::remove_file(&image);
    fs::write(&tar, bytes).unwrap();
    let run = Run::limited(
        ferofs_tests::run::ferofs_path(),
        Some(MEMORY),
        std::time::Duration::from_secs(60),
    );
    let outcome = run.args(["build", "-z", "lz4"]).args(options).args([&tar, &image]).run();
    (image, outcome)
}

/// Builds an image of the archive `bytes`, and returns its paths, each with type, link target, link
/// count and data.
fn listing(bytes: &[u8], options: &[&str]) -> Vec<(String, String)> {
    let fixture = Fixture::empty();
    let (image, outcome) = build(&fixture, bytes, options);
    outcome.success();
    ferofs!("check", &image).success();
    let tree = fixture.extract(&image, "extracted");
    let listed = run!("find", &tree, "-mindepth", "1", "-printf", "%P %y%l %n\n").run();
    let mut lines: Vec<(String, String)> = listed
        .text()
        .lines()
        .map(|line| {
            let (path, what) = line.split_once(' ').unwrap();
            let content =
                fs::read(tree.join(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let content = content.ok().filter(|_| what.starts_with('f')).unwrap_or_default();
            (path.to_owned(), format!("{what} {content}").trim_end().to_owned())
        })
        .collect();
    lines.sort();
    lines
}

fn pairs(lines: &[(String, String)]) -> Vec<(&str, &str)> {
    lines.iter().map(|(path, what)| (path.as_str(), what.as_str())).collect()
}

#[test]
fn every_damage_is_reported_with_member_and_position() {
    let good = file("good", b"good");
    let huge = [&[0x80][..], &[0xff; 11]].concat();
    let truncated = |bytes: Vec<u8>, len: usize| bytes[..len].to_vec();
    for (what, bytes, message) in [
        (
            "checksum",
            [good.clone(), Header::new("bad", b'0', 0).0.to_vec()].concat(),
            "checksum is wrong",
        ),
        ("text", b"not an archive\n".repeat(100), "checksum is wrong"),
        (
            "size",
            archive(&[good.clone(), Header::new("bad", b'0', 0).with(124, &huge).bytes()]),
            "bad: the size",
        ),
        (
            "negative",
            archive(&[Header::new("bad", b'0', 0).with(124, &[0xff; 12]).bytes()]),
            "bad: the size",
        ),
        (
            "octal",
            archive(&[Header::new("bad", b'0', 0).with(124, b"0000009\0").bytes()]),
            "bad: the size",
        ),
        ("pax size", archive(&[pax(&[("size", b"-1")]), file("bad", b"")]), "bad: the size"),
        (
            "an owner that Linux has no ID for",
            archive(&[Header::new("bad", b'0', 0)
                .with(108, b"\x80\0\0\0\xff\xff\xff\xff")
                .bytes()]),
            "bad: the owner",
        ),
        ("a group", archive(&[pax(&[("gid", b"4294967295")]), file("bad", b"")]), "bad: the owner"),
        (
            "pax",
            archive(&[member(Header::new("x", b'x', 5), b"99 a="), file("bad", b"")]),
            "extended header",
        ),
        (
            "long name",
            archive(&[Header::new("x", b'L', 1 << 32).bytes()]),
            "extended header of 4294967296",
        ),
        (
            "long name that ends",
            Header::new("x", b'L', 60 << 10).bytes(),
            "the archive ends within",
        ),
        (
            "cut data",
            truncated(file("bad", &[1; 5000]), 3000),
            "bad: the archive ends within this member",
        ),
        ("cut header", [good.clone(), vec![b'a'; 100]].concat(), "at byte 1024: "),
        ("an extended header without a member", pax(&[("path", b"x")]), "the archive ends within"),
        ("nothing", Vec::new(), "the archive is empty"),
        ("zeroes and more", [vec![0; 2048], good.clone()].concat(), "it begins with zeroes"),
        ("more zeroes than an archive has", vec![0; 21 * 512], "it begins with zeroes"),
        (
            "ext4",
            [vec![0; 1080], b"\x53\xef".to_vec(), vec![0; 3014]].concat(),
            "ext4 file system; use mount",
        ),
        (
            "squashfs",
            [b"hsqs".to_vec(), vec![0; 4092]].concat(),
            "a squashfs image; use mount -o ro FILE DIR, or squashfuse FILE DIR",
        ),
        (
            "a picture",
            [b"\x89PNG\r\n".to_vec(), vec![1; 4096]].concat(),
            "not a tar archive: a PNG picture",
        ),
        ("zip", [b"PK\x03\x04".to_vec(), vec![1; 4096]].concat(), "a ZIP archive; use unzip"),
        ("a small zip", b"PK\x03\x04".repeat(20), "a ZIP archive; use unzip"),
        ("a small text", b"text\n".to_vec(), "the file is not a tar archive, or is damaged"),
        ("cpio", [b"070701".to_vec(), vec![b'0'; 4096]].concat(), "a cpio archive; use cpio"),
        (
            "qcow2",
            [b"QFI\xfb".to_vec(), vec![1; 4096]].concat(),
            "a qcow2 disk image; use qemu-img",
        ),
        ("7z", [b"7z\xbc\xaf\x27\x1c".to_vec(), vec![1; 4096]].concat(), "a 7z archive; use 7z"),
        ("bzip2", b"BZh91AY&SY".repeat(60), "bzip2 -dc FILE | ferofs build"),
        (
            "lz4",
            [b"\x04\x22\x4d\x18".to_vec(), vec![1; 4096]].concat(),
            "lz4 -dc FILE | ferofs build",
        ),
        ("a file without a name", archive(&[file("", b"x")]), "a member without a name"),
        (
            "link to nothing",
            archive(&[hard_link("bad", "nothing")]),
            "bad: a hard link to a name that does not exist",
        ),
        (
            "link ahead",
            archive(&[hard_link("bad", "good"), good.clone()]),
            "bad: a hard link to a name that does not exist",
        ),
        ("link to the root", archive(&[hard_link("bad", "/")]), "bad: a hard link to a directory"),
        (
            "link to a directory",
            archive(&[dir("d"), hard_link("bad", "d")]),
            "bad: a hard link to a directory",
        ),
        (
            "below a file",
            archive(&[good.clone(), file("good/bad", b"")]),
            "good/bad: a part of the path is not",
        ),
        (
            "below a loop",
            archive(&[soft_link("l", "l"), file("l/bad", b"")]),
            "l/bad: the path contains a loop",
        ),
        (
            "below nothing",
            archive(&[soft_link("l", "no"), file("l/bad", b"")]),
            "l/bad: a part of the path is not",
        ),
        ("a file as the root", archive(&[file("..", b"")]), "..: the root is not a directory"),
        (
            "a long name",
            archive(&[pax(&[("path", &[b'n'; 256])]), file("x", b"")]),
            "a name of more than 255",
        ),
        ("an empty target", archive(&[soft_link("bad", "")]), "bad: a symbolic link"),
        ("volumes", archive(&[Header::new("bad", b'M', 0).bytes()]), "bad: a part of an archive"),
        (
            "sparse pieces after the end",
            archive(&[
                pax(&[("GNU.sparse.size", b"5"), ("GNU.sparse.map", b"0,9")]),
                file("bad", b"123456789"),
            ]),
            "bad: a malformed map",
        ),
        (
            "a sparse map without end",
            archive(&[
                pax(&[
                    ("GNU.sparse.major", b"1"),
                    ("GNU.sparse.minor", b"0"),
                    ("GNU.sparse.realsize", b"5"),
                ]),
                file("bad", &b"9".repeat(1000)),
            ]),
            "bad: a malformed map",
        ),
    ] {
        let fixture = Fixture::empty();
        let (_, outcome) = build(&fixture, &bytes, &[]);
        let outcome = outcome.failure(1);
        outcome.says(message);
        outcome.says("archive.tar");
        let left = fs::read_dir(fixture.path("")).unwrap().count();
        assert_eq!(left, 2, "{what}: something was left beside the source and the archive");
        // The same through a pipe, which cannot seek.
        let piped = Command::new("sh")
            .args(["-c", "cat \"$1\" | \"$0\" build - \"$2\""])
            .arg(ferofs_tests::run::ferofs_path())
            .args([fixture.path("archive.tar"), fixture.path("image")])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&piped.stderr);
        assert!(
            piped.status.code() == Some(1) && stderr.contains(message),
            "{what} in a pipe: {stderr}"
        );
    }
}

#[test]
fn unusual_but_valid_archives_are_built() {
    // Members: a size in base 256, a directory of v7, a GNU long name, a hard link with a size, a
    // member of unknown type, a volume label, a PAX header. Garbage follows the end.
    let long = "long/".repeat(60) + "name";
    let unlinked = Header::new("h", b'1', 5).to("f").bytes();
    let mut bytes = archive(&[
        member(
            Header::new("f", b'0', 0).with(124, &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]),
            b"abc",
        ),
        Header::new("v7/", 0, 0).with(257, &[0; 8]).bytes(),
        member(
            Header::new("././@LongLink", b'L', long.len() as u64 + 1),
            (long.clone() + "\0").as_bytes(),
        ),
        file("cut", b"far"),
        unlinked,
        member(Header::new("odd", b'Z', 3), b"odd"),
        member(Header::new("label", b'V', 0), b""),
        pax(&[("path", b"p"), ("mtime", b"1.5"), ("comment", b""), ("SCHILY.xattr.user.x", b"1")]),
        file("q", b"pax"),
    ]);
    bytes.extend_from_slice(&b"garbage".repeat(200));
    let lines = listing(&bytes, &["--quiet"]);
    let files: Vec<_> =
        pairs(&lines).into_iter().filter(|(_, what)| !what.starts_with('d')).collect();
    assert_eq!(
        files,
        [("f", "f 2 abc"), ("h", "f 2 abc"), (long.as_str(), "f 1 far"), ("p", "f 1 pax")]
    );
    assert!(lines.iter().any(|(path, what)| path == "v7" && what == "d 2"));
}

#[test]
fn an_incomplete_end_is_reported() {
    let fixture = Fixture::empty();
    let lone = [file("f", b"1"), vec![0; 512], file("g", b"2"), vec![0; 1024]].concat();
    for (bytes, message) in
        [(file("f", b"1"), "no end of archive at byte 1024"), (lone, "single block of zeroes")]
    {
        let (image, outcome) = build(&fixture, &bytes, &[]);
        outcome.success().says(message);
        assert_eq!(ferofs!("cat", &image, "f").success().stdout, b"1");
        assert_ne!(ferofs!("cat", &image, "g").run().code, 0);
    }
}

#[test]
fn only_zeroes_are_an_empty_archive() {
    for blocks in [1, 2, 20] {
        assert_eq!(listing(&vec![0; blocks * 512], &[]), [], "{blocks} blocks");
    }
}

#[test]
fn a_directory_without_a_name_is_the_root() {
    let fixture = Fixture::empty();
    let root = Header::new("", b'5', 0).with(100, b"0000750\0").bytes();
    let (image, outcome) = build(&fixture, &archive(&[file("f", b"1"), root]), &["--all-root"]);
    outcome.success();
    let listed = ferofs!("ls --json -R", &image).success();
    assert!(listed.text().contains("\"name\":\"f\""));
    let tree = fixture.extract(&image, "extracted");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(tree).unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o750);
}

#[test]
fn bytes_after_gzip_data_are_left_out_with_a_warning() {
    let fixture = Fixture::empty();
    let plain = fixture.path("plain");
    fs::write(&plain, archive(&[file("f", b"1")])).unwrap();
    let packed = run!("gzip -c", &plain).success().stdout;
    let (image, outcome) =
        build(&fixture, &[&packed[..], b"a signature of another program"].concat(), &[]);
    let stderr = outcome.success().stderr;
    assert!(stderr.contains("archive.tar: bytes after the gzip data are left out"), "{stderr}");
    assert_eq!(ferofs!("cat", &image, "f").success().stdout, b"1");
    let (_, outcome) = build(&fixture, &[&packed[..], &[0; 4096]].concat(), &["--strict"]);
    assert_eq!(outcome.success().stderr, "");
}

#[test]
fn large_pax_headers_come_through_a_gzip_pipe() {
    let fixture = Fixture::empty();
    let plain = fixture.path("plain");
    // Two attributes, each as large as Linux allows, and more than one read of a pipe.
    let values = [vec![b'a'; 60_000], vec![b'b'; 60_000]];
    let records = [("SCHILY.xattr.user.a", &values[0][..]), ("SCHILY.xattr.user.b", &values[1])];
    fs::write(&plain, archive(&[pax(&records), file("f", b"1")])).unwrap();
    let script = "gzip -c \"$1\" | \"$0\" build - \"$2\"";
    let image = fixture.path("image");
    let command = run!("sh -c", script, ferofs_tests::run::ferofs_path());
    command.args([&plain, &image]).success();
    ferofs!("check", &image).success();
    let tar = fixture.path("extracted.tar");
    ferofs!("extract --tar", &tar, &image).success();
    let bytes = fs::read(tar).unwrap();
    for value in &values {
        assert!(bytes.windows(value.len()).any(|part| part == value));
    }
}

#[test]
fn an_attribute_that_is_not_an_acl_is_left_out_with_a_warning() {
    let fixture = Fixture::empty();
    let records: [(&str, &[u8]); 2] =
        [("SCHILY.xattr.system.posix_acl_access", b"garbage"), ("SCHILY.xattr.user.note", b"text")];
    let (image, outcome) = build(&fixture, &archive(&[pax(&records), file("name", b"x")]), &[]);
    outcome.success().says("name: attribute system.posix_acl_access left out");
    ferofs!("check --deep", &image).success();
}
