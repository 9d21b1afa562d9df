//! Runs the command lines with which known programs call erofs-utils.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ferofs_tests::compare::{Field, compare};
use ferofs_tests::{LoopDevice, Mount, Run, ferofs, need, run, tree};

use crate::common::erofs_utils::{assert_valid, mkfs, newest, programs};
use crate::common::fixture::{Fixture, same, set_len};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn fixture() -> Fixture {
    Fixture::new(&tree::Options { largest: 50_001, ..tree::Options::small() })
}

/// The command line of a caller.
fn command(fixture: &Fixture, line: &str) -> Run {
    fixture.tool(&line.replace("UUID", UUID))
}

/// Fails unless `line` builds a valid image.
fn builds(fixture: &Fixture, line: &str) {
    command(fixture, line).success();
    assert_valid(&fixture.path("image"));
}

/// Fails unless Linux shows the image of ferofs as the one that the newest erofs-utils build with
/// the same line.
fn assert_same_as_peer(fixture: &Fixture, line: &str, input: Option<&Path>) {
    let Some(peer) = newest("mkfs.erofs") else { return };
    if ANDROID.iter().any(|option| line.contains(option)) || !need::kernel_erofs() {
        return;
    }
    let (_, options) = line.split_once(' ').unwrap();
    let options = options.replace("UUID", UUID).replace("@image", "@peer");
    let mut run = Run::new(peer).args(fixture.words(&options));
    if let Some(input) = input {
        run = run.input(fs::File::open(input).unwrap());
    }
    run.success();
    let [peer, own] = ["peer", "image"].map(|image| {
        let dir = fixture.path(&format!("{image} mount"));
        fs::create_dir_all(&dir).unwrap();
        Mount::kernel(&fixture.path(image), &dir).unwrap()
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
    let report = compare(peer.path(), own.path(), &options).unwrap();
    assert_eq!(report.differences, [], "{line}");
    for mount in [peer, own] {
        mount.unmount().unwrap();
    }
    fs::remove_file(fixture.path("peer")).unwrap();
}

/// Options that erofs-utils have only when built for Android.
const ANDROID: [&str; 3] = ["--product-out", "--fs-config-file", "--block-list-file"];

/// Command lines that build an image of a directory.
const DIRECTORY_LINES: &[&str] = &[
    // containerd
    "mkfs.erofs --quiet -Enoinline_data @image @source",
    // systemd-repart, mkosi
    "mkfs.erofs -U UUID @image @source",
    "mkfs.erofs -U UUID --quiet -zlz4hc,level=12 -b 4096 @image @source",
    // archiso
    "mkfs.erofs -U UUID -zlz4hc,12 -- @image @source",
    // Android
    "mkfs.erofs -z lz4hc,9 -b 4096 --mount-point / --product-out out --fs-config-file @fs_config \
     --file-contexts @contexts -T 1230768000 -U UUID --chunksize 4096 @image @source",
    // Buildroot
    "mkfs.erofs -zlz4hc,9 -T 1700000000 -U 00000000-0000-0000-0000-000000000000 -C4096 @image @source",
    // Yocto
    "mkfs.erofs -zlz4hc @image @source",
    // isar
    "mkfs.erofs -z lz4hc,12 --exclude-regex ^files/.* -U UUID @image @source",
    // kiwi
    "mkfs.erofs -z lz4 -L LABEL --exclude-regex=^sparse$ @image @source",
    // Fedora
    "mkfs.erofs -zlz4 -d0 --all-root --file-contexts=@contexts @image @source",
    // kata
    "mkfs.erofs -Enoinline_data @image @source",
    // archiso, with other algorithms
    "mkfs.erofs -U UUID -zlzma,109 -E ztailpacking -- @image @source",
    "mkfs.erofs -U UUID -zzstd,3 -Efragments,dedupe,force-inode-compact,ztailpacking --workers=4 -T0 -- @image @source",
    // Android, with clusters by path and old indexes
    "mkfs.erofs -z lz4hc,9 --compress-hints @hints -b 4096 -T 1230768000 -U UUID --block-list-file @blocks -C 65536 \
     -E legacy-compress @image @source",
    // Buildroot
    "mkfs.erofs -zlzma,6 -T 1700000000 -U 00000000-0000-0000-0000-000000000000 -C65536 @image @source",
    // dracut
    "mkfs.erofs --exclude-path=files/text -C 65536 -E fragments -x -1 -U UUID -T 0 -z zstd @image @source",
    // lorax
    "mkfs.erofs -zzstd,8 -Ededupe,all-fragments -C 65536 @image @source",
    // Fedora CoreOS
    "mkfs.erofs -zlzma,6 -Eall-fragments,fragdedupe=inode -C1048576 --quiet @image @source",
    // microvm.nix, ghaf
    "mkfs.erofs -zlz4hc -Eztailpacking -Efragments @image @source",
    "mkfs.erofs -zlz4 -E48bit @image @source",
    // options after the paths
    "mkfs.erofs @image @source -z lz4 -C 4096 -x -1 -T0",
    // systemd-repart and mkosi, with other options
    "mkfs.erofs -U UUID --quiet -zzstd,level=3 @image @source",
    "mkfs.erofs -U UUID -zlzma,level=6 -C65536 -b 4096 @image @source -Efragments",
    // archiso, without and with few options
    "mkfs.erofs -U UUID -- @image @source",
    "mkfs.erofs -U UUID -Efragments,dedupe,ztailpacking -zlzma,6 -C65536 -T0 -- @image @source",
    // Yocto
    "mkfs.erofs -zlz4hc -Eztailpacking -T 1700000000 @image @source",
    // kiwi
    "mkfs.erofs -z zstd,level=21 -L LABEL --exclude-regex=^files/text$ --exclude-regex=^sparse$ @image @source",
    // dracut, without a compressor
    "mkfs.erofs --exclude-path=files -C 65536 -E fragments -x -1 -U UUID -T 0 @image @source",
    // Fedora
    "mkfs.erofs -zlzma,6 -Eall-fragments,fragdedupe=inode -C1048576 --quiet -d0 --all-root @image @source",
    // ghaf, as it is
    "mkfs.erofs -E48bit -zzstd,3 -C65536 @image @source",
];

#[test]
fn command_lines_of_callers_build_valid_images_of_directories() {
    let fixture = fixture();
    fs::write(fixture.path("contexts"), "/.* system_u:object_r:usr_t:s0\n").unwrap();
    // The file formats of Android do not support line ends in names.
    fs::remove_dir_all(fixture.source().join("names")).unwrap();
    fs::remove_dir_all(fixture.source().join("attrs")).unwrap();
    // Compact inodes, which archiso asks for, have owners of 16 bits.
    fs::remove_dir_all(fixture.source().join("meta/owners")).unwrap();
    fs::write(fixture.path("hints"), "4096 ^files/\n65536 .*\n").unwrap();
    let list = "find . -printf '%P 0 0 0%m\\n' > \"$1\"";
    run!("sh -c", &format!("cd \"$0\" && {list}"), fixture.source(), fixture.path("fs_config"))
        .success();
    // erofs-utils leave out the nanoseconds of the second of the build.
    for dir in ["meta", ""] {
        let dir = fs::File::open(fixture.source().join(dir)).unwrap();
        dir.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000))
            .unwrap();
    }
    for line in need::sample(DIRECTORY_LINES) {
        builds(&fixture, line);
        assert_same_as_peer(&fixture, line, None);
    }
}

/// Command lines that build an image of a tar archive on standard input.
const TAR_LINES: &[&str] = &[
    // containerd
    "mkfs.erofs --tar=f --aufs --quiet -Enoinline_data @image",
    "mkfs.erofs --tar=f --aufs --quiet -Enoinline_data -T0 --mkfs-time --sort=none -U UUID @image",
    // NixOS
    "mkfs.erofs --quiet --force-uid=0 --force-gid=0 -L nix-store -U UUID -T 0 --hard-dereference --tar=f @image",
];

#[test]
fn command_lines_of_callers_build_valid_images_of_piped_archives() {
    let Some(tar) = need::tool("tar") else { return };
    let fixture = fixture();
    let archive = fixture.path("archive");
    // GNU tar leaves out sockets, and reports this with its exit code.
    Run::new(tar).args(fixture.words("-C @source -cf @archive .")).run();
    for line in TAR_LINES {
        command(&fixture, line).piped(fs::read(&archive).unwrap()).success();
        assert_valid(&fixture.path("image"));
        assert_same_as_peer(&fixture, line, Some(&archive));
    }
}

/// Versions before 1.10 extract holes wrongly, with exit code 0.
#[test]
fn fsck_erofs_extracts_files_that_end_with_zeroes() {
    let fixture = fixture();
    let source = fixture.source();
    for (name, data, size) in [
        ("zeroes", 0, 6 << 20),
        ("end", 90_000, (7 << 20) + 5),
        ("short", 9000, 20_000),
        ("large", 99, 300 << 20),
    ] {
        fixture.write(name, "text\n".repeat(data / 5));
        set_len(source.join(name), size);
    }
    let newest = newest("fsck.erofs");
    for program in programs("fsck.erofs") {
        for (number, options) in [
            "",
            "-zlz4hc -Ededupe",
            "-zlz4 -m4096",
            "--chunksize=4096",
            "--chunksize=1048576",
            "-zlz4 -E48bit",
            "-zzstd -C65536 -E48bit,fragments,dedupe",
            "--chunksize=65536 -E48bit,force-chunk-indexes",
        ]
        .iter()
        .enumerate()
        {
            // Old versions read neither compressed metadata nor wide addresses.
            let is_new = options.contains("-m") || options.contains("48bit");
            if is_new && Some(&program) != newest.as_ref() {
                continue;
            }
            builds(&fixture, &format!("mkfs.erofs --quiet {options} @image @source"));
            assert!(fs::metadata(fixture.path("image")).unwrap().len() < 20 << 20, "{options}");
            let out = fixture.path(&format!("out{number}"));
            let extract = format!("--no-preserve --extract=@out{number} @image");
            Run::new(&program).args(fixture.words(&extract)).success();
            for name in ["zeroes", "end", "short", "large"] {
                let same = run!("cmp", source.join(name), out.join(name)).run();
                assert_eq!(same.code, 0, "{program:?} {options}: {}", same.stderr);
            }
            fs::remove_dir_all(out).unwrap();
        }
    }
}

#[test]
fn chunks_without_content_store_no_zeroes() {
    let fixture = fixture();
    let header = &ferofs_tests::tar::file("zeroes", &vec![0; 9 << 20])[..512];
    fs::write(fixture.path("headers"), [header, &[0; 1024]].concat()).unwrap();
    let line = "mkfs.erofs --quiet --tar=headerball --chunksize=1048576 @image @headers";
    command(&fixture, line).success();
    assert!(fs::metadata(fixture.path("image")).unwrap().len() < 1 << 20);
}

#[test]
fn fsck_and_dump_command_lines_of_callers_work() {
    let fixture = fixture();
    builds(&fixture, "mkfs.erofs -zlz4 -U UUID @image @source");
    for (line, code) in [
        ("fsck.erofs @image", 0),
        ("fsck.erofs -p @image", 0),
        ("fsck.erofs --path=/files @image", 0),
        ("fsck.erofs --path=/nowhere @image", 1),
        // Android: without a directory, --extract only decodes all data.
        ("fsck.erofs --extract @image", 0),
        ("fsck.erofs --extract=@out --no-preserve --xattrs @image", 0),
        ("fsck.erofs --extract=@part --path=/files @image", 0),
        ("dump.erofs --ls --path=/ @image", 0),
        ("dump.erofs -e --path=/files @image", 0),
    ] {
        let outcome = command(&fixture, line).run();
        assert_eq!(outcome.code, code, "{line}: {}", outcome.stderr);
    }
    let superblock = command(&fixture, "dump.erofs -s @image").success().text();
    let uuid =
        superblock.lines().find_map(|line| line.strip_prefix("Filesystem UUID:")).map(str::trim);
    assert_eq!(uuid, Some(UUID), "{superblock}");
    let bytes = fs::read(fixture.path("image")).unwrap();
    fs::write(fixture.path("image"), &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(command(&fixture, "fsck.erofs @image").run().code, 1);
}

#[test]
fn a_block_device_is_written_in_place() {
    let fixture = fixture();
    let disk = fixture.path("disk");
    set_len(&disk, 64 << 20);
    let Some(device) = LoopDevice::attach(&disk, &[]) else { return };
    assert!(fs::metadata(device.path()).unwrap().file_type().is_block_device());
    ferofs!("build -z lz4", fixture.source(), &device).success();
    ferofs!("check", &device).success();
    // A mounted device must not be overwritten.
    if need::kernel_erofs() {
        let dir = fixture.directory("mount");
        rustix::mount::mount(device.path(), &dir, "erofs", rustix::mount::MountFlags::RDONLY, None)
            .unwrap();
        let mount = Mount::adopt(&dir);
        fixture.assert_same_as_source(mount.path());
        ferofs!("build", fixture.source(), &device).failure(1);
        mount.unmount().unwrap();
    }
}

#[test]
fn a_build_on_a_full_device_reports_that_no_space_is_left() {
    let fixture = fixture();
    let disk = fixture.path("disk");
    set_len(&disk, 64 << 10);
    let Some(device) = LoopDevice::attach(&disk, &[]) else { return };
    ferofs!("build", fixture.source(), &device).failure(1).says("No space left");
}

#[test]
fn version_prints_the_version_of_erofs_utils() {
    let fixture = Fixture::small();
    for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs", "mount.erofs", "erofsfuse"] {
        let prefix = if name == "erofsfuse" {
            "erofsfuse ".into()
        } else {
            format!("{name} (erofs-utils) ")
        };
        for flag in ["-V", "--version"] {
            let text = fixture.tool(&format!("{name} {flag}")).success().text();
            let first = text.lines().next().unwrap();
            let version = first.strip_prefix(&*prefix).unwrap_or_else(|| panic!("{first}"));
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

/// As with erofs-utils: also files that fit after their inode unencoded.
#[test]
fn tail_packing_compresses_small_files() {
    let fixture = Fixture::empty();
    for number in 0..50 {
        fixture.write(number.to_string(), format!("{number} of the lines\n").repeat(170));
    }
    let image = fixture.path("image");
    let size = |options: &str| {
        mkfs(&fixture, &format!("--quiet {options}"), &image).success();
        assert_valid(&image);
        fs::metadata(&image).unwrap().len()
    };
    for compressor in ["-zlz4", "-zzstd"] {
        let packed = format!("{compressor} -Eztailpacking");
        assert!(size(compressor) > 100_000 && size(&packed) < 30_000, "{packed}");
    }
}

#[test]
fn options_about_compression_are_ignored_without_a_compressor() {
    let fixture = fixture();
    let hints = fixture.path("hints");
    fs::write(&hints, "65536 .*\n").unwrap();
    let hinted = ["-C65536", "--zD"].map(|option| format!("--compress-hints=@hints {option}"));
    for option in [
        "-Eall-fragments",
        "-Efragments=65536",
        "-Eztailpacking,dedupe",
        "--zfeature-bits=14",
        "-Eall-fragments -C65536",
        "--zD",
        &hinted[0],
        &hinted[1],
    ] {
        builds(&fixture, &format!("mkfs.erofs --quiet {option} @image @source"));
    }
    // Nothing uses a line that cannot be read.
    fs::write(&hints, "65536 (\n").unwrap();
    builds(&fixture, "mkfs.erofs --quiet --compress-hints=@hints @image @source");
}

/// Only a missing end mark is worth a warning, which --quiet hides.
#[test]
fn an_empty_standard_input_is_an_empty_archive() {
    let fixture = fixture();
    for input in [vec![], ferofs_tests::tar::file("f", b"content")] {
        for options in ["--aufs --quiet -Enoinline_data", ""] {
            let run = fixture.tool(&format!("mkfs.erofs --tar=f {options} @image"));
            let stderr = run.piped(input.clone()).success().stderr;
            assert_eq!(stderr.is_empty(), options.contains("--quiet"), "{stderr}");
            assert_valid(&fixture.path("image"));
        }
    }
}

#[test]
fn a_vmdk_descriptor_names_the_image_and_its_layers() {
    let fixture = fixture();
    for layer in ["@l0", "@l1"] {
        let line = format!("mkfs.erofs --quiet -Enoinline_data {layer} @source");
        command(&fixture, &line).success();
    }
    let line = "mkfs.erofs --quiet --vmdk-desc=@desc -U UUID @image @l0 @l1";
    command(&fixture, line).success();
    let text = fs::read_to_string(fixture.path("desc")).unwrap();
    let extents: Vec<&str> = text.lines().filter(|line| line.starts_with("RW ")).collect();
    let path = |name: &str| fixture.path(name);
    let wanted = ["image", "l0", "l1"].map(|name| {
        let sectors = fs::metadata(path(name)).unwrap().len() / 512;
        format!("RW {sectors} FLAT \"{}\" 0", path(name).display())
    });
    assert_eq!(extents, wanted, "{text}");
    assert!(text.contains("createType=\"twoGbMaxExtentFlat\""), "{text}");
    command(&fixture, "mkfs.erofs --vmdk-desc=@no/desc @image2 @source").failure(1);
    command(&fixture, "mkfs.erofs --tar=i --vmdk-desc=@desc @image").failure(1);
}
