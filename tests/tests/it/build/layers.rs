//! EROFS images as sources: one image of any layout, and layers that are merged as by overlayfs. Images and indexes of tar
//! archives whose data stays in the sources.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::{Mount, Run, ferofs, need, tree};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, makedev, mknodat};
use rustix::mount::{MountFlags, mount};

use crate::common::erofs_utils::{assert_valid, mkfs_command, newest};
use crate::common::fixture::{Fixture, same};

const FIXED: [&str; 4] = ["-T", "2000000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71"];

fn build(sources: &[&Path], image: &Path, options: &str) {
    let options = FIXED.into_iter().chain(options.split_whitespace());
    ferofs().arg("build").args(options).args(sources).arg(image).run().success();
}

/// Mounts with Linux, with files as extra devices; `None` before Linux 6.12.
fn kernel_with(image: &Path, dir: &Path, devices: &[&Path]) -> Option<Mount> {
    let mut options = OsString::new();
    for device in devices {
        options.push(if options.is_empty() { "device=" } else { ",device=" });
        options.push(device);
    }
    let options = CString::new(options.into_encoded_bytes()).unwrap();
    match mount(image, dir, "erofs", MountFlags::RDONLY, options.as_c_str()) {
        Ok(()) => Some(Mount::adopt(dir)),
        Err(rustix::io::Errno::NOTBLK) => {
            need::lacks("devices in files", need::LINUX_6_12);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fails unless both checkers accept the image with its extra devices.
fn assert_valid_with(image: &Path, devices: &[&Path]) {
    let with: Vec<OsString> = devices
        .iter()
        .map(|device| [OsStr::new("--device="), device.as_os_str()].concat_os())
        .collect();
    let checked = ferofs().arg("check").args(&with).arg(image).run();
    assert_eq!(checked.code, 0, "{}{}", checked.stderr, String::from_utf8_lossy(&checked.stdout));
    if let Some(fsck) = newest("fsck.erofs") {
        Run::new(fsck).args(&with).arg("--extract").arg(image).run().success();
    }
}

trait ConcatOs {
    fn concat_os(&self) -> OsString;
}

impl ConcatOs for [&OsStr] {
    fn concat_os(&self) -> OsString {
        self.iter().fold(OsString::new(), |mut all, part| {
            all.push(part);
            all
        })
    }
}

#[test]
fn an_image_of_any_layout_is_a_source() {
    let fixture = Fixture::new(&tree::Options { deep: 20, wide: 300, ..tree::Options::small() });
    let (first, again, expected) =
        (fixture.path("first"), fixture.path("again"), fixture.path("expected"));
    build(&[&fixture.source()], &expected, "--compress=lz4");
    let expected = fs::read(expected).unwrap();
    for layout in need::sample(&[
        "",
        "-b 512 -z lz4",
        "-z zstd -C 64K -E fragments,dedupe",
        "-z lzma -C 1M -E all-fragments,ztailpacking",
        "-z lz4hc -E 48bit,fragments -x 0 --xattr-prefix=user.num",
        "--chunk-size 4096 --inodes extended",
    ]) {
        build(&[&fixture.source()], &first, layout);
        build(&[&first], &again, "--verify");
        let extracted = fixture.extract(&again, "extracted");
        fixture.assert_same_as_source(&extracted);
        fs::remove_dir_all(extracted).unwrap();
        build(&[&first], &again, "--compress=lz4 --workers=3");
        assert_valid(&again);
        // Chunks of zeroes become holes, which the directory does not have.
        let same = fs::read(&again).unwrap() == expected || layout.starts_with("--chunk-size");
        assert!(same, "the same image as from the directory: {layout}");
    }
    if need::kernel_erofs("an image built from an image") {
        let mount = Mount::kernel(&again, &fixture.directory("mount")).unwrap();
        fixture.assert_same_as_source(mount.path());
    }
    if let Some(mkfs) = newest("mkfs.erofs") {
        Run::new(mkfs)
            .args(["--quiet", "-zzstd", "-C65536", "-Efragments,dedupe,ztailpacking"])
            .args([&first, &fixture.source()])
            .run()
            .success();
        build(&[&first], &again, "--compress=lz4");
        assert!(fs::read(&again).unwrap() == expected, "from an image of erofs-utils");
    }
}

/// A lower and an upper image, and the fixture with their sources. The upper one has all kinds of overlayfs whiteouts.
fn layers() -> Option<(Fixture, PathBuf, PathBuf)> {
    if !need::root("overlayfs' whiteouts") || !need::kernel_erofs("layers through the kernel") {
        return None;
    }
    let fixture = Fixture::new(&tree::Options { deep: 5, wide: 50, ..tree::Options::small() });
    let (lower, upper) = (fixture.source(), fixture.directory("upper"));
    let write = |path: PathBuf, content: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    for name in
        ["gone", "gone-dir/x/y", "opaque/below/a", "merged/kept", "merged/changed", "file-then-dir"]
    {
        write(lower.join("layers").join(name), &name.repeat(2000));
    }
    write(lower.join("layers/dir-then-file/x"), "x");
    fs::hard_link(lower.join("layers/merged/kept"), lower.join("layers/linked")).unwrap();
    let top = upper.join("layers");
    write(top.join("opaque/new"), "new");
    write(top.join("merged/changed"), &"changed".repeat(1500));
    write(top.join("merged/added"), "");
    write(top.join("file-then-dir/now"), "a directory");
    write(top.join("dir-then-file"), "a file");
    fs::hard_link(top.join("merged/changed"), top.join("merged/also")).unwrap();
    symlink("merged", top.join("link")).unwrap();
    for name in ["gone", "gone-dir", "merged/never"] {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, top.join(name), FileType::CharacterDevice, mode, makedev(0, 0)).unwrap();
    }
    lsetxattr(top.join("opaque"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    let (below, above) = (fixture.path("lower.erofs"), fixture.path("upper.erofs"));
    build(&[&lower], &below, "-z none --no-inline-data");
    build(&[&upper], &above, "-z none");
    Some((fixture, below, above))
}

/// Both layers, mounted and merged by overlayfs.
struct Merged {
    overlay: Mount,
    _below: (Mount, Mount),
}

fn merged(fixture: &Fixture, lower: &Path, upper: &Path) -> Merged {
    let below = Mount::kernel(lower, &fixture.directory("lower mount")).unwrap();
    let above = Mount::kernel(upper, &fixture.directory("upper mount")).unwrap();
    let dir = fixture.directory("overlay");
    let options = [
        OsStr::new("lowerdir="),
        above.path().as_os_str(),
        OsStr::new(":"),
        below.path().as_os_str(),
    ];
    let options = CString::new(options.concat_os().into_encoded_bytes()).unwrap();
    mount("overlay", &dir, "overlay", MountFlags::RDONLY, options.as_c_str()).unwrap();
    Merged { overlay: Mount::adopt(&dir), _below: (above, below) }
}

/// Ignores the fields that overlayfs changes: link counts, and the inode numbers in listings.
fn like_overlayfs() -> compare::Options {
    let mut options = same();
    options.ignore.extend([Field::Links, Field::Listing]);
    options
}

#[test]
fn layers_are_merged_as_by_overlayfs() {
    let Some((fixture, lower, upper)) = layers() else { return };
    let merged = merged(&fixture, &lower, &upper);
    let (image, packed) = (fixture.path("image"), fixture.path("packed.erofs"));
    build(&[&lower], &packed, "-z lz4 -E ztailpacking,fragments");
    build(&[&packed, &upper], &image, "-z zstd -C 64K -E fragments --verify");
    assert_valid(&image);
    let mount = Mount::kernel(&image, &fixture.directory("mount")).unwrap();
    compare(merged.overlay.path(), mount.path(), &like_overlayfs()).unwrap().assert_same();
    let names = Command::new("find")
        .arg(mount.path())
        .args(["-type", "c", "-printf", "%P\n"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&names.stdout).contains("layers/"), "whiteouts are gone");
}

#[test]
fn mkfs_refers_to_the_data_in_the_layers() {
    let Some((fixture, lower, upper)) = layers() else { return };
    let merged = merged(&fixture, &lower, &upper);
    let image = fixture.path("image");
    for options in ["", "--ovlfs-strip=1"] {
        mkfs_command(&fixture)
            .args(options.split_whitespace())
            .args([&image, &lower, &upper])
            .run()
            .success();
        assert_valid_with(&image, &[&lower, &upper]);
        let sizes = [&image, &lower].map(|path| fs::metadata(path).unwrap().len());
        assert!(sizes[0] * 2 < sizes[1], "{sizes:?}");
        let dir = fixture.path("mount");
        let _ = fs::create_dir(&dir);
        let Some(mount) = kernel_with(&image, &dir, &[&lower, &upper]) else { return };
        if options.is_empty() {
            // Without --ovlfs-strip the whiteouts stay, for layers below this image.
            let kept = fs::symlink_metadata(mount.path().join("layers/merged/never"));
            assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kept.unwrap().file_type()));
        } else {
            compare(merged.overlay.path(), mount.path(), &like_overlayfs()).unwrap().assert_same();
        }
        mount.unmount().unwrap();
    }
    // With --clean=data the image has all data.
    mkfs_command(&fixture)
        .args(["--clean=data", "--ovlfs-strip=1", "-zlz4"])
        .args([&image, &lower, &upper])
        .run()
        .success();
    assert_valid(&image);
    let mount = Mount::kernel(&image, &fixture.path("mount")).unwrap();
    compare(merged.overlay.path(), mount.path(), &like_overlayfs()).unwrap().assert_same();
}

#[test]
fn an_index_of_an_archive_shows_its_tree() {
    let Some(tar) = need::tool("tar", "indexes of archives") else { return };
    let fixture = Fixture::new(&tree::Options { deep: 10, wide: 300, ..tree::Options::small() });
    let source = fixture.source();
    assert!(
        Command::new("find")
            .arg(&source)
            .args(["-type", "s", "-delete"])
            .status()
            .unwrap()
            .success()
    );
    for name in ["device too", "fifo too"] {
        // GNU tar archives these hard links as separate files.
        fs::remove_file(source.join("kinds/links").join(name)).unwrap();
    }
    let (archive, image) = (fixture.path("archive.tar"), fixture.path("image"));
    let made = Command::new(tar)
        .args(["-c", "--format=pax", "--sparse", "--xattrs", "--xattrs-include=*", "-C"])
        .args([&source, Path::new("--file"), &archive, Path::new(".")])
        .status();
    assert!(made.unwrap().success());
    mkfs_command(&fixture)
        .args(["--tar=i", "-T2000000000", "--mkfs-time"])
        .args([&image, &archive])
        .run()
        .success();
    assert_valid_with(&image, &[&archive]);
    let device = [OsStr::new("--device="), archive.as_os_str()].concat_os();
    let extracted = fixture.path("extracted");
    ferofs().arg("extract").arg(device).args([&image, &extracted]).run().success();
    fixture.assert_same_as_source(&extracted);
    if need::kernel_erofs("an index of an archive") {
        let dir = fixture.directory("mount");
        if let Some(mount) = kernel_with(&image, &dir, &[&archive]) {
            fixture.assert_same_as_source(mount.path());
        }
    }
    // As containerd does it, the archive is appended to its index: one file without an extra device.
    let joined = fixture.path("joined");
    fs::write(&joined, [fs::read(&image).unwrap(), fs::read(&archive).unwrap()].concat()).unwrap();
    ferofs().arg("check").arg(&joined).run().success();
    fs::remove_dir_all(&extracted).unwrap();
    ferofs().arg("extract").args([&joined, &extracted]).run().success();
    fixture.assert_same_as_source(&extracted);
    if need::kernel_erofs("an archive behind its index") {
        let mount = Mount::kernel(&joined, &fixture.path("mount")).unwrap();
        fixture.assert_same_as_source(mount.path());
    }
    // From a compressed archive: the index refers to the uncompressed copy.
    assert!(Command::new("gzip").args(["-k", "-1"]).arg(&archive).status().unwrap().success());
    let (plain, of_packed) = (fixture.path("plain.tar"), fixture.path("of-packed"));
    mkfs_command(&fixture)
        .args(["--tar=i", "-T2000000000", "--mkfs-time"])
        .arg([OsStr::new("--ungzip="), plain.as_os_str()].concat_os())
        .args([&of_packed, &fixture.path("archive.tar.gz")])
        .run()
        .success();
    assert!(fs::read(&plain).unwrap() == fs::read(&archive).unwrap());
    assert_valid_with(&of_packed, &[&plain]);
    // From a stream, which the caller stores elsewhere; and with `ferofs build`.
    let piped = fixture.path("piped");
    let mut child = mkfs_command(&fixture)
        .command()
        .args(["--tar=i", "--aufs", "--quiet", "-b4096", "-T2000000000", "--mkfs-time", "-U"])
        .arg(FIXED[3])
        .arg(&piped)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(&archive).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    build(&[&archive], &image, "--index-only --verify");
    assert!(fs::read(&piped).unwrap() == fs::read(&image).unwrap());
    // -b has no effect: with larger blocks the data would have to be copied.
    let of_file = fixture.path("of-file");
    mkfs_command(&fixture)
        .args(["-b4096", "--tar=i", "-T2000000000", "--mkfs-time", "-U"])
        .arg(FIXED[3])
        .args([&of_file, &archive])
        .run()
        .success();
    assert!(fs::read(&of_file).unwrap() == fs::read(&image).unwrap());
}

/// A loop device. Dropping the value detaches it.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Self {
        let made = Command::new("losetup")
            .args(["--find", "--show", "--read-only"])
            .arg(file)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self(String::from_utf8(made.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // If the device is busy, Linux detaches it later.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Linux reads adjacent block numbers of a file with one request, even if the blocks are on different devices. So a block
/// on the image must not have the number that follows a block on an extra device.
#[test]
fn copied_blocks_are_not_adjacent_to_blocks_on_a_device() {
    // The text is compressed in the lower image, so it is copied. Its size changes the addresses of the other copied blocks.
    for blocks in 0..6 {
        let fixture = Fixture::empty();
        let mut rng = Rng::new(5);
        fs::write(fixture.source().join("00"), Content::Text.bytes(4096 * blocks + 100, &mut rng))
            .unwrap();
        for number in 1..6 {
            // A block to which the image refers, and a tail in a fragment, which is copied.
            let path = fixture.source().join(format!("{number:02}"));
            fs::write(path, Content::Noise.bytes(4096 + 3000, &mut rng)).unwrap();
        }
        let (lower, image) = (fixture.path("lower"), fixture.path("image"));
        build(&[&fixture.source()], &lower, "-z lz4 -E fragments");
        build(&[&lower], &image, "--index-only");
        assert_valid_with(&image, &[&lower]);
        if need::kernel_erofs("devices by their loop devices") {
            let device = Loop::new(&lower);
            let options = format!("ro,loop,device={}", device.0);
            let mount = Mount::kernel_with(&image, &fixture.directory("mount"), &options).unwrap();
            fixture.assert_same_as_source(mount.path());
            mount.unmount().unwrap();
        }
    }
}

/// These images use chunks without the feature bit for chunks, which Linux accepts.
#[test]
fn archive_indexes_of_erofs_utils_are_accepted() {
    let Some(mkfs) = newest("mkfs.erofs") else { return };
    let fixture = Fixture::new(&tree::Options { deep: 0, wide: 3, ..tree::Options::small() });
    let (archive, index, joined) =
        (fixture.path("archive.tar"), fixture.path("index"), fixture.path("joined"));
    let source = fixture.source();
    let tar = Command::new("tar")
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .args([&source, Path::new(".")])
        .status();
    assert!(tar.unwrap().success());
    Run::new(mkfs).arg("--tar=i").args([&index, &archive]).run().success();
    fs::write(&joined, [fs::read(&index).unwrap(), fs::read(&archive).unwrap()].concat()).unwrap();
    ferofs().args(["check", "--deep"]).arg(&joined).run().success();
}

#[test]
fn unusable_sources_are_refused_with_their_names() {
    let fixture = Fixture::empty();
    let source = fixture.source();
    fs::write(source.join("file"), "text ".repeat(20_000)).unwrap();
    let (image, out) = (fixture.path("image"), fixture.path("out"));
    build(&[&source], &image, "-z lz4");
    let fails = |sources: &[&Path], options: &[&str], message: &str| {
        let outcome = ferofs().arg("build").args(options).args(sources).arg(&out).run().failure(1);
        assert!(outcome.stderr.contains(message), "{message}: {}", outcome.stderr);
        assert!(!out.exists());
    };
    let mut damaged = fs::read(&image).unwrap();
    // The first block of data.
    damaged[4096..8192].fill(0xa5);
    fs::write(fixture.path("damaged"), damaged).unwrap();
    fails(&[&fixture.path("damaged")], &[], "damaged/file: ");
    let several = format!(
        "{} and {} were taken for sources, {}",
        source.display(),
        image.display(),
        out.display()
    );
    fails(&[&source, &image], &[], &several);
    fails(&[&source, &image], &["--exclude", "a"], "give --exclude before each pattern");
    fails(&[&image, &source], &[], "--versions stores them side by side");
    fails(&[&source], &["--index-only"], "only in tar archives and EROFS images");
    fs::write(fixture.path("short"), &fs::read(&image).unwrap()[..3000]).unwrap();
    fails(&[&fixture.path("short")], &[], "short: ");
    if need::root("attributes of overlayfs") {
        let set = |name: &str, value: &[u8]| {
            lsetxattr(source.join("file"), name, value, XattrFlags::empty()).unwrap();
        };
        set("trusted.overlay.metacopy", b"");
        let upper = fixture.path("upper");
        build(&[&source], &upper, "");
        fails(&[&image, &upper], &[], "upper/file: an overlayfs redirect points to its content");
        // As the only source, the image is accepted.
        build(&[&upper], &fixture.path("alone"), "");
    }
    let refused = mkfs_command(&fixture).args(["-zlz4"]).args([&out, &image]).run().failure(1);
    assert!(refused.stderr.contains("the data stays in the sources"), "{}", refused.stderr);
    let refused = mkfs_command(&fixture).args([&out, &source, &image]).run().failure(1);
    assert!(refused.stderr.contains("if all of them are EROFS images"), "{}", refused.stderr);
}
