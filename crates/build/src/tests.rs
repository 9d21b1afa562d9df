//! Whole builds, read back with this crate's reader.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

mod faults;
mod inline;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::*;
use crate::build::new_superblock;
use crate::data;
use crate::data::identical::small::IdenticalFiles;
use crate::data::order::Order;
use crate::data::stored::StoredContent;
use crate::data::worker::context::WorkerContext;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::content::Contents;
use crate::sources::directory;
use crate::tree::NodeId;
use crate::tree::inode_sizes::InodeSizes;
use crate::verify::Verifier;
use ferofs_format::FileOffset;
use ferofs_format::superblock::Superblock;
use rustix::fs::{Mode, OFlags};

use ferofs_read::{ExtentData, FileSource, HotRange, Image, Location, Profile};

struct TestBuild {
    dir: tempfile::TempDir,
    options: Options,
}

impl TestBuild {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        let mut options = Options::new(source);
        options.data.compression = Some(Compression::lz4(0).unwrap());
        options.image.build_time = Some(2_000_000_000);
        options.image.uuid = Some([7; 16]);
        Self { dir, options }
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.options.source.path.join(name), content).unwrap();
    }

    fn build(&self) -> Summary {
        build(&self.options, &self.image()).unwrap()
    }

    fn open(&self) -> Image {
        Image::open(FileSource::open(self.image(), 0).unwrap()).unwrap()
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let image = self.open();
        let inode = image.resolve(Path::new(path), false).unwrap();
        let mut content = vec![0; inode.size() as usize];
        let read = image.read_at(&inode, FileOffset::new(0), &mut content).unwrap();
        assert_eq!(read, content.len());
        content
    }
}

/// Bytes that compress, somewhat.
fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n / 7) as u32).wrapping_mul(2_654_435_761).to_be_bytes()[n % 3]).collect()
}

/// Bytes that do not.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(len)
    .collect()
}

fn plant(test: &TestBuild) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for size in [0, 1, 4000, 4095, 4096, 4097, 5000, 100_000, 4 << 20, (4 << 20) + 1, (9 << 20) + 77] {
        files.push((format!("text{size}"), text(size)));
        files.push((format!("noise{size}"), noise(size)));
        files.push((format!("zero{size}"), vec![0; size]));
    }
    let mixed = [noise(5 << 20), text(1 << 20), noise(4097)].concat();
    files.push(("mixed".into(), mixed));
    for (name, content) in &files {
        test.write(name, content);
    }
    files
}

#[test]
fn content_comes_back_from_every_block_size_and_form() {
    for (bits, compression) in
        [(9, Some(Compression::lz4(0).unwrap())), (12, Some(Compression::lz4(0).unwrap())), (12, None)]
    {
        let mut test = TestBuild::new();
        test.options.image.block_size = BlockSize::from_bits(bits).unwrap();
        test.options.data.compression = compression.clone();
        let files = plant(&test);
        test.build();
        for (name, content) in &files {
            assert!(&test.read(name) == content, "{name} with blocks of 2^{bits}, {compression:?}");
        }
    }
}

/// Every kind of compression, in turn.
fn settings() -> Vec<Compression> {
    let methods = [(Algorithm::Lz4, 0), (Algorithm::Zstd, 1), (Algorithm::Deflate, 1), (Algorithm::Lzma, 0)];
    let mut settings = Vec::new();
    for (n, (algorithm, level)) in methods.into_iter().enumerate() {
        for index in [Index::Compact, Index::Full, Index::Extents] {
            for (fragments, inline_tails) in [
                (Fragments::None, false),
                (Fragments::None, true),
                (Fragments::Tails, false),
                (Fragments::All, true),
            ] {
                settings.push(Compression {
                    pcluster: [None, Some(16 << 10), Some(128 << 10), Some(256 << 10)]
                        [(n + settings.len()) % 4],
                    index,
                    fragments,
                    inline_tails,
                    ..Compression::new(Params::new(algorithm, Some(level)).unwrap())
                });
            }
        }
    }
    settings
}

#[test]
fn content_comes_back_from_every_kind_of_compression() {
    let mut test = TestBuild::new();
    let mut files: Vec<(String, Vec<u8>)> = [0, 1, 4000, 4096, 4097, 70_000, 1_000_000, (4 << 20) + 77]
        .into_iter()
        .flat_map(|size| [(format!("text{size}"), text(size)), (format!("noise{size}"), noise(size))])
        .collect();
    for n in 0..60 {
        files.push((format!("small{n}"), text(n * 97)));
    }
    for (name, content) in &files {
        test.write(name, content);
    }
    for setting in settings() {
        test.options.data.compression = Some(setting.clone());
        test.build();
        let image = test.open();
        for (name, content) in &files {
            let inode = image.resolve(Path::new(name), false).unwrap();
            let mut read = vec![0; inode.size() as usize];
            image.read_at(&inode, FileOffset::new(0), &mut read).unwrap();
            assert!(&read == content, "{name} with {setting:?}");
        }
    }
}

#[test]
fn files_with_the_same_content_share_it() {
    let mut test = TestBuild::new();
    for size in [100, 4096, 50_000, 300_000] {
        for n in 0..5 {
            test.write(&format!("text{size}-{n}"), text(size));
            test.write(&format!("noise{size}-{n}"), noise(size));
        }
    }
    let settings = std::iter::once(None).chain(settings().into_iter().step_by(5).map(Some));
    for setting in settings {
        test.options.data.compression = setting;
        test.options.data.share_identical = false;
        let apart = test.build();
        test.options.data.share_identical = true;
        let shared = test.build();
        assert_eq!(apart.bytes_shared, 0);
        assert_eq!(shared.bytes_shared, 4 * 2 * (100 + 4096 + 50_000 + 300_000));
        assert!(shared.bytes_out < apart.bytes_out / 3, "{shared:?} {apart:?}");
        assert_eq!(test.read("text300000-4"), text(300_000));
        assert_eq!(test.read("noise4096-3"), noise(4096));
        assert_eq!(test.read("text100-3"), text(100));
    }
}

#[test]
fn files_that_differ_at_the_end_share_what_is_before() {
    let mut test = TestBuild::new();
    let ended = |end: u8| [noise(200_000), vec![end; 300]].concat();
    for end in 0..5 {
        test.write(&format!("file{end}"), ended(end));
    }
    for index in [Index::Compact, Index::Full, Index::Extents] {
        for fragments in [Fragments::None, Fragments::Tails] {
            let lz4 = Compression::lz4(0).unwrap();
            let pcluster = Some(65536);
            test.options.data.compression =
                Some(Compression { pcluster, index, fragments, inline_tails: true, ..lz4 });
            let built = test.build();
            for end in 0..5 {
                assert_eq!(test.read(&format!("file{end}")), ended(end));
            }
            let shares = fragments == Fragments::Tails;
            assert_eq!(built.bytes_out < 400_000, shares, "{index:?} {fragments:?}: {built:?}");
        }
    }
}

/// Bytes that compress, no two stretches of which are the same.
fn prose(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{} ", (state >> 20) * 7)
    });
    words.flat_map(String::into_bytes).take(len).collect()
}

#[test]
fn large_twins_are_stored_once() {
    let mut test = TestBuild::new();
    let book = prose(9 << 20, 1);
    test.write("a", &book);
    test.write("b", &book);
    // The same size, and the same samples.
    let mut other = book.clone();
    other[1 << 20] ^= 1;
    test.write("c", &other);
    for compression in [
        None,
        Some(Compression::lz4(0).unwrap()),
        Some(Compression { index: Index::Extents, dedupe: true, ..Compression::lz4(0).unwrap() }),
    ] {
        test.options.data.compression = compression.clone();
        test.options.data.share_identical = false;
        let alone = test.build();
        test.options.data.share_identical = true;
        let images = [1, 4].map(|workers| {
            test.options.run.workers = NonZeroUsize::new(workers);
            let shared = test.build();
            let saved = alone.bytes_out - shared.bytes_out;
            if compression.as_ref().is_none_or(|compression| !compression.dedupe) {
                assert_eq!(shared.bytes_shared, 9 << 20);
                assert!(saved * 3 > alone.bytes_out * 9 / 10, "{saved} of {alone:?}");
            }
            fs::read(test.image()).unwrap()
        });
        assert!(images[0] == images[1]);
        let image = test.open();
        for (path, content) in [("a", &book), ("b", &book), ("c", &other)] {
            let inode = image.resolve(path.as_ref(), false).unwrap();
            let mut bytes = vec![0; content.len()];
            image.read_at(&inode, FileOffset::new(0), &mut bytes).unwrap();
            assert!(bytes == **content, "{path}");
        }
    }
}

#[test]
fn content_is_laid_out_as_it_is_read() {
    let mut test = TestBuild::new();
    fs::create_dir_all(test.options.source.path.join("b/d")).unwrap();
    let files = ["a", "b/c", "b/d/x", "b/e", "z"];
    for (seed, name) in (1..).zip(files) {
        test.write(name, prose(30_000, seed));
    }
    let order = |test: &TestBuild| {
        test.build();
        let image = test.open();
        let start = |name: &&str| {
            let inode = image.resolve(name.as_ref(), false).unwrap();
            match image.extents(&inode, FileOffset::new(0)).unwrap().next().unwrap().unwrap().data {
                ExtentData::Encoded { at: Location::Device(_, pos), .. } => (pos, true),
                ExtentData::Stored { at: Location::Device(_, pos) } => (pos, false),
                other => panic!("{name}: {other:?}"),
            }
        };
        let mut names = files.to_vec();
        names.sort_by_key(start);
        (names, files.into_iter().filter(|name| !start(name).1).collect::<Vec<_>>())
    };
    assert_eq!(order(&test), (files.to_vec(), vec![]));
    let range = |reads, path: &str| HotRange { reads, start: 0, len: 65_536, path: path.into() };
    let ranges = vec![range(7, "/z"), range(2, "/b/d/x"), range(1, "/gone")];
    test.options.data.hot = Some(Hot { profile: Profile { ranges }, stored: 30_000 });
    assert_eq!(order(&test), (vec!["b/d/x", "z", "a", "b/c", "b/e"], vec!["z"]));
    test.options.data.chunks = Some(ChunkOptions { size: 4096, force_indexes: false, device: None });
    assert_eq!(order(&test).0[..2], ["b/d/x", "z"]);
}

#[test]
fn near_fragments_of_a_name_stand_together() {
    let fragments =
        Compression { fragments: Fragments::Tails, pcluster: Some(64 << 10), ..Compression::lz4(3).unwrap() };
    // In three languages the messages of six programs, which are more than LZ4 looks back over; then something else.
    let built = |path: fn(u32, u32) -> String, between: u32| {
        let mut test = TestBuild::new();
        test.options.data.compression = Some(fragments.clone());
        for language in 0..3 {
            fs::create_dir(test.options.source.path.join(language.to_string())).unwrap();
            for program in 0..6 {
                let own = prose(1000, 100 * language + program);
                test.write(&path(language, program), [prose(30_000, program), own].concat());
            }
            for number in 0..between {
                test.write(&format!("{language}/z{language}{number}"), prose(60_000, 1000 + number));
            }
        }
        test.build().bytes_out
    };
    let together = built(|language, program| format!("{language}/{program}"), 0);
    let other_names = built(|language, program| format!("{language}/{language}{program}"), 0);
    assert!(together * 2 < other_names, "{together} and {other_names}");
    let apart = built(|language, program| format!("{language}/{program}"), 150);
    let other_names = built(|language, program| format!("{language}/{language}{program}"), 150);
    assert_eq!(apart, other_names);
}

#[test]
fn what_is_there_already_is_not_stored_again() {
    let mut test = TestBuild::new();
    let book = prose(3 << 20, 1);
    // Works that are near each other see less: let something stand between.
    for n in 0..40 {
        test.write(&format!("b{n:02}"), prose(1_100_000 + n, n as u32 + 2));
    }
    test.write("a", &book);
    let edited = [&book[..1_000_000], b"here", &book[1_000_000..2_000_000], &book[2_000_100..]].concat();
    let moved = [prose(333, 77), book[5000..].to_vec()].concat();
    test.write("y", &edited);
    test.write("z", &moved);
    let small = prose(100_000, 90);
    for n in 0..3 {
        test.write(&format!("near{n}"), [small.as_slice(), &prose(9000 + n, n as u32 + 95)].concat());
    }
    for index in [Index::Compact, Index::Extents] {
        for pcluster in [4096, 64 << 10] {
            let mut setting = Compression { index, pcluster: Some(pcluster), ..Compression::lz4(0).unwrap() };
            test.options.data.compression = Some(setting.clone());
            test.options.run.workers = None;
            let plain = test.build();
            setting.dedupe = true;
            test.options.data.compression = Some(setting);
            let mut images = [1, 5].map(|workers| {
                test.options.run.workers = NonZeroUsize::new(workers);
                let deduplicated = test.build();
                let saved = plain.bytes_out - deduplicated.bytes_out;
                assert!(deduplicated.bytes_shared > 5 << 20, "{deduplicated:?}");
                assert!(saved > 2 << 20, "{saved} of {plain:?}");
                fs::read(test.image()).unwrap()
            });
            images.sort_unstable_by_key(Vec::len);
            assert!(images[0] == images[1]);
            assert!(test.read("y") == edited && test.read("z") == moved && test.read("a") == book);
            assert!(test.read("near2").starts_with(&small));
        }
    }
}

#[test]
fn workers_leave_no_trace() {
    let mut test = TestBuild::new();
    plant(&test);
    let setting =
        Compression { fragments: Fragments::Tails, pcluster: Some(64 << 10), ..Compression::lz4(0).unwrap() };
    test.options.data.compression = Some(setting);
    for n in 0..500 {
        fs::create_dir_all(test.options.source.path.join(format!("d{}", n % 50))).unwrap();
        test.write(&format!("d{}/f{n}", n % 50), text(n * 31));
    }
    let mut images = [1, 2, 5].map(|workers| {
        test.options.run.workers = NonZeroUsize::new(workers);
        test.build();
        fs::read(test.image()).unwrap()
    });
    images.sort_unstable_by_key(Vec::len);
    assert!(images[0] == images[1] && images[1] == images[2]);
}

#[test]
fn links_are_counted_within_the_tree() {
    let test = TestBuild::new();
    test.write("a", b"content");
    let at = |name: &str| test.options.source.path.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("a"), at("d/b")).unwrap();
    fs::hard_link(at("a"), test.dir.path().join("outside")).unwrap();
    symlink("d/b", at("link")).unwrap();
    let summary = test.build();
    assert_eq!((summary.inodes, summary.files, summary.directories), (4, 1, 2));
    let image = test.open();
    let nid = |path: &str| image.resolve(Path::new(path), false).unwrap().nid();
    assert_eq!(nid("a"), nid("d/b"));
    assert_eq!(image.resolve(Path::new("a"), false).unwrap().on_disk().nlink, 2);
    assert_eq!(test.read("link"), b"d/b");
}

#[test]
fn odd_names_and_large_directories() {
    let test = TestBuild::new();
    let mut names: Vec<Vec<u8>> = (0..3000).map(|n| format!("{n:0250}").into_bytes()).collect();
    names.extend([b"-".to_vec(), b"!".to_vec(), b"...".to_vec(), b"\xff\xfe\n".to_vec(), vec![b'x'; 255]]);
    for name in &names {
        fs::write(test.options.source.path.join(crate::paths::as_path(name)), name).unwrap();
    }
    test.build();
    let image = test.open();
    for name in &names {
        let inode = image.resolve(crate::paths::as_path(name), false).unwrap();
        let mut content = vec![0; name.len()];
        image.read_at(&inode, FileOffset::new(0), &mut content).unwrap();
        assert_eq!(content, *name);
    }
}

#[test]
fn holes_take_no_room() {
    let mut test = TestBuild::new();
    let sparse = fs::File::create(test.options.source.path.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"data", 1 << 39).unwrap();
    fs::File::create(test.options.source.path.join("empty")).unwrap().set_len(1 << 30).unwrap();
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        test.options.data.compression = compression;
        let summary = test.build();
        assert!(summary.bytes_out < 64 << 20, "{summary:?}");
        let image = test.open();
        let inode = image.resolve(Path::new("sparse"), false).unwrap();
        let mut bytes = [1; 8];
        image.read_at(&inode, FileOffset::new((1 << 39) - 2), &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0data\0\0");
    }
}

#[test]
fn deep_trees_need_neither_stack_nor_long_paths() {
    let test = TestBuild::new();
    let name = "n".repeat(200);
    let contents = Contents::directory(&test.options.source.path).unwrap();
    let mut at = contents.root().unwrap().try_clone().unwrap();
    for _ in 0..100 {
        rustix::fs::mkdirat(&at, &*name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "bottom", flags, Mode::RUSR | Mode::WUSR).unwrap();
    fs::File::from(file).write_all(&text(10_000)).unwrap();
    let summary = test.build();
    assert_eq!((summary.directories, summary.files), (101, 1));
    let path = format!("{}bottom", format!("{name}/").repeat(100));
    assert!(test.read(&path) == text(10_000));
}

#[test]
fn failure_leaves_nothing() {
    let test = TestBuild::new();
    test.options.run.cancel.store(true, Ordering::Relaxed);
    test.write("a", text(100_000));
    assert!(matches!(build(&test.options, &test.image()), Err(Error::Interrupted)));
    test.options.run.cancel.store(false, Ordering::Relaxed);
    let mut missing = test.options.clone();
    missing.source.path.push("missing");
    assert!(matches!(build(&missing, &test.image()), Err(Error::Io { .. })));
    let mut labelled = test.options.clone();
    labelled.image.label = vec![b'x'; 17];
    assert!(matches!(build(&labelled, &test.image()), Err(Error::Option { option: "label", .. })));
    let names: Vec<_> = fs::read_dir(test.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["source"]);
}

#[test]
fn a_source_that_changes_is_named() {
    let test = TestBuild::new();
    test.write("changing", text(9 << 20));
    let path = test.options.source.path.join("changing");
    let contents = Contents::directory(&test.options.source.path).unwrap();
    let tree = directory::walk(&test.options, contents.root().unwrap(), &[], &mut Vec::new()).unwrap();
    fs::File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let xattrs = tree.xattrs.plan(&test.options.xattrs, tree.node(NodeId::ROOT).xattrs, false).unwrap();
    let inode_sizes = InodeSizes::new(
        &tree,
        &xattrs,
        &new_superblock(&test.options).unwrap(),
        &test.options.inodes,
        &test.options.source.path,
    )
    .unwrap();
    let identical_files = IdenticalFiles::none(&tree);
    let order =
        Order::new(&tree, test.options.data.compression.as_ref(), test.options.image.block_size, None);
    let context = WorkerContext {
        tree: &tree,
        order: &order,
        inode_sizes: &inode_sizes,
        identical_files: &identical_files,
        base_image: None,
        extent_index: None,
        compression: test.options.data.compression.as_ref(),
        contents: &contents,
        timings: &test.options.run.progress.timings,
        block_size: test.options.image.block_size,
        skip_unreadable: false,
    };
    let mut output = Output::create(&test.image(), 0).unwrap();
    let mut spill = Spill::new(test.dir.path());
    let result = data::run(&test.options, context, &mut output, &mut spill, &mut Vec::new());
    assert!(matches!(result, Err(Error::SourceChanged(changed)) if changed == path));
}

#[test]
fn the_image_is_no_part_of_itself() {
    let test = TestBuild::new();
    test.write("a", b"a");
    let image = test.options.source.path.join("image");
    fs::write(&image, b"an older one").unwrap();
    assert_eq!(build(&test.options, &image).unwrap().inodes, 2);
}

#[test]
fn excludes_leave_out_all_below() {
    let mut test = TestBuild::new();
    fs::create_dir_all(test.options.source.path.join("cache/deep")).unwrap();
    test.write("cache/deep/file", b"x");
    test.write("a.o", b"x");
    test.write("a.c", b"x");
    test.options.source.excludes =
        vec![Exclude::Path("cache".into()), Exclude::Regex(regex::bytes::Regex::new(r"\.o$").unwrap())];
    let summary = test.build();
    assert_eq!((summary.directories, summary.files), (1, 1));
    assert_eq!(test.read("a.c"), b"x");
}

#[test]
fn owners_times_and_modes_follow_the_options() {
    let mut test = TestBuild::new();
    test.write("a", b"a");
    let path = test.options.source.path.join("a");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let uid = fs::metadata(&path).unwrap().uid();
    test.options.attributes.uid_offset = 100_000;
    test.options.attributes.force_gid = Some(5);
    test.options.attributes.all_time = Some(Timestamp { secs: -5, nanos: 42 });
    test.build();
    let image = test.open();
    let inode = image.resolve(Path::new("a"), false).unwrap();
    let inode = inode.on_disk();
    assert_eq!((inode.uid, inode.gid, inode.permissions), (uid + 100_000, 5, 0o4751));
    assert_eq!(inode.mtime, Timestamp { secs: -5, nanos: 42 });
}

#[test]
fn verifying_finds_what_differs() {
    let mut test = TestBuild::new();
    test.options.output.verify = true;
    test.write("compressed", text(6 << 20));
    test.write("stored", noise(6 << 20));
    test.write("small", b"behind its inode");
    let at = |name: &str| test.options.source.path.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("small"), at("d/link")).unwrap();
    symlink("target", at("symlink")).unwrap();
    test.build();
    let whole = fs::read(test.image()).unwrap();

    let contents = Contents::directory(&test.options.source.path).unwrap();
    let tree = directory::walk(&test.options, contents.root().unwrap(), &[], &mut Vec::new()).unwrap();
    let xattrs = tree.xattrs.plan(&test.options.xattrs, tree.node(NodeId::ROOT).xattrs, false).unwrap();
    let superblock = Superblock::parse(&whole[1024..]).unwrap();
    let inode_sizes =
        InodeSizes::new(&tree, &xattrs, &superblock, &test.options.inodes, &test.options.source.path)
            .unwrap();
    let stored = vec![StoredContent::None; tree.nodes.len()];
    let verify = |bytes: &[u8]| {
        fs::write(test.image(), bytes).unwrap();
        let (options, superblock, stored) = (&test.options, &superblock, &stored[..]);
        let (tree, inode_sizes, xattrs, contents) = (&tree, &inode_sizes, &xattrs, &contents);
        Verifier { options, tree, inode_sizes, xattrs, contents, stored, superblock }
            .run(Box::new(ferofs_read::FileSource::open(test.image(), 0).unwrap()), Vec::new())
    };
    verify(&whole).unwrap();
    let find = |wanted: &[u8]| whole.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    let image = test.open();
    let place = |name: &str| {
        let nid = image.resolve(Path::new(name), false).unwrap().nid();
        ((superblock.meta.get() << 12) + nid.get() * 32) as usize
    };
    for (place, file, what) in [
        (find(b"behind its inode"), "small", "content"),
        (find(&noise(6 << 20)[5 << 20..][..64]), "stored", "content"),
        (place("small") + 5, "small", "mode"),
        (place("small") + 8, "small", "size"),
        (find(b"symlink"), "symlink", "name"),
        (find(b"target"), "symlink", "target"),
    ] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        match verify(&damaged) {
            Err(Error::NotTheSource { path, what: found }) => {
                assert_eq!((path, found), (test.options.source.path.join(file), what));
            }
            other => panic!("{file} {what}: {other:?}"),
        }
    }
}
