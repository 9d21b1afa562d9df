//! A tree, its image, and changed copies.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use ferofs_read::{FileSource, Image};
use ferofs_write as build;

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir_all(source.join("below")).unwrap();
        fs::write(source.join("below/text"), "words and more words, ".repeat(9000)).unwrap();
        fs::write(source.join("same"), "same").unwrap();
        fs::write(source.join("gone"), "gone").unwrap();
        symlink("target", source.join("link")).unwrap();
        Self { dir }
    }

    fn image(&self, name: &str) -> Side {
        let path = self.dir.path().join(name);
        if !path.exists() {
            let mut options = build::Options::new(self.dir.path().join("source"));
            options.data.compression = Some(build::Compression::lz4(0).unwrap());
            build::build(&options, &path).unwrap();
        }
        Side::Image(Box::new(Image::open(FileSource::open(&path, 0).unwrap()).unwrap()))
    }

    fn source(&self) -> Side {
        Side::Directory(self.dir.path().join("source"))
    }
}

fn lines(first: &Side, second: &Side, options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    diff(first, second, options, |event| {
        lines.push(match event {
            Event::Failed { path, error } => format!("! {} {error}", path.display()),
            Event::Change(Change { path, kind }) => match kind {
                ChangeKind::Added(stat) => format!("+ {} {}", path.display(), stat.size),
                ChangeKind::Removed(stat) => format!("- {} {}", path.display(), stat.size),
                ChangeKind::Changed(c) => {
                    let flags = [
                        c.file_type,
                        c.content,
                        c.mode,
                        c.owner,
                        c.mtime,
                        !c.xattrs.is_empty(),
                        c.links,
                    ];
                    let set: String = "tcmouxl"
                        .chars()
                        .zip(flags)
                        .filter(|(_, on)| *on)
                        .map(|(c, _)| c)
                        .collect();
                    format!("~ {} {set}", path.display())
                }
            },
        });
        ControlFlow::Continue(())
    })
    .unwrap();
    lines
}

#[test]
fn an_image_equals_its_source() {
    let fixture = Fixture::new();
    assert_eq!(lines(&fixture.image("image"), &fixture.source(), &Options::default()), [""; 0]);
    assert_eq!(lines(&fixture.source(), &fixture.image("image"), &Options::default()), [""; 0]);
    assert_eq!(
        lines(&fixture.image("image"), &fixture.image("image"), &Options::default()),
        [""; 0]
    );
}

#[test]
fn reports_each_kind_of_change() {
    let fixture = Fixture::new();
    let before = fixture.image("before");
    let source = fixture.dir.path().join("source");
    fs::remove_file(source.join("gone")).unwrap();
    fs::create_dir(source.join("new")).unwrap();
    fs::write(source.join("new/file"), "12345").unwrap();
    fs::set_permissions(source.join("same"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut text = fs::read(source.join("below/text")).unwrap();
    text[150_000] ^= 1;
    fs::write(source.join("below/text"), text).unwrap();
    fs::remove_file(source.join("link")).unwrap();
    symlink("tarbet", source.join("link")).unwrap();
    let expected =
        ["~ below/text c", "- gone 4", "~ link c", "+ new 0", "+ new/file 5", "~ same m"];
    let options = Options { times: false, ..Options::default() };
    let after = fixture.image("after");
    assert_eq!(lines(&before, &after, &options), expected);
    assert_eq!(lines(&before, &fixture.source(), &options), expected);
    let options = Options { mode: false, content: false, ..options };
    assert_eq!(lines(&before, &after, &options), ["- gone 4", "+ new 0", "+ new/file 5"]);
    assert!(
        lines(&before, &after, &Options::default()).contains(&"~  u".to_owned()),
        "the root's time"
    );
}

#[test]
fn the_same_image_is_not_read() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.image("image"), fixture.image("image"));
    let (Side::Image(image), Side::Image(_)) = (&one, &other) else { panic!() };
    let before = image.stats().requested_bytes;
    assert_eq!(lines(&one, &other, &Options::default()), [""; 0]);
    assert_eq!(image.stats().requested_bytes, before, "not even directories");
}

/// Names of one file in one tree, and of equal files in the other.
#[test]
fn hard_links_are_compared() {
    let fixture = Fixture::new();
    let source = fixture.dir.path().join("source");
    let same = source.join("same");
    fs::write(source.join("apart"), "same").unwrap();
    for name in ["below/linked", "one", "other"] {
        fs::hard_link(&same, source.join(name)).unwrap();
    }
    let linked = fixture.image("linked");
    assert_eq!(lines(&linked, &fixture.source(), &Options::default()), [""; 0]);
    assert_eq!(lines(&fixture.source(), &linked, &Options::default()), [""; 0]);
    fs::remove_file(source.join("one")).unwrap();
    fs::copy(&same, source.join("one")).unwrap();
    fs::remove_file(source.join("other")).unwrap();
    fs::hard_link(source.join("apart"), source.join("other")).unwrap();
    let options = Options { times: false, ..Options::default() };
    let changed = ["~ one l", "~ other l"];
    assert_eq!(lines(&linked, &fixture.source(), &options), changed);
    assert_eq!(lines(&fixture.image("changed"), &linked, &options), changed);
    assert_eq!(lines(&linked, &fixture.source(), &Options { links: false, ..options }), [""; 0]);
}

/// Deeper than the longest path of a system call.
#[test]
fn deep_directories_are_compared() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let fixture = Fixture::new();
    let name = "d".repeat(200);
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(fixture.dir.path().join("source"), flags, Mode::empty()).unwrap();
    let bottom = (0..30).fold(top, |dir, _| {
        mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        openat(&dir, name.as_str(), flags, Mode::empty()).unwrap()
    });
    let file = openat(&bottom, "leaf", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"leaf").unwrap();
    assert_eq!(lines(&fixture.image("image"), &fixture.source(), &Options::default()), [""; 0]);
    assert_eq!(lines(&fixture.source(), &fixture.source(), &Options::default()), [""; 0]);
}
