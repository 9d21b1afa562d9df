//! Estimates against images.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use ferofs_codec::Params;

use super::*;
use crate::build;
use crate::options::compression::{Compression, Fragments, MetadataCompression};

/// Bytes that are compressible in a way that depends on `kind`: words, numbers, or noise.
fn content(kind: usize, number: usize, len: usize) -> Vec<u8> {
    let mut seed = (kind * 1000 + number) as u64 + 1;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let words =
        ["static ", "int ", "return ", "struct inode ", "= 0;\n", "if (", ") {\n", "}\n", "offset", "length"];
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        match kind {
            0 => bytes.extend_from_slice(words[next() % words.len()].as_bytes()),
            1 => bytes.extend_from_slice(next().to_string().as_bytes()),
            _ => bytes.push(next() as u8),
        }
    }
    bytes.truncate(len);
    bytes
}

fn tree(dir: &Path) {
    for number in 0..600 {
        let path = dir.join(format!("dir{}", number % 20));
        fs::create_dir_all(&path).unwrap();
        let len = 1 + number * number * 7 % 60_000;
        fs::write(path.join(format!("file{number}")), content(number % 3, number, len)).unwrap();
    }
    for number in 0..5 {
        fs::write(dir.join(format!("large{number}")), content(number % 3, number, 5_000_000)).unwrap();
    }
    // Identical files.
    for number in 0..100 {
        fs::write(dir.join(format!("same{number}")), content(2, 7, 50_000)).unwrap();
    }
}

#[test]
fn estimates_are_near_the_real_size() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    tree(&source);
    let mut options = Options::new(&source);
    let estimator = Estimator::new(&options, &mut Vec::new()).unwrap();
    assert_eq!(estimator.files(), 705);
    let large = |mut compression: Compression| {
        compression.pcluster = Some(64 << 10);
        compression
    };
    let zstd = || Compression::new(Params::new(crate::Algorithm::Zstd, Some(9)).unwrap());
    let mut fragments = large(zstd());
    fragments.fragments = Fragments::Tails;
    let mut tails = large(Compression::lz4(9).unwrap());
    tails.inline_tails = true;
    for compression in [None, Some(Compression::lz4(0).unwrap()), Some(tails), Some(zstd()), Some(fragments)]
    {
        options.data.compression = compression;
        let estimate = estimator.estimate(&options).unwrap();
        let image = dir.path().join("image");
        let real = build(&options, &image).unwrap().bytes_out;
        // Of so few large files with so different content, few windows are a sample that is off by more than that of most trees.
        let error = estimate.size as f64 / real as f64 - 1.0;
        let setting = &options.data.compression;
        assert!(
            error.abs() < 0.07,
            "{} instead of {real} ({:.1} %): {setting:?}",
            estimate.size,
            error * 100.0
        );
    }
}

/// The estimated and the real size.
fn sizes(options: &Options) -> (u64, u64) {
    let estimate = Estimator::new(options, &mut Vec::new()).unwrap().estimate(options).unwrap();
    let dir = tempfile::tempdir().unwrap();
    (estimate.size, build(options, &dir.path().join("image")).unwrap().bytes_out)
}

#[test]
fn holes_take_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let hole = fs::File::create(dir.path().join("hole")).unwrap();
    hole.set_len(1 << 30).unwrap();
    let mut options = Options::new(dir.path());
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        options.data.compression = compression;
        let (estimate, real) = sizes(&options);
        assert_eq!(estimate, real);
    }
    // Not enough holes for chunks: they are compressed as zeroes.
    let mut sparse = fs::File::create(dir.path().join("sparse")).unwrap();
    sparse.seek(SeekFrom::Start(64 << 20)).unwrap();
    sparse.write_all(&content(0, 1, 5 << 20)).unwrap();
    sparse.seek(SeekFrom::Start(100 << 20)).unwrap();
    sparse.write_all(&content(2, 1, 3 << 20)).unwrap();
    let (estimate, real) = sizes(&options);
    assert!((estimate as f64 / real as f64 - 1.0).abs() < 0.05, "{estimate} instead of {real}");
}

#[test]
fn compressed_metadata_of_tiny_files_is_estimated() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    let mut compression = Compression::new(Params::new(crate::Algorithm::Zstd, Some(9)).unwrap());
    options.data.compression = Some(compression.clone());
    assert_eq!(sizes(&options), (4096, 4096), "an empty directory");
    for number in 0..4000 {
        let path = dir.path().join(format!("dir{}", number % 7));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(format!("file{number}")), number.to_string()).unwrap();
    }
    compression.pcluster = Some(64 << 10);
    compression.fragments = Fragments::All;
    compression.metadata = Some(MetadataCompression::new(0, 64 << 10));
    for directories in [false, true] {
        compression.directories = directories;
        options.data.compression = Some(compression.clone());
        let (estimate, real) = sizes(&options);
        // Times and numbers of inodes compress a little differently than those of the image.
        assert!(estimate.abs_diff(real) <= 2 * 4096 + real / 20, "{estimate} instead of {real}");
    }
}

#[test]
fn chunk_tables_in_compressed_metadata_are_estimated() {
    let dir = tempfile::tempdir().unwrap();
    let mut sparse = fs::File::create(dir.path().join("sparse")).unwrap();
    for number in 0..20 {
        sparse.seek(SeekFrom::Start(number * 50_000_000 / 4096 * 4096)).unwrap();
        sparse.write_all(&content(2, number as usize, 60_000)).unwrap();
    }
    sparse.set_len(1 << 30).unwrap();
    let mut options = Options::new(dir.path());
    let mut compression = Compression::new(Params::new(crate::Algorithm::Zstd, Some(9)).unwrap());
    compression.metadata = Some(MetadataCompression::new(0, 64 << 10));
    options.data.compression = Some(compression);
    let (estimate, real) = sizes(&options);
    assert!(estimate.abs_diff(real) <= 4 * 4096 + real / 50, "{estimate} instead of {real}");
}

#[test]
fn copies_have_the_tails_of_their_files() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..40 {
        // Tails have very different lengths.
        let bytes = content(number % 2, number, 300 + number * number * 23);
        for copy in 0..20 {
            fs::write(dir.path().join(format!("file{number}-{copy}")), &bytes).unwrap();
        }
    }
    let mut options = Options::new(dir.path());
    let mut compression = Compression::lz4(9).unwrap();
    (compression.pcluster, compression.inline_tails) = (Some(64 << 10), true);
    options.data.compression = Some(compression);
    let (estimate, real) = sizes(&options);
    assert!((estimate as f64 / real as f64 - 1.0).abs() < 0.03, "{estimate} instead of {real}");
}

#[test]
fn large_pclusters_at_slow_levels_are_estimated_from_pieces() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..400 {
        let len = 5000 + number * 7919 % 60_000;
        fs::write(dir.path().join(format!("file{number}")), content(number % 2, number, len)).unwrap();
    }
    let mut options = Options::new(dir.path());
    let mut compression = Compression::new(Params::new(crate::Algorithm::Zstd, Some(9)).unwrap());
    (compression.pcluster, compression.fragments) = (Some(128 << 10), Fragments::Tails);
    options.data.compression = Some(compression);
    let estimator = Estimator::new(&options, &mut Vec::new()).unwrap();
    let estimate = estimator.estimate(&options).unwrap();
    let real = build(&options, &dir.path().join("image")).unwrap().bytes_out;
    assert!((estimate.size as f64 / real as f64 - 1.0).abs() < 0.05, "{} instead of {real}", estimate.size);
    assert!(estimate.processor_time >= estimate.time / 2, "{estimate:?}");
}

#[test]
fn the_size_is_aligned_as_the_options_say() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), content(0, 1, 100_000)).unwrap();
    let mut options = Options::new(dir.path());
    options.output.size_alignment = 256.try_into().unwrap();
    let estimate = Estimator::new(&options, &mut Vec::new()).unwrap().estimate(&options).unwrap();
    build(&options, &dir.path().join("image")).unwrap();
    assert_eq!(estimate.size, fs::metadata(dir.path().join("image")).unwrap().len());
}

#[test]
fn what_has_no_size_is_refused() {
    let mut options = Options::new("/nowhere");
    options.source.data = SourceData::External;
    options.source.format = crate::SourceFormat::Archive;
    assert!(matches!(
        Estimator::new(&options, &mut Vec::new()),
        Err(Error::Option { option: "estimate", .. })
    ));
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    let estimator = Estimator::new(&options, &mut Vec::new()).unwrap();
    assert_eq!(estimator.estimate(&options).unwrap().size, 4096);
    options.data.chunks = Some(crate::ChunkOptions::new(1 << 20));
    assert!(estimator.estimate(&options).is_err());
}
