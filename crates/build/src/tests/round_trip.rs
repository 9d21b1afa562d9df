//! Builds an image, and compares names and content that the reader finds in it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use ferofs_format::FileOffset;
use rustix::fs::{Mode, OFlags};

use super::{TestBuild, noise, settings, text, write_files};
use crate::sources::content::Contents;
use crate::{BlockSize, Compression};

#[test]
fn content_is_equal_with_each_block_size() {
    for (bits, compression) in
        [(9, Some(Compression::lz4(0).unwrap())), (12, Some(Compression::lz4(0).unwrap())), (12, None)]
    {
        let mut test = TestBuild::new();
        test.options.image.block_size = BlockSize::from_bits(bits).unwrap();
        test.options.data.compression = compression.clone();
        let files = write_files(&test);
        test.build();
        for (name, content) in &files {
            assert!(&test.read(name) == content, "{name} with blocks of 2^{bits}, {compression:?}");
        }
    }
}

#[test]
fn links_and_directories_with_blocks_of_their_own_find_them() {
    let mut test = TestBuild::new();
    test.options.image.block_size = BlockSize::from_bits(9).unwrap();
    let root = test.options.source.path.clone();
    let target = |number: usize| char::from(b'a' + number as u8).to_string().repeat(500 + 137 * number);
    // Links before, between and behind directories, which are placed before them.
    for number in 0..20 {
        symlink(target(number), root.join(format!("{number:02}"))).unwrap();
        let dir = root.join(format!("{number:02}dir"));
        fs::create_dir(&dir).unwrap();
        for name in 0..number * 9 {
            fs::write(dir.join(format!("{}{name}", target(number).split_at(30).0)), "").unwrap();
        }
    }
    test.build();
    let image = test.open();
    for number in 0..20 {
        let link = image.resolve(format!("{number:02}").as_ref(), false).unwrap();
        assert_eq!(image.read_link(&link).unwrap(), target(number).as_bytes());
        for name in 0..number * 9 {
            test.read(&format!("{number:02}dir/{}{name}", target(number).split_at(30).0));
        }
    }
}

#[test]
fn content_is_equal_with_each_kind_of_compression() {
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
fn holes_need_no_space() {
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
