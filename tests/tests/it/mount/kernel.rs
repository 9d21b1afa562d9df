//! Linux mounts each image and shows the source.

use std::fs;
use std::path::Path;

use ferofs_tests::{Mount, Rng, compare, ferofs, ferofs_path, need, run, tree};

use crate::common::fixture::{COMPRESSIONS, Fixture, chmod, full, same, usual_tree};

/// Builds an image with these options, and fails unless Linux shows the source.
#[track_caller]
fn assert_shown(fixture: &Fixture, name: &str, options: &[&str]) {
    let image = fixture.build(name, options);
    let mount = Mount::kernel(&image, &fixture.directory(&format!("{name}-mount"))).unwrap();
    fixture.assert_same_as_source(mount.path());
    mount.unmount().unwrap();
}

#[test]
fn the_whole_test_tree_is_shown() {
    require!(need::kernel_erofs());
    let fixture = Fixture::new(&usual_tree());
    for compression in COMPRESSIONS {
        assert_shown(&fixture, compression, &["--compress", compression]);
    }
}

/// Text of 1,024 different words; the order depends on `seed`.
fn words(seed: u32, len: usize) -> Vec<u8> {
    let (mut rng, mut bytes) = (Rng::new(seed.into()), Vec::new());
    while bytes.len() < len {
        let word = (rng.below(1024) as u32).wrapping_mul(2_654_435_761);
        bytes.extend(format!("{word:07x} ").bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Linux decodes DEFLATE page by page, and refuses a stream if only its end mark is in the last
/// page. Of 4,000 clusters at random positions, this would affect two or three.
#[test]
fn deflate_streams_at_byte_positions_are_read() {
    require!(need::kernel_erofs());
    let fixture = Fixture::small();
    for number in 0..4000u32 {
        let content = words(number, 4200 + (number as usize * 37) % 5000);
        fixture.write(format!("text{number}"), content);
    }
    for extra in ["48bit", "48bit,dedupe", "48bit,all-fragments"] {
        assert_shown(&fixture, extra, &["-z", "deflate,1", "-E", extra]);
    }
}

#[test]
fn a_file_is_mounted_without_a_loop_device() {
    require!(need::kernel_erofs());
    let fixture = Fixture::on_disk(&tree::Options::small());
    let image = fixture.build("image", ["--compress", "lz4"]);
    match Mount::kernel_file(&image, &fixture.directory("mount")) {
        Ok(mount) => fixture.assert_same_as_source(mount.path()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTBLK.raw_os_error()) => {
            need::lacks(need::LINUX_6_12);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn ferofs_mount_uses_the_kernel_if_possible() {
    require!(need::kernel_erofs());
    let (fixture, image) = Fixture::small_image();
    for (name, options) in [("forced", &["--kernel"][..]), ("auto", &[])] {
        let dir = fixture.directory(name);
        ferofs!("mount").args(options).args([&image, &dir]).success();
        let mount = Mount::adopt(&dir);
        assert_eq!(type_of_mount(&dir).as_deref(), Some("erofs"));
        fixture.assert_same_as_source(mount.path());
        mount.unmount().unwrap();
    }
}

#[test]
fn all_of_usr_is_shown() {
    require!(full() && need::kernel_erofs());
    let fixture = Fixture::empty();
    let image = fixture.path("usr");
    ferofs!("build --compress lz4 /usr", &image).success();
    let mount = Mount::kernel(&image, &fixture.directory("mount")).unwrap();
    compare(Path::new("/usr"), mount.path(), &same()).unwrap().assert_same();
}

/// The type of the file system on `dir`.
fn type_of_mount(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut fields = mounts.lines().map(|line| line.split(' '));
    fields.find_map(|mut line| {
        (line.nth(1) == dir.to_str()).then(|| line.next().map(str::to_owned))?
    })
}

/// FUSE would cover the file, and nobody could open it.
#[test]
fn only_directories_are_mounted_on() {
    require!(need::kernel_erofs());
    let fixture = Fixture::small();
    let image = fixture.build("lz4", ["-z", "lz4"]);
    let file = fixture.directory("mount").join("file");
    std::fs::write(&file, "content").unwrap();
    let outcome = ferofs!("mount", &image, &file).failure(1);
    assert!(outcome.stderr.ends_with("file: not a directory\n"), "{}", outcome.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "content");
    let missing = file.with_file_name("missing");
    let outcome = ferofs!("mount", &image, &missing).failure(1);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_path_that_starts_with_a_dash_is_no_option_of_veritysetup() {
    let fixture = Fixture::small();
    let roothash = fixture.path("roothash");
    ferofs!("build --verity --roothash-file", &roothash, fixture.source(), fixture.path("-a"))
        .success();
    let (programs, dir) = (fixture.directory("programs"), fixture.directory("mount"));
    let program = programs.join("veritysetup");
    fs::write(&program, "#!/bin/sh\necho \"$*\" >&2\nexit 1\n").unwrap();
    chmod(&program, 0o755);
    let script = "cd \"$1\"; PATH=\"$2:$PATH\" \"$0\" mount --kernel --roothash \"$(cat roothash)\" -- -a \"$3\"";
    let run = run!("sh -c", script, ferofs_path());
    run.arg(fixture.path("")).args([programs, dir]).failure(1).says(" -- -a ferofs-");
}
