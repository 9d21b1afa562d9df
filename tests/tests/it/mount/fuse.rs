//! The FUSE daemon shows the source, starts in the background, and ends with the mount.

use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use ferofs_tests::mount::is_mounted;
use ferofs_tests::{Mount, Rng, compare, ferofs, ferofs_path, need, tree, xattr};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::fixture::{COMPRESSIONS, Fixture, full, same, usual_tree};
use crate::common::image_editor::{D_TYPE, ImageEditor};
use crate::common::traced::{readers_at_a_time, slow_reads};

fn mounted(fixture: &Fixture, image: &Path) -> Mount {
    Mount::fuse(ferofs_path(), image, &fixture.directory("mount")).unwrap()
}

#[test]
fn the_whole_test_tree_is_shown() {
    require!(need::fuse());
    let fixture = Fixture::new(&usual_tree());
    for compression in COMPRESSIONS {
        let image = fixture.build(compression, ["--compress", compression]);
        let dir = fixture.directory(&format!("{compression}-mount"));
        let mount = Mount::fuse(ferofs_path(), &image, &dir).unwrap();
        fixture.assert_same_as_source(mount.path());
        assert_eq!(mount.unmount().unwrap(), (Some(0), String::new()));
    }
}

#[test]
fn parallel_readers_get_the_right_bytes() {
    require!(need::fuse());
    let (fixture, image) =
        Fixture::with_image(&tree::Options { largest: 6_000_000, ..tree::Options::small() });
    let mount = mounted(&fixture, &image);
    let path = "files/large/Mixed";
    let expected = fs::read(fixture.source().join(path)).unwrap();
    thread::scope(|scope| {
        for reader in 0..8 {
            let (expected, file) = (&expected, mount.path().join(path));
            scope.spawn(move || {
                let file = fs::File::open(file).unwrap();
                let mut rng = Rng::new(reader);
                let mut buffer = vec![0; 200_000];
                for _ in 0..200 {
                    let start = rng.below(expected.len() as u64);
                    let want = 1 + rng.below(buffer.len() as u64) as usize;
                    let want = want.min(expected.len() - start as usize);
                    file.read_exact_at(&mut buffer[..want], start).unwrap();
                    assert!(
                        buffer[..want] == expected[start as usize..][..want],
                        "{want} bytes from {start}"
                    );
                }
            });
        }
    });
}

#[test]
fn two_reads_are_answered_at_the_same_time() {
    const READERS: usize = 8;
    let Some(strace) = need::tool("strace") else { return };
    require!(need::fuse());
    let fixture = Fixture::empty();
    let names: Vec<String> = (0..READERS).map(|number| format!("file{number}")).collect();
    for name in &names {
        fixture.write(name, name.repeat(10_000));
    }
    let (image, dir, log) =
        (fixture.build("image", ["--quiet"]), fixture.directory("mount"), fixture.path("log"));
    let mut traced = slow_reads(&strace, ferofs_path(), &log);
    traced.args(["mount", "--fuse", "-f", "--threads", "2"]).args([&image, &dir]);
    let mount = Mount::serve(&mut traced, &dir).unwrap();
    for name in &names {
        fs::metadata(mount.path().join(name)).unwrap();
    }
    thread::scope(|scope| {
        for name in &names {
            let path = mount.path().join(name);
            scope.spawn(move || assert!(fs::read(path).unwrap() == name.repeat(10_000).as_bytes()));
        }
    });
    mount.unmount().unwrap();
    assert_eq!(readers_at_a_time(&log, &image), 2);
}

#[test]
fn the_command_returns_after_the_image_is_mounted() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    ferofs!("mount --fuse", &image, &dir).success();
    let mount = Mount::adopt(&dir);
    fixture.assert_same_as_source(mount.path());
    mount.unmount().unwrap();
    assert!(!is_mounted(&dir));
}

#[test]
fn a_signal_to_the_daemon_unmounts() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT)] {
        let dir = fixture.directory(name);
        let mount = Mount::fuse(ferofs_path(), &image, &dir).unwrap();
        let daemon = Pid::from_raw(mount.daemon_id().unwrap() as i32).unwrap();
        kill_process(daemon, signal).unwrap();
        let (code, stderr) = mount.wait().unwrap();
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{name}");
        assert!(!is_mounted(&dir), "{name}");
    }
}

#[test]
fn a_mount_is_read_only() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    let refused =
        |done: io::Result<()>| assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    refused(fs::write(mount.path().join("new"), ""));
    refused(fs::write(mount.path().join("files/text/1"), "x"));
    refused(fs::remove_file(mount.path().join("files/text/1")));
    refused(fs::create_dir(mount.path().join("directory")));
    refused(fs::rename(mount.path().join("files"), mount.path().join("renamed")));
}

#[test]
fn statfs_reports_the_size_of_the_image() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    let stat = rustix::fs::statvfs(mount.path()).unwrap();
    assert_eq!(stat.f_frsize, 4096);
    assert_eq!(stat.f_blocks * stat.f_frsize, fs::metadata(&image).unwrap().size());
    assert_eq!(stat.f_bavail, 0);
    assert_eq!(stat.f_namemax, 255);
}

#[test]
fn lookups_of_missing_names_fail() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let mount = mounted(&fixture, &image);
    for name in ["no such name", "files/text/4097x", "files/text/", &"n".repeat(255)] {
        let found = fs::symlink_metadata(mount.path().join(name));
        assert_eq!(found.is_ok(), name == "files/text/", "{name}");
    }
    assert_eq!(
        fs::read_dir(mount.path().join("files/text/1")).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    let long = fs::symlink_metadata(mount.path().join("n".repeat(256))).unwrap_err();
    assert_eq!(long.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
}

#[test]
fn names_that_linux_cannot_have_end_a_listing() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let source = File::open(fixture.source()).unwrap();
    for name in ["file", "nul", "slash", "twice"] {
        fs::create_dir(fixture.source().join(name)).unwrap();
        for below in ["aaa", "b-b", "ccc"] {
            fs::write(fixture.source().join(name).join(below), below).unwrap();
        }
    }
    for name in ["user.nul-key", "user.empty-key", "user.slash/key", "user.key"] {
        xattr::set(&source, b"file", name.as_bytes(), b"value").unwrap();
    }
    let mut image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "none"])).unwrap());
    for (name, wrong) in [("nul/b-b", 0), ("slash/b-b", b'/')] {
        let at = image.find(name).name.start + 1;
        image.bytes[at] = wrong;
    }
    let name = image.find("twice/ccc").name;
    image.bytes[name].fill(b'a');
    let find = |image: &ImageEditor, key: &[u8]| {
        image.bytes.windows(key.len()).position(|bytes| bytes == key).unwrap()
    };
    let nul = find(&image, b"nul-keyvalue") + 3;
    image.bytes[nul] = 0;
    // The length of the name is before it, and the length of the value, which takes the bytes of
    // the name.
    let empty = find(&image, b"empty-keyvalue");
    image.put(empty - 4, 0, 1);
    image.put(empty - 2, "empty-keyvalue".len() as u64, 2);
    fs::write(fixture.path("wrong"), &image.bytes).unwrap();

    let mount = mounted(&fixture, &fixture.path("wrong"));
    for name in ["nul", "slash"] {
        let path = mount.path().join(name);
        // The kernel asks for names with attributes first, and for names alone when nobody used the
        // attributes.
        for _ in 0..3 {
            let mut entries = fs::read_dir(&path).unwrap();
            assert_eq!(entries.next().unwrap().unwrap().file_name(), "aaa");
            let error = entries.next().unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        }
        assert!(!Command::new("ls").arg(&path).status().unwrap().success());
        assert!(path.join("ccc").exists());
    }
    for _ in 0..3 {
        let listed: Vec<_> =
            fs::read_dir(mount.path().join("twice")).unwrap().map(Result::unwrap).collect();
        assert_eq!(
            listed.iter().map(DirEntry::file_name).collect::<Vec<_>>(),
            ["aaa", "b-b", "aaa"]
        );
        // The kernel's driver looks up a name as well, and finds the first of them.
        assert_eq!(fs::read(listed[2].path()).unwrap(), b"aaa");
    }
    let keys = xattr::all(File::open(mount.path()).unwrap(), b"file").unwrap();
    // Linux allows a slash here.
    assert_eq!(keys.into_keys().collect::<Vec<_>>(), [&b"user.key"[..], b"user.slash/key"]);
}

/// In a damaged directory of several blocks, the kernel's driver finds some names in another block
/// than the listing.
#[test]
fn names_that_come_twice_lead_to_the_file_that_a_lookup_finds() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let file = |number| format!("{number:04}-{}", "name".repeat(40));
    for number in 0..1200 {
        fs::write(fixture.source().join(file(number)), format!("{number:04}")).unwrap();
    }
    let mut image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "none"])).unwrap());
    for number in 600..1200 {
        let name = image.find(&file(number)).name;
        image.bytes[name][..4].copy_from_slice(format!("{:04}", number - 600).as_bytes());
    }
    fs::write(fixture.path("wrong"), &image.bytes).unwrap();
    let read = |is_listed: bool| -> Vec<_> {
        let mount = mounted(&fixture, &fixture.path("wrong"));
        if is_listed {
            // The kernel asks for attributes with the names as long as somebody uses them.
            let entries = fs::read_dir(mount.path()).unwrap().map(Result::unwrap);
            assert_eq!(entries.filter(|entry| entry.metadata().unwrap().is_file()).count(), 1200);
        }
        let contents = (0..600)
            .map(|number| fs::read_to_string(mount.path().join(file(number))).ok())
            .collect();
        drop(mount);
        fs::remove_dir(fixture.path("mount")).unwrap();
        contents
    };
    let different: Vec<_> =
        read(true).into_iter().zip(read(false)).filter(|(a, b)| a != b).collect();
    assert_eq!(different, []);
}

/// A copy of a directory must fail if a file is damaged. Without the name, it would succeed without
/// the file.
#[test]
fn names_of_damaged_inodes_are_listed() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    fs::create_dir(fixture.source().join("dir")).unwrap();
    let names = ["dir", "inode", "nid", "nid-of-none", "sound", "type"];
    for name in &names[1..] {
        fixture.write(name, name);
    }
    let mut image =
        ImageEditor::new(fs::read(fixture.build("image", ["--compress", "none"])).unwrap());
    for name in ["dir", "inode", "type"] {
        let inode = image.inode(image.find(name).nid);
        image.bytes[inode..][..32].fill(0xFF);
    }
    for (name, nid) in [("nid", u64::MAX - 1), ("nid-of-none", u64::MAX)] {
        let at = image.find(name).at;
        image.put(at, nid, 8);
    }
    let unknown = image.find("type").at + D_TYPE;
    image.put(unknown, 0, 1);
    fs::write(fixture.path("damaged"), &image.bytes).unwrap();

    let mount = mounted(&fixture, &fixture.path("damaged"));
    // The kernel asks for names with attributes first, and for names alone when nobody used the
    // attributes.
    for _ in 0..3 {
        let entries: Vec<_> = fs::read_dir(mount.path()).unwrap().map(Result::unwrap).collect();
        let mut listed: Vec<_> = entries.iter().map(|entry| entry.file_name()).collect();
        listed.sort();
        assert_eq!(listed, names);
        let dirs: Vec<_> =
            entries.iter().filter(|entry| entry.file_type().unwrap().is_dir()).collect();
        assert_eq!(dirs.len(), 1, "{dirs:?}");
        assert!(entries.iter().all(|entry| entry.ino() > 1), "{entries:?}");
    }
    for name in names {
        let path = mount.path().join(name);
        let failed = [fs::symlink_metadata(&path).err(), fs::read(&path).err()];
        let expected = (name != "sound").then_some(rustix::io::Errno::IO.raw_os_error());
        assert_eq!(failed.map(|error| error?.raw_os_error()), [expected; 2], "{name}");
    }
    // A directory keeps its names while programs use its files.
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), names.len());
}

#[test]
fn all_of_usr_is_shown() {
    require!(full() && need::fuse());
    let fixture = Fixture::empty();
    let image = fixture.path("usr");
    ferofs!("build --compress lz4 /usr", &image).success();
    compare(Path::new("/usr"), mounted(&fixture, &image).path(), &same()).unwrap().assert_same();
}
