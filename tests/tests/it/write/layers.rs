//! EROFS images as sources: one image of any layout, and layers that are merged as by overlayfs.
//! Images and indexes of tar archives whose data stays in the sources.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::{Content, LoopDevice, Mount, Rng, Run, ferofs, need, run, tar, tree};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lsetxattr, makedev, mknodat};
use rustix::mount::{MountFlags, mount};

use crate::common::erofs_utils::{assert_valid, newest};
use crate::common::fixture::{Fixture, same, write};

const FIXED: [&str; 4] = ["-T", "2000000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71"];

fn build(sources: &[&Path], image: &Path, options: &str) {
    let options = FIXED.into_iter().chain(options.split_whitespace());
    ferofs!("build").args(options).args(sources).arg(image).success();
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
            need::lacks(need::LINUX_6_12);
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
    let checked = ferofs!("check").args(&with).arg(image).run();
    assert_eq!(checked.code, 0, "{}{}", checked.stderr, checked.text());
    if let Some(fsck) = newest("fsck.erofs") {
        Run::new(fsck).args(&with).arg("--extract").arg(image).success();
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

/// A lower and an upper image, and the fixture with their sources. The upper one has all kinds of
/// overlayfs whiteouts.
fn layers() -> Option<(Fixture, PathBuf, PathBuf)> {
    if !need::root() || !need::kernel_erofs() {
        return None;
    }
    let fixture = Fixture::new(&tree::Options { deep: 5, wide: 50, ..tree::Options::small() });
    let (lower, upper) = (fixture.source(), fixture.directory("upper"));
    for name in
        ["gone", "gone-dir/x/y", "opaque/below/a", "merged/kept", "merged/changed", "file-then-dir"]
    {
        write(&lower.join("layers").join(name), name.repeat(2000));
    }
    write(&lower.join("layers/dir-then-file/x"), "x");
    fs::hard_link(lower.join("layers/merged/kept"), lower.join("layers/linked")).unwrap();
    let top = upper.join("layers");
    write(&top.join("opaque/new"), "new");
    write(&top.join("merged/changed"), "changed".repeat(1500));
    write(&top.join("merged/added"), "");
    write(&top.join("file-then-dir/now"), "a directory");
    write(&top.join("dir-then-file"), "a file");
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
fn mkfs_refers_to_the_data_in_the_layers() {
    let Some((fixture, lower, upper)) = layers() else { return };
    let merged = merged(&fixture, &lower, &upper);
    let image = fixture.path("image");
    for options in ["", "--ovlfs-strip=1"] {
        let line = format!("mkfs.erofs {options} @image @lower.erofs @upper.erofs");
        fixture.tool(&line).success();
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
    let clean = "mkfs.erofs --clean=data --ovlfs-strip=1 -zlz4 @image @lower.erofs @upper.erofs";
    fixture.tool(clean).success();
    assert_valid(&image);
    let mount = Mount::kernel(&image, &fixture.path("mount")).unwrap();
    compare(merged.overlay.path(), mount.path(), &like_overlayfs()).unwrap().assert_same();
}

/// overlayfs looks for whiteouts only in directories with an attribute: without it, a listing has
/// names that cannot be opened.
#[test]
fn directories_with_whiteouts_are_marked_as_in_archives() {
    require!(need::root() && need::kernel_erofs());
    let Some(tar) = need::tool("tar") else { return };
    let fixture = Fixture::empty();
    let (source, archive) = (fixture.source(), fixture.path("archive"));
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("dir/kept"), "kept").unwrap();
    let (mode, whiteout) = (Mode::from_raw_mode(0o600), source.join("dir/gone"));
    mknodat(CWD, whiteout, FileType::CharacterDevice, mode, makedev(0, 0)).unwrap();
    lsetxattr(source.join("dir"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    let line = "-c --format=pax --xattrs --xattrs-include=* -C @source --file @archive .";
    Run::new(tar).args(fixture.words(line)).success();
    let [image, same, empty] = ["image", "same", "empty"].map(|name| fixture.path(name));
    build(&[&source], &image, "");
    build(&[&archive], &same, "");
    assert!(fs::read(&image).unwrap() == fs::read(&same).unwrap());
    build(&[&fixture.directory("nothing")], &empty, "");
    let merged = merged(&fixture, &empty, &image);
    assert_eq!(fs::read_dir(merged.overlay.path().join("dir")).unwrap().count(), 1);
    drop(merged);
    // The options, and whether there are the whiteout, the attribute, and that of opaque
    // directories, as in images of erofs-utils 1.9.4.
    let dir = fixture.directory("mount");
    for (options, source, expected) in [
        ("", &source, [true, true, true]),
        ("--ovlfs-strip=1", &source, [false, false, false]),
        ("--tar=f", &archive, [true, false, true]),
        ("--tar=f --ovlfs-strip=1", &archive, [true, false, false]),
        ("--tar=f --aufs", &archive, [true, true, true]),
        ("--tar=f --aufs --ovlfs-strip=1", &archive, [false, false, false]),
    ] {
        let options: Vec<_> = options.split_whitespace().collect();
        fixture.tool("mkfs.erofs").args(&options).args([&image, source]).success();
        let mount = Mount::kernel(&image, &dir).unwrap();
        let shown = mount.path().join("dir");
        let has = |name: &str| lgetxattr(&shown, name, &mut [0_u8; 64][..]).is_ok();
        let found = [
            shown.join("gone").exists(),
            has("trusted.overlay.origin"),
            has("trusted.overlay.opaque"),
        ];
        assert_eq!(found, expected, "{options:?}");
        mount.unmount().unwrap();
    }
}

#[test]
fn whiteouts_of_an_archive_replace_files_of_an_existing_image() {
    let fixture = Fixture::empty();
    for path in ["dir/gone", "dir/kept", "dir/sub/below", "opaque/old", "opaque/inner/old"] {
        fixture.write(path, "old");
    }
    let (image, archive) = (fixture.build("image", ["-T0"]), fixture.path("archive"));
    let members = [
        tar::file("dir/.wh.gone", b""),
        tar::file("dir/.wh.sub", b""),
        tar::file("opaque/inner/.wh..wh..opq", b""),
        tar::file("opaque/.wh..wh..opq", b""),
        tar::file("opaque/new", b"new"),
        vec![0; 1024],
    ];
    fs::write(&archive, members.concat()).unwrap();
    let stripped = ["-dir/kept", "-opaque/new", "ddir", "dopaque", "dopaque/inner"];
    for (option, marks) in
        [("--ovlfs-strip=0", &["cdir/gone", "cdir/sub"][..]), ("--ovlfs-strip=1", &[])]
    {
        let added = fixture.path("added");
        fs::copy(&image, &added).unwrap();
        let words = ["--incremental", "--tar=f", "--aufs", option];
        fixture.tool("mkfs.erofs").args(words).args([&added, &archive]).success();
        assert_valid(&added);
        let listed = ferofs!("ls -lR", &added).success().text();
        let mut found: Vec<String> = listed
            .lines()
            .map(|line| format!("{}{}", &line[..1], line.rsplit(' ').next().unwrap()))
            .collect();
        found.sort_unstable();
        let mut expected = [&stripped[..], marks].concat();
        expected.sort_unstable();
        assert_eq!(found, expected, "{option}");
    }
}

#[test]
fn an_index_of_an_archive_shows_its_tree() {
    let Some(tar) = need::tool("tar") else { return };
    let fixture = Fixture::new(&tree::Options { deep: 10, wide: 300, ..tree::Options::small() });
    let source = fixture.source();
    run!("find", &source, "-type", "s", "-delete").success();
    for name in ["device too", "fifo too"] {
        // GNU tar archives these hard links as separate files.
        fs::remove_file(source.join("kinds/links").join(name)).unwrap();
    }
    let [archive, image] = ["archive", "image"].map(|name| fixture.path(name));
    let line = "-c --format=pax --sparse --xattrs --xattrs-include=* -C @source --file @archive .";
    Run::new(tar).args(fixture.words(line)).success();
    let index =
        |words: &str| fixture.tool(&format!("mkfs.erofs --tar=i -T2000000000 --mkfs-time {words}"));
    index("@image @archive").success();
    assert_valid_with(&image, &[&archive]);
    let extracted = fixture.path("extracted");
    fixture.line("extract --device=@archive @image @extracted").success();
    fixture.assert_same_as_source(&extracted);
    if need::kernel_erofs() {
        let dir = fixture.directory("mount");
        if let Some(mount) = kernel_with(&image, &dir, &[&archive]) {
            fixture.assert_same_as_source(mount.path());
        }
    }
    // As containerd does it, the archive is appended to its index: one file without an extra
    // device.
    let joined = fixture.path("joined");
    fs::write(&joined, [fs::read(&image).unwrap(), fs::read(&archive).unwrap()].concat()).unwrap();
    ferofs!("check", &joined).success();
    fs::remove_dir_all(&extracted).unwrap();
    ferofs!("extract", &joined, &extracted).success();
    fixture.assert_same_as_source(&extracted);
    if need::kernel_erofs() {
        let mount = Mount::kernel(&joined, &fixture.path("mount")).unwrap();
        fixture.assert_same_as_source(mount.path());
    }
    // From a compressed archive: the index refers to the uncompressed copy.
    run!("gzip -k -1", &archive).success();
    index("--ungzip=@plain @of-packed @archive.gz").success();
    let plain = fixture.path("plain");
    assert!(fs::read(&plain).unwrap() == fs::read(&archive).unwrap());
    assert_valid_with(&fixture.path("of-packed"), &[&plain]);
    // From a stream, which the caller stores elsewhere; and with `ferofs build`.
    let uuid = FIXED[3];
    let stream = index(&format!("--aufs --quiet -b4096 -U {uuid} @piped"));
    stream.piped(fs::read(&archive).unwrap()).success();
    build(&[&archive], &image, "--index-only --verify");
    let same = |name: &str| fs::read(fixture.path(name)).unwrap() == fs::read(&image).unwrap();
    assert!(same("piped"));
    // -b has no effect: with larger blocks the data would have to be copied.
    index(&format!("-b4096 -U {uuid} @of-file @archive")).success();
    assert!(same("of-file"));
}

/// Linux reads adjacent block numbers of a file with one request, even if the blocks are on
/// different devices. So a block on the image must not have the number that follows a block on an
/// extra device.
#[test]
fn copied_blocks_are_not_adjacent_to_blocks_on_a_device() {
    // The text is compressed in the lower image, so it is copied. Its size changes the addresses of
    // the other copied blocks.
    for blocks in 0..6 {
        let fixture = Fixture::empty();
        let mut rng = Rng::new(5);
        fixture.write("00", Content::Text.bytes(4096 * blocks + 100, &mut rng));
        for number in 1..6 {
            // A block to which the image refers, and a tail in a fragment, which is copied.
            let path = fixture.source().join(format!("{number:02}"));
            fs::write(path, Content::Noise.bytes(4096 + 3000, &mut rng)).unwrap();
        }
        let (lower, image) = (fixture.path("lower"), fixture.path("image"));
        build(&[&fixture.source()], &lower, "-z lz4 -E fragments");
        build(&[&lower], &image, "--index-only");
        assert_valid_with(&image, &[&lower]);
        if need::kernel_erofs() {
            let Some(device) = LoopDevice::attach(&lower, &["--read-only"]) else { return };
            let options = format!("ro,loop,device={}", device.path().display());
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
    let fixture = Fixture::small();
    let [archive, index, joined] = ["archive", "index", "joined"].map(|name| fixture.path(name));
    run!("tar").args(fixture.words("-cf @archive -C @source .")).success();
    Run::new(mkfs).arg("--tar=i").args([&index, &archive]).success();
    fs::write(&joined, [fs::read(&index).unwrap(), fs::read(&archive).unwrap()].concat()).unwrap();
    ferofs!("check --deep", &joined).success();
}

#[test]
fn unusable_sources_are_refused_with_their_names() {
    let fixture = Fixture::empty();
    let source = fixture.source();
    fs::write(source.join("file"), "text ".repeat(20_000)).unwrap();
    let (image, out) = (fixture.path("image"), fixture.path("out"));
    build(&[&source], &image, "-z lz4");
    let fails = |sources: &[&Path], options: &[&str], message: &str| {
        let outcome = ferofs!("build").args(options).args(sources).arg(&out).run();
        let is_usage = options.contains(&"--index-only");
        let outcome = outcome.failure(if is_usage { 2 } else { 1 });
        outcome.says(message);
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
    if need::root() {
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
    let refused = fixture.tool("mkfs.erofs -zlz4 @out @image").failure(1);
    refused.says("the data stays in the sources");
    let refused = fixture.tool("mkfs.erofs @out @source @image").failure(1);
    refused.says("if all of them are EROFS images");
}
