//! Finds the compressors' parameters that give an image's pclusters again, by trials on a sample.

use std::collections::{HashMap, HashSet};

use ferofs_codec::{Filling, LIBLZ4, Params, codec};
use ferofs_format::{Algorithm, FileOffset};
use ferofs_read::Image;
use ferofs_update::format::plan::{ExtentKind, UnitExtent};
use ferofs_update::format::reencode::Encoders;

use super::content::{FileExtent, ImageContent};
use super::image::DeltaImage;
use super::units::{AHEAD, Run};
use crate::data::encode::SEGMENT;
use crate::error::Result;
use crate::incremental::create::describe::units::{Shape, StoredExtent, encode_again};
use crate::options::compression::PCLUSTER_MAX;

/// Sampled units, and bytes of content of each at most.
const SAMPLES: usize = 6;
const SAMPLE_LEN: usize = 512 << 10;
/// The most decoded bytes of a pcluster for each encoded byte, as the builder sets it.
const MAX_RATIO: usize = 12;
/// Bytes of memory for the tables of a compressor that applying a delta may need. Pclusters of
/// compressors that need more are carried.
const ENCODER_MEMORY: u64 = 64 << 20;
const WINDOW_MAX: usize = 12 << 20;

/// The methods that encode the runs of an image again, and the largest pcluster for each algorithm,
/// in the metabox and elsewhere.
#[derive(Default)]
pub(super) struct Methods {
    pub(super) params: Vec<Params>,
    shapes: HashMap<(Algorithm, bool), Shape>,
}

impl Methods {
    pub(super) fn shape(&self, content: &ImageContent, run: &Run) -> Option<Shape> {
        let is_metabox = content.is_metabox(&content.extents[run.extents.start]);
        self.shapes.get(&(run.algorithm(content)?, is_metabox)).copied()
    }

    /// The extents that no method makes.
    pub(super) fn carried(&self, content: &ImageContent) -> HashSet<usize> {
        let is_made = |algorithm| self.params.iter().any(|params| params.algorithm == algorithm);
        let extents = content.extents.iter().enumerate();
        let carried =
            extents.filter(|(_, extent)| extent.algorithm.is_some_and(|own| !is_made(own)));
        carried.map(|(number, _)| number).collect()
    }

    /// Tries all candidates on a sample of `runs`.
    pub(super) fn find(new: &DeltaImage, runs: &[Run]) -> Result<Self> {
        let (image, content) = (&new.image, &new.content);
        let block = image.superblock().block_size.bytes() as u32;
        let mut methods = Self::default();
        for algorithm in content.algorithms() {
            let own = |extent: &&FileExtent| extent.algorithm == Some(algorithm);
            let by_bytes = content
                .extents
                .iter()
                .filter(own)
                .any(|extent| !extent.at.is_multiple_of(block as usize));
            let mut largest = block;
            for is_metabox in [false, true] {
                let of_file = content.extents.iter().filter(own);
                let sizes = of_file
                    .filter(|extent| content.is_metabox(extent) == is_metabox)
                    .map(|extent| extent.size);
                let Some(pcluster) = largest_pcluster(sizes, block) else { continue };
                methods.shapes.insert((algorithm, is_metabox), Shape { block, pcluster });
                largest = largest.max(pcluster);
            }
            let shape = Shape { block, pcluster: largest };
            let own = runs.iter().filter(|run| {
                run.algorithm(content) == Some(algorithm) && !run.is_too_long(content)
            });
            let own: Vec<&Run> = own.collect();
            // Runs from all parts of the image.
            let step = own.len().div_ceil(SAMPLES).max(1);
            let mut samples = Vec::new();
            for run in own.iter().step_by(step) {
                samples.extend(
                    methods
                        .shape(content, run)
                        .map(|shape| Sample::of(new, run, shape))
                        .transpose()?,
                );
            }
            let total: usize = samples.iter().map(Sample::encoded).sum();
            let last: usize = samples.iter().map(Sample::encoded_last).sum();
            let mut best: Vec<(usize, Params)> = Vec::new();
            for params in candidates(image, algorithm, shape, by_bytes) {
                if ferofs_codec::encoder_memory(&params, SAMPLE_LEN as u64 * 4) > ENCODER_MEMORY {
                    continue;
                }
                let mut encoders = Encoders::new(&[params]);
                let mut again = 0;
                for sample in &samples {
                    again += sample.encoded_again(&params, &mut encoders)?;
                }
                if again > 0 {
                    best.push((again, params));
                }
                // The last pcluster of a sample may differ, as its content ends there. One that is
                // all of a sample must be right.
                if (again + last) * 10 >= total * 9 && again * 2 >= total {
                    break;
                }
            }
            best.sort_by_key(|(again, _)| std::cmp::Reverse(*again));
            methods.params.extend(best.into_iter().take(2).map(|(_, params)| params));
        }
        Ok(methods)
    }
}

/// Bytes of the largest pcluster that the builder was to make, of which these are the sizes: one
/// that fewer than two have is the end of a file, and smaller. Most are powers of two.
fn largest_pcluster(sizes: impl Iterator<Item = usize> + Clone, block: u32) -> Option<u32> {
    let largest = sizes.clone().max()? as u32;
    let is_full = sizes.filter(|size| *size as u32 == largest).nth(1).is_some()
        && largest.is_multiple_of(block);
    let pcluster = if is_full { largest } else { largest.next_power_of_two() };
    Some(pcluster.clamp(block, PCLUSTER_MAX))
}

/// The first extents of a run.
struct Sample {
    extents: Vec<StoredExtent>,
    content: Vec<u8>,
    bytes: Vec<u8>,
    shape: Shape,
}

impl Sample {
    fn of(new: &DeltaImage, run: &Run, shape: Shape) -> Result<Self> {
        let (image, content) = (&new.image, &new.content);
        let extents = &content.extents[run.extents.clone()];
        let mut len = 0;
        let taken = extents.iter().take_while(|extent| {
            len += extent.len;
            len <= SAMPLE_LEN || len == extent.len
        });
        let taken: Vec<&FileExtent> = taken.collect();
        let (first, last) = (taken[0], taken[taken.len() - 1]);
        // The compressor looks ahead.
        let (file, end) = (&content.files[first.file], last.offset + last.len as u64);
        let ahead = file.size.min(end.next_multiple_of(SEGMENT)).min(end + AHEAD[AHEAD.len() - 1]);
        let mut own = vec![0; (ahead.max(end) - first.offset) as usize];
        let inode = image.inode(file.nid)?;
        image.read_at(&inode, FileOffset::new(first.offset), &mut own)?;
        let extents = taken.iter().map(|extent| stored(extent)).collect();
        Ok(Self { extents, content: own, bytes: new.read(first.at..last.at + last.size)?, shape })
    }

    fn encoded(&self) -> usize {
        self.extents
            .iter()
            .filter(|extent| extent.algorithm.is_some())
            .map(|extent| extent.size)
            .sum()
    }

    fn encoded_last(&self) -> usize {
        let last = self.extents[1..].last();
        last.filter(|extent| extent.algorithm.is_some()).map_or(0, |extent| extent.size)
    }

    /// Bytes of pclusters that become the same.
    fn encoded_again(&self, params: &Params, encoders: &mut Encoders) -> Result<usize> {
        let content = self.content.clone();
        let unit =
            encode_again(&self.extents, content, &self.bytes, &[*params], encoders, self.shape)?
                .unit;
        let same =
            |extent: &&UnitExtent| matches!(extent.kind, ExtentKind::Fill | ExtentKind::Exact);
        Ok(unit.map_or(0, |unit| {
            unit.extents.iter().filter(same).map(|extent| extent.size as usize).sum()
        }))
    }
}

pub(super) const fn stored(extent: &FileExtent) -> StoredExtent {
    StoredExtent { len: extent.len, size: extent.size, algorithm: extent.algorithm }
}

/// Parameters that builders use, the most frequent ones first.
fn candidates(image: &Image, algorithm: Algorithm, shape: Shape, by_bytes: bool) -> Vec<Params> {
    let mut found = Vec::new();
    for level in Params::levels(algorithm) {
        let Ok(params) = Params::new(algorithm, Some(level % LIBLZ4)) else { continue };
        let params = params.with_window(image.configs().window(algorithm));
        let window = params.window.max(shape.pcluster as usize * MAX_RATIO).min(WINDOW_MAX);
        let params = Params { level: *level, window, ..params };
        let log = shape.block.ilog2() as u8;
        let fillings = match (codec(algorithm).one_pass_level, by_bytes) {
            (Some(_), true) => vec![Filling::Bytes],
            (Some(_), false) => vec![Filling::Blocks { log }, params.filling],
            (None, _) => vec![params.filling],
        };
        found.extend(fillings.into_iter().map(|filling| Params { filling, ..params }));
    }
    found.retain(|params| params.check().is_ok());
    found
}
