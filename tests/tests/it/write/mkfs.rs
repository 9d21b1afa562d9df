//! The options of `mkfs.erofs`: their effect on an image, checked with Linux, `ferofs check`, and
//! the newest `fsck.erofs` if `cargo xtask peers` has installed it.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::{Content, Mount, Rng, Run, ferofs, need, run, tree, xattr};

use crate::common::erofs_utils::{assert_valid, mkfs, newest};
use crate::common::fixture::{Fixture, same};

/// Builds an image, and fails unless both checkers accept it.
fn built(fixture: &Fixture, name: &str, options: &str) -> PathBuf {
    let image = fixture.path(name);
    mkfs(fixture, options, &image).success();
    assert_valid(&image);
    image
}

/// Fails if the image, mounted by Linux, differs from the source in other fields than `ignore`.
fn assert_mounted(fixture: &Fixture, image: &Path, ignore: Vec<Field>) {
    require!(need::kernel_erofs());
    let dir = fixture.directory("mount");
    let mount = Mount::kernel(image, &dir).unwrap();
    let mut options = same();
    options.ignore.extend(ignore);
    compare(&fixture.source(), mount.path(), &options).unwrap().assert_same();
    mount.unmount().unwrap();
    fs::remove_dir(dir).unwrap();
}

fn small() -> tree::Options {
    tree::Options { largest: 20_001, ..tree::Options::small() }
}

#[test]
fn clean_rvsp_reserves_space_for_the_data_of_an_archive() {
    let fixture = Fixture::empty();
    for name in ["a", "b"] {
        fixture.write(name, [7; 10_000]);
    }
    let image = fixture.path("image");
    run!("tar").args(fixture.words("-cf @tar -C @source .")).success();
    fixture.tool("mkfs.erofs --clean=rvsp --tar=f @image @tar").success();
    assert_valid(&image);
    assert!(fs::metadata(&image).unwrap().len() > 2 * 3 * 4096);
    let shown = fixture.extract(&image, "shown");
    for name in ["a", "b"] {
        assert!(fs::read(shown.join(name)).unwrap() == [0; 10_000]);
    }
}

#[test]
fn an_image_can_be_written_to_a_descriptor() {
    let fixture = Fixture::empty();
    fixture.write("file", "content");
    let links = fixture.links();
    let image = fixture.path("image");
    for line in [
        "/dev/fd/3 \"$1\" 3>\"$2\"",
        "/proc/self/fd/7 \"$1\" 7<>\"$2\"",
        "/dev/stdout \"$1\" >\"$2\"",
    ] {
        fs::write(&image, vec![7; 1 << 20]).unwrap();
        let script = format!("exec \"$0/mkfs.erofs\" --quiet -T0 -Uclear {line}");
        let run = run!("sh -c", script, &links);
        run.args([&fixture.source(), &image]).success();
        assert_valid(&image);
        assert!(fs::metadata(&image).unwrap().len() < 1 << 20, "{line}");
    }
    // A symbolic link stays, and its target is replaced.
    let link = fixture.path("link");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    fs::write(&image, "old").unwrap();
    mkfs(&fixture, "--quiet", &link).success();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_valid(&image);
}

#[test]
fn source_date_epoch_has_priority_over_t() {
    let fixture = Fixture::empty();
    let times = [("old", 1_000_000_000), ("new", 1_900_000_000)];
    for (name, secs) in times {
        let file = fs::File::create(fixture.source().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs)).unwrap();
    }
    let links = fixture.links();
    let shown = |mkfs: &Path, epoch: &str, options: &str| -> Vec<String> {
        let image = fixture.path("image");
        let mkfs = Run::new(mkfs)
            .env("SOURCE_DATE_EPOCH", epoch)
            .arg("--quiet")
            .args(options.split_whitespace());
        mkfs.args([&image, &fixture.source()]).success();
        ["-s", "--path=/old", "--path=/new"]
            .map(|file| {
                let dump = Run::new(links.join("dump.erofs"))
                    .env("TZ", "UTC")
                    .arg(file)
                    .arg(&image)
                    .success();
                let text = dump.text();
                let time = text
                    .lines()
                    .find(|line| line.contains("created:") || line.starts_with("Timestamp:"));
                time.unwrap().split(':').skip(1).collect::<Vec<_>>().join(":").trim().to_owned()
            })
            .to_vec()
    };
    let own = links.join("mkfs.erofs");
    let clamped = [
        "Tue Nov 14 22:13:20 2023",
        "2001-09-09 01:46:40.000000000",
        "2023-11-14 22:13:20.000000000",
    ];
    for options in ["", "-T5", "-T5 --mkfs-time", "-T5 --all-time"] {
        assert_eq!(shown(&own, "1700000000", options), clamped, "{options}");
        if let Some(peer) = newest("mkfs.erofs") {
            assert_eq!(shown(&peer, "1700000000", options), clamped, "{options}");
        }
    }
    // Empty is the same as unset. erofs-utils take it for 0.
    assert_eq!(shown(&own, "", "-T5")[1..], ["1970-01-01 00:00:05.000000000"; 2]);
    for mkfs in [Some(own), newest("mkfs.erofs")].into_iter().flatten() {
        for wrong in ["now", "12x", "0x10"] {
            let run = Run::new(&mkfs).env("SOURCE_DATE_EPOCH", wrong).arg("-T5");
            let outcome = run.args([&fixture.path("x"), &fixture.source()]).run();
            assert_eq!(outcome.code, 1, "{wrong}");
            outcome.says("SOURCE_DATE_EPOCH");
        }
    }
}

#[test]
fn compact_inodes_refuse_values_that_do_not_fit() {
    let fixture = Fixture::empty();
    fixture.write("file", "x");
    let image = built(&fixture, "image", "-Eforce-inode-compact -T 1000 --mkfs-time --all-root");
    assert_mounted(&fixture, &image, vec![Field::Mtime, Field::Uid, Field::Gid]);
    let outcome = mkfs(&fixture, "-Eforce-inode-compact --force-uid=70000", &image).failure(1);
    outcome.says("70000");
    outcome.says("65535");
}

#[test]
fn fsck_of_erofs_utils_accepts_the_digests() {
    let Some(fsck) = newest("fsck.erofs") else { return };
    let fixture = Fixture::new(&tree::Options { largest: 5_000_000, ..small() });
    for name in ["", "=trusted.ferofs.digest"] {
        let image = built(&fixture, "image", &format!("-zlz4 --xattr-inode-digest{name}"));
        Run::new(&fsck).arg("--xattr-inode-digest").arg(&image).success();
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn too_large_xattrs_are_reported_with_size_and_limit() {
    require!(need::root());
    let fixture = Fixture::empty();
    let disk = fixture.directory("disk");
    let mount = Mount::memory("tmpfs", "rw", &disk);
    let large = disk.join("large");
    fs::write(&large, "x").unwrap();
    let dir = fs::File::open(&disk).unwrap();
    let created = (0..5).all(|n| {
        xattr::set(&dir, b"large", format!("trusted.n{n}").as_bytes(), &[7; 60_000]).is_ok()
    });
    let outcome = ferofs!("build", &disk, fixture.path("image")).run();
    drop(dir);
    mount.unmount().unwrap();
    if created {
        let outcome = outcome.failure(1);
        outcome.says("large: a set of extended attributes of 300052");
        outcome.says("limit 262148");
    }
}

#[test]
fn labels_are_the_same_as_with_erofs_utils() {
    require!(need::kernel_erofs());
    let fixture = Fixture::empty();
    for file in ["bin/sh", "bin/su", "lib/libc.so.6", "lib/modules/a.ko", "top"] {
        fixture.write(file, file);
    }
    std::os::unix::fs::symlink("sh", fixture.source().join("bin/link")).unwrap();
    let contexts = fixture.path("contexts");
    let text = "/.* u:object_r:default:s0\n/system(/.*)? u:object_r:system:s0\n# comment\n\
        /system/bin/.* u:object_r:bin:s0\n/system/bin/.* -l u:object_r:link:s0\n\
        /system/bin/su -- u:object_r:su:s0\n/system/lib/.*\\.so(\\.[0-9]+)* u:object_r:lib:s0\n\
        /system/lib/modules(/.*)? <<none>>\n/system/top u:object_r:top:s0\n/system/t.* u:object_r:late:s0\n";
    fs::write(&contexts, text).unwrap();
    let options = format!("--file-contexts={} --mount-point=/system", contexts.display());
    // As libselinux, which looks names up without double slashes.
    let labelled = built(&fixture, "labelled", &options.replace("=/system", "=//system/"));
    let mount = Mount::kernel(&labelled, &fixture.directory("mount")).unwrap();
    let label = |path: &str| {
        let dir = fs::File::open(mount.path()).unwrap();
        let all = xattr::all(&dir, path.as_bytes()).unwrap();
        all.get(b"security.selinux".as_slice())
            .map(|label| String::from_utf8(label.clone()).unwrap())
    };
    for (path, expected) in [
        (".", Some("system")),
        ("bin", Some("system")),
        ("bin/sh", Some("bin")),
        ("bin/link", Some("link")),
        ("bin/su", Some("su")),
        ("lib/libc.so.6", Some("lib")),
        ("lib/modules", None),
        ("lib/modules/a.ko", None),
        ("top", Some("top")),
    ] {
        assert_eq!(label(path), expected.map(|name| format!("u:object_r:{name}:s0")), "{path}");
    }
    if let Some(mkfs) = newest("mkfs.erofs") {
        let image = fixture.path("reference");
        Run::new(mkfs).args(options.split(' ')).arg(&image).arg(fixture.source()).success();
        let reference = Mount::kernel(&image, &fixture.directory("reference mount")).unwrap();
        // erofs-utils store whole seconds.
        let options =
            compare::Options { ignore: vec![Field::Mtime], ..compare::Options::default() };
        compare(reference.path(), mount.path(), &options).unwrap().assert_same();
    }
    let broken = fixture.path("broken");
    fs::write(&broken, "/a u:b\n/( u:c\n").unwrap();
    let outcome =
        mkfs(&fixture, &format!("--file-contexts={}", broken.display()), &fixture.path("image"))
            .failure(1);
    outcome.says("broken: line 2");
}

#[test]
fn fs_config_sets_owners_modes_and_capabilities() {
    require!(need::kernel_erofs());
    let fixture = Fixture::empty();
    fixture.write("bin/run-as", "x");
    let config = fixture.path("fs_config");
    fs::write(
        &config,
        "system 0 0 755\nsystem/bin 0 2000 751\nsystem/bin/run-as 0 2000 750 capabilities=0xc0\n",
    )
    .unwrap();
    let options = format!(
        "--mount-point /system --product-out out --fs-config-file {} -T 5",
        config.display()
    );
    let image = built(&fixture, "image", &options);
    let mount = Mount::kernel(&image, &fixture.directory("mount")).unwrap();
    let metadata = fs::metadata(mount.path().join("bin/run-as")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (0, 2000, 0o750));
    let bin = fs::File::open(mount.path().join("bin")).unwrap();
    assert_eq!(xattr::all(&bin, b"run-as").unwrap()[b"security.capability".as_slice()][4], 0xc0);
    fixture.write("new", "x");
    mkfs(&fixture, &options, &fixture.path("other"))
        .failure(1)
        .says("system/new: not in the fs_config file");
}

#[test]
fn wrong_options_are_reported_with_exit_code_1() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let stderr = |options: &str| {
        let outcome = mkfs(&fixture, options, &image);
        assert_eq!(outcome.code, 1, "{options}");
        assert!(!image.exists());
        outcome.stderr
    };
    assert!(stderr("--chunk-size=4096").contains("--chunksize"));
    assert!(stderr("-Eztailpaking").contains("the nearest is ztailpacking"));
    assert!(stderr("-zlz4h").contains("the nearest is lz4hc"));
    assert!(stderr("--s3=x").contains("object stores"));
    let help = fixture.tool("mkfs.erofs --help").success().text();
    assert!(help.contains("--tar=") && help.contains("Available compressors"), "{help}");
}

#[test]
fn fsalignblks_rounds_up_the_size_of_the_image() {
    let fixture = Fixture::empty();
    let image = built(&fixture, "image", "--fsalignblks=16");
    assert_eq!(fs::metadata(&image).unwrap().len(), 16 * 4096);
    let mut field = [0; 4];
    fs::File::open(&image).unwrap().read_exact_at(&mut field, 1024 + 0x24).unwrap();
    assert_eq!(u32::from_le_bytes(field), 16);
}

#[test]
fn equal_chunks_are_stored_once() {
    let fixture = Fixture::empty();
    let noise = Content::Noise.bytes(1 << 20, &mut Rng::new(1));
    for name in ["one", "two", "three"] {
        fixture.write(name, &noise);
    }
    fixture.write("shifted", [&noise[4096..], &noise[..4096]].concat());
    fixture.write("zeroes", vec![0; 1 << 20]);
    let image = built(&fixture, "image", "--chunksize=4096");
    assert_mounted(&fixture, &image, vec![]);
    assert!(fs::metadata(&image).unwrap().len() < (1 << 20) + 32_768);
}

#[test]
fn an_image_can_be_written_to_standard_output() {
    let fixture = Fixture::new(&small());
    let options = "-T7 --mkfs-time -U clear -zlz4";
    let stream = mkfs(&fixture, options, Path::new("-")).success().stdout;
    assert!(stream == fs::read(built(&fixture, "image", options)).unwrap());
}

#[test]
fn the_block_list_has_the_blocks_of_each_file() {
    let fixture = Fixture::empty();
    let noise = |seed| Content::Noise.bytes(20_000, &mut Rng::new(seed));
    fixture.write("bin/a", noise(1));
    fixture.write("b", noise(2));
    fixture.write("tiny", "inline");
    let list = fixture.path("list");
    let options =
        format!("-zlz4 -E^inline_data --mount-point=/system --block-list-file {}", list.display());
    let image = fs::read(built(&fixture, "image", &options)).unwrap();
    let text = fs::read_to_string(list).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let block = |line: &str| {
        let first = line.split([' ', '-']).nth(1).unwrap();
        &image[first.parse::<usize>().unwrap() * 4096..]
    };
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("/system/b ") && block(lines[0]).starts_with(&noise(2)[..4096]),
        "{text}"
    );
    assert!(
        lines[1].starts_with("/system/bin/a ") && block(lines[1]).starts_with(&noise(1)[..4096]),
        "{text}"
    );
    assert!(
        lines[2].starts_with("/system/tiny ") && block(lines[2]).starts_with(b"inline"),
        "{text}"
    );
    let (first, last) = lines[0].split_once(' ').unwrap().1.split_once('-').unwrap();
    assert_eq!(last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap(), 4, "{text}");
}
