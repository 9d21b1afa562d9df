//! Estimates size and build time of images without building them: lists the source completely, and encodes a sample of its content.
//!
//! What follows from the tree is computed: metadata, inline tails, which files are whole fragments. For the rest, samples of equal parts
//! of the content in the order of the image are taken, so that each setting needs little time:
//!
//! | sample | what is done with it | for |
//! |---|---|---|
//! | probes: pieces of 16 KiB | LZ4 says how compressible they are | all settings |
//! | windows of some pclusters | encoded as in the image, at a fast level | each setting |
//! | windows of about one pcluster | encoded at the fast level and at that of the setting | each setting with a slow level |
//! | pieces of about one pcluster | encoded once, without looking for the length that fits, at the fast level, and some at that of the setting | large pclusters at a slow level, in place of the windows |
//!
//! Sparse files that a build stores in chunks are computed, and of other long holes one window stands for all. Compressed metadata is written
//! and encoded, or a sample of it.
//!
//! Each sample is small, but its content need not be like the whole content. The larger sample before it tells how they differ, and a
//! regression estimator corrects this ([`regression`]). No random numbers: the same source gives the same samples.
//!
//! The time is processor time of the samples, so that other programs that run meanwhile change it little, and a simulation of the data stage says how
//! long its workers take together with the thread that writes. What no sample has is measured on the machine, too: writing and copying memory, and a
//! piece of work that says how fast the machine is. Compressors that try lengths count the bytes that they search: the fast level, which encodes more content, says how
//! often a byte is searched, and the slow level how long a byte takes.
//!
//! | module | what it does |
//! |---|---|
//! | [`compressed`] | encodes a part of the metadata, if the setting compresses metadata |
//! | [`unreadable`] | leaves out files that cannot be read |
//! | [`identical`] | finds holes, and files whose content is stored once |
//! | [`windows`] | chooses probes and windows |
//! | [`encode`] | encodes windows with the code of the data stage |
//! | [`pieces`] | encodes pieces of content in large pclusters |
//! | [`metadata`] | computes the size of the metadata |
//! | [`size`] | adds up data and metadata |
//! | [`time`] | computes how long the workers take together |
//! | [`regression`] | estimates a total from a sample |
//! | [`sampling`] | decides how much is encoded |
//! | [`content`] | computes what content takes from what the samples take |

mod compressed;
mod content;
mod encode;
mod identical;
mod metadata;
mod pieces;
mod regression;
mod sampling;
mod size;
#[cfg(test)]
mod tests;
mod time;
mod unreadable;
mod windows;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::build::estimate::content::{EachByte, Levels, PieceLevels, Sum, holes};
use crate::build::estimate::encode::Measurer;
use crate::build::estimate::identical::Stored;
use crate::build::estimate::metadata::{Content, Plan};
use crate::build::estimate::sampling::{Sampling, at_counting_level, at_fast_level, slowness};
use crate::build::estimate::time::{Costs, Jobs, Stage, Work};
use crate::build::estimate::windows::{Probes, Sampled, Stream, StreamKind};
use crate::build::now;
use crate::data::chunks::sparse::ChunkPlan;
use crate::data::encode::SEGMENT;
use crate::data::jobs_limit;
use crate::data::order::Order;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::source::SourceData;
use crate::progress::Warning;
use crate::progress::timings::process_time;
use crate::sources;
use crate::sources::content::Contents;
use crate::tree::{Kind, NodeId, Tree, overrides};
use ferofs_format::inode::Timestamp;

/// What an image would be like.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Bytes of the image.
    pub size: u64,
    /// The time of the build, without waiting for the disk.
    pub time: Duration,
    /// The processor time of all threads of the build: other programs that run meanwhile change it little.
    pub processor_time: Duration,
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
    walk_processor_time: Duration,
    costs: Costs,
    stored: Stored,
    probes: Probes,
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
        let (started, processor) = (Instant::now(), process_time());
        let time = Timestamp { secs: options.image.build_time.unwrap_or_else(now), nanos: 0 };
        let temporary = std::env::temp_dir();
        let (mut tree, contents) = sources::read_source(options, &[], Path::new(&temporary), time, warnings)?;
        unreadable::leave_out(options, &mut tree, &contents, warnings)?;
        overrides::apply(&mut tree, &options.attributes, &options.run)?;
        let walk_time = started.elapsed();
        let walk_processor_time = process_time().saturating_sub(processor);
        let stored = Stored::find(options, &tree, &contents)?;
        let probes = Probes::of(&options.run, &tree, &contents, &stored)?;
        let (options, costs) = (options.clone(), Costs::measure());
        Ok(Self { options, tree, contents, walk_time, walk_processor_time, costs, stored, probes })
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

    /// Estimates the images with each of these settings, at the same time: see [`Self::estimate`].
    ///
    /// # Errors
    /// As [`Self::estimate`].
    pub fn estimate_all(&self, settings: &[Options]) -> Result<Vec<Estimate>> {
        let workers = self.options.run.worker_count();
        let threads = NonZeroUsize::new(workers / settings.len().max(1)).unwrap_or(NonZeroUsize::MIN);
        // The slow ones come first, so that no thread is left with one of them alone.
        let mut order: Vec<usize> = (0..settings.len()).collect();
        order.sort_by_key(|number| Reverse(slowness(settings[*number].data.compression.as_ref())));
        let estimates = self.options.run.parallel(
            order.len(),
            || (),
            |(), number| {
                let number = order[number];
                Ok::<_, Error>((number, self.estimate_with(&settings[number], threads)?))
            },
        )?;
        let mut all = vec![None; settings.len()];
        estimates.into_iter().for_each(|(number, estimate)| all[number] = Some(estimate));
        Ok(all.into_iter().flatten().collect())
    }

    /// Estimates the image with these settings. Their source must be that of [`Self::new`]. What deduplication saves is not estimated.
    ///
    /// # Errors
    /// As [`crate::build`]; [`Error::Option`] for content in chunks.
    pub fn estimate(&self, settings: &Options) -> Result<Estimate> {
        let workers = NonZeroUsize::new(self.options.run.worker_count()).unwrap_or(NonZeroUsize::MIN);
        self.estimate_with(settings, workers)
    }

    /// The same, with this number of threads.
    fn estimate_with(&self, settings: &Options, threads: NonZeroUsize) -> Result<Estimate> {
        if settings.data.chunks.is_some() {
            let problem = "chunks are not compressed, and how many are equal is not known";
            return Err(Error::Option { option: "estimate", problem });
        }
        let mut run = settings.run.clone();
        run.workers = Some(threads);
        let compression = settings.data.compression.as_ref();
        let order = Order::new(&self.tree, compression, settings.image.block_size, &settings.data);
        let block = settings.image.block_size;
        let sampling = Sampling::new(settings, run);
        let plan = Plan::new(settings, &self.tree)?;
        let chunked = self.chunked(settings);
        let source = (&self.tree, &self.contents);
        let run = &sampling.run;
        let slow = Measurer::new(source, settings, run, &order, &plan.inode_sizes, compression);
        let fast_level = compression.map(at_fast_level);
        let fast = Measurer::new(source, settings, run, &order, &plan.inode_sizes, fast_level.as_ref());
        let is_slow = fast_level.as_ref().map(|fast| &fast.methods) != compression.map(|all| &all.methods);
        let counting_level = compression.map(at_counting_level);
        let counting =
            Measurer::new(source, settings, run, &order, &plan.inode_sizes, counting_level.as_ref());
        let pieces = compression.zip(fast_level.as_ref()).filter(|_| is_slow);
        let pieces = pieces.map(|(slow, fast)| PieceLevels { slow, fast, counting: &counting, block });
        let levels = Levels { fast: &fast, slow: is_slow.then_some(&slow), pieces: pieces.as_ref() };
        let mut sum = Sum::default();
        let streams = Stream::of(&self.tree, &order, &self.stored, sampling.small_max, &chunked);
        let data = streams.iter().filter(|stream| stream.kind() != StreamKind::Holes);
        let all = data.map(Stream::bytes).sum();
        let sampled = Sampled { tree: &self.tree, contents: &self.contents, probes: &self.probes };
        let mut each = [EachByte::default(); 3];
        for (stream, each) in streams.iter().zip(&mut each) {
            *each = match stream.kind() {
                StreamKind::Holes => holes(stream, &sampling, &levels, &mut sum)?,
                _ => sampled.each_byte(stream, all, &sampling, &levels, &mut sum)?,
            };
            let bytes = stream.bytes() as f64;
            sum.size += each.size * bytes;
            sum.fragments += each.fragments * bytes;
        }
        sum.tails.sort_unstable();
        // Chunks are not encoded.
        let chunks =
            chunked.values().flat_map(|plan| &plan.runs).map(|(start, end)| block.blocks_for(end - start));
        sum.size += (chunks.sum::<u64>() * block.bytes64()) as f64;
        let content = Content {
            order: &order,
            contents: &self.contents,
            stored: &self.stored,
            chunked: &chunked,
            bytes: sum.size.max(0.0) as u64,
            tails: &sum.tails,
        };
        let (size, encoding_metadata) = plan.image_size(&content)?;
        let unit = block.bytes64().saturating_mul(settings.output.size_alignment.get().into());
        let size = size.next_multiple_of(unit.max(block.bytes64()));
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let [small, ..] = each;
        let density = if small.fragment_bytes > 0.0 { small.fragments / small.fragment_bytes } else { 0.0 };
        let stage = Stage {
            workers: settings.run.worker_count(),
            processors,
            limit: jobs_limit(settings, sampling.segment),
            segment: sampling.segment,
            packed: small.packed,
            write_packed: density * (self.costs.write + self.costs.copy),
            new_buffer: self.costs.copy,
        };
        let data = self.jobs(&order, &chunked, &sampling, each).time(stage);
        // One thread does the rest: starting, copying the packed inode into the image, and the metadata, of which it reads what it writes.
        let others = self.costs.start
            + 2.0 * sum.fragments.max(0.0) * self.costs.write
            + encoding_metadata
            + self.tree.nodes.len() as f64 * self.costs.inode;
        Ok(Estimate {
            size,
            time: self.walk_time + Duration::from_secs_f64(data.seconds + others),
            processor_time: self.walk_processor_time + Duration::from_secs_f64(data.processor + others),
            sampled: sum.sampled as u64,
        })
    }

    /// The jobs of the data stage, if files take what `each` says about bytes in small files, in large ones, and in holes.
    fn jobs(
        &self,
        order: &Order,
        chunked: &HashMap<NodeId, ChunkPlan>,
        sampling: &Sampling,
        each: [EachByte; 3],
    ) -> Jobs {
        let mut jobs = Jobs::default();
        let [small, large, hole] = each;
        let costs = &self.costs;
        for id in order.ids() {
            let (node, is_stored) = (self.tree.node(id), self.stored.contains(id));
            if !matches!(node.kind, Kind::Regular { .. }) || node.size == 0 {
                continue;
            }
            if let Some(plan) = chunked.get(&id) {
                // A worker reads the ranges, and the data is copied once more.
                let bytes: u64 = plan.runs.iter().map(|(start, end)| end - start).sum();
                let append = costs.append + bytes as f64 * (costs.write + costs.copy);
                let copied = bytes as f64;
                let work = Work { seconds: copied * costs.copy, append, fragments: 0.0, bytes: copied };
                jobs.add_large(bytes, sampling.segment, work);
                continue;
            }
            let size = node.size as f64;
            let append = |each: EachByte| {
                let direct = (each.size - each.fragments).max(0.0);
                // Bytes that become fragments are only copied.
                costs.append + size * (direct * (costs.write + costs.copy) + each.fragment_bytes * costs.copy)
            };
            let work = if !is_stored {
                let seconds = costs.duplicate + costs.duplicate_byte * size;
                Work { seconds, append: costs.append, fragments: 0.0, bytes: size }
            } else if node.size <= sampling.small_max {
                let (seconds, fragments) = (small.direct * size, small.fragment_bytes * size);
                Work { seconds, append: append(small), fragments, bytes: size }
            } else {
                let ranges = self.stored.data_ranges(id, node.size);
                let data = ranges.iter().map(|(start, end)| end - start).sum::<u64>() as f64;
                let seconds = large.seconds() * data + hole.seconds() * (size - data).max(0.0);
                Work { seconds, append: append(large), fragments: 0.0, bytes: size }
            };
            match node.size > SEGMENT {
                true => jobs.add_large(node.size, sampling.segment, work),
                false => jobs.add_small(node.size, work),
            }
        }
        jobs
    }

    /// The sparse files that the data stage stores in chunks.
    fn chunked(&self, settings: &Options) -> HashMap<NodeId, ChunkPlan> {
        let (block, is_compressed) = (settings.image.block_size, settings.data.compression.is_some());
        let plan = |id: NodeId, ranges: &[(u64, u64)]| {
            ChunkPlan::new(self.tree.node(id).size, ranges, block, is_compressed)
        };
        self.stored.sparse().filter_map(|(id, ranges)| Some((id, plan(id, ranges)?))).collect()
    }
}
