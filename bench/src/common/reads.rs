//! Random reads of 4 KiB of the files of a mounted tree: the same for each image.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferofs_tests::rng::Rng;

/// Reads of one measurement, at most: they take 0.1 to 3 processor seconds.
const MAX_READS: u64 = 3000;
/// One read for so many bytes of the source, so that most reads are of places near which nothing
/// was read before. With more reads of a small tree, the kernel's page cache would answer most of
/// them.
const BYTES_PER_READ: u64 = 40_000;
/// Bytes of a read.
const SIZE: usize = 4096;

/// The same reads for each image.
pub(crate) struct Reads {
    /// A path below the root, and the offset in this file.
    places: Vec<(PathBuf, u64)>,
    pub(crate) names: u64,
    pub(crate) bytes: u64,
}

impl Reads {
    /// Chooses places at random: large files get more reads than small ones.
    pub(crate) fn plan(source: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let (mut names, mut bytes) = (0, 0);
        let mut pending = vec![source.to_owned()];
        while let Some(dir) = pending.pop() {
            let mut entries: Vec<_> = fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
            // The order of readdir differs between file systems.
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                names += 1;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    pending.push(entry.path());
                } else if metadata.is_file() && metadata.len() > 0 {
                    let path = entry.path().strip_prefix(source)?.to_owned();
                    files.push((bytes, path));
                    bytes += metadata.len();
                }
            }
        }
        let mut rng = Rng::new(1);
        let reads = (bytes / BYTES_PER_READ).clamp(1, MAX_READS);
        let places = (0..reads).map(|_| {
            let at = rng.below(bytes.max(1));
            let file = files.partition_point(|(start, _)| *start <= at).checked_sub(1);
            let (start, path) =
                file.and_then(|file| files.get(file)).context("the source has no data")?;
            Ok((path.clone(), (at - start) / SIZE as u64 * SIZE as u64))
        });
        Ok(Self { places: places.collect::<Result<_>>()?, names, bytes })
    }

    /// Makes the reads, once each.
    pub(crate) fn run(&self, mounted: &Path) -> Result<()> {
        let mut buffer = [0; SIZE];
        for (path, offset) in &self.places {
            let file =
                File::open(mounted.join(path)).with_context(|| path.display().to_string())?;
            file.read_at(&mut buffer, *offset).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Microseconds of processor time for each read, of this thread and of the daemon, whose
    /// processor seconds `daemon` returns.
    pub(crate) fn cost(&self, mounted: &Path, daemon: impl Fn() -> Result<f64>) -> Result<f64> {
        let before = daemon()? + thread_seconds()?;
        self.run(mounted)?;
        Ok((daemon()? + thread_seconds()? - before) * 1e6 / self.places.len() as f64)
    }
}

/// Processor seconds of this thread: the first number of schedstat, in nanoseconds.
pub(crate) fn thread_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = stat.split_whitespace().next().context("schedstat is empty")?;
    Ok(first.parse::<f64>()? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_in_its_file() {
        let dir = ferofs_tests::scratch();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/large"), vec![1; 400_000]).unwrap();
        fs::write(dir.path().join("small"), "x").unwrap();
        let reads = Reads::plan(dir.path()).unwrap();
        assert_eq!((reads.names, reads.bytes, reads.places.len()), (3, 400_001, 10));
        for (path, offset) in &reads.places {
            assert!(dir.path().join(path).metadata().unwrap().len() > *offset, "{path:?} {offset}");
        }
    }
}
