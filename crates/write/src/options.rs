//! The options of a build: one group for each stage, and how it uses the machine: threads, progress
//! and cancellation.
//!
//! Plain values without dependencies on the stages, so that every stage may read them.

pub(crate) mod attributes;
pub(crate) mod compression;
pub(crate) mod data;
pub(crate) mod features;
pub(crate) mod image;
pub(crate) mod labels;
#[cfg_attr(
    not(feature = "oci"),
    allow(dead_code, reason = "the options are the same without OCI images")
)]
pub(crate) mod oci;
pub(crate) mod preset;
pub(crate) mod settings;
pub(crate) mod source;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result, Warning};
pub use crate::options::attributes::{AttributeOptions, XattrOptions};
use crate::options::compression::Compression;
pub use crate::options::data::DataOptions;
pub use crate::options::image::{ImageOptions, InodeOptions, OutputOptions};
pub use crate::options::source::SourceOptions;
use crate::progress::Progress;
use ferofs_read::Cancel;

/// The options of a build.
///
/// [`Options::new`] gives every option its default, and compresses nothing. A
/// [`Preset`](crate::Preset) chooses the compression for a purpose; then set the fields that
/// differ:
///
/// ```
/// # use ferofs_write::{Options, Preset};
/// let mut options = Options::new("tree");
/// options.set_preset(Preset::Small)?;
/// options.image.label = b"root".to_vec();
/// # Ok::<(), ferofs_write::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The source, and which of its files the image gets.
    pub source: SourceOptions,
    /// Owners, times, labels and modes that replace those of the source.
    pub attributes: AttributeOptions,
    /// How extended attributes are stored.
    pub xattrs: XattrOptions,
    /// How inodes are stored.
    pub inodes: InodeOptions,
    /// How the content of files is stored.
    pub data: DataOptions,
    /// Fields of the superblock.
    pub image: ImageOptions,
    /// Where the image is written.
    pub output: OutputOptions,
    /// Worker threads, progress and cancellation.
    pub run: RunOptions,
}

impl Options {
    /// Builds from the directory `source`, uncompressed, with every default.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self {
            source: SourceOptions::new(source.into()),
            attributes: AttributeOptions::default(),
            xattrs: XattrOptions::default(),
            inodes: InodeOptions::default(),
            data: DataOptions::default(),
            image: ImageOptions::default(),
            output: OutputOptions::default(),
            run: RunOptions::default(),
        }
    }

    /// Whether the image leaves out the file at `path`, which is relative to the source. `is_dir`
    /// says whether it is a directory.
    pub(crate) fn is_excluded(&self, path: &[u8], is_dir: impl Fn() -> bool) -> bool {
        let used = &self.run.progress.used_excludes;
        let excludes = self.source.excludes.iter().enumerate();
        // All of them, so that each is noted that matches something.
        excludes.fold(false, |found, (group, exclude)| {
            exclude.matches(path, &is_dir, group, used) || found
        })
    }

    /// Adds a warning for each exclude that excluded nothing.
    pub(crate) fn warn_of_unused_excludes(&self, warnings: &mut Vec<Warning>) {
        let used = &self.run.progress.used_excludes;
        let excludes = self.source.excludes.iter().enumerate();
        let unused = excludes.flat_map(|(group, exclude)| exclude.unused(group, used));
        warnings.extend(unused.map(|pattern| Warning::UnusedExclude { pattern }));
    }

    /// Whether the image has addresses of 48 bits.
    pub(crate) fn has_wide_addresses(&self) -> bool {
        let by_compression = |compression: &Compression| {
            !compression.index.in_blocks() || compression.metadata.is_some()
        };
        self.image.wide_addresses
            || self.inodes.dot_omitted
            || self.data.compression.as_ref().is_some_and(by_compression)
    }

    /// Whether chunks of zeroes are holes. In images without content, all chunks are.
    pub(crate) fn has_chunk_holes(&self) -> bool {
        self.data.chunk_holes || self.source.data == source::SourceData::Absent
    }

    /// Fails if an image of `bytes` has more blocks than its addresses can name.
    pub(crate) fn check_size(&self, bytes: u64) -> Result<()> {
        match self.image.block_size.blocks_for(bytes) {
            blocks if blocks >= 1 << 32 && !self.has_wide_addresses() => Err(Error::TooManyBlocks),
            _ => Ok(()),
        }
    }
}

/// Worker threads, progress and cancellation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Number of worker threads; `None`: one for each processor that this process may use.
    pub workers: Option<NonZeroUsize>,
    /// The build updates it while it runs.
    pub progress: Arc<Progress>,
    /// Another thread stops the build by it, which then returns [`Error::Interrupted`].
    pub cancel: Cancel,
    /// Warnings are errors: the build then fails with [`Error::Warnings`] before the image gets its
    /// name.
    pub strict: bool,
    /// The most jobs under way, if memory is short.
    pub(crate) max_jobs: Option<NonZeroUsize>,
}

impl RunOptions {
    /// The number of worker threads to start.
    pub fn worker_count(&self) -> usize {
        self.workers
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get)
            .min(WORKERS_MAX)
    }

    /// Runs tasks 0 to `count` - 1 on all workers, in any order, and returns the results in their
    /// order.
    ///
    /// # Errors
    /// The error of the first task that fails; [`Error::Interrupted`]; [`Error::Threads`] when the
    /// system starts no thread.
    pub fn parallel<
        C,
        T: Send,
        E: From<ferofs_threads::Error> + From<ferofs_read::Error> + Send,
    >(
        &self,
        count: usize,
        context: impl Fn() -> C + Sync,
        task: impl Fn(&mut C, usize) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        ferofs_threads::parallel(self.worker_count(), count, context, |context, number| {
            self.cancel.check()?;
            task(context, number)
        })
    }

    /// Fails if there are warnings and [`Self::strict`] is set.
    ///
    /// # Errors
    /// [`Error::Warnings`].
    pub fn check_warnings(&self, warnings: &mut Vec<Warning>) -> Result<()> {
        if self.strict && !warnings.is_empty() {
            return Err(Error::Warnings(std::mem::take(warnings)));
        }
        Ok(())
    }
}

/// The most worker threads. A larger number is reduced to this: one thread collects all results,
/// and it cannot keep more workers busy.
const WORKERS_MAX: usize = 512;
