//! Images of many layouts show the bytes, sizes and times of their source, in any order of reading.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use ferofs_codec::Params;
use ferofs_write::{
    self as build, ChunkOptions, Compression, Fragments, IndexKind, MetadataCompression,
};

use super::content;
use crate::{Algorithm, FileOffset, Image, Inode};
use ferofs_format::units::to_u64;

/// The source: files of different sizes and times, one of them before 1970, and two of more extents
/// than a look-up goes through quickly.
struct Source {
    dir: tempfile::TempDir,
    files: Vec<(&'static str, Vec<u8>, SystemTime)>,
}

impl Source {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        let all = content();
        let time = |secs: u64, nanos| SystemTime::UNIX_EPOCH + Duration::new(secs, nanos);
        let files = vec![
            ("large", all.clone(), time(1_000_000_000, 7)),
            // Equal in parts, so that it shares extents.
            ("shifted", all[100_000..400_001].to_vec(), time(1_000_000_000, 0)),
            ("block", all[..4096].to_vec(), time(5, 999_999_999)),
            ("small", b"small".to_vec(), SystemTime::UNIX_EPOCH - Duration::from_secs(77)),
            ("empty", Vec::new(), time(0, 0)),
        ];
        for (name, bytes, time) in &files {
            let path = dir.path().join("source").join(name);
            fs::write(&path, bytes).unwrap();
            File::options().write(true).open(path).unwrap().set_modified(*time).unwrap();
        }
        Self { dir, files }
    }

    fn image(&self, change: impl FnOnce(&mut build::Options)) -> Vec<u8> {
        let mut options = build::Options::new(self.dir.path().join("source"));
        change(&mut options);
        let image = self.dir.path().join("image");
        build::build(&options, &image).unwrap();
        fs::read(image).unwrap()
    }

    fn compressed(&self, algorithm: Algorithm, change: impl FnOnce(&mut Compression)) -> Vec<u8> {
        let mut compression = Compression::new(Params::new(algorithm, None).unwrap());
        change(&mut compression);
        self.image(|options| options.data.compression = Some(compression))
    }

    /// One image for each layout.
    fn images(&self) -> Vec<(&'static str, Vec<u8>)> {
        let of = |algorithm, change: fn(&mut Compression)| self.compressed(algorithm, change);
        let (lz4, zstd) = (Algorithm::Lz4, Algorithm::Zstd);
        vec![
            ("inline tails", of(lz4, |to| to.inline_tails = true)),
            (
                "full index",
                of(lz4, |to| {
                    (to.index, to.fragments, to.pcluster) =
                        (IndexKind::Full, Fragments::Tails, Some(65536))
                }),
            ),
            (
                "full index, inline tails",
                of(lz4, |to| (to.index, to.inline_tails) = (IndexKind::Full, true)),
            ),
            ("all fragments", of(zstd, |to| (to.fragments, to.dedupe) = (Fragments::All, true))),
            ("large pclusters", of(zstd, |to| to.pcluster = Some(1 << 20))),
            ("extents", of(zstd, |to| (to.index, to.pcluster) = (IndexKind::Extents, Some(65536)))),
            (
                "extents, fragments",
                of(lz4, |to| {
                    (to.index, to.fragments, to.pcluster) =
                        (IndexKind::Extents, Fragments::Tails, Some(16384))
                }),
            ),
            // Records of four bytes: the positions are sums.
            (
                "short extents",
                of(lz4, |to| (to.index, to.max_extent) = (IndexKind::Extents, Some(4096))),
            ),
            (
                "short extents, fragments",
                of(lz4, |to| {
                    (to.index, to.max_extent, to.fragments) =
                        (IndexKind::Extents, Some(4096), Fragments::Tails);
                }),
            ),
            ("extents, shared", of(lz4, |to| (to.index, to.dedupe) = (IndexKind::Extents, true))),
            (
                "metabox",
                of(lz4, |to| {
                    (to.index, to.metadata) =
                        (IndexKind::Extents, Some(MetadataCompression::new(0, 4096)))
                }),
            ),
            ("plain", self.image(|_| {})),
            ("chunks", self.image(|options| options.data.chunks = Some(ChunkOptions::new(4096)))),
        ]
    }
}

fn read(image: &Image, inode: &Inode, start: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; len];
    let read = image.read_at(inode, FileOffset::new(to_u64(start)), &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn every_layout_shows_its_source() {
    let source = Source::new();
    for (layout, bytes) in source.images() {
        for (name, expected, time) in &source.files {
            // The steps of look-ups are remembered, so that each order begins with a new reader.
            for step in [100_000_usize, 4096, 7001] {
                for is_backwards in [false, true] {
                    let image = Image::open(bytes.clone()).unwrap();
                    let inode = image.resolve(name.as_ref(), true).unwrap();
                    assert_eq!(inode.size(), to_u64(expected.len()), "{layout}: {name}");
                    assert_eq!(inode.modified(), Some(*time), "{layout}: {name}");
                    let mut starts: Vec<usize> = (0..expected.len()).step_by(step).collect();
                    if is_backwards {
                        starts.reverse();
                    }
                    for start in starts {
                        let part = &expected[start..(start + 300).min(expected.len())];
                        assert!(
                            read(&image, &inode, start, 300) == part,
                            "{layout}: {name} at {start}"
                        );
                    }
                }
            }
            let image = Image::open(bytes.clone()).unwrap();
            let inode = image.resolve(name.as_ref(), true).unwrap();
            assert!(read(&image, &inode, 0, expected.len() + 1) == *expected, "{layout}: {name}");
        }
    }
}

/// Linux takes a block count that is not right after its head for that of this extent.
#[test]
fn a_block_count_at_another_place_is_refused() {
    const BLOCK_COUNT: u16 = 1 << 11;
    let source = Source::new();
    let bytes = source
        .compressed(Algorithm::Lz4, |to| (to.index, to.pcluster) = (IndexKind::Full, Some(65536)));
    let image = Image::open(bytes.clone()).unwrap();
    let inode = image.resolve("large".as_ref(), true).unwrap();
    let check = |bytes: Vec<u8>| {
        let image = Image::open(bytes).unwrap();
        let inode = image.resolve("large".as_ref(), true).unwrap();
        let mut extents = image.extents(&inode, FileOffset::new(0)).unwrap();
        while let Some(extent) = extents.next() {
            extents.check_steps(&extent?)?;
        }
        Ok::<_, crate::Error>(())
    };
    check(bytes.clone()).unwrap();
    // The first record is that of a head at the file's start; the next ones have the distances from
    // and to heads.
    let near = usize::try_from(inode.place().pos.get()).unwrap();
    let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let records = (near..near + 256).step_by(8);
    let mut seconds = records.filter(|at| {
        field(at + 8) & 3 == 2 && field(at + 8 + 4) & BLOCK_COUNT != 0 && field(at + 16) & 3 == 2
    });
    let second = seconds.next().unwrap() + 16;
    assert_eq!(field(second + 4), 2, "the distance to the head");
    let mut damaged = bytes.clone();
    damaged[second + 4..second + 6].copy_from_slice(&(BLOCK_COUNT | 16).to_le_bytes());
    assert!(check(damaged).is_err());
}
