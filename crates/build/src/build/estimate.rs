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
//! Sparse files that a build stores in chunks are computed, and of other long holes one window stands for all. Compressed metadata is written
//! and encoded, or a sample of it.
//!
//! Each sample is small, but its content need not be like the whole content. The larger sample before it tells how they differ, and a
//! regression estimator corrects this ([`regression`]). No random numbers: the same source gives the same samples.
//!
//! | module | what it does |
//! |---|---|
//! | [`compressed`] | encodes a part of the metadata, if the setting compresses metadata |
//! | [`identical`] | finds holes, and files whose content is stored once |
//! | [`windows`] | chooses probes and windows |
//! | [`encode`] | encodes windows with the code of the data stage |
//! | [`metadata`] | computes the size of the metadata |
//! | [`size`] | adds up data and metadata |
//! | [`time`] | computes how long the workers take together |
//! | [`regression`] | estimates a total from a sample |

mod compressed;
mod encode;
mod identical;
mod metadata;
mod regression;
mod size;
#[cfg(test)]
mod tests;
mod time;
mod windows;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ferofs_codec::{Method, Params};

use crate::build::estimate::encode::{Measured, Measurer};
use crate::build::estimate::identical::Stored;
use crate::build::estimate::metadata::{Content, Plan};
use crate::build::estimate::regression::{Point, total};
use crate::build::estimate::time::Jobs;
use crate::build::estimate::windows::{Probes, Stream, StreamKind, Window, WindowLimits};
use crate::build::now;
use crate::data::chunks::sparse::ChunkPlan;
use crate::data::encode::SEGMENT;
use crate::data::order::Order;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::compression::{Compression, Fragments};
use crate::options::source::SourceData;
use crate::progress::Warning;
use crate::sources;
use crate::sources::content::Contents;
use crate::tree::{Kind, NodeId, Tree, overrides};
use ferofs_format::inode::Timestamp;

/// Bytes of the windows that are encoded at the fastest level: this part of the content, but within the limits. Less gives estimates that
/// are off by more than 5 %; more takes time.
const WINDOWS_PART: u64 = 24;
const WINDOWS_MIN: u64 = 12 << 20;
const WINDOWS_MAX: u64 = 64 << 20;
/// Not more than this part of small content, whatever the minimum is: an estimate must take a small part of the time of the builds.
const WINDOWS_SHARE: u64 = 4;
/// The same for the windows that are encoded at a slow level, which encodes about 4 MiB a second.
const SLOW_PART: u64 = 96;
const SLOW_MIN: u64 = 3 << 20;
const SLOW_MAX: u64 = 10 << 20;
/// A smaller part gave an error of 7.5 % instead of 0 for LZMA on a tree of 41 MB.
const SLOW_SHARE: u64 = 14;
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
        let block = settings.image.block_size;
        let limits = WindowLimits {
            len: WINDOW_LEN.max(u64::from(largest) * PCLUSTERS),
            segment: compression.map_or(SEGMENT, |compression| compression.segment(block)),
        };
        let plan = Plan::new(settings, &self.tree)?;
        let chunked = self.chunked(settings);
        let source = (&self.tree, &self.contents);
        let slow = Measurer::new(source, settings, &order, &plan.inode_sizes, compression);
        let fast_level = compression.map(at_fast_level);
        let fast = Measurer::new(source, settings, &order, &plan.inode_sizes, fast_level.as_ref());
        let is_slow = fast_level.as_ref().map(|fast| &fast.methods) != compression.map(|all| &all.methods);
        let levels = Levels { fast: &fast, slow: is_slow.then_some(&slow) };
        let has_fragments = compression.is_some_and(|compression| compression.fragments != Fragments::None);
        let mut sum = Sum::default();
        let streams = Stream::of(&self.tree, &order, &self.stored, limits.len, &chunked);
        let data = streams.iter().filter(|stream| stream.kind() != StreamKind::Holes);
        let all = data.map(Stream::bytes).sum();
        // As in a build, the packed inode comes last.
        for stream in streams.iter().rev() {
            let each = match stream.kind() {
                StreamKind::Holes => holes(stream, limits, &levels, &mut sum)?,
                _ => self.content(stream, all, limits, &levels, &mut sum)?,
            };
            let bytes = stream.bytes() as f64;
            sum.size += each.size * bytes;
            sum.fragments += each.fragments * bytes;
            match stream.kind() {
                StreamKind::Small if has_fragments => {
                    sum.jobs.add(each.seconds, [stream.bytes()], limits.segment)
                }
                StreamKind::Small => sum.jobs.add(each.seconds, [stream.bytes()], time::BATCH),
                _ => sum.jobs.add(each.seconds, stream.part_lens(), limits.segment),
            }
        }
        // Chunks are not encoded.
        let chunks =
            chunked.values().flat_map(|plan| &plan.runs).map(|(start, end)| block.blocks_for(end - start));
        sum.size += (chunks.sum::<u64>() * block.bytes64()) as f64;
        let content = Content {
            order: &order,
            contents: &self.contents,
            chunked: &chunked,
            bytes: sum.size.max(0.0) as u64,
            tails: &sum.tails,
        };
        let size = plan.image_size(&content)?.next_multiple_of(block.bytes64());
        // Workers wait for the processor while other programs use it, in the build as here.
        let load = if sum.processor > 0.0 { (sum.elapsed / sum.processor).max(1.0) } else { 1.0 };
        let workers = settings.run.worker_count();
        let writing = time::writing(size as f64, sum.fragments) / workers as f64;
        let seconds = sum.jobs.seconds(workers) * load + writing + plan.seconds();
        Ok(Estimate {
            size,
            time: self.walk_time + Duration::from_secs_f64(seconds),
            sampled: sum.sampled as u64,
        })
    }

    /// The sparse files that the data stage stores in chunks.
    fn chunked(&self, settings: &Options) -> HashMap<NodeId, ChunkPlan> {
        let (block, is_compressed) = (settings.image.block_size, settings.data.compression.is_some());
        let plan = |id: NodeId, ranges: &[(u64, u64)]| {
            ChunkPlan::new(self.tree.node(id).size, ranges, block, is_compressed)
        };
        self.stored.sparse().filter_map(|(id, ranges)| Some((id, plan(id, ranges)?))).collect()
    }

    /// What each byte of `stream` takes, which is a part of `all` bytes.
    fn content(
        &self,
        stream: &Stream,
        all: u64,
        limits: WindowLimits,
        levels: &Levels<'_>,
        sum: &mut Sum,
    ) -> Result<EachByte> {
        if stream.bytes() == 0 {
            return Ok(EachByte::default());
        }
        let count = |part: u64, least: u64, most: u64| {
            let wanted = (all / part).clamp(least, most);
            (wanted as u128 * u128::from(stream.bytes()) / u128::from(all.max(1))) as u64
        };
        let wanted = count(WINDOWS_PART, WINDOWS_MIN.min(all / WINDOWS_SHARE), WINDOWS_MAX);
        let windows = stream.windows(wanted.div_ceil(limits.len).max(2), limits);
        let probes = Probes::of(&self.options.run, &self.tree, &self.contents, stream)?;
        let measured = levels.fast.measure(&windows)?;
        let compressible = self.compressibility(&windows)?;
        let points = |values: &[Measured], x: &[f64], value: fn(&Measured) -> f64| -> Vec<Point> {
            let each = values.iter().zip(x).filter(|(one, _)| one.bytes > 0.0);
            each.map(|(one, x)| Point { weight: one.bytes, x: *x, y: value(one) / one.bytes }).collect()
        };
        let size = |one: &Measured| one.size;
        let fragments = |one: &Measured| one.fragments;
        let seconds = |one: &Measured| one.processor;
        let mean = |value| total(&points(&measured, &compressible, value), probes.mean);
        let fast = EachByte { size: mean(size), fragments: mean(fragments), seconds: mean(seconds) };
        measured.iter().for_each(|one| sum.add_load(one));
        let Some(slow) = levels.slow else {
            sum.add_tails(&measured);
            return Ok(fast);
        };
        let wanted = count(SLOW_PART, SLOW_MIN.min(all / SLOW_SHARE), SLOW_MAX);
        let chosen = windows::every(measured.len(), wanted.div_ceil(limits.len).max(1) as usize);
        let some: Vec<Window> = chosen.iter().map(|number| windows[*number].clone()).collect();
        let again = slow.measure(&some)?;
        again.iter().for_each(|one| sum.add_load(one));
        sum.add_tails(&again);
        let x: Vec<f64> = chosen.iter().map(|number| ratio(&measured[*number])).collect();
        let mean = |value| total(&points(&again, &x, value), fast.size);
        Ok(EachByte { size: mean(size), fragments: mean(fragments), seconds: mean(seconds) })
    }

    /// How compressible each window is: see [`Probes::mean`].
    fn compressibility(&self, windows: &[Window]) -> Result<Vec<f64>> {
        let run = &self.options.run;
        let context = || windows::Prober::new(&self.tree, &self.contents);
        run.parallel(windows.len(), context, |prober, number| prober.window(&windows[number]))
    }
}

/// What each byte of a hole takes.
fn holes(stream: &Stream, limits: WindowLimits, levels: &Levels<'_>, sum: &mut Sum) -> Result<EachByte> {
    let Some(window) = stream.hole(limits.segment) else { return Ok(EachByte::default()) };
    let measured = levels.slow.unwrap_or(levels.fast).measure(&[window])?;
    measured.iter().for_each(|one| sum.add_load(one));
    let each = |value: fn(&Measured) -> f64| measured.iter().map(|one| value(one) / one.bytes).sum();
    Ok(EachByte { size: each(|one| one.size), fragments: 0.0, seconds: each(|one| one.processor) })
}

/// Encoders of the content.
struct Levels<'a> {
    fast: &'a Measurer<'a>,
    /// At the level of the setting, if that is slow.
    slow: Option<&'a Measurer<'a>>,
}

/// What one byte of content takes.
#[derive(Clone, Copy, Default)]
struct EachByte {
    /// Bytes in the image.
    size: f64,
    /// Of them, those of fragments.
    fragments: f64,
    /// Processor time.
    seconds: f64,
}

/// Sums over all content.
#[derive(Default)]
struct Sum {
    size: f64,
    fragments: f64,
    jobs: Jobs,
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

    fn add_tails(&mut self, measured: &[Measured]) {
        self.tails.extend(measured.iter().flat_map(|one| one.tails.iter().copied()));
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
