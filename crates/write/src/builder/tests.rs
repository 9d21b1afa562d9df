use std::io::{self, Read};
use std::sync::Arc;

use ferofs_read::Image;

use super::*;
use crate::options::compression::Compression;

const TIME: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

fn image(builder: Builder) -> Result<Image> {
    let mut bytes = Vec::new();
    builder.write_to(&mut bytes)?;
    Ok(Image::open(bytes)?)
}

/// A builder of reproducible images with LZ4.
fn builder() -> Builder {
    let mut builder = Builder::new();
    let options = builder.options();
    options.image.uuid = Some([7; 16]);
    options.image.build_time = Some(1_700_000_000);
    options.data.compression = Some(Compression::lz4(0).unwrap());
    builder
}

#[test]
fn every_kind_of_entry_and_content_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "0123456789".repeat(1000)).unwrap();
    let mut builder = builder();
    let attributes =
        Attributes::default().mode(0o640).owner(1000, 100_000).mtime(TIME).xattr("user.a", "1");
    builder
        .hard_link("linked/later", "a/vec")
        .file("a/vec", Content::bytes(b"abc".repeat(5000)), attributes.clone())
        .file("a/static", Content::bytes("static"), Attributes::default())
        .file("a/shared", Content::bytes(Arc::<[u8]>::from(*b"shared")), Attributes::default())
        .file("a/empty", Content::bytes(""), Attributes::default())
        .file("a/reader", Content::reader(io::repeat(b'r').take(100_000)), Attributes::default())
        .file("a/path", Content::path(&path), Attributes::default())
        .file("a/range", Content::range(&path, 5, 10), Attributes::default())
        .symlink("link", "a/vec", Attributes::default())
        .char_device("null", Rdev { major: 1, minor: 3 }, Attributes::default().mode(0o666))
        .block_device("disk", Rdev { major: 8, minor: 0 }, Attributes::default())
        .fifo("fifo", Attributes::default())
        .socket("socket", Attributes::default())
        .directory("/", Attributes::default().mode(0o700).mtime(TIME));
    let image = image(builder).unwrap();
    let content = |path: &str| image.read(path).unwrap();
    assert_eq!(content("link"), b"abc".repeat(5000));
    assert_eq!(content("linked/later"), b"abc".repeat(5000));
    assert_eq!(
        (content("a/static"), content("a/shared")),
        (b"static".to_vec(), b"shared".to_vec())
    );
    assert_eq!((content("a/empty"), content("a/reader")), (Vec::new(), vec![b'r'; 100_000]));
    assert_eq!((content("a/path").len(), content("a/range")), (10_000, b"5678901234".to_vec()));
    let file = image.metadata("a/vec").unwrap();
    assert_eq!(
        (file.permissions(), file.uid(), file.gid(), file.nlink()),
        (0o640, 1000, 100_000, 2)
    );
    assert_eq!((file.mtime(), image.xattr(&file, b"user.a").unwrap()), (TIME, Some(b"1".to_vec())));
    let null = image.symlink_metadata("null").unwrap();
    assert_eq!(
        (null.file_type(), null.rdev()),
        (FileType::CharDevice, Some(Rdev { major: 1, minor: 3 }))
    );
    assert_eq!(image.symlink_metadata("disk").unwrap().file_type(), FileType::BlockDevice);
    assert_eq!(image.symlink_metadata("fifo").unwrap().file_type(), FileType::Fifo);
    assert_eq!(image.symlink_metadata("socket").unwrap().file_type(), FileType::Socket);
    let (root, made) = (image.root().unwrap(), image.metadata("linked").unwrap());
    assert_eq!((root.permissions(), root.mtime(), made.permissions()), (0o700, TIME, 0o755));
}

#[test]
fn the_bits_are_those_of_the_same_directory() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    let files = [
        ("one", "one ".repeat(10_000)),
        ("sub/two", "two".into()),
        ("sub/three", "3".repeat(70_000)),
    ];
    let mut paths: Vec<&str> = vec!["sub", ""];
    for (name, content) in &files {
        std::fs::write(source.join(name), content).unwrap();
        std::fs::set_permissions(source.join(name), PermissionsExt::from_mode(0o600)).unwrap();
        paths.push(name);
    }
    for path in &paths {
        let time = rustix::fs::Timespec { tv_sec: TIME.secs, tv_nsec: TIME.nanos.into() };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(
            rustix::fs::CWD,
            source.join(path),
            &times,
            rustix::fs::AtFlags::empty(),
        )
        .unwrap();
    }
    let mut options = builder().options;
    options.source = Options::new(source.clone()).source;
    let walked = dir.path().join("walked");
    crate::build(&options, &walked).unwrap();
    let walked = std::fs::read(walked).unwrap();

    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut builder = builder();
        let attributes = |path: &str| {
            let metadata = std::fs::metadata(source.join(path)).unwrap();
            Attributes::default()
                .mode(metadata.mode() as u16)
                .owner(metadata.uid(), metadata.gid())
                .mtime(TIME)
        };
        for number in order {
            let (name, content) = &files[number];
            builder.file(*name, Content::bytes(content.clone()), attributes(name));
        }
        builder.directory("sub", attributes("sub")).directory("", attributes(""));
        let mut bytes = Vec::new();
        builder.write_to(&mut bytes).unwrap();
        assert!(bytes == walked, "order {order:?}");
    }
}

#[test]
fn later_entries_and_layers_are_above_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower.erofs");
    let mut below = builder();
    below.file("a", Content::bytes("lower"), Attributes::default());
    below.file("b", Content::bytes("lower"), Attributes::default());
    below.build(&lower).unwrap();
    let mut builder = builder();
    builder
        .file("a", Content::bytes("first"), Attributes::default())
        .file("kept/x", Content::bytes("x"), Attributes::default())
        .layer(SourceFormat::Image, &lower)
        .file("b", Content::bytes("last"), Attributes::default())
        .directory("kept", Attributes::default().mode(0o711));
    let merged = image(builder).unwrap();
    assert_eq!(
        (merged.read("a").unwrap(), merged.read("b").unwrap()),
        (b"lower".to_vec(), b"last".to_vec())
    );
    assert_eq!(merged.read("kept/x").unwrap(), b"x");
    assert_eq!(merged.metadata("kept").unwrap().permissions(), 0o711);

    // A file of another image is a reader.
    let mut copy = super::tests::builder();
    copy.file("copied", Content::reader(merged.open_file("a").unwrap()), Attributes::default());
    assert_eq!(image(copy).unwrap().read("copied").unwrap(), b"lower");
}

#[test]
fn links_replace_no_entries() {
    let attributes = Attributes::default;
    let refused = |add: &dyn Fn(&mut Builder)| {
        let mut builder = builder();
        builder.file("t", Content::bytes("t"), attributes());
        add(&mut builder);
        matches!(image(builder), Err(Error::Entry { fault: EntryFault::DirectoryNotEmpty, .. }))
    };
    assert!(refused(&|builder| {
        builder.file("d/x", Content::bytes("x"), attributes()).hard_link("d", "t");
    }));
    assert!(refused(&|builder| {
        builder.hard_link("x", "t").file("x/y", Content::bytes("y"), attributes());
    }));
    let mut later = builder();
    later.file("t", Content::bytes("t"), attributes()).hard_link("./g", "t");
    later.file("/g", Content::bytes("new"), attributes());
    assert_eq!(image(later).unwrap().read("g").unwrap(), b"new");
}

#[test]
fn directories_are_layers() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    std::fs::create_dir_all(first.join("sub")).unwrap();
    std::fs::create_dir_all(&second).unwrap();
    for (path, content) in
        [("kept", "1"), ("replaced", "1"), ("sub/deep", "deep"), ("name", "linked")]
    {
        std::fs::write(first.join(path), content).unwrap();
    }
    std::fs::hard_link(first.join("name"), first.join("other")).unwrap();
    std::fs::write(second.join("replaced"), "2").unwrap();
    std::fs::write(second.join("sparse"), "s").unwrap();
    std::fs::File::options()
        .write(true)
        .open(second.join("sparse"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();

    let mut builder = builder();
    builder
        .layer(SourceFormat::Directory, &first)
        .layer(SourceFormat::Directory, &second)
        // The first name of a file with two names is gone: its content is still found under that
        // name in the directory.
        .file("name", Content::bytes("new"), Attributes::default());
    builder.options().output.verify = true;
    let image = image(builder).unwrap();
    let content = |path: &str| String::from_utf8(image.read(path).unwrap()).unwrap();
    assert_eq!(
        (content("kept"), content("replaced"), content("sub/deep")),
        ("1".into(), "2".into(), "deep".into())
    );
    assert_eq!((content("name"), content("other")), ("new".into(), "linked".into()));
    assert_eq!(
        (image.read("sparse").unwrap().len(), image.read("sparse").unwrap()[0]),
        (1 << 20, b's')
    );

    let mut missing = super::tests::builder();
    missing.layer(SourceFormat::Directory, dir.path().join("missing"));
    let error = super::tests::image(missing).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn an_archive_is_read_from_a_reader() {
    let mut source = builder();
    source.file("dir/file", Content::bytes("from the archive"), Attributes::default().mode(0o600));
    source.file("over", Content::bytes("archive"), Attributes::default());
    let source = image(source).unwrap();
    let mut tar = Vec::new();
    let root = source.root().unwrap();
    let options = ferofs::extract::Options::default();
    ferofs::extract::write_tar(&source, &root, Path::new("."), &mut tar, &options, &|_, _| ())
        .unwrap();
    let packed = zstd::encode_all(tar.as_slice(), 1).unwrap();
    for archive in [tar, packed] {
        let mut builder = builder();
        builder
            .file("over", Content::bytes("below"), Attributes::default())
            .archive("memory", io::Cursor::new(archive.clone()));
        let image = image(builder).unwrap();
        assert_eq!(image.read("dir/file").unwrap(), b"from the archive");
        assert_eq!(image.metadata("dir/file").unwrap().permissions(), 0o600);
        assert_eq!(image.read("over").unwrap(), b"archive");
    }
    let mut broken = builder();
    broken.archive("broken.tar", io::Cursor::new(vec![7; 2000]));
    let error = image(broken).unwrap_err().to_string();
    assert!(error.contains("broken.tar"), "{error}");
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the reader fails"))
    }
}

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("the writer fails"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn impossible_entries_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::write(&small, "12345").unwrap();
    let failure = |add: &dyn for<'a> Fn(&'a mut Builder) -> &'a mut Builder| {
        let mut builder = builder();
        add(&mut builder);
        image(builder).unwrap_err().to_string()
    };
    let plain = Attributes::default;
    let file = |path: &str| failure(&|b| b.file(path, Content::bytes("x"), plain()));
    assert!(file("a/../b").contains("a/../b: "));
    assert!(file("a\0b").contains("NUL"));
    assert!(file("").contains("root"));
    assert!(file(&"x".repeat(256)).contains("255"));
    assert!(failure(&|b| b.fifo("f", plain()).fifo("f/g", plain())).contains("f/g: "));
    assert!(
        failure(&|b| b.fifo("f/g", plain()).fifo("f", plain()))
            .contains("f: a directory with entries")
    );
    assert!(failure(&|b| b.symlink("l", "", plain())).contains("l: "));
    assert!(failure(&|b| b.hard_link("l", "missing")).contains("l: "));
    assert!(failure(&|b| b.hard_link("l", "/")).contains("l: "));
    let content =
        |content: fn(&Path) -> Content| failure(&|b| b.file("f", content(&small), plain()));
    assert!(content(|_| Content::reader(Failing)).contains("the reader fails"));
    assert!(content(|_| Content::path("/none")).contains("/none: "));
    assert!(content(|_| Content::path("/")).contains("directory"));
    assert!(content(|small| Content::range(small, 3, 3)).contains("ends before"));
    assert!(content(|small| Content::range(small, u64::MAX, 3)).contains("ends before"));
    let cancelled = failure(&|b| {
        b.fifo("f", plain()).options().run.cancel.cancel();
        b
    });
    assert!(cancelled.contains("interrupted"), "{cancelled}");
    let error = builder().write_to(&mut Failing).unwrap_err().to_string();
    assert_eq!(error, "write the image: the writer fails");
}

#[test]
fn more_files_than_a_process_may_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = builder();
    for number in 0..600 {
        let path = dir.path().join(number.to_string());
        std::fs::write(&path, format!("content {number}")).unwrap();
        builder.file(number.to_string(), Content::range(&path, 3, 5), Attributes::default());
    }
    let image = image(builder).unwrap();
    for number in 0..600 {
        let content = format!("content {number}");
        assert_eq!(image.read(number.to_string()).unwrap(), content.as_bytes()[3..8], "{number}");
    }
}

#[test]
fn the_last_entry_of_a_path_counts() {
    let mut links = builder();
    links
        .hard_link("chain", "link")
        .hard_link("link", "target")
        .hard_link("replaced", "target")
        .file("replaced", Content::bytes("file"), Attributes::default())
        .file("target", Content::bytes("old"), Attributes::default())
        .file(
            "target",
            Content::bytes("new"),
            Attributes::default().xattr("user.a", "1").xattr("user.a", "2"),
        );
    let image = image(links).unwrap();
    let content = |path: &str| String::from_utf8(image.read(path).unwrap()).unwrap();
    assert_eq!(
        (content("chain"), content("link"), content("replaced")),
        ("new".into(), "new".into(), "file".into())
    );
    let xattrs = image.xattrs("target").unwrap();
    assert_eq!((xattrs.len(), xattrs[0].value.as_slice()), (1, b"2".as_slice()));
    assert_eq!(image.metadata("target").unwrap().nlink(), 3);
}

#[test]
fn settings_of_other_sources_are_refused() {
    use crate::options::source::SourceData;

    let refused = |set: &dyn Fn(&mut Options)| {
        let mut builder = builder();
        set(builder.options());
        matches!(image(builder), Err(Error::Option { .. }))
    };
    assert!(refused(&|options| options.source.lower_image = Some("below".into())));
    assert!(refused(&|options| options.source.upper_layers = vec!["above".into()]));
    assert!(refused(&|options| options.source.data = SourceData::External));
    assert!(refused(&|options| options.output.offset = 4096));
}

/// Cancels its build when it is read.
struct Cancelling(ferofs_read::Cancel);

impl Read for Cancelling {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.cancel();
        Ok(buf.len())
    }
}

#[test]
fn a_build_that_is_cancelled_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = builder();
    let cancel = builder.options().run.cancel.clone();
    builder.file("endless", Content::reader(Cancelling(cancel)), Attributes::default());
    assert!(matches!(builder.build(dir.path().join("image")), Err(Error::Interrupted)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    // An archive with a member of 1 TiB, which is cancelled while it is read.
    let mut header = [0; 512];
    header[..4].copy_from_slice(b"file");
    header[100..107].copy_from_slice(b"0000644");
    header[124..128].copy_from_slice(&[0x80, 0, 0, 0]);
    header[128..136].copy_from_slice(&(1_u64 << 40).to_be_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut archive = super::tests::builder();
    let cancel = archive.options().run.cancel.clone();
    archive.archive("endless", io::Cursor::new(header).chain(Cancelling(cancel)));
    assert!(matches!(image(archive), Err(Error::Interrupted)));
}

/// A tree with hard links, xattrs, holes, fragments and large files.
fn rich_builder() -> Builder {
    let mut rich = builder();
    rich.options().data.compression.as_mut().unwrap().fragments = crate::Fragments::Tails;
    let attributes = Attributes::default().mode(0o640).owner(7, 8).mtime(TIME).xattr("user.a", "1");
    let large: Vec<u8> = (0..2_000_000_u32)
        .flat_map(|n| (n.wrapping_mul(n) >> 9).to_le_bytes())
        .take(5 << 20)
        .collect();
    rich.file("large", Content::bytes(large), attributes.clone())
        .file("dir/small", Content::bytes("small"), attributes.clone())
        .hard_link("dir/other", "dir/small")
        .symlink("link", "dir/small", attributes.clone())
        .char_device("null", Rdev { major: 1, minor: 3 }, attributes.clone())
        .fifo("fifo", attributes.clone())
        .directory("dir", attributes.clone())
        .directory("", attributes);
    rich
}

/// 5000 bytes between holes.
fn with_holes() -> Builder {
    let mut holes = builder();
    holes.options().data.compression = None;
    holes.options().data.chunks = Some(crate::ChunkOptions::new(4096));
    let mut bytes = vec![0; 3 << 20];
    bytes[1 << 20..][..5000].fill(7);
    holes.file("holes", Content::bytes(bytes), Attributes::default().mtime(TIME));
    holes
}

#[test]
fn an_opened_image_gives_the_bits_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (lower, path) = (dir.path().join("lower"), dir.path().join("built"));
    rich_builder().build(&lower).unwrap();
    // Also an image with holes.
    let sparse = dir.path().join("sparse");
    with_holes().build(&sparse).unwrap();
    for below in [&lower, &sparse] {
        let mut options = builder().options;
        options.source = Options::new(below.clone()).source;
        options.source.format = SourceFormat::Image;
        crate::build(&options, &path).unwrap();
        let expected = std::fs::read(&path).unwrap();
        let opened = Image::open(std::fs::read(below).unwrap()).unwrap();
        let mut from_image = builder();
        from_image.image("opened", &opened);
        from_image.options().output.verify = true;
        let mut bytes = Vec::new();
        from_image.write_to(&mut bytes).unwrap();
        assert!(bytes == expected, "{below:?}");

        // One by one, the files of the image give the same bits again.
        let mut one_by_one = builder();
        let mut names = std::collections::HashMap::new();
        for entry in opened.walk() {
            let entry = entry.unwrap();
            let inode = entry.inode.unwrap();
            let attributes = Attributes::default()
                .mode(inode.permissions())
                .owner(inode.uid(), inode.gid())
                .mtime(inode.mtime());
            let xattrs = opened.xattrs(&inode).unwrap();
            let attributes = xattrs
                .into_iter()
                .fold(attributes, |all, xattr| all.xattr(xattr.name, xattr.value));
            if let Some(first) = names.get(&inode.nid()) {
                one_by_one.hard_link(entry.path, first);
                continue;
            }
            names.insert(inode.nid(), entry.path.clone());
            match inode.file_type() {
                FileType::Directory => one_by_one.directory(entry.path, attributes),
                FileType::Regular => {
                    one_by_one.file(entry.path, Content::image_file(&opened, &inode), attributes)
                }
                FileType::Symlink => {
                    let target = opened.read_link(&entry.path).unwrap();
                    one_by_one.symlink(entry.path, as_path(&target), attributes)
                }
                FileType::CharDevice => {
                    one_by_one.char_device(entry.path, inode.rdev().unwrap(), attributes)
                }
                _ => one_by_one.fifo(entry.path, attributes),
            };
        }
        let mut bytes = Vec::new();
        one_by_one.write_to(&mut bytes).unwrap();
        assert!(bytes == expected, "one by one: {below:?}");
    }
}

#[test]
fn ranges_of_files_in_images_are_contents() {
    let opened = image(rich_builder()).unwrap();
    let expected = opened.read("large").unwrap();
    let large = opened.metadata("large").unwrap();
    let mut ranges = builder();
    for (number, (start, len)) in
        [(0, 10), (100_000, 3 << 20), ((5 << 20) - 7, 7), (9, 0)].iter().enumerate()
    {
        let content = Content::image_range(&opened, &large, *start, *len);
        ranges.file(number.to_string(), content, Attributes::default());
    }
    ranges.options().output.verify = true;
    let built = image(ranges).unwrap();
    assert_eq!(built.read("0").unwrap(), expected[..10]);
    assert!(built.read("1").unwrap() == expected[100_000..][..3 << 20]);
    assert_eq!(built.read("2").unwrap(), expected[expected.len() - 7..]);
    assert_eq!(built.read("3").unwrap(), b"");

    let holes = image(with_holes()).unwrap();
    let inode = holes.metadata("holes").unwrap();
    let mut range = builder();
    range.options().data.compression = None;
    range.options().output.verify = true;
    let content = Content::image_range(&holes, &inode, (1 << 20) + 10, 1 << 20);
    range.file("range", content, Attributes::default());
    let built = image(range).unwrap().read("range").unwrap();
    assert_eq!(built.len(), 1 << 20);
    assert!(
        built[..4990].iter().all(|byte| *byte == 7) && built[4990..].iter().all(|byte| *byte == 0)
    );

    let refused = |path: &str, start, len| {
        let mut builder = builder();
        let inode = opened.symlink_metadata(path).unwrap();
        builder.file("f", Content::image_range(&opened, &inode, start, len), Attributes::default());
        matches!(image(builder), Err(Error::Entry { fault: EntryFault::ImageRange, .. }))
    };
    assert!(
        refused("large", 5 << 20, 1)
            && refused("large", u64::MAX, 1)
            && refused("large", 1, u64::MAX)
    );
    assert!(refused("link", 0, 1) && refused("dir", 0, 0) && refused("fifo", 0, 0));
    assert!(!refused("large", 5 << 20, 0));
}

#[test]
fn values_that_the_format_cannot_express_are_refused() {
    let fault = |attributes: Attributes| {
        let mut builder = builder();
        builder.file("f", Content::bytes("x"), attributes);
        match image(builder) {
            Err(Error::Entry { path, fault }) if path == Path::new("f") => Some(fault),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let time = |nanos| Attributes::default().mtime(Timestamp { secs: 1, nanos });
    assert_eq!(
        (fault(time(999_999_999)), fault(time(1_000_000_000))),
        (None, Some(EntryFault::Nanoseconds))
    );
    assert_eq!(fault(time(u32::MAX)), Some(EntryFault::Nanoseconds));
    let xattr = |name: &str| fault(Attributes::default().xattr(name, "1"));
    for name in ["", "user", "user.", "plain", "unknown.name", "user.a\0b", "security."] {
        assert_eq!(xattr(name), Some(EntryFault::XattrName), "{name:?}");
    }
    assert_eq!((xattr("user.a"), xattr("trusted.overlay.x")), (None, None));
    let device = |major, minor| {
        let mut builder = builder();
        builder.block_device("d", Rdev { major, minor }, Attributes::default());
        match image(builder) {
            Ok(image) => {
                assert_eq!(image.metadata("d").unwrap().rdev(), Some(Rdev { major, minor }));
                true
            }
            Err(Error::Entry { fault: EntryFault::DeviceNumber, .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(device(4095, (1 << 20) - 1) && device(0, 0));
    assert!(!device(4096, 0) && !device(0, 1 << 20) && !device(u32::MAX, u32::MAX));
}

#[test]
fn a_directory_that_replaces_a_device_is_not_opaque() {
    let mut replaced = builder();
    replaced
        .char_device("d", Rdev { major: 0, minor: 0 }, Attributes::default())
        .directory("d", Attributes::default());
    assert!(image(replaced).unwrap().xattrs("d").unwrap().is_empty());
}
