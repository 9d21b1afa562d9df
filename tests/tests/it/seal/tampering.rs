//! Random changes of sealed images: each read gives the right bytes or an error.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_tests::rng::Rng;
use ferofs_tests::{Mount, ferofs, need};

use crate::common::fixture::{Fixture, full};

/// Files of different layouts: inline, compressed, not compressible, and in fragments.
fn fixture() -> (Fixture, Vec<(PathBuf, Vec<u8>)>) {
    let fixture = Fixture::empty();
    let mut files = Vec::new();
    for number in 0..12_u64 {
        let mut content = format!("file {number} ").repeat(1 << number).into_bytes();
        if number % 3 == 0 {
            Rng::new(number).fill(&mut content);
        }
        let path = PathBuf::from(format!("dir{}/file{number}", number % 4));
        let file = fixture.source().join(&path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, &content).unwrap();
        files.push((path, content));
    }
    (fixture, files)
}

#[test]
fn changed_bytes_are_never_returned() {
    let (fixture, files) = fixture();
    let image = fixture.build("image", ["--compress", "lz4", "-E", "fragments"]);
    let unsealed = fs::metadata(&image).unwrap().len();
    let root = ferofs().args(["verity", "format"]).arg(&image).run().success().stdout;
    let root = String::from_utf8(root).unwrap().trim().to_owned();
    let sealed = fs::read(&image).unwrap();
    let right: Vec<u8> = files.iter().flat_map(|(_, content)| content.clone()).collect();
    let paths: Vec<&PathBuf> = files.iter().map(|(path, _)| path).collect();
    let mut rng = Rng::new(1);
    let (mut intact, mut failed) = (0, 0);
    for round in 0..if full() { 10_000 } else { 200 } {
        let mut changed = sealed.clone();
        for _ in 0..=rng.below(3) {
            // As often the tree and its superblock as the image, which is larger.
            let (start, end) =
                if rng.below(2) == 0 { (0, unsealed) } else { (unsealed, sealed.len() as u64) };
            let at = (start + rng.below(end - start)) as usize;
            changed[at] ^= 1 << rng.below(8);
        }
        let path = fixture.path("changed");
        fs::write(&path, &changed).unwrap();
        let outcome = ferofs().args(["cat", "--roothash", &root]).arg(&path).args(&paths).run();
        assert!(right.starts_with(&outcome.stdout), "round {round}: wrong bytes");
        match outcome.code {
            0 => {
                assert!(outcome.stdout == right, "round {round}: bytes are missing");
                intact += 1;
            }
            _ => {
                assert!(outcome.has_error_message(), "round {round}: {}", outcome.stderr);
                failed += 1;
            }
        }
        if round % 10 == 0 && need::fuse("a sealed image through FUSE") {
            read_through_fuse(&fixture, &path, &root, &files, round);
        }
    }
    assert!(intact > 10 && failed > 10, "{intact} intact, {failed} failed");
}

fn read_through_fuse(
    fixture: &Fixture,
    image: &std::path::Path,
    root: &str,
    files: &[(PathBuf, Vec<u8>)],
    round: u32,
) {
    let dir = fixture.path("mounted");
    fs::create_dir_all(&dir).unwrap();
    let options = ["--roothash".as_ref(), std::ffi::OsStr::from_bytes(root.as_bytes())];
    // A mount whose superblock or root directory is changed fails.
    let Ok(mount) = Mount::fuse_with(ferofs_tests::run::ferofs_path(), &options, image, &dir) else { return };
    for (path, content) in files {
        if let Ok(read) = fs::read(dir.join(path)) {
            assert!(read == *content, "round {round}: {}: wrong bytes", path.display());
        }
    }
    mount.unmount().unwrap();
}

#[test]
fn errors_name_the_image_and_the_file() {
    let (fixture, _) = fixture();
    let image = fixture.build("image", ["-z", "none"]);
    let root = ferofs().args(["verity", "format"]).arg(&image).run().success().stdout;
    let root = String::from_utf8(root).unwrap().trim().to_owned();
    let mut bytes = fs::read(&image).unwrap();
    let content = b"file 11 file 11 file 11";
    let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
    bytes[at] ^= 1;
    fs::write(&image, bytes).unwrap();
    let name = image.display().to_string();
    let (out, tar) = (fixture.path("out"), fixture.path("tar"));
    let command = |words: &[&str], paths: &[&PathBuf]| {
        ferofs().args(words).args(["--roothash", &root]).arg(&image).args(paths).run().failure(1).stderr
    };
    let cat = command(&["cat"], &[&PathBuf::from("/dir3/file11")]);
    assert!(cat.contains(&format!("{name}: /dir3/file11: ")) && cat.contains("data block"), "{cat}");
    let extract = command(&["extract"], &[&out]);
    assert!(
        extract.contains(&name) && extract.contains("dir3/file11: ") && extract.contains("data block"),
        "{extract}"
    );
    assert!(out.join("dir2/file10").exists(), "the other files are extracted");
    let archive = command(&["extract", "--tar", tar.to_str().unwrap()], &[]);
    assert!(
        archive.contains(&name) && archive.contains("dir3/file11: ") && archive.contains("data block"),
        "{archive}"
    );
    assert!(!tar.exists(), "there is no archive of an image that cannot be read");
}
