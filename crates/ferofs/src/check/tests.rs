//! Images built here, whole and damaged.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::build;

fn image_bytes() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("below/deeper")).unwrap();
    fs::write(source.join("text"), "some words, again and again, ".repeat(2000)).unwrap();
    fs::write(source.join("below/small"), "small").unwrap();
    fs::hard_link(source.join("text"), source.join("below/same")).unwrap();
    symlink("below/small", source.join("link")).unwrap();
    let mut options = build::Options::new(&source);
    options.compression = Some(build::Compression::lz4(0).unwrap());
    options.uuid = Some([7; 16]);
    let path = dir.path().join("image");
    build::build(&options, &path).unwrap();
    fs::read(path).unwrap()
}

fn findings(bytes: Vec<u8>) -> Vec<Finding> {
    check(&Image::open(bytes).unwrap(), &Options::default()).unwrap().findings
}

#[test]
fn a_sound_image_has_no_findings() {
    let report = check(&Image::open(image_bytes()).unwrap(), &Options::default()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(report.inodes, 6);
    assert!(report.content_bytes > 58_000);
}

#[test]
fn damaged_data_and_wrong_links_are_found() {
    let bytes = image_bytes();
    let image = Image::open(bytes.clone()).unwrap();
    let file = image.resolve("text".as_ref(), true).unwrap();
    let extent = image.extents(&file, FileOffset::new(0)).unwrap().next().unwrap().unwrap();
    let ExtentData::Encoded { at: crate::read::Location::Device(_, pos), .. } = extent.data else {
        panic!("{extent:?}");
    };
    let mut damaged = bytes.clone();
    let at = usize::try_from(pos.get()).unwrap();
    damaged[at..at + 4096].fill(0xff);
    let found = findings(damaged);
    assert_eq!(found.len(), 1);
    assert_eq!(rule(&found[0].corruption.fault), "decode");
    assert_eq!(found[0].corruption.pos, Some(pos));

    let mut short = bytes;
    short.truncate(short.len() - 4096);
    let image = Image::open(short).unwrap();
    assert!(!check(&image, &Options::default()).unwrap().findings.is_empty());
}
