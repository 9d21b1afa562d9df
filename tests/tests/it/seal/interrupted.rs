//! `ferofs verity format` that is killed or fails at any system call leaves an image that can be
//! sealed, and never a wrong seal. Files that cannot be read at any position are refused.

use std::fs;
use std::path::Path;

use ferofs_tests::run::{Run, ferofs_path};
use ferofs_tests::{ferofs, ferofs_with_fault, need, tree};

use super::make_fifo;
use crate::common::fixture::Fixture;

fn format(image: &Path, options: &[&str]) -> String {
    let output = ferofs!("verity format").args(options).arg(image).success().stdout;
    String::from_utf8(output).unwrap().trim().to_owned()
}

/// What follows the image before the command starts.
struct Start<'a> {
    bytes: &'a [u8],
    /// The image alone.
    image: &'a [u8],
    /// The image with the new seal.
    sealed: &'a [u8],
}

/// Runs `verity format` with a fault in the `number`th call of `call`; returns its exit code.
fn format_with_fault(
    strace: &Path,
    path: &Path,
    call: &str,
    fault: &str,
    number: u32,
    start: &Start<'_>,
) -> i32 {
    fs::write(path, start.bytes).unwrap();
    let outcome = ferofs_with_fault(strace, call, fault, number)
        .args(["verity", "format", "--threads", "2"])
        .arg(path)
        .run();
    let after = fs::read(path).unwrap();
    let what = format!("{call} {fault} {number}: {}", outcome.stderr);
    if outcome.code == 0 {
        assert!(after == start.sealed, "{what}");
        return 0;
    }
    if fault != "signal=KILL" {
        // A former seal that was overwritten in part is removed; the zeroes up to the end of the
        // last block stay.
        let mut padded = start.image.to_vec();
        padded.resize(padded.len().next_multiple_of(4096), 0);
        let former_removed = start.bytes != start.image && after == padded;
        assert!(after == start.bytes || former_removed, "{what}");
    }
    assert!(after.starts_with(start.image), "{what}");
    ferofs!("check --deep", path).success();
    format(path, &[]);
    assert!(
        fs::read(path).unwrap() == start.sealed,
        "{what}: the next run does not seal the image"
    );
    outcome.code
}

#[test]
fn an_interrupted_seal_is_undone_or_made_again() {
    let Some(strace) = need::tool("strace") else { return };
    let fixture = Fixture::new(&tree::Options { largest: 3_000_000, ..tree::Options::small() });
    let path = fixture.path("sealed");
    for options in [&["-z", "none"][..], &["-b", "512"]] {
        let image = fs::read(fixture.build("image", options.iter().copied())).unwrap();
        let sealed = |options| {
            fs::write(&path, &image).unwrap();
            format(&path, options);
            fs::read(&path).unwrap()
        };
        let (salted, plain) = (sealed(&["--salt", "12", "--hash", "sha512"]), sealed(&[]));
        for bytes in [&image, &salted] {
            let start = Start { bytes, image: &image, sealed: &plain };
            let mut interrupted = 0;
            for call in ["pwrite64", "fsync", "fallocate", "ftruncate"] {
                for fault in ["signal=KILL", "error=EIO", "error=ENOSPC"] {
                    for number in 1.. {
                        match format_with_fault(&strace, &path, call, fault, number, &start) {
                            0 => break,
                            _ => interrupted += 1,
                        }
                    }
                }
                for number in 1..8 {
                    format_with_fault(&strace, &path, call, "signal=TERM", number, &start);
                }
            }
            assert!(interrupted >= 15, "{interrupted}");
        }
        // Bytes of another program after a seal or the remains of one are kept.
        fs::write(&path, [&plain[..], b"other"].concat()).unwrap();
        ferofs!("verity format", &path).failure(1).says("other data follows");
        let mut unfinished = image.clone();
        unfinished.resize(image.len().next_multiple_of(4096), 0);
        let end = unfinished.len();
        unfinished.extend(b"ferofs: unfinished hash tree\0\0\0\0");
        unfinished.extend(4096_u64.to_le_bytes());
        unfinished.resize(end + 4096, 0);
        fs::write(&path, [&unfinished[..], b"other"].concat()).unwrap();
        ferofs!("verity format", &path).failure(1).says(format!("from byte {} on", end + 4096));
        ferofs!("ls --roothash", &"0".repeat(64), &path).failure(1).says("was interrupted");
    }
}

#[test]
fn images_of_small_blocks_get_a_tree_in_another_file() {
    let fixture = Fixture::small();
    let mut padded = 0;
    for extra in 1..9 {
        fixture.write("more", vec![b'x'; extra * 700]);
        let (image, tree) = (fixture.build("image", ["-b", "512"]), fixture.path("tree"));
        let before = fs::read(&image).unwrap();
        let root = format(&image, &["--hash-file", tree.to_str().unwrap()]);
        let after = fs::read(&image).unwrap();
        assert!(after.starts_with(&before) && after[before.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(after.len(), before.len().next_multiple_of(4096));
        padded += usize::from(after.len() > before.len());
        let verify = ferofs!("verity verify --hash-file", &tree, &image, &root);
        verify.success();
        fs::remove_file(&tree).unwrap();
    }
    assert!(padded > 0, "no image had an incomplete block");
}

#[test]
fn pipes_are_no_images() {
    let (fixture, image) = Fixture::small_image();
    let root = format(&image, &[]);
    let (fifo, dir, other) =
        (fixture.path("fifo"), fixture.directory("dir"), fixture.path("other"));
    make_fifo(&fifo);
    let [fifo, dir, image, other] =
        [&fifo, &dir, &image, &other].map(|path| path.to_str().unwrap());
    for command in [
        &["ls", fifo][..],
        &["cat", fifo, "/a"],
        &["check", fifo],
        &["inspect", fifo],
        &["extract", fifo, other],
        &["diff", image, fifo],
        &["mount", fifo, dir],
        &["mount", "--fuse", fifo, dir],
        &["mount", "--roothash", &root, fifo, dir],
        &["mount", "--roothash", &root, "--hash-file", fifo, image, dir],
        &["ls", "--device", fifo, image],
        &["ls", "--roothash", &root, "--hash-file", fifo, image],
        &["verity", "format", fifo],
        &["verity", "verify", fifo, &root],
        &["verity", "verify", "--hash-file", fifo, image, &root],
        &["verity", "digest", fifo],
        &["verity", "show", fifo],
        &["patch", "log", fifo],
        &["patch", "apply", image, fifo],
        &["patch", "show", fifo],
    ] {
        let run = Run::limited(ferofs_path(), None, std::time::Duration::from_secs(20))
            .args(command)
            .run();
        assert!(
            run.code != 0 && run.stderr.contains("not a regular file or block device"),
            "{command:?}: {}",
            run.stderr
        );
        run.says("fifo");
    }
}
