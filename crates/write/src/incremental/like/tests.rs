//! Images like earlier ones show their source, keep what they can, and do not grow without limit.

use std::fs;
use std::path::PathBuf;

use ferofs_format::BlockSize;
use ferofs_read::{FileSource, Image};

use crate::incremental::{LikeOptions, build_like};
use crate::tests::{noise, prose, settings, text};
use crate::{Algorithm, Compression, Error, Fragments, Options, Params, build};

const BLOCK: usize = 4096;

/// Bytes that compress well enough for a pcluster to end anywhere.
fn numbers(len: usize) -> Vec<u8> {
    (0u32..)
        .flat_map(|n| format!("number {} ", n.wrapping_mul(2_654_435_761) >> 16).into_bytes())
        .take(len)
        .collect()
}

/// A source directory, and images of it.
struct Versions {
    dir: tempfile::TempDir,
    options: Options,
}

impl Versions {
    fn new(compression: Option<Compression>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir_all(source.join("sub")).unwrap();
        let mut options = Options::new(source);
        options.data.compression = compression;
        options.image.build_time = Some(2_000_000_000);
        options.image.uuid = Some([7; 16]);
        options.inodes.keep_mtime = false;
        options.output.verify = true;
        let versions = Self { dir, options };
        for n in 0..60u32 {
            versions.write(&format!("prose{n}"), prose(1000 + 1700 * n as usize, n));
        }
        versions.write("sub/noise", noise(300_000));
        versions.write("sub/text", text(700_000));
        versions.write("sub/zeroes", vec![0; 200_000]);
        versions.write("sub/large", numbers(5 << 20));
        versions
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.options.source.path.join(name), content).unwrap();
    }

    /// Changes a few files.
    fn change(&self, version: u32) {
        for n in 0..4 {
            self.write(
                &format!("prose{}", (version * 13 + n * 7) % 60),
                prose(50_000 - 700 * n as usize, version + n),
            );
        }
        self.write(&format!("new{version}"), prose(20_000, version));
        let path = self.options.source.path.join("sub/large");
        let mut large = fs::read(&path).unwrap();
        for byte in large.iter_mut().skip(3 << 20).take(100) {
            *byte ^= version as u8 + 1;
        }
        fs::write(path, large).unwrap();
    }

    fn fresh(&self, name: &str) -> Vec<u8> {
        build(&self.options, self.path(name)).unwrap();
        fs::read(self.path(name)).unwrap()
    }

    fn like(&self, old: &str, name: &str, waste: u8) -> Result<Vec<u8>, Error> {
        let mut like = LikeOptions::new(self.path(old));
        like.waste = waste;
        build_like(&self.options, &like, &self.path(name))?;
        Ok(fs::read(self.path(name)).unwrap())
    }
}

/// Blocks of `new` that `old` does not have at the same place.
fn moved_blocks(old: &[u8], new: &[u8]) -> usize {
    let same = old.chunks(BLOCK).zip(new.chunks(BLOCK)).filter(|(old, new)| old == new).count();
    new.len() / BLOCK - same
}

#[test]
fn unchanged_content_keeps_its_place() {
    let stored = std::iter::once(None);
    for (n, compression) in stored.chain(settings().into_iter().map(Some)).enumerate() {
        // All algorithms, indexes and forms of tails, but not each with each.
        if n % 5 != 0 {
            continue;
        }
        let versions = Versions::new(compression.clone());
        let old = versions.fresh("old");
        assert!(
            versions.like("old", "same", 0).unwrap() == old,
            "{n} {compression:?}: the same source"
        );
        versions.change(1);
        let fresh = versions.fresh("fresh");
        let new = versions
            .like("old", "new", 20)
            .unwrap_or_else(|e| panic!("{n} {compression:?}: {e:?}"));
        assert!(
            versions.like("old", "again", 20).unwrap() == new,
            "{n}: not the same bytes each time"
        );
        assert!(
            new.len() * 100 <= fresh.len() * 120 + 100 * 2 * BLOCK,
            "{n}: {} {}",
            new.len(),
            fresh.len()
        );
        let (moved, without) = (moved_blocks(&old, &new), moved_blocks(&old, &fresh));
        assert!(moved * 2 <= without, "{n} {compression:?}: {moved} of {without}");
    }
}

#[test]
fn many_versions_stay_small() {
    for (fragments, algorithm) in
        [(Fragments::None, Algorithm::Lz4), (Fragments::Tails, Algorithm::Zstd)]
    {
        let mut compression = Compression::new(Params::new(algorithm, Some(1)).unwrap());
        (compression.fragments, compression.pcluster) = (fragments, Some(64 << 10));
        let versions = Versions::new(Some(compression));
        versions.fresh("old");
        for version in 1..12 {
            versions.change(version);
            if version == 8 {
                (0..30).for_each(|n| {
                    drop(fs::remove_file(versions.options.source.path.join(format!("prose{n}"))))
                });
            }
            let fresh = versions.fresh("fresh").len();
            let new = versions.like("old", "new", 3).unwrap().len();
            assert!(
                new * 100 <= fresh * 103 + 100 * 8 * BLOCK,
                "{version} {fragments:?}: {new} {fresh}"
            );
            fs::rename(versions.path("new"), versions.path("old")).unwrap();
        }
    }
}

#[test]
fn an_earlier_image_that_does_not_fit_is_refused() {
    let lz4 = Compression::lz4(0).unwrap();
    let mut versions =
        Versions::new(Some(Compression::new(Params::new(Algorithm::Zstd, Some(1)).unwrap())));
    versions.fresh("zstd");
    versions.options.data.compression = Some(lz4.clone());
    versions.fresh("lz4");
    let refused =
        |versions: &Versions, old: &str| versions.like(old, "new", 3).unwrap_err().to_string();
    assert!(refused(&versions, "zstd").contains("has other algorithms"));
    versions.options.data.compression = None;
    assert!(refused(&versions, "lz4").contains("is compressed"));
    versions.options.image.block_size = BlockSize::from_bits(14).unwrap();
    assert!(refused(&versions, "lz4").contains("has another block size"));
    fs::write(versions.path("text"), vec![b'x'; 100_000]).unwrap();
    assert!(refused(&versions, "text").contains("/text: "));
    assert!(!versions.path("new").exists());
}

/// The new image is right or is not made, whatever the earlier one says.
#[test]
fn damaged_earlier_images_do_no_harm() {
    let mut compression = Compression::lz4(0).unwrap();
    compression.fragments = Fragments::Tails;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..20u32 {
        fs::write(source.join(format!("prose{n}")), prose(3000 * n as usize, n)).unwrap();
    }
    let mut options = Options::new(&source);
    options.data.compression = Some(compression);
    options.image.checksum = false;
    options.output.verify = true;
    let (old, damaged, new) =
        (dir.path().join("old"), dir.path().join("damaged"), dir.path().join("new"));
    build(&options, &old).unwrap();
    fs::write(source.join("prose7"), prose(40_000, 77)).unwrap();
    let bytes = fs::read(&old).unwrap();
    let image = Image::open(FileSource::open(&old, 0).unwrap()).unwrap();
    // Behind the superblock, or in blocks of its own.
    let metadata = match image.superblock().meta.get() {
        0 => 1152..BLOCK,
        first => first as usize * BLOCK..bytes.len(),
    };
    let (mut state, mut built) = (1u64, 0);
    for _ in 0..300 {
        let mut mutant = bytes.clone();
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = metadata.start + (state >> 33) as usize % metadata.len();
            mutant[at] ^= 1 << (state >> 61);
        }
        fs::write(&damaged, mutant).unwrap();
        match build_like(&options, &LikeOptions::new(&damaged), &new) {
            Ok(_) => built += 1,
            Err(Error::VerifyMismatch { path, what }) => panic!("{}: {what}", path.display()),
            Err(_) => {}
        }
    }
    assert!(built > 30, "{built}");
}
