//! Estimates size and build time of images without building them: lists the source completely, and encodes a sample of its content.
//!
//! What follows from the tree is computed: metadata, inline tails, which files are whole fragments. For the rest, three nested samples
//! at equal distances in the order of the image are taken, so that each setting needs little time:
//!
//! | sample | what is done with it | for |
//! |---|---|---|
//! | probes: pieces of 16 KiB | LZ4 says how compressible they are | all settings |
//! | windows of 256 KiB or more | encoded as in the image, at the fastest level of the algorithm | each setting |
//! | some of the windows | encoded at the level of the setting | each setting with a slow level |
//!
//! Each sample is small, but its content need not be like the whole content. The larger sample before it tells how they differ, and a
//! regression estimator corrects this ([`regression`]). No random numbers: the same source gives the same samples.
//!
//! | module | what it does |
//! |---|---|
//! | [`identical`] | finds files whose content is stored once |
//! | [`windows`] | chooses probes and windows |
//! | [`encode`] | encodes windows with the code of the data stage |
//! | [`metadata`] | computes the size of the metadata |
//! | [`regression`] | estimates a total from a sample |

mod encode;
mod identical;
mod metadata;
mod regression;
#[cfg(test)]
mod tests;
mod windows;

use std::path::Path;
use std::time::{Duration, Instant};

use ferofs_codec::{Method, Params};

use crate::build::estimate::encode::{Measured, Measurer};
use crate::build::estimate::identical::Stored;
use crate::build::estimate::metadata::Plan;
use crate::build::estimate::regression::{Point, total};
use crate::build::estimate::windows::{Probes, Stream, Window};
use crate::build::now;
use crate::data::order::Order;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::compression::Compression;
use crate::options::source::SourceData;
use crate::progress::Warning;
use crate::sources;
use crate::sources::content::Contents;
use crate::tree::{Kind, Tree, overrides};
use ferofs_format::inode::Timestamp;

/// Bytes of the windows that are encoded at the fastest level: this part of the content, but within the limits. Less gives estimates that
/// are off by more than 5 %; more takes time.
const WINDOWS_PART: u64 = 24;
const WINDOWS_MIN: u64 = 12 << 20;
const WINDOWS_MAX: u64 = 64 << 20;
/// The same for the windows that are encoded at a slow level, which encodes about 4 MiB a second.
const SLOW_PART: u64 = 96;
const SLOW_MIN: u64 = 3 << 20;
const SLOW_MAX: u64 = 10 << 20;
/// The fewest bytes of a window. A window must hold some pclusters; more windows of fewer bytes represent the content better.
const WINDOW_LEN: u64 = 256 << 10;
/// A window has at least as many bytes as this many pclusters.
const PCLUSTERS: u64 = 4;

/// What an image would be like.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Bytes of the image.
    pub size: u64,
    /// The time of the build, without waiting for the disk.
    pub time: Duration,
    /// Bytes of content that were encoded for this estimate.
    pub sampled: u64,
}

/// A source that was listed, for estimates.
#[derive(Debug)]
pub struct Estimator {
    options: Options,
    tree: Tree,
    contents: Contents,
    walk_time: Duration,
    stored: Stored,
}

impl Estimator {
    /// Lists the source of `options`, and looks for identical files.
    ///
    /// # Errors
    /// As [`crate::build`], when the source cannot be read.
    pub fn new(options: &Options, warnings: &mut Vec<Warning>) -> Result<Self> {
        sources::check(options)?;
        if options.source.data != SourceData::Copied {
            let problem = "content that stays in the source has no size to estimate";
            return Err(Error::Option { option: "estimate", problem });
        }
        let started = Instant::now();
        let time = Timestamp { secs: options.image.build_time.unwrap_or_else(now), nanos: 0 };
        let temporary = std::env::temp_dir();
        let (mut tree, contents) = sources::read_source(options, &[], Path::new(&temporary), time, warnings)?;
        overrides::apply(&mut tree, &options.attributes, &options.run)?;
        let walk_time = started.elapsed();
        let stored = Stored::find(options, &tree, &contents)?;
        Ok(Self { options: options.clone(), tree, contents, walk_time, stored })
    }

    /// Files that are not directories.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.tree.nodes.iter().filter(|node| !matches!(node.kind, Kind::Directory(_))).count() as u64
    }

    /// Bytes of the content of all files.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.tree.nodes.iter().map(|node| node.size).sum()
    }

    /// Estimates the image with these settings. Their source must be that of [`Self::new`]. What deduplication saves is not estimated:
    /// the image is at most smaller than that.
    ///
    /// # Errors
    /// As [`crate::build`]; [`Error::Option`] for content in chunks.
    pub fn estimate(&self, settings: &Options) -> Result<Estimate> {
        if settings.data.chunks.is_some() {
            let problem = "chunks are not compressed, and how many are equal is not known";
            return Err(Error::Option { option: "estimate", problem });
        }
        let compression = settings.data.compression.as_ref();
        let order = Order::new(&self.tree, compression, settings.image.block_size, &settings.data);
        let largest = compression.map_or(0, |compression| {
            let sizes = [compression.pcluster, compression.fragment_pcluster];
            sizes.into_iter().flatten().max().unwrap_or(0)
        });
        let window = WINDOW_LEN.max(u64::from(largest) * PCLUSTERS);
        let plan = metadata::plan(settings, &self.tree)?;
        let source = (&self.tree, &self.contents);
        let slow = Measurer::new(source, settings, &order, &plan.inode_sizes, compression);
        let fast_level = compression.map(at_fast_level);
        let fast = Measurer::new(source, settings, &order, &plan.inode_sizes, fast_level.as_ref());
        let is_slow = fast_level.as_ref().map(|fast| &fast.methods) != compression.map(|all| &all.methods);
        let mut sum = Sum::default();
        for stream in Stream::of(&self.tree, &order, &self.stored, window) {
            self.add_stream(&stream, window, &fast, is_slow.then_some(&slow), &mut sum)?;
        }
        let workers = settings.run.worker_count() as f64;
        // Workers wait for the processor while other programs use it, in the build as here.
        let load = if sum.processor > 0.0 { (sum.elapsed / sum.processor).max(1.0) } else { 1.0 };
        let data = sum.seconds * load / workers;
        let metadata = Plan::seconds(&self.tree);
        let size = sum.size.max(0.0) as u64 + plan.size(settings, &self.tree, &sum.tails);
        let blocks = settings.image.block_size.bytes64();
        Ok(Estimate {
            size: size.next_multiple_of(blocks),
            time: self.walk_time + Duration::from_secs_f64(data + metadata),
            sampled: sum.sampled as u64,
        })
    }

    /// Adds the content of `stream`.
    fn add_stream(
        &self,
        stream: &Stream,
        window: u64,
        fast: &Measurer<'_>,
        slow: Option<&Measurer<'_>>,
        sum: &mut Sum,
    ) -> Result<()> {
        if stream.bytes() == 0 {
            return Ok(());
        }
        let count = |part: u64, least: u64, most: u64| {
            let all = self.stored.bytes.max(1);
            let wanted =
                (all / part).clamp(least, most) as u128 * u128::from(stream.bytes()) / u128::from(all);
            (wanted as u64).div_ceil(window).max(2)
        };
        let windows = stream.windows(count(WINDOWS_PART, WINDOWS_MIN, WINDOWS_MAX), window);
        let probes = Probes::of(&self.options.run, &self.tree, &self.contents, stream)?;
        let measured = fast.measure(&windows)?;
        let compressible = self.compressibility(&windows)?;
        let points = |values: &[Measured], x: &[f64], value: fn(&Measured) -> f64| -> Vec<Point> {
            let each = values.iter().zip(x).filter(|(one, _)| one.bytes > 0.0);
            each.map(|(one, x)| Point { weight: one.bytes, x: *x, y: value(one) / one.bytes }).collect()
        };
        let size = |one: &Measured| one.size;
        let seconds = |one: &Measured| one.processor;
        let bytes = stream.bytes() as f64;
        let fast_size = total(&points(&measured, &compressible, size), probes.mean);
        let fast_seconds = total(&points(&measured, &compressible, seconds), probes.mean);
        measured.iter().for_each(|one| sum.add_load(one));
        let tails = measured.iter().flat_map(|one| one.tails.iter().copied());
        sum.tails.extend(tails);
        let (mut size_each, mut seconds_each) = (fast_size, fast_seconds);
        if let Some(slow) = slow {
            let wanted = count(SLOW_PART, SLOW_MIN, SLOW_MAX) as usize;
            let chosen = windows::every(measured.len(), wanted);
            let some: Vec<Window> = chosen.iter().map(|number| windows[*number].clone()).collect();
            let again = slow.measure(&some)?;
            again.iter().for_each(|one| sum.add_load(one));
            let x: Vec<f64> = chosen.iter().map(|number| ratio(&measured[*number])).collect();
            size_each = total(&points(&again, &x, size), fast_size);
            seconds_each = total(&points(&again, &x, seconds), fast_size);
        }
        sum.size += size_each.max(0.0) * bytes;
        sum.seconds += seconds_each.max(0.0) * bytes;
        Ok(())
    }

    /// How compressible each window is: see [`Probes::mean`].
    fn compressibility(&self, windows: &[Window]) -> Result<Vec<f64>> {
        let run = &self.options.run;
        let context = || windows::Prober::new(&self.tree, &self.contents);
        run.parallel(windows.len(), context, |prober, number| prober.window(&windows[number]))
    }
}

/// Sums over all content.
#[derive(Default)]
struct Sum {
    size: f64,
    /// Processor time of all workers.
    seconds: f64,
    /// Processor time and time of the samples.
    processor: f64,
    elapsed: f64,
    sampled: f64,
    /// The tails of whole files.
    tails: Vec<u16>,
}

impl Sum {
    fn add_load(&mut self, one: &Measured) {
        self.processor += one.processor;
        self.elapsed += one.elapsed;
        self.sampled += one.bytes;
    }
}

fn ratio(one: &Measured) -> f64 {
    if one.bytes > 0.0 { one.size / one.bytes } else { 1.0 }
}

/// The same compression at the fastest level of each algorithm, whose sizes change from content to content as those of the slow levels
/// do.
fn at_fast_level(compression: &Compression) -> Compression {
    let mut fast = compression.clone();
    for Params { method, .. } in &mut fast.methods {
        match method {
            Method::Lz4(lz4) => lz4.level = 0,
            Method::Zstd(zstd) => zstd.level = zstd.level.min(3),
            Method::Deflate(deflate) => deflate.level = deflate.level.min(1),
            Method::Lzma(lzma) => lzma.level = 0,
        }
    }
    fast
}
