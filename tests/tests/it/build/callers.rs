//! Runs the command lines with which known programs call erofs-utils.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use ferofs_tests::compare::{Field, compare};
use ferofs_tests::{Mount, Run, ferofs, need, tree};

use crate::common::erofs_utils::{assert_valid, newest};
use crate::common::fixture::{Fixture, same};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A fixture with the names of erofs-utils.
struct CallerFixture {
    fixture: Fixture,
}

impl CallerFixture {
    fn new() -> Self {
        let fixture = Fixture::new(&tree::Options { largest: 50_001, ..tree::Options::small() });
        let links = fixture.directory("bin");
        for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs"] {
            symlink(ferofs_tests::run::ferofs_path(), links.join(name)).unwrap();
        }
        Self { fixture }
    }

    fn image(&self) -> PathBuf {
        self.fixture.path("IMG")
    }

    /// Runs `line`: see [`Self::command`].
    fn line(&self, line: &str) -> ferofs_tests::Outcome {
        self.command(line).run()
    }

    /// The command `line`; IMG, DIR, UUID and F:NAME (a file) are replaced by the paths and the UUID of this fixture.
    fn command(&self, line: &str) -> Run {
        let (program, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Run::new(self.fixture.path("bin").join(program)).args(self.words(arguments))
    }

    /// The words of a command line after the program.
    fn words(&self, arguments: &str) -> Vec<OsString> {
        let replaced = arguments.split_whitespace().map(|word| {
            let word = word.replace("UUID", UUID).replace("IMG", self.image().to_str().unwrap());
            let source = self.fixture.source();
            let word = word.replace("DIR", source.to_str().unwrap());
            match word.split_once("F:") {
                Some((before, name)) => {
                    OsString::from(format!("{before}{}", self.fixture.path(name).display()))
                }
                None => OsString::from(word),
            }
        });
        replaced.collect()
    }

    /// Fails unless `line` builds a valid image.
    fn builds(&self, line: &str) {
        let outcome = self.line(line);
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
        assert_valid(&self.image());
    }

    /// Fails unless Linux shows the image of ferofs as the one that the newest erofs-utils build with the same line.
    fn assert_same_as_peer(&self, line: &str, input: Option<&Path>) {
        let Some(peer) = newest("mkfs.erofs") else { return };
        if ANDROID.iter().any(|option| line.contains(option))
            || !need::kernel_erofs("images of callers")
        {
            return;
        }
        let (program, options) = line.split_once(' ').unwrap();
        let own_image = self.image();
        let peer_image = self.fixture.path("PEER");
        let options = self.words(&options.replace("IMG", peer_image.to_str().unwrap()));
        let mut run = Run::new(peer.with_file_name(program)).args(options);
        if let Some(input) = input {
            run = run.input(fs::File::open(input).unwrap());
        }
        run.run().success();
        let mounts = [("own", &own_image), ("peer", &peer_image)].map(|(name, image)| {
            let dir = self.fixture.directory(name);
            (Mount::kernel(image, &dir).unwrap(), dir)
        });
        let mut options = same();
        if line.contains("--hard-dereference") {
            // erofs-utils do this only with directories.
            options.ignore.extend([Field::Links, Field::HardLink]);
        }
        if line.contains("48bit") {
            // erofs-utils leave out nanoseconds then.
            options.ignore.push(Field::Mtime);
        }
        let report = compare(mounts[1].0.path(), mounts[0].0.path(), &options).unwrap();
        assert_eq!(report.differences, [], "{line}");
        for (mount, dir) in mounts {
            mount.unmount().unwrap();
            fs::remove_dir(dir).unwrap();
        }
        fs::remove_file(peer_image).unwrap();
    }
}

/// Options that erofs-utils have only when built for Android.
const ANDROID: [&str; 3] = ["--product-out", "--fs-config-file", "--block-list-file"];

/// Command lines that build an image of a directory.
const DIRECTORY_LINES: &[&str] = &[
    // containerd
    "mkfs.erofs --quiet -Enoinline_data IMG DIR",
    // systemd-repart, mkosi
    "mkfs.erofs -U UUID IMG DIR",
    "mkfs.erofs -U UUID --quiet -zlz4hc,level=12 -b 4096 IMG DIR",
    // archiso
    "mkfs.erofs -U UUID -zlz4hc,12 -- IMG DIR",
    // Android
    "mkfs.erofs -z lz4hc,9 -b 4096 --mount-point / --product-out out --fs-config-file F:fs_config \
     --file-contexts F:contexts -T 1230768000 -U UUID --chunksize 4096 IMG DIR",
    // Buildroot
    "mkfs.erofs -zlz4hc,9 -T 1700000000 -U 00000000-0000-0000-0000-000000000000 -C4096 IMG DIR",
    // Yocto
    "mkfs.erofs -zlz4hc IMG DIR",
    // isar
    "mkfs.erofs -z lz4hc,12 --exclude-regex ^files/.* -U UUID IMG DIR",
    // kiwi
    "mkfs.erofs -z lz4 -L LABEL --exclude-regex=^sparse$ IMG DIR",
    // Fedora
    "mkfs.erofs -zlz4 -d0 --all-root --file-contexts=F:contexts IMG DIR",
    // kata
    "mkfs.erofs -Enoinline_data IMG DIR",
    // archiso, with other algorithms
    "mkfs.erofs -U UUID -zlzma,109 -E ztailpacking -- IMG DIR",
    "mkfs.erofs -U UUID -zzstd,3 -Efragments,dedupe,force-inode-compact,ztailpacking --workers=4 -T0 -- IMG DIR",
    // Android, with clusters by path and old indexes
    "mkfs.erofs -z lz4hc,9 --compress-hints F:hints -b 4096 -T 1230768000 -U UUID --block-list-file F:blocks -C 65536 \
     -E legacy-compress IMG DIR",
    // Buildroot
    "mkfs.erofs -zlzma,6 -T 1700000000 -U 00000000-0000-0000-0000-000000000000 -C65536 IMG DIR",
    // dracut
    "mkfs.erofs --exclude-path=files/text -C 65536 -E fragments -x -1 -U UUID -T 0 -z zstd IMG DIR",
    // lorax
    "mkfs.erofs -zzstd,8 -Ededupe,all-fragments -C 65536 IMG DIR",
    // Fedora CoreOS
    "mkfs.erofs -zlzma,6 -Eall-fragments,fragdedupe=inode -C1048576 --quiet IMG DIR",
    // microvm.nix, ghaf
    "mkfs.erofs -zlz4hc -Eztailpacking -Efragments IMG DIR",
    "mkfs.erofs -zlz4 -E48bit IMG DIR",
    // options after the paths
    "mkfs.erofs IMG DIR -z lz4 -C 4096 -x -1 -T0",
    // systemd-repart and mkosi, with other options
    "mkfs.erofs -U UUID --quiet -zzstd,level=3 IMG DIR",
    "mkfs.erofs -U UUID -zlzma,level=6 -C65536 -b 4096 IMG DIR -Efragments",
    // archiso, without and with few options
    "mkfs.erofs -U UUID -- IMG DIR",
    "mkfs.erofs -U UUID -Efragments,dedupe,ztailpacking -zlzma,6 -C65536 -T0 -- IMG DIR",
    // Yocto
    "mkfs.erofs -zlz4hc -Eztailpacking -T 1700000000 IMG DIR",
    // kiwi
    "mkfs.erofs -z zstd,level=21 -L LABEL --exclude-regex=^files/text$ --exclude-regex=^sparse$ IMG DIR",
    // dracut, without a compressor
    "mkfs.erofs --exclude-path=files -C 65536 -E fragments -x -1 -U UUID -T 0 IMG DIR",
    // Fedora
    "mkfs.erofs -zlzma,6 -Eall-fragments,fragdedupe=inode -C1048576 --quiet -d0 --all-root IMG DIR",
    // ghaf, as it is
    "mkfs.erofs -E48bit -zzstd,3 -C65536 IMG DIR",
];

#[test]
fn command_lines_of_callers_build_valid_images_of_directories() {
    let caller = CallerFixture::new();
    fs::write(caller.fixture.path("contexts"), "/.* system_u:object_r:usr_t:s0\n").unwrap();
    // The file formats of Android do not support line ends in names.
    fs::remove_dir_all(caller.fixture.source().join("names")).unwrap();
    fs::remove_dir_all(caller.fixture.source().join("attrs")).unwrap();
    // Compact inodes, which archiso asks for, have owners of 16 bits.
    fs::remove_dir_all(caller.fixture.source().join("meta/owners")).unwrap();
    fs::write(caller.fixture.path("hints"), "4096 ^files/\n65536 .*\n").unwrap();
    let list = "find . -printf '%P 0 0 0%m\\n' > \"$1\"";
    Run::new("sh")
        .args(["-c", &format!("cd \"$0\" && {list}")])
        .args([caller.fixture.source(), caller.fixture.path("fs_config")])
        .run()
        .success();
    // erofs-utils leave out the nanoseconds of the second of the build.
    for dir in ["meta", ""] {
        let dir = fs::File::open(caller.fixture.source().join(dir)).unwrap();
        dir.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000))
            .unwrap();
    }
    for line in need::sample(DIRECTORY_LINES) {
        caller.builds(line);
        caller.assert_same_as_peer(line, None);
    }
}

/// Command lines that build an image of a tar archive on standard input.
const TAR_LINES: &[&str] = &[
    // containerd
    "mkfs.erofs --tar=f --aufs --quiet -Enoinline_data IMG",
    "mkfs.erofs --tar=f --aufs --quiet -Enoinline_data -T0 --mkfs-time --sort=none -U UUID IMG",
    // NixOS
    "mkfs.erofs --quiet --force-uid=0 --force-gid=0 -L nix-store -U UUID -T 0 --hard-dereference --tar=f IMG",
];

#[test]
fn command_lines_of_callers_build_valid_images_of_piped_archives() {
    let Some(tar) = need::tool("tar", "archives in a pipe") else { return };
    let caller = CallerFixture::new();
    let archive = caller.fixture.path("archive");
    // GNU tar leaves out sockets, and reports this with its exit code.
    Run::new(tar)
        .args(["-C", caller.fixture.source().to_str().unwrap(), "-cf"])
        .arg(&archive)
        .arg(".")
        .run();
    for line in TAR_LINES {
        let mut child =
            caller.command(line).command().stdin(std::process::Stdio::piped()).spawn().unwrap();
        std::io::copy(&mut fs::File::open(&archive).unwrap(), child.stdin.as_mut().unwrap())
            .unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "{line}");
        assert_valid(&caller.image());
        caller.assert_same_as_peer(line, Some(&archive));
    }
}

#[test]
fn fsck_and_dump_command_lines_of_callers_work() {
    let caller = CallerFixture::new();
    caller.builds("mkfs.erofs -zlz4 -U UUID IMG DIR");
    assert_eq!(caller.line("fsck.erofs IMG").code, 0);
    assert_eq!(caller.line("fsck.erofs -p IMG").code, 0);
    assert_eq!(caller.line("fsck.erofs --path=/files IMG").code, 0);
    assert_eq!(caller.line("fsck.erofs --path=/nowhere IMG").code, 1);
    // Android: without a directory, --extract only decodes all data.
    assert_eq!(caller.line("fsck.erofs --extract IMG").code, 0);
    assert_eq!(caller.line("fsck.erofs --extract=F:out --no-preserve --xattrs IMG").code, 0);
    assert_eq!(caller.line("fsck.erofs --extract=F:part --path=/files IMG").code, 0);
    let superblock = String::from_utf8(caller.line("dump.erofs -s IMG").success().stdout).unwrap();
    let uuid =
        superblock.lines().find_map(|line| line.strip_prefix("Filesystem UUID:")).map(str::trim);
    assert_eq!(uuid, Some(UUID), "{superblock}");
    for line in ["dump.erofs --ls --path=/ IMG", "dump.erofs -e --path=/files IMG"] {
        let outcome = caller.line(line);
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.stderr);
    }
    let bytes = fs::read(caller.image()).unwrap();
    fs::write(caller.image(), &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(caller.line("fsck.erofs IMG").code, 1);
}

#[test]
fn a_block_device_is_written_in_place() {
    require!(need::root("a loop device") && need::tool("losetup", "a loop device").is_some());
    let caller = CallerFixture::new();
    let disk = caller.fixture.path("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let outcome = Run::new("losetup").args(["--find", "--show"]).arg(&disk).run().success();
    let device = PathBuf::from(String::from_utf8(outcome.stdout).unwrap().trim());
    let result = std::panic::catch_unwind(|| {
        assert!(fs::metadata(&device).unwrap().file_type().is_block_device());
        ferofs()
            .args(["build", "-z", "lz4"])
            .args([&caller.fixture.source(), &device])
            .run()
            .success();
        ferofs().arg("check").arg(&device).run().success();
        // A mounted device must not be overwritten.
        if need::kernel_erofs("a mounted device") {
            let dir = caller.fixture.directory("mount");
            rustix::mount::mount(&device, &dir, "erofs", rustix::mount::MountFlags::RDONLY, None)
                .unwrap();
            let mount = ferofs_tests::Mount::adopt(&dir);
            caller.fixture.assert_same_as_source(mount.path());
            ferofs().arg("build").args([&caller.fixture.source(), &device]).run().failure(1);
            mount.unmount().unwrap();
        }
    });
    Run::new("losetup").arg("-d").arg(&device).run().success();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_build_on_a_full_device_reports_that_no_space_is_left() {
    require!(need::root("a loop device") && need::tool("losetup", "a loop device").is_some());
    let caller = CallerFixture::new();
    let disk = caller.fixture.path("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 10).unwrap();
    let outcome = Run::new("losetup").args(["--find", "--show"]).arg(&disk).run().success();
    let device = PathBuf::from(String::from_utf8(outcome.stdout).unwrap().trim());
    let outcome = ferofs().arg("build").args([&caller.fixture.source(), &device]).run();
    Run::new("losetup").arg("-d").arg(&device).run().success();
    assert!(outcome.failure(1).stderr.contains("No space left"));
}

#[test]
fn version_prints_the_version_of_erofs_utils() {
    let fixture = Fixture::new(&tree::Options::small());
    for (name, prefix) in [
        ("mkfs.erofs", "mkfs.erofs (erofs-utils) "),
        ("fsck.erofs", "fsck.erofs (erofs-utils) "),
        ("dump.erofs", "dump.erofs (erofs-utils) "),
        ("mount.erofs", "mount.erofs (erofs-utils) "),
        ("erofsfuse", "erofsfuse "),
    ] {
        let link = fixture.path(name);
        symlink(ferofs_tests::run::ferofs_path(), &link).unwrap();
        for flag in ["-V", "--version"] {
            let text = String::from_utf8(Run::new(&link).arg(flag).run().success().stdout).unwrap();
            let first = text.lines().next().unwrap();
            let version = first.strip_prefix(prefix).unwrap_or_else(|| panic!("{first}"));
            let numbers: Vec<u32> =
                version.split('.').map(|number| number.parse().unwrap()).collect();
            // The oldest version that kata accepts.
            assert!(numbers.as_slice() >= [1, 8, 2].as_slice(), "{version}");
            assert!(text.contains("\nferofs "), "{text}");
            assert_eq!(
                text.contains("compressors: lz4, lz4hc, lzma"),
                name.starts_with(['m', 'f']) && !name.contains("mount")
            );
        }
    }
}

#[test]
fn options_about_compression_are_ignored_without_a_compressor() {
    let caller = CallerFixture::new();
    for option in [
        "-Eall-fragments",
        "-Efragments=65536",
        "-Eztailpacking,dedupe",
        "--zfeature-bits=14",
        "-Eall-fragments -C65536",
    ] {
        caller.builds(&format!("mkfs.erofs --quiet {option} IMG DIR"));
    }
}

/// Runs `line` with `input` on its standard input.
fn with_input(caller: &CallerFixture, line: &str, input: &[u8]) -> std::process::Output {
    use std::process::Stdio;
    let mut command = caller.command(line).command();
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may end before it has read all of its input.
    let _ = std::io::Write::write_all(child.stdin.as_mut().unwrap(), input);
    drop(child.stdin.take());
    child.wait_with_output().unwrap()
}

#[test]
fn an_empty_standard_input_is_an_empty_archive() {
    let caller = CallerFixture::new();
    for line in ["mkfs.erofs --tar=f --aufs --quiet -Enoinline_data IMG", "mkfs.erofs --tar=f IMG"]
    {
        let output = with_input(&caller, line, b"");
        assert!(output.status.success(), "{line}: {output:?}");
        assert_eq!(output.stderr.is_empty(), line.contains("--quiet"), "{output:?}");
        assert_valid(&caller.image());
    }
}

#[test]
fn quiet_hides_the_warning_about_a_missing_end_mark() {
    let caller = CallerFixture::new();
    let archive = ferofs_tests::tar::file("f", b"content");
    for (line, quiet) in
        [("mkfs.erofs --quiet --tar=f IMG", true), ("mkfs.erofs --tar=f IMG", false)]
    {
        let output = with_input(&caller, line, &archive);
        assert!(output.status.success(), "{line}: {output:?}");
        assert_eq!(output.stderr.is_empty(), quiet, "{output:?}");
        assert_valid(&caller.image());
    }
}

#[test]
fn a_vmdk_descriptor_names_the_image_and_its_layers() {
    let caller = CallerFixture::new();
    for layer in ["l0", "l1"] {
        caller.line(&format!("mkfs.erofs --quiet -Enoinline_data F:{layer} DIR")).success();
    }
    caller.line("mkfs.erofs --quiet --vmdk-desc=F:desc -U UUID IMG F:l0 F:l1").success();
    let text = fs::read_to_string(caller.fixture.path("desc")).unwrap();
    let extents: Vec<&str> = text.lines().filter(|line| line.starts_with("RW ")).collect();
    let path = |name: &str| caller.fixture.path(name);
    let wanted = ["IMG", "l0", "l1"].map(|name| {
        let sectors = fs::metadata(path(name)).unwrap().len() / 512;
        format!("RW {sectors} FLAT \"{}\" 0", path(name).display())
    });
    assert_eq!(extents, wanted, "{text}");
    assert!(text.contains("createType=\"twoGbMaxExtentFlat\""), "{text}");
    caller.line("mkfs.erofs --vmdk-desc=F:no/desc IMG2 DIR").failure(1);
    caller.line("mkfs.erofs --tar=i --vmdk-desc=F:desc IMG").failure(1);
}
