//! Whole builds. The reader of `ferofs-read` reads the images.

mod faults;
mod order;
mod round_trip;
mod sharing;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_format::FileOffset;
use ferofs_read::{FileSource, Image};

use crate::{Algorithm, Compression, Fragments, IndexKind, Options, Params, Summary, build};

/// A temporary directory with a source, and the options of a build from it.
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
        build(&self.options, self.image()).unwrap()
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

/// Bytes that compress moderately.
pub(crate) fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n / 7) as u32).wrapping_mul(2_654_435_761).to_be_bytes()[n % 3]).collect()
}

/// Bytes that do not compress.
pub(crate) fn noise(len: usize) -> Vec<u8> {
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

/// Each algorithm with each index, and with several ways to store tails.
pub(crate) fn settings() -> Vec<Compression> {
    let methods =
        [(Algorithm::Lz4, 0), (Algorithm::Zstd, 1), (Algorithm::Deflate, 1), (Algorithm::Lzma, 0)];
    let mut settings = Vec::new();
    for (n, (algorithm, level)) in methods.into_iter().enumerate() {
        for index in [IndexKind::Compact, IndexKind::Full, IndexKind::Extents] {
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

/// Bytes that compress and contain no long repetition.
pub(crate) fn prose(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{} ", (state >> 20) * 7)
    });
    words.flat_map(String::into_bytes).take(len).collect()
}
