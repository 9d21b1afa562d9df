//! Images and targets that would lead an extraction outside of its target, and images that are
//! damaged in some files.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;

use ferofs_tests::{Content, Rng, ferofs, need, run};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::fixture::{Fixture, chmod, tree_names};
use crate::common::hostile::{assert_handled, command};
use crate::common::image_editor::{I_U, I_XATTR_ICOUNT, ImageEditor};

/// An obstacle: its name, and the function that creates it, with the target and a directory outside
/// the target.
type Obstacle = (&'static str, fn(&Path, &Path));

/// The target already has an entry of another type with the name of `dir`, `file` or `link`.
#[test]
fn existing_links_in_the_target_are_not_followed() {
    let fixture = Fixture::empty();
    fixture.write("dir/file", "image");
    fixture.write("file", "image");
    fs::hard_link(fixture.source().join("file"), fixture.source().join("link")).unwrap();
    let image = fixture.build("image", ["-T0"]);
    let obstacles: [Obstacle; 6] = [
        ("a symlink to a directory", |target, outside| {
            symlink(outside, target.join("dir")).unwrap()
        }),
        ("a symlink within the target", |target, _| {
            fs::create_dir(target.join("other")).unwrap();
            symlink("other", target.join("dir")).unwrap();
        }),
        ("replaced: a symlink to a file", |target, outside| {
            symlink(outside.join("kept"), target.join("file")).unwrap()
        }),
        ("replaced: a hard link", |target, outside| {
            fs::hard_link(outside.join("kept"), target.join("file")).unwrap()
        }),
        ("a file instead of a directory", |target, _| fs::write(target.join("dir"), "").unwrap()),
        ("a directory instead of a file", |target, _| fs::create_dir(target.join("link")).unwrap()),
    ];
    for (name, create) in obstacles {
        for option in [None, Some("--overwrite"), Some("--skip-existing")] {
            let (target, outside) = (fixture.directory("target"), fixture.directory("outside"));
            fs::write(outside.join("kept"), "kept").unwrap();
            create(&target, &outside);
            let outcome = ferofs!("extract").args(option).args([&image, &target]).run();
            let replaced = option.is_some() && name.starts_with("replaced");
            let case = format!("{name}, {option:?}: {}", outcome.stderr);
            assert_eq!(outcome.code, i32::from(!replaced), "{case}");
            assert_kept(&outside, &case);
            if target.join("other").exists() {
                assert_eq!(tree_names(&target.join("other")), [""; 0]);
            }
            if replaced {
                assert_eq!(fs::read(target.join("file")).unwrap(), b"image");
                assert!(!target.join("file").is_symlink());
            }
            fs::remove_dir_all(target).unwrap();
            fs::remove_dir_all(outside).unwrap();
        }
    }
}

/// Fails unless the directory has one file, as it was.
fn assert_kept(outside: &Path, case: &str) {
    assert_eq!(tree_names(outside), ["kept"], "{case}");
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept", "{case}");
}

/// In each case a name or an inode of the image is changed, so that an extractor without checks
/// writes to `outside`, a directory beside the target.
#[test]
fn hostile_names_write_nothing_outside_the_target() {
    let fixture = Fixture::empty();
    let outside = fixture.directory("outside");
    fs::write(outside.join("kept"), "kept").unwrap();
    for name in ["dirdir/file", "12345678901234", "xy", "wanted"] {
        fixture.write(name, "image");
    }
    symlink(&outside, fixture.source().join("linked")).unwrap();
    symlink("../outside", fixture.source().join("nearby")).unwrap();
    symlink("../outside/kept", fixture.source().join("tofile")).unwrap();
    let image = ImageEditor::new(fs::read(fixture.build("image", ["-T0"])).unwrap());
    let absolute = outside.join("x");

    // Names that others get, and two changes of numbers.
    let forgeries: [(&str, &[u8]); 13] = [
        ("xy", b".."),
        ("xy", b"./"),
        ("12345678901234", b"../outside/xyz"),
        ("12345678901234", b"/tmp/ferofs.es"),
        ("12345678901234", b"123\x005678901234"),
        ("dirdir", b"../out"),
        ("dirdir", b"../\x00ab"),
        ("dirdir", b"linked"),
        ("dirdir", b"nearby"),
        ("wanted", b"tofile"),
        ("linked", b"dirdir"),
        ("a directory that is a symlink", b""),
        ("a file with blocks outside the image", b""),
    ];
    let forged = fixture.path("forged");
    for (name, other) in forgeries {
        for option in [&[][..], &["--overwrite"], &["--skip-existing"]] {
            let case = format!("{name}, {}, {option:?}", other.escape_ascii());
            let mut editor = image.clone();
            match name {
                "a directory that is a symlink" => {
                    let (dir, link) = (editor.find("dirdir"), editor.find("linked").nid);
                    editor.put(dir.at, link, 8);
                }
                "a file with blocks outside the image" => {
                    let nid = editor.find("wanted").nid;
                    let inode = editor.inode(nid);
                    editor.put(inode + I_U, 0x7FFF_FFFF, 4);
                }
                _ => rename(&mut editor, name, other),
            }
            fs::write(&forged, &editor.bytes).unwrap();
            let target = fixture.path("target");
            let line: Vec<&str> = ["extract"].iter().chain(option).copied().collect();
            assert_handled(&command(&line, &forged, &[&target]), &case);
            assert_kept(&outside, &case);
            let beside = ["forged", "image", "outside", "source", "target"];
            assert_eq!(fixture.names(), beside, "{case}");
            assert!(!Path::new("/tmp/ferofs.es").exists() && !absolute.exists(), "{case}");
            fs::remove_dir_all(target).unwrap();
        }
    }
}

#[test]
fn a_damaged_file_does_not_stop_the_extraction_of_others() {
    let fixture = Fixture::empty();
    for name in ["before", "damaged", "later"] {
        fixture.write(name, Content::Text.bytes(40_000, &mut Rng::new(3)));
    }
    let image = fixture.build("image", ["--compress", "lz4"]);
    let mut editor = ImageEditor::new(fs::read(&image).unwrap());
    let nid = editor.find("damaged").nid;
    let map = editor.after(nid).next_multiple_of(8);
    editor.bytes[map + 8..map + 24].fill(0xFF);
    fs::write(image, &editor.bytes).unwrap();
    fixture.line("extract @image @target").failure(1).says("damaged");
    for name in ["before", "later"] {
        let extracted = fs::read(fixture.path("target").join(name)).unwrap();
        assert!(extracted == fs::read(fixture.source().join(name)).unwrap());
    }
}

#[test]
fn duplicate_names_change_nothing_outside() {
    require!(need::root());
    let fixture = Fixture::empty();
    let outside = fixture.path("outside");
    fs::write(&outside, "outside").unwrap();
    chmod(&outside, 0o600);
    const COUNT: usize = 128;
    for number in 0..COUNT {
        let fifo = fixture.source().join(format!("a{number:03}"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        chmod(fifo, 0o6777);
        symlink(&outside, fixture.source().join(format!("b{number:03}"))).unwrap();
    }
    let image = fixture.build("image", ["-T0"]);
    let mut forged = ImageEditor::new(fs::read(&image).unwrap());
    for number in 0..COUNT {
        rename(&mut forged, &format!("b{number:03}"), format!("a{number:03}").as_bytes());
    }
    fs::write(&image, &forged.bytes).unwrap();
    ferofs!("check", &image).failure(4);
    for option in ["--overwrite", "--skip-existing", "--quiet"] {
        let target = fixture.path("target");
        ferofs!("extract", option, &image, &target).failure(1).says("name");
        assert_eq!(fs::metadata(&outside).unwrap().mode() & 0o7777, 0o600, "{option}");
        assert_eq!(tree_names(&target).len(), COUNT, "{option}");
        assert!(!target.join("a000").is_symlink(), "the first file with a name stays");
        fs::remove_dir_all(target).unwrap();
    }
    // An archive must not have a name twice either, because its reader would extract both.
    fixture.line("extract --tar @tar @image").failure(1);
    let listed = run!("tar -tf", fixture.path("tar")).success();
    assert_eq!(listed.text().lines().count(), COUNT + 1);
}

#[test]
fn a_refused_file_gets_no_hard_links() {
    let fixture = Fixture::empty();
    fixture.write("first", "image");
    fs::hard_link(fixture.source().join("first"), fixture.source().join("second")).unwrap();
    symlink("first", fixture.source().join("third")).unwrap();
    run!("ln", fixture.source().join("third"), fixture.source().join("fourth")).success();
    let image = fixture.build("image", ["-T0"]);
    let target = fixture.directory("target");
    for name in ["first", "fourth"] {
        fs::write(target.join(name), "not of the image").unwrap();
    }
    ferofs!("extract", &image, &target).failure(1);
    assert_eq!(tree_names(&target), ["first", "fourth"]);
    assert_eq!(fs::metadata(target.join("first")).unwrap().nlink(), 1);
    // A replaced file and a complete file get their hard links.
    for option in ["--overwrite", "--skip-existing"] {
        ferofs!("extract", option, &image, &target).success();
        fixture.assert_same_as_source(&target);
    }
}

/// The largest ID means "do not change" to chown(2): the file would belong to who extracts it, with
/// its setuid bit.
#[test]
fn a_setuid_file_without_an_owner_is_an_error() {
    require!(need::root());
    let fixture = Fixture::empty();
    fixture.write("program", "program");
    let program = fixture.source().join("program");
    chown(&program, Some(0x5a4b_3c2d), Some(0)).unwrap();
    chmod(program, 0o4755);
    let image = fixture.build("image", ["-T0", "--inodes=extended", "-Enosbcrc"]);
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(4).position(|id| id == 0x5a4b_3c2d_u32.to_le_bytes()).unwrap();
    bytes[at..at + 4].fill(0xff);
    fs::write(&image, bytes).unwrap();
    fixture.line("extract @image @out").failure(1).says("program: chown");
    assert_eq!(fs::metadata(fixture.path("out/program")).unwrap().mode() & 0o6000, 0);
}

#[test]
fn an_archive_has_no_hard_links_to_missing_members() {
    let fixture = Fixture::empty();
    fixture.write("first", Content::Text.bytes(40_000, &mut Rng::new(3)));
    fs::hard_link(fixture.source().join("first"), fixture.source().join("second")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.source().join("socket")).unwrap();
    fs::hard_link(fixture.source().join("socket"), fixture.source().join("socket again")).unwrap();
    let image = fixture.build("image", ["--compress", "lz4"]);
    let mut forged = ImageEditor::new(fs::read(&image).unwrap());
    let nid = forged.find("first").nid;
    // Extended attributes beyond the end of the image: the file cannot be archived.
    let inode = forged.inode(nid);
    forged.put(inode + I_XATTR_ICOUNT, 0xffff, 2);
    fs::write(&image, &forged.bytes).unwrap();
    fixture.line("extract --tar @tar @image").failure(1);
    let listed = run!("tar -tf", fixture.path("tar")).success();
    assert_eq!(listed.text(), "./\n");
}

/// Replaces a name in the root by another one of the same length.
fn rename(f: &mut ImageEditor, from: &str, to: &[u8]) {
    let name = f.find(from).name;
    assert_eq!(name.len(), to.len(), "{from}");
    f.bytes[name].copy_from_slice(to);
}
