//! Every kind of change, in patches of images with every form that mkfs.erofs makes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use ferofs_tests::{Run, ferofs, need};
use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, XattrFlags, removexattr, setxattr, utimensat,
};

use crate::common::erofs_utils::newest;
use crate::common::fixture::Fixture;

/// Options of mkfs.erofs. The first ones also get each change alone, because their inodes have
/// different forms.
const SETS: [&str; 29] = [
    "-T0",
    "-T0 -zlz4hc",
    "-T0 -E48bit -zlz4hc",
    "-zlz4",
    "",
    "-T0 -zlz4",
    "-T0 -zlz4 -Elegacy-compress",
    "-T0 -zlz4hc -C65536",
    "-T0 -zlz4hc -C65536 -Efragments",
    "-T0 -zlz4hc -Eall-fragments",
    "-T0 -zlz4hc -Efragments,dedupe",
    "-T0 -zlz4hc -Ededupe",
    "-T0 -zlz4hc -Eztailpacking",
    "-T0 -Enoinline_data",
    "-T0 -Eforce-inode-extended",
    "-T0 -Eforce-inode-compact",
    "-T0 -x-1",
    "-T0 -x1",
    "-T0 --chunksize=4096",
    "-T0 --chunksize=65536 -Eforce-chunk-indexes",
    "-T0 -Enosbcrc",
    "-T0 -E48bit",
    "-T0 -E48bit -zzstd -C65536",
    "-T0 -zlzma -C65536",
    "-T0 -zzstd",
    "-T0 -zdeflate",
    "-T0 -zlz4hc:lzma:deflate:zstd",
    "-T0 -m4096 -zlz4hc",
    "-T0 --incremental=data",
];
/// So many of them get each change alone.
const ALONE: usize = 3;

type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 12] = [
    ("mode", |root| {
        fs::set_permissions(root.join("mode"), fs::Permissions::from_mode(0o600)).unwrap()
    }),
    ("owner", |root| {
        // Others may not give files away.
        let owner = if need::is_root() { 70_000 } else { rustix::process::geteuid().as_raw() };
        chown(root.join("owner"), Some(owner), None).unwrap();
    }),
    ("time", |root| set_time(&root.join("time"), 1_700_000_000)),
    ("new attribute", |root| set_attribute(&root.join("attribute"), "user.new")),
    ("removed attribute", |root| removexattr(root.join("attributes"), "user.old").unwrap()),
    ("link", |root| fs::hard_link(root.join("linked"), root.join("link")).unwrap()),
    ("new file", |root| fs::write(root.join("new"), text(9, 20_000)).unwrap()),
    ("new directory", |root| fs::create_dir(root.join("dir/new")).unwrap()),
    ("content", |root| fs::write(root.join("content"), text(8, 150_000)).unwrap()),
    ("truncated", |root| fs::write(root.join("truncated"), text(7, 3_000)).unwrap()),
    ("removed and renamed", |root| {
        fs::remove_file(root.join("removed")).unwrap();
        fs::rename(root.join("dir/small"), root.join("renamed")).unwrap();
    }),
    ("symbolic link", |root| symlink("dir/large", root.join("symlink")).unwrap()),
];

fn text(seed: u32, len: usize) -> String {
    let lines = (0..).map(|line: u32| format!("line {}\n", line.wrapping_mul(seed) % 9_973));
    lines.flat_map(|line| line.into_bytes()).take(len).map(char::from).collect()
}

fn set_attribute(path: &Path, name: &str) {
    setxattr(path, name, b"value", XattrFlags::empty()).unwrap();
}

fn set_time(path: &Path, tv_sec: i64) {
    let time = Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A tree with small and large files, and the time that `-T0` gives to all inodes.
fn write_tree(root: &Path) {
    let _ = fs::remove_dir_all(root);
    fs::create_dir_all(root.join("dir")).unwrap();
    let names =
        ["mode", "owner", "time", "attribute", "attributes", "linked", "dir/small", "removed"];
    for (seed, name) in (1..).zip(names) {
        fs::write(root.join(name), text(seed, 100 * seed as usize)).unwrap();
    }
    for (seed, name) in (1..).zip(["content", "truncated", "dir/large"]) {
        fs::write(root.join(name), text(seed, 200_000)).unwrap();
    }
    set_attribute(&root.join("attributes"), "user.old");
    set_attribute(&root.join("attributes"), "user.kept");
    for name in names.iter().chain(&["content", "truncated", "dir/large", "dir", ""]) {
        set_time(&root.join(name), 0);
    }
}

/// Makes a patch for a copy of `base` that has these changes, and applies it.
fn assert_patched(fixture: &Fixture, base: &Path, changes: &[Change], form: &str) {
    let (image, patch) = (fixture.path("image"), fixture.path("patch"));
    fs::copy(base, &image).unwrap();
    write_tree(&fixture.source());
    changes.iter().for_each(|(_, change)| change(&fixture.source()));
    let names: Vec<_> = changes.iter().map(|(name, _)| name).collect();
    let commands: [(&[&str], [&Path; 2]); 4] = [
        (
            &["patch", "create", "--force", "-o", patch.to_str().unwrap()],
            [&image, &fixture.source()],
        ),
        (&["patch", "apply"], [&image, &patch]),
        (&["check", "--deep"], [&image, Path::new("")]),
        (&["diff"], [&image, &fixture.source()]),
    ];
    for (command, paths) in commands {
        let run = ferofs()
            .args(command)
            .args(paths.iter().filter(|path| !path.as_os_str().is_empty()))
            .run();
        assert_eq!(run.code, 0, "{form}, {names:?}, {command:?}: {run:?}");
    }
}

#[test]
fn every_change_of_every_form_is_patched() {
    for mkfs in [newest("mkfs.erofs"), need::tool("mkfs.erofs")].into_iter().flatten() {
        let fixture = Fixture::empty();
        let base = fixture.path("base");
        let mut made = 0;
        for (number, options) in SETS.iter().enumerate() {
            write_tree(&fixture.source());
            let _ = fs::remove_file(&base);
            let make = |options: &str| {
                Run::new(&mkfs)
                    .args(options.split_whitespace())
                    .args([&base, &fixture.source()])
                    .run()
                    .code
            };
            if options.contains("--incremental") {
                make("-T0");
            }
            // Older versions have fewer options.
            if make(options) != 0 {
                continue;
            }
            made += 1;
            let form = format!("{} {options}", mkfs.display());
            if number < ALONE {
                CHANGES.chunks(1).for_each(|change| assert_patched(&fixture, &base, change, &form));
            }
            assert_patched(&fixture, &base, &CHANGES, &form);
        }
        assert!(made > SETS.len() / 2, "{mkfs:?}: {made}");
    }
}
