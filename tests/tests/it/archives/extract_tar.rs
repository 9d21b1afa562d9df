//! `ferofs extract --tar`: GNU tar extracts the archive to the same tree. `ferofs extract
//! --metadata`: the files with metadata.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferofs_tests::{Content, Rng, compare, ferofs, need, run, tree};

use crate::common::fixture::{COMPRESSIONS, Fixture, same};

/// Extracts with GNU tar, which restores everything that it can.
fn untar(archive: &Path, target: &Path) {
    fs::create_dir(target).unwrap();
    let options = ["--warning=no-timestamp", "--xattrs", "--xattrs-include=*", "--acls", "-xpf"];
    let outcome = run!("tar -C", target).args(options).arg(archive).success();
    assert_eq!(outcome.stderr, "");
}

fn remove_sockets(dir: &Path) {
    let meta = fs::metadata(dir).unwrap();
    let mut removed = false;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            remove_sockets(&entry.path());
        } else if kind.is_socket() {
            fs::remove_file(entry.path()).unwrap();
            removed = true;
        }
    }
    if removed {
        let dir = fs::File::open(dir).unwrap();
        dir.set_times(fs::FileTimes::new().set_modified(meta.modified().unwrap())).unwrap();
    }
}

#[test]
fn gnu_tar_extracts_the_same_tree() {
    require!(need::tool("tar").is_some());
    let fixture = Fixture::new(&tree::Options { deep: 30, wide: 300, ..tree::Options::default() });
    remove_sockets(&fixture.source());
    for compression in COMPRESSIONS {
        let image = fixture.build(compression, ["--compress", compression]);
        let archive = fixture.path("archive");
        ferofs!("extract --tar", &archive, &image).success();
        let target = fixture.path("unpacked");
        untar(&archive, &target);
        fixture.assert_same_as_source(&target);
        fs::remove_dir_all(target).unwrap();

        let piped = ferofs!("extract --tar - --workers 1", &image).success();
        assert!(
            piped.stdout == fs::read(&archive).unwrap(),
            "{compression}: the same bytes each time"
        );
        fs::remove_file(archive).unwrap();
    }
}

#[test]
fn an_archive_has_no_sockets_and_no_links_to_them() {
    let fixture = Fixture::empty();
    let socket = fixture.source().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    fs::hard_link(&socket, fixture.source().join("again")).unwrap();
    let image = fixture.build("image", ["--compress", "none"]);
    let archive = fixture.path("archive");
    let outcome = ferofs!("extract --tar", &archive, &image).success();
    assert_eq!(outcome.stderr.lines().count(), 2, "{}", outcome.stderr);
    // An archive with a hard link to a missing member could not be extracted or built.
    ferofs!("build", &archive, fixture.path("again")).success();
}

#[test]
fn large_ids_long_names_and_holes_are_archived() {
    require!(need::root() && need::tool("tar").is_some());
    let fixture = Fixture::empty();
    let file = fs::File::create(fixture.source().join("sparse")).unwrap();
    // The comparison reads the whole file, so it is small in a quick run.
    let size = if need::is_quick() { 50 << 20 } else { 5 << 30 };
    file.set_len(size).unwrap();
    for (seed, place) in [(1, 0), (2, 1 << 20), (3, size - (2 << 20))] {
        file.write_all_at(&Content::Noise.bytes(10_000, &mut Rng::new(seed)), place).unwrap();
    }
    fs::File::create(fixture.source().join("hole")).unwrap().set_len(9 << 30).unwrap();
    let long = fixture.source().join("n".repeat(120)).join("m".repeat(200));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("l".repeat(255)), "long").unwrap();
    std::os::unix::fs::symlink("t".repeat(1000), long.join("link")).unwrap();
    fs::hard_link(long.join("l".repeat(255)), long.join("linked")).unwrap();
    std::os::unix::fs::chown(long.join("linked"), Some(4_000_000_000), Some(3_000_000)).unwrap();
    let image = fixture.build("image", ["-b", "4096"]);
    let (archive, target) = (fixture.path("archive"), fixture.path("unpacked"));
    ferofs!("extract --tar", &archive, &image).success();
    assert!(fs::metadata(&archive).unwrap().len() < 1 << 20, "holes are not written");
    untar(&archive, &target);
    assert_eq!(fs::metadata(target.join("hole")).unwrap().blocks(), 0);
    fs::remove_file(target.join("hole")).unwrap();
    fs::remove_file(fixture.source().join("hole")).unwrap();
    let options = compare::Options { ignore: vec![compare::Field::Mtime], ..same() };
    compare(&fixture.source(), &target, &options).unwrap().assert_same();
}

#[test]
fn a_part_of_an_image_can_be_archived() {
    let Some(tar) = need::tool("tar") else { return };
    let fixture = Fixture::empty();
    fs::create_dir_all(fixture.source().join("dir/below")).unwrap();
    fixture.write("dir/below/file", "content");
    fixture.write("dir/other", "other");
    let image = fixture.build("image", ["-T0"]);
    let listed = |options: &[&str]| {
        let archive = ferofs!("extract --tar=-").args(options).arg(&image).success().stdout;
        let mut list = Command::new(&tar)
            .args(["-tf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        list.stdin.take().unwrap().write_all(&archive).unwrap();
        String::from_utf8(list.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(listed(&["--path=dir/below"]), "./\nfile\n");
    assert_eq!(listed(&["--path=dir/below/file"]), "file\n");
    assert_eq!(listed(&["--include=file"]), "./\ndir/\ndir/below/\ndir/below/file\n");
    let both = ferofs!("extract --tar=-", &image, fixture.path("dir")).run();
    assert_eq!(both.code, 2, "an archive or a directory");
    ferofs!("extract --tar", fixture.path("x.tar.gz"), &image)
        .success()
        .says("x.tar.gz: the archive is not compressed; --tar -");
    assert_eq!(ferofs!("extract --tar=/dev/full", &image).run().code, 1);
}

#[test]
fn metadata_files_have_owners_modes_and_labels() {
    require!(need::root());
    let fixture = Fixture::empty();
    let tool = fixture.source().join("bin/tool[1].sh");
    fs::create_dir(fixture.source().join("bin")).unwrap();
    fs::write(&tool, "tool").unwrap();
    fixture.write("plain", "");
    std::os::unix::fs::chown(&tool, Some(0), Some(2000)).unwrap();
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o750)).unwrap();
    let set = |name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(&tool, name, value, flags)
    };
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    set("security.capability", &capability).unwrap();
    let labelled = set("security.selinux", b"u:object_r:tool_exec:s0\0").is_ok();
    let image = fixture.build("image", ["-T0", "--all-time"]);
    let files: Vec<PathBuf> = ["x_fs_config", "x_file_contexts", "x.json"]
        .iter()
        .map(|name| fixture.path(name))
        .collect();
    let options = files.iter().flat_map(|file| [OsStr::new("--metadata"), file.as_os_str()]);
    ferofs!("extract").args(options).arg("--mount-point=/system").arg(&image).success();

    let read = |n: usize| fs::read_to_string(&files[n]).unwrap();
    let mode = fs::metadata(fixture.source()).unwrap().mode() & 0o7777;
    let expected = format!(
        "system 0 0 {mode:04o}\nsystem/plain 0 0 0644\nsystem/bin 0 0 0755\n\
        system/bin/tool[1].sh 0 2000 0750 capabilities=0x2000\n"
    );
    assert_eq!(read(0), expected);
    if labelled {
        assert_eq!(read(1), "/system/bin/tool\\[1\\]\\.sh u:object_r:tool_exec:s0\n");
    }
    let json = read(2);
    assert!(json.starts_with("[\n{") && json.ends_with("}\n]\n"), "{json}");
    for part in
        ["\"path\":\"/bin/tool[1].sh\"", "\"gid\":2000", "\"mode\":\"0750\"", "security.capability"]
    {
        assert!(json.contains(part), "{part}: {json}");
    }
    let current = fixture.directory("current");
    let to_stdout =
        ferofs().dir(&current).args(["extract", "--metadata", "-"]).arg(&image).arg(".").run();
    assert_eq!(to_stdout.success().text(), json);
    assert!(!current.join("-").exists());
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = ferofs!("extract --metadata=-", &image).command();
    assert_eq!(command.stdout(full).status().unwrap().code(), Some(2));
    let page = ferofs().dir(&current).args(["inspect", "--html", "-"]).arg(&image).success();
    assert!(page.stdout.starts_with(b"<!DOCTYPE html>") && !current.join("-").exists());
}
