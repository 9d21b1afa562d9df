//! Images made of images: of any layout, in layers that overlayfs merges alike, and such as leave content where it is; so do
//! indexes of tar archives.

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

use crate::common::erofs_utils::newest;
use crate::common::fixture::{Fixture, same};
use crate::common::mkfs::{assert_valid, mkfs_command};

const FIXED: [&str; 4] = ["-T", "2000000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71"];

fn build(sources: &[&Path], image: &Path, options: &str) {
    let options = FIXED.into_iter().chain(options.split_whitespace());
    ferofs().arg("build").args(options).args(sources).arg(image).run().success();
}

/// By Linux, with extra devices in files; `None` before Linux 6.12.
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
            eprintln!("SKIPPED devices in files: needs Linux 6.12");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fails unless both checkers accept the image with its devices.
fn sound_with(image: &Path, devices: &[&Path]) {
    let with: Vec<OsString> =
        devices.iter().map(|device| [OsStr::new("--device="), device.as_os_str()].concat_os()).collect();
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
    let (first, again, expected) = (fixture.path("first"), fixture.path("again"), fixture.path("expected"));
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
        // Chunks of zeroes are holes, which the source need not have.
        let same = fs::read(&again).unwrap() == expected || layout.starts_with("--chunk-size");
        assert!(same, "the same bits as of the directory: {layout}");
    }
    if need::kernel_erofs("an image made of an image") {
        let mount = Mount::kernel(&again, &fixture.directory("mount")).unwrap();
        fixture.assert_same_as_source(mount.path());
    }
    if let Some(theirs) = newest("mkfs.erofs") {
        Run::new(theirs)
            .args(["--quiet", "-zzstd", "-C65536", "-Efragments,dedupe,ztailpacking"])
            .args([&first, &fixture.source()])
            .run()
            .success();
        build(&[&first], &again, "--compress=lz4");
        assert!(fs::read(&again).unwrap() == expected, "of their image");
    }
}

/// Two images and directories that they are of: the upper one has every sign that overlayfs knows.
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
    for name in ["gone", "gone-dir/x/y", "opaque/below/a", "merged/kept", "merged/changed", "file-then-dir"] {
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
    build(&[&lower], &below, "--no-inline-data");
    build(&[&upper], &above, "");
    Some((fixture, below, above))
}

/// Both layers, merged by overlayfs.
struct Merged {
    overlay: Mount,
    _below: (Mount, Mount),
}

fn merged(fixture: &Fixture, lower: &Path, upper: &Path) -> Merged {
    let below = Mount::kernel(lower, &fixture.directory("lower mount")).unwrap();
    let above = Mount::kernel(upper, &fixture.directory("upper mount")).unwrap();
    let dir = fixture.directory("overlay");
    let options =
        [OsStr::new("lowerdir="), above.path().as_os_str(), OsStr::new(":"), below.path().as_os_str()];
    let options = CString::new(options.concat_os().into_encoded_bytes()).unwrap();
    mount("overlay", &dir, "overlay", MountFlags::RDONLY, options.as_c_str()).unwrap();
    Merged { overlay: Mount::adopt(&dir), _below: (above, below) }
}

/// What overlayfs makes up: link counts of directories, inode numbers in listings.
fn as_overlayfs() -> compare::Options {
    let mut options = same();
    options.ignore.extend([Field::Links, Field::Listing]);
    options
}

#[test]
fn layers_merge_as_overlayfs_does() {
    let Some((fixture, lower, upper)) = layers() else { return };
    let merged = merged(&fixture, &lower, &upper);
    let (image, packed) = (fixture.path("image"), fixture.path("packed.erofs"));
    build(&[&lower], &packed, "-z lz4 -E ztailpacking,fragments");
    build(&[&packed, &upper], &image, "-z zstd -C 64K -E fragments --verify");
    assert_valid(&image);
    let mount = Mount::kernel(&image, &fixture.directory("mount")).unwrap();
    compare(merged.overlay.path(), mount.path(), &as_overlayfs()).unwrap().assert_same();
    let names =
        Command::new("find").arg(mount.path()).args(["-type", "c", "-printf", "%P\n"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&names.stdout).contains("layers/"), "whiteouts are gone");
}

#[test]
fn mkfs_points_to_the_layers() {
    let Some((fixture, lower, upper)) = layers() else { return };
    let merged = merged(&fixture, &lower, &upper);
    let image = fixture.path("image");
    for options in ["", "--ovlfs-strip=1"] {
        mkfs_command(&fixture)
            .args(options.split_whitespace())
            .args([&image, &lower, &upper])
            .run()
            .success();
        sound_with(&image, &[&lower, &upper]);
        let sizes = [&image, &lower].map(|path| fs::metadata(path).unwrap().len());
        assert!(sizes[0] * 2 < sizes[1], "{sizes:?}");
        let dir = fixture.path("mount");
        let _ = fs::create_dir(&dir);
        let Some(mount) = kernel_with(&image, &dir, &[&lower, &upper]) else { return };
        if options.is_empty() {
            // Whiteouts are kept for layers below, and hidden by overlayfs again.
            let kept = fs::symlink_metadata(mount.path().join("layers/merged/never"));
            assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kept.unwrap().file_type()));
        } else {
            compare(merged.overlay.path(), mount.path(), &as_overlayfs()).unwrap().assert_same();
        }
        mount.unmount().unwrap();
    }
    // A clean build has all of it.
    mkfs_command(&fixture)
        .args(["--clean=data", "--ovlfs-strip=1", "-zlz4"])
        .args([&image, &lower, &upper])
        .run()
        .success();
    assert_valid(&image);
    let mount = Mount::kernel(&image, &fixture.path("mount")).unwrap();
    compare(merged.overlay.path(), mount.path(), &as_overlayfs()).unwrap().assert_same();
}

#[test]
fn an_index_of_a_tar_shows_the_tree() {
    let Some(tar) = need::tool("tar", "indexes of archives") else { return };
    let fixture = Fixture::new(&tree::Options { deep: 10, wide: 300, ..tree::Options::small() });
    let source = fixture.source();
    assert!(Command::new("find").arg(&source).args(["-type", "s", "-delete"]).status().unwrap().success());
    for name in ["device too", "fifo too"] {
        // GNU tar writes these as devices of their own.
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
    sound_with(&image, &[&archive]);
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
    // The archive behind its index, as containerd has it: one file, which needs no device.
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
    // Compressed: the content stays in the plain copy.
    assert!(Command::new("gzip").args(["-k", "-1"]).arg(&archive).status().unwrap().success());
    let (plain, of_packed) = (fixture.path("plain.tar"), fixture.path("of-packed"));
    mkfs_command(&fixture)
        .args(["--tar=i", "-T2000000000", "--mkfs-time"])
        .arg([OsStr::new("--ungzip="), plain.as_os_str()].concat_os())
        .args([&of_packed, &fixture.path("archive.tar.gz")])
        .run()
        .success();
    assert!(fs::read(&plain).unwrap() == fs::read(&archive).unwrap());
    sound_with(&of_packed, &[&plain]);
    // Of a stream, which somebody keeps elsewhere, and by our own name.
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
    // Of a file, -b changes nothing either: with larger blocks the content would have to be copied.
    let of_file = fixture.path("of-file");
    mkfs_command(&fixture)
        .args(["-b4096", "--tar=i", "-T2000000000", "--mkfs-time", "-U"])
        .arg(FIXED[3])
        .args([&of_file, &archive])
        .run()
        .success();
    assert!(fs::read(&of_file).unwrap() == fs::read(&image).unwrap());
}

/// A loop device, for as long as it is needed.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Self {
        let made =
            Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(file).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self(String::from_utf8(made.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Linux detaches later what it cannot detach now.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Linux reads blocks of one file with one request when their numbers follow each other, on whatever device they are.
#[test]
fn copies_do_not_follow_what_is_on_a_device() {
    // The text is compressed in the lower image, and copied: its blocks move the copies that follow.
    for blocks in 0..6 {
        let fixture = Fixture::empty();
        let mut rng = Rng::new(5);
        fs::write(fixture.source().join("00"), Content::Text.bytes(4096 * blocks + 100, &mut rng)).unwrap();
        for number in 1..6 {
            // A block that stays where it is, and an end that has to be copied from a fragment.
            let path = fixture.source().join(format!("{number:02}"));
            fs::write(path, Content::Noise.bytes(4096 + 3000, &mut rng)).unwrap();
        }
        let (lower, image) = (fixture.path("lower"), fixture.path("image"));
        build(&[&fixture.source()], &lower, "-z lz4 -E fragments");
        build(&[&lower], &image, "--index-only");
        sound_with(&image, &[&lower]);
        if need::kernel_erofs("devices by their loop devices") {
            let device = Loop::new(&lower);
            let options = format!("ro,loop,device={}", device.0);
            let mount = Mount::kernel_with(&image, &fixture.directory("mount"), &options).unwrap();
            fixture.assert_same_as_source(mount.path());
            mount.unmount().unwrap();
        }
    }
}

/// They do not announce their chunks, and Linux does not ask.
#[test]
fn tar_indexes_of_erofs_utils_are_sound() {
    let Some(mkfs) = newest("mkfs.erofs") else { return };
    let fixture = Fixture::new(&tree::Options { deep: 0, wide: 3, ..tree::Options::small() });
    let (archive, index, joined) =
        (fixture.path("archive.tar"), fixture.path("index"), fixture.path("joined"));
    let source = fixture.source();
    let tar = Command::new("tar").arg("-cf").arg(&archive).arg("-C").args([&source, Path::new(".")]).status();
    assert!(tar.unwrap().success());
    Run::new(mkfs).arg("--tar=i").args([&index, &archive]).run().success();
    fs::write(&joined, [fs::read(&index).unwrap(), fs::read(&archive).unwrap()].concat()).unwrap();
    ferofs().args(["check", "--deep"]).arg(&joined).run().success();
}

#[test]
fn sources_that_cannot_be_are_named() {
    let fixture = Fixture::empty();
    let source = fixture.source();
    fs::write(source.join("file"), "text ".repeat(20_000)).unwrap();
    let (image, out) = (fixture.path("image"), fixture.path("out"));
    build(&[&source], &image, "-z lz4");
    let fails = |sources: &[&Path], options: &[&str], says: &str| {
        let outcome = ferofs().arg("build").args(options).args(sources).arg(&out).run().failure(1);
        assert!(outcome.stderr.contains(says), "{says}: {}", outcome.stderr);
        assert!(!out.exists());
    };
    let mut damaged = fs::read(&image).unwrap();
    // The first block of data.
    damaged[4096..8192].fill(0xa5);
    fs::write(fixture.path("damaged"), damaged).unwrap();
    fails(&[&fixture.path("damaged")], &[], "damaged/file: ");
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
        fails(&[&image, &upper], &[], "upper/file: overlayfs is to look for its content elsewhere");
        // Alone it is a file as any other.
        build(&[&upper], &fixture.path("alone"), "");
    }
    let refused = mkfs_command(&fixture).args(["-zlz4"]).args([&out, &image]).run().failure(1);
    assert!(refused.stderr.contains("the data stays in the sources"), "{}", refused.stderr);
    let refused = mkfs_command(&fixture).args([&out, &source, &image]).run().failure(1);
    assert!(refused.stderr.contains("if all of them are EROFS images"), "{}", refused.stderr);
}
