//! Small archives that demand much memory, time or disk space: the build ends early with a message
//! that names the limit.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ferofs_tests::Run;
use ferofs_tests::run::{Outcome, ferofs_path};
use ferofs_tests::tar::{Header, dir, file, member, pax, pax_of, soft_link};

use crate::common::fixture::Fixture;

/// The limit on address space: enough for the command and its threads, much less than the archives
/// demand.
const ADDRESSES: u64 = 1 << 30;
/// The limit on resident memory, in addition to the size of the archive.
const MEMORY: u64 = 128 << 20;
/// A build that takes longer hangs: each takes a second.
const HANG: Duration = Duration::from_secs(300);

type Archive<'a> = &'a mut dyn Write;

fn build(fixture: &Fixture, sources: &[&Path], options: &[&str]) -> Outcome {
    let run = Run::limited(ferofs_path(), Some(ADDRESSES), HANG);
    let outcome = run.arg("build").args(options).args(sources).arg(fixture.path("image")).run();
    let bytes: u64 = sources.iter().map(|source| source.metadata().unwrap().len()).sum();
    assert!(outcome.peak <= MEMORY + bytes, "{} bytes of memory", outcome.peak);
    outcome
}

/// Writes a compressed archive, because most of the bytes repeat.
fn packed(fixture: &Fixture, name: &str, write: impl FnOnce(Archive<'_>)) -> std::path::PathBuf {
    let path = fixture.path(name);
    let mut gzip =
        flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
    write(&mut gzip);
    gzip.write_all(&[0; 1024]).unwrap();
    gzip.finish().unwrap();
    path
}

/// Fails unless the build of the archive fails with `message` and leaves no image.
fn refused(message: &str, write: impl FnOnce(Archive<'_>)) {
    let fixture = Fixture::empty();
    let archive = packed(&fixture, "archive.tar.gz", write);
    let outcome = build(&fixture, &[&archive], &[]).failure(1);
    outcome.says(message);
    assert!(!fixture.path("image").exists());
}

fn put(archive: Archive<'_>, bytes: &[u8]) {
    archive.write_all(bytes).unwrap();
}

/// The headers of a sparse file of format 1.0; its map and data follow.
fn sparse(name: &str, size: u64, stored: u64) -> Vec<u8> {
    let (size, stored) = (size.to_string(), stored.to_string());
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.realsize", size.as_bytes()),
        ("size", stored.as_bytes()),
    ];
    [pax(&records), Header::new(name, b'0', 0).bytes()].concat()
}

/// Many xattrs with different names.
fn attributes(kind: u8, number: u32, count: u32) -> Vec<u8> {
    let names: Vec<String> =
        (0..count).map(|at| format!("SCHILY.xattr.user.{number}.{at}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    pax_of(kind, &records)
}

const IN_MEMORY: &str = "bytes of memory, the limit";

#[test]
fn maps_of_sparse_files_are_limited() {
    refused(IN_MEMORY, |archive| {
        put(archive, &sparse("s", 1 << 40, 1 << 50));
        put(archive, b"9223372036854775\n");
        for at in 0..2_000_000u64 {
            put(archive, format!("{}\n1\n", 2 * at).as_bytes());
        }
    });
    // The old GNU format: blocks of 21 pieces, each with the mark that another block follows.
    refused(IN_MEMORY, |archive| {
        let header = Header::new("s", b'S', 1 << 30).with(482, &[1]).with(483, b"77777777777\0");
        put(archive, &header.bytes());
        for block in 0..100_000u64 {
            for at in block * 21..(block + 1) * 21 {
                put(archive, format!("{:011o}\0{:011o}\0", 2 * at, 1).as_bytes());
            }
            put(archive, &[1, 0, 0, 0, 0, 0, 0, 0]);
        }
    });
}

#[test]
fn extended_headers_are_limited() {
    refused("global headers of more than 4096 bytes", |archive| {
        (0..200).for_each(|number| put(archive, &attributes(b'g', number, 10_000)));
    });
    refused("an extended header of", |archive| {
        (0..300).for_each(|number| put(archive, &attributes(b'x', number, 10_000)));
    });
    refused("an extended header of 62914560 bytes", |archive| {
        put(archive, &Header::new("x", b'L', 60 << 20).bytes());
        (0..60).for_each(|_| put(archive, &vec![b'n'; 1 << 20]));
    });
    refused(IN_MEMORY, |archive| {
        for number in 0..300 {
            put(archive, &attributes(b'x', number, 10_000));
            put(archive, &file(&format!("f{number}"), b""));
        }
    });
    // Global attributes apply to every member: each of 20,000 members gets 150.
    refused(IN_MEMORY, |archive| {
        put(archive, &attributes(b'g', 0, 150));
        for number in 0..20_000 {
            put(archive, &attributes(b'x', number, 1));
            put(archive, &file(&format!("f{number}"), b""));
        }
    });
}

#[test]
fn members_that_become_no_file_are_limited() {
    let again = file("f", b"").repeat(1000);
    refused(IN_MEMORY, |archive| (0..500).for_each(|_| put(archive, &again)));
    let unknown = Header::new("odd", b'Z', 0).bytes().repeat(1000);
    refused(IN_MEMORY, |archive| (0..500).for_each(|_| put(archive, &unknown)));
    // Directories that exist only in the paths of members.
    refused(IN_MEMORY, |archive| {
        for number in 0..200 {
            let path = format!("{number}/{}f\0", "a/".repeat(1500));
            put(archive, &member(Header::new("x", b'L', path.len() as u64), path.as_bytes()));
            put(archive, &file("f", b""));
        }
    });
    refused("more than 4096 nested directories", |archive| {
        let path = "a/".repeat(30_000);
        put(archive, &member(Header::new("x", b'L', path.len() as u64), path.as_bytes()));
        put(archive, &dir("d"));
    });
}

#[test]
fn holes_are_limited() {
    refused("a sparse file of 4611686018427387904 bytes", |archive| {
        put(archive, &sparse("s", 1 << 62, 512));
        put(archive, &[b"0\n".as_slice(), &[0; 510]].concat());
    });
    refused("holes of sparse files cost more", |archive| {
        for number in 0..100 {
            let map = format!("1\n{}\n100\n", 512 + number);
            put(archive, &sparse(&format!("s{number}"), 200 << 20, 612));
            put(archive, &[map.as_bytes(), &vec![0; 512 - map.len()], &[1; 512]].concat());
        }
    });
}

#[test]
fn tables_of_chunks_are_limited() {
    let fixture = Fixture::empty();
    let archive = packed(&fixture, "archive.tar.gz", |archive| {
        put(archive, &sparse("huge", 4 << 40, 1024));
        put(archive, b"1\n0\n512\n");
        put(archive, &[0; 512 - 8]);
        put(archive, &[1; 512]);
    });
    build(&fixture, &[&archive], &["--chunk-size", "4096"]).failure(1).says("bytes of memory");
    // A directory as the source has no limit on memory, but one table of chunks has a limit.
    let source = fixture.directory("tree");
    let file = File::create(source.join("huge")).unwrap();
    file.set_len(1 << 50).unwrap_or_else(|_| file.set_len(15 << 40).unwrap());
    build(&fixture, &[&source], &["--chunk-size", "4096"])
        .failure(1)
        .says("huge: the size of its chunk table");
    build(&fixture, &[&source], &[]).success();
}

#[test]
fn paths_through_symlinks_are_limited() {
    refused("the path contains a loop of symbolic links", |archive| {
        put(archive, &dir("d"));
        for number in 0..38 {
            let target = format!("{}l{}", "d/../".repeat(780), number + 1);
            put(archive, &pax(&[("linkpath", target.as_bytes())]));
            put(archive, &soft_link(&format!("l{number}"), ""));
        }
        put(archive, &soft_link("l38", "d"));
        (0..20_000).for_each(|number| put(archive, &file(&format!("l0/{number}"), b"")));
    });
}

/// The first opaque marker hides the entries of lower layers; further markers of the directory must
/// not repeat the work.
#[test]
fn repeated_opaque_markers_cost_no_time() {
    let fixture = Fixture::empty();
    let lower = packed(&fixture, "lower.tar.gz", |archive| put(archive, &file("d/lower", b"")));
    let upper = packed(&fixture, "upper.tar.gz", |archive| {
        (0..40_000).for_each(|number| put(archive, &file(&format!("d/{number}"), b"")));
        let again = file("d/.wh..wh..opq", b"").repeat(1000);
        (0..40).for_each(|_| put(archive, &again));
    });
    build(&fixture, &[&lower, &upper], &[]).success();
    let missing = ferofs_tests::ferofs().arg("cat").arg(fixture.path("image")).arg("d/lower").run();
    assert_ne!(missing.code, 0);
}

#[test]
fn windows_of_decompressors_are_limited() {
    let fixture = Fixture::empty();
    let archive = fixture.path("archive");
    // A frame that claims a window of 256 MiB, and a raw block; an lzip member with a dictionary of
    // 512 MiB.
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 1 | 4 << 3, 32, 0][..], &[0; 1024]].concat();
    let lzip = [&b"LZIP\x01\x1d"[..], &[0; 64]].concat();
    for bytes in [zstd, lzip] {
        std::fs::write(&archive, bytes).unwrap();
        build(&fixture, &[&archive], &[]).failure(1).says("a window of more than 134217728 bytes");
    }
}

#[test]
fn limits_can_be_raised() {
    let fixture = Fixture::empty();
    let archive = packed(&fixture, "archive.tar.gz", |archive| {
        // Ignored records do not count.
        put(
            archive,
            &pax_of(b'g', &[("comment", &[b'c'; 300_000]), ("VENDOR.key", &[b'v'; 300_000])]),
        );
        put(archive, &pax_of(b'g', &[("SCHILY.xattr.user.a", &[b'v'; 5000])]));
        put(archive, &file("f", b"content"));
    });
    build(&fixture, &[&archive], &[]).failure(1).says("global headers of more than 4096 bytes");
    build(&fixture, &[&archive], &["--archive-limits", "2"]).success();
}
