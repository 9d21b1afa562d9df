//! Estimates size and time of images without building them: lists the source completely, and builds
//! images of a sample of its content.
//!
//! The sample is made of windows at equal distances in the order in which the image stores content,
//! without holes and without files whose content an earlier file has. What their content adds to an
//! image of these files is in proportion to its bytes; an image of all files without content gives
//! the rest. A slow level encodes every fourth window, and the fast level of the same algorithm
//! encodes all windows and these, which corrects the difference between the windows and the whole.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_format::Incompat;
use ferofs_format::inode::Timestamp;
use rustix::io::Errno;

use crate::build::{build_from, now};
use crate::data::chunks::{may_have_holes, plan};
use crate::data::order::Order;
use crate::error::{Error, Result, Warning};
use crate::options::compression::Compression;
use crate::options::source::SourceData;
use crate::options::{Options, OutputOptions, RunOptions};
use crate::output::Output;
use crate::progress::process_time;
use crate::sources;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Origin, Tree};
use ferofs_host::stat::Ranges;

/// Bytes of a window: four of the largest pclusters within this range. Windows that follow each
/// other in the sample have little in common, so shorter ones compress worse than the whole; of
/// longer ones, too few fit into the sample to show all kinds of content.
const WINDOW: std::ops::RangeInclusive<u64> = 256 << 10..=2 << 20;
/// A smaller file is in the sample as a whole or not at all: its tail is a large part of it.
const WHOLE: u64 = 128 << 10;
/// A slow level encodes one part in this many of the content, but at least and at most so many
/// bytes.
const SLOW_PART: u64 = 16;
const SLOW_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=64 << 20;
/// A slow level encodes one window in this many.
const SLOW_WINDOWS: usize = 4;
/// Files of up to this size are compared as a whole, larger ones by this many pieces of them.
const COMPARED: u64 = 4 << 20;
const PIECES: u64 = 64;

/// The estimated image.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Bytes of the image.
    pub size: u64,
    /// The time of the build without waiting for the disk: a rough value.
    pub time: Duration,
    /// The processor time of all threads of the build.
    pub processor_time: Duration,
    /// Bytes of content that were encoded for this estimate.
    pub sampled: u64,
    /// Features that the image needs because of its source.
    pub incompat: Incompat,
}

/// A source that was listed, for estimates.
#[derive(Debug)]
pub struct Estimator {
    options: Options,
    tree: Tree,
    contents: Contents,
    walk_time: Duration,
    /// The files that have the content of an earlier file.
    copies: HashSet<NodeId>,
    /// The ranges with data of sparse files.
    sparse: HashMap<NodeId, Ranges>,
}

/// Content of some files, and all of its bytes.
#[derive(Debug)]
struct Sample {
    files: Vec<(NodeId, Arc<Vec<u8>>)>,
    bytes: u64,
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
        let (mut tree, contents) =
            sources::read_source(options, &[], Path::new(&temporary), time, warnings)?;
        leave_out_unreadable(options, &mut tree, &contents, warnings)?;
        let walk_time = started.elapsed();
        let copies = match options.data.share_identical {
            true => copies(options, &tree, &contents)?,
            false => HashSet::new(),
        };
        let sparse =
            tree.ids().filter(|id| matches!(tree.node(*id).kind, Kind::Regular { sparse: true }));
        let sparse = sparse.filter_map(|id| Some((id, contents.data_ranges(&tree, id)?))).collect();
        Ok(Self { options: options.clone(), tree, contents, walk_time, copies, sparse })
    }

    /// Files that are not directories.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.tree.nodes.iter().filter(|node| !matches!(node.kind, Kind::Directory(_))).count()
            as u64
    }

    /// Bytes of the content of all files.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.tree.nodes.iter().map(|node| node.size).sum()
    }

    /// Estimates the image with these settings. Their source must be that of [`Self::new`].
    ///
    /// # Errors
    /// As [`crate::build`]; [`Error::Option`] for content in chunks.
    pub fn estimate(&self, settings: &Options) -> Result<Estimate> {
        if settings.data.chunks.is_some() {
            let problem = "chunks are not compressed, and how many are equal is not known";
            return Err(Error::Option { option: "estimate", problem });
        }
        let compression = settings.data.compression.as_ref();
        let largest_pcluster =
            compression.and_then(|compression| compression.pcluster).unwrap_or(0);
        let order = Order::new(&self.tree, compression, settings.image.block_size, &settings.data);
        let pieces: Vec<_> = order.ids().flat_map(|id| self.pieces(id)).collect();
        let all: u64 = pieces.iter().map(|(_, (start, end))| end - start).sum();
        let budget = (all / SLOW_PART).clamp(*SLOW_BYTES.start(), *SLOW_BYTES.end());
        let window = (4 * u64::from(largest_pcluster)).clamp(*WINDOW.start(), *WINDOW.end());
        let windows = windows(all, budget.saturating_mul(SLOW_WINDOWS as u64), window);
        let slow = self.sample(&pieces, windows.iter().step_by(SLOW_WINDOWS).copied())?;
        let none = self.build(settings, compression, None, false)?;
        let (mut size, mut time) = self.content(settings, compression, &slow)?;
        if windows.len() > 1 {
            let fast = compression.map(at_fast_level);
            let few = self.content(settings, fast.as_ref(), &slow)?.0;
            let sample = self.sample(&pieces, windows.iter().copied())?;
            let many = self.content(settings, fast.as_ref(), &sample)?.0;
            if few > 0.0 {
                size *= many / few;
            }
        }
        (size, time) = (size * all as f64, time * all as f64);
        let unit = settings
            .image
            .block_size
            .bytes64()
            .saturating_mul(settings.output.size_alignment.get().into());
        let size = none.0.saturating_add(size as u64).next_multiple_of(unit);
        let processor_time = none.1 + Duration::try_from_secs_f64(time).unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let workers = settings.run.worker_count().min(processors).max(1) as u32;
        let time = self.walk_time + processor_time / workers;
        let processor_time = self.walk_time + processor_time;
        let incompat =
            if self.has_chunks(settings) { Incompat::CHUNKED_FILE } else { Incompat::empty() };
        Ok(Estimate { size, time, processor_time, sampled: slow.bytes, incompat })
    }

    /// Whether files with holes are stored in chunks.
    fn has_chunks(&self, settings: &Options) -> bool {
        let (block, compression) = (settings.image.block_size, settings.data.compression.as_ref());
        let in_extents = compression.is_some_and(|compression| !compression.index.in_blocks());
        let mut reader = Reader::new(&self.contents, &self.tree);
        let is_in_chunks = |id: NodeId| {
            may_have_holes(&self.tree, id, compression.is_some(), false)
                && plan(&mut reader, &self.contents, &self.tree, id, block, compression.is_some())
                    .is_some()
        };
        !in_extents && self.tree.ids().any(is_in_chunks)
    }

    /// The ranges of a file's content that the image stores.
    fn pieces(&self, id: NodeId) -> Vec<(NodeId, (u64, u64))> {
        let node = self.tree.node(id);
        if !matches!(node.kind, Kind::Regular { .. }) || node.size == 0 || self.copies.contains(&id)
        {
            return Vec::new();
        }
        match self.sparse.get(&id) {
            Some(ranges) => ranges.iter().map(|range| (id, *range)).collect(),
            None => vec![(id, (0, node.size))],
        }
    }

    /// Reads the content of `pieces` that is in the windows.
    fn sample(
        &self,
        pieces: &[(NodeId, (u64, u64))],
        windows: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Sample> {
        let mut files: Vec<(NodeId, Vec<u8>)> = Vec::new();
        let mut reader = Reader::new(&self.contents, &self.tree);
        let mut pieces = pieces.iter().peekable();
        // The position of the next piece in all content.
        let mut at = 0;
        for (from, to) in windows {
            while let Some((id, (start, end))) = pieces.peek().copied().copied() {
                self.options.run.cancel.check()?;
                let len = end - start;
                let is_whole = len <= WHOLE;
                if at >= to {
                    break;
                }
                let taken = match is_whole {
                    true if at < from => 0..0,
                    true => 0..len,
                    false => from.saturating_sub(at).min(len)..(to - at).min(len),
                };
                if !taken.is_empty() {
                    let mut bytes = vec![0; (taken.end - taken.start) as usize];
                    match reader.read(id, start + taken.start, &mut bytes) {
                        Ok(()) => match files.last_mut() {
                            Some((last, content)) if *last == id => content.append(&mut bytes),
                            _ => files.push((id, bytes)),
                        },
                        Err(Error::SourceChanged(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                if at + len > to {
                    break;
                }
                at += len;
                pieces.next();
            }
        }
        let bytes = files.iter().map(|(_, content)| content.len() as u64).sum();
        Ok(Sample {
            files: files.into_iter().map(|(id, content)| (id, Arc::new(content))).collect(),
            bytes,
        })
    }

    /// Returns the bytes that each byte of the sample's content adds to the image of its files, and
    /// the seconds of processor time for it.
    fn content(
        &self,
        settings: &Options,
        compression: Option<&Compression>,
        sample: &Sample,
    ) -> Result<(f64, f64)> {
        let (empty_size, empty_time) = self.build(settings, compression, Some(sample), false)?;
        let (size, time) = self.build(settings, compression, Some(sample), true)?;
        let (size, time) = (size.saturating_sub(empty_size), time.saturating_sub(empty_time));
        let bytes = sample.bytes.max(1) as f64;
        Ok((size as f64 / bytes, time.as_secs_f64() / bytes))
    }

    /// Builds an image of empty files, or of the files of a sample alone with or without their
    /// content. Returns its size and the processor time.
    fn build(
        &self,
        settings: &Options,
        compression: Option<&Compression>,
        sample: Option<&Sample>,
        with_content: bool,
    ) -> Result<(u64, Duration)> {
        let mut options = settings.clone();
        options.output = OutputOptions::default();
        options.data.compression = compression.cloned();
        options.run =
            RunOptions { progress: Arc::default(), strict: false, ..self.options.run.clone() };
        options.source.skip_unreadable = true;
        // Files that cannot be read are not in the image.
        let (size, origin) = if sample.is_some() {
            (1, Origin::Unreadable(Errno::NODATA))
        } else {
            (0, Origin::None)
        };
        let temporary = std::env::temp_dir();
        let mut output = Output::region(&temporary, 0)?;
        let started = process_time();
        let summary = build_from(&options, &mut output, &temporary, |_, _, _| {
            let mut tree = self.tree.clone();
            let mut contents = Contents::archives(&temporary, &options.source.path);
            for node in
                tree.nodes.iter_mut().filter(|node| matches!(node.kind, Kind::Regular { .. }))
            {
                (node.kind, node.size, node.origin) =
                    (Kind::Regular { sparse: false }, size, origin);
            }
            for (id, content) in sample.iter().flat_map(|sample| &sample.files) {
                let node = &mut tree.nodes[id.index()];
                (node.size, node.origin) = match with_content {
                    true => (content.len() as u64, contents.add_memory(content.clone())?),
                    false => (0, Origin::None),
                };
            }
            Ok((tree, contents))
        })?;
        Ok((summary.bytes_out, process_time().saturating_sub(started)))
    }
}

/// Windows of `window` bytes in `all` bytes, together about `budget`; one window if that is all.
fn windows(all: u64, budget: u64, window: u64) -> Vec<(u64, u64)> {
    if all <= budget {
        return vec![(0, all)];
    }
    let count = budget.div_ceil(window);
    let middle =
        |number: u64| (u128::from(all) * u128::from(2 * number + 1) / u128::from(2 * count)) as u64;
    (0..count)
        .map(|number| middle(number) - window / 2)
        .map(|start| (start, start + window))
        .collect()
}

/// The same compression at the fastest level of each algorithm.
fn at_fast_level(compression: &Compression) -> Compression {
    let mut fast = compression.clone();
    fast.methods.iter_mut().for_each(|params| *params = params.fast());
    fast
}

/// Makes the files empty that cannot be read, if a build leaves them out. Files that anybody may
/// read are not tried.
fn leave_out_unreadable(
    options: &Options,
    tree: &mut Tree,
    contents: &Contents,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut found = Vec::new();
    let mut reader = Reader::new(contents, tree);
    for id in tree.ids() {
        let node = tree.node(id);
        // Content of archives and images needs no permissions.
        let is_opened = matches!(node.origin, Origin::File(_) | Origin::LayerFile { .. });
        if !is_opened || node.size == 0 || node.permissions & 0o444 == 0o444 {
            continue;
        }
        match reader.read(id, 0, &mut [0]) {
            Err(error) if error.is_unreadable() && options.source.skip_unreadable => {
                warnings.push(Warning::Skipped(error));
                found.push(id);
            }
            Err(error) if error.is_unreadable() => return Err(error),
            _ => {}
        }
    }
    found.into_iter().for_each(|id| tree.nodes[id.index()].size = 0);
    Ok(())
}

/// The files that have the content of an earlier file of the same size, as far as it is compared.
fn copies(options: &Options, tree: &Tree, contents: &Contents) -> Result<HashSet<NodeId>> {
    let is_file = |id: &NodeId| matches!(tree.node(*id).kind, Kind::Regular { .. });
    let mut files: Vec<(u64, NodeId)> =
        tree.ids().filter(is_file).map(|id| (tree.node(id).size, id)).collect();
    files.retain(|(size, _)| *size > 0);
    files.sort_unstable();
    let same_size = files.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1);
    let candidates: Vec<(u64, NodeId)> = same_size.flatten().copied().collect();
    let digests = options.run.parallel(
        candidates.len(),
        || (Reader::new(contents, tree), Vec::new()),
        |(reader, buffer), number| {
            let (size, id) = candidates[number];
            let (count, len) =
                if size <= COMPARED { (1, size) } else { (PIECES, COMPARED / PIECES) };
            let mut hasher = blake3::Hasher::new();
            hasher.update(&size.to_le_bytes());
            for piece in 0..count {
                buffer.resize(len as usize, 0);
                // A file that cannot be read is not a copy: its digest is that of its number.
                match reader.read(id, (size - len) / (count - 1).max(1) * piece, buffer) {
                    Ok(()) => hasher.update(buffer),
                    Err(_) => hasher.update(&number.to_le_bytes()),
                };
            }
            Ok::<_, Error>(hasher.finalize())
        },
    )?;
    let mut known = HashSet::new();
    let all = candidates.into_iter().zip(digests);
    Ok(all.filter(|(_, digest)| !known.insert(*digest)).map(|((_, id), _)| id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help of `--estimate` and docs/BUILDING.md say so.
    #[test]
    fn up_to_64_mib_are_encoded_as_a_whole() {
        let windows =
            |all: u64| windows(all, SLOW_BYTES.start() * SLOW_WINDOWS as u64, *WINDOW.start());
        assert_eq!(windows(64 << 20), [(0, 64 << 20)]);
        assert!(windows((64 << 20) + 1).len() > 1);
    }

    #[test]
    fn windows_are_at_equal_distances_and_within_the_content() {
        assert_eq!(windows(100, 100, 10), [(0, 100)]);
        let found = windows(1000, 100, 10);
        assert_eq!((found.len(), found[0], found[9]), (10, (45, 55), (945, 955)));
        assert!(found.windows(2).all(|pair| pair[1].0 - pair[0].0 == 100));
    }
}
