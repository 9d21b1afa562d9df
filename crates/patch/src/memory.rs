//! What applying a patch costs, as the patch file alone tells.

use ferofs_codec::{Algorithm, Method, Params};

use crate::apply::THREADS_MAX;
use crate::error::Result;
use crate::format::piece::PieceSizes;
use crate::format::piece::base::{SMALL_EXTENT, WAITING};
use crate::format::plan::{ExtentKind, Item};
use crate::format::reader::Patch;
use crate::image::sector::SECTOR;

/// What applying needs besides a piece: the program itself with its stack and its threads, the reader of the image with its cache of
/// metadata, and a buffer of 1 MiB for each thread that hashes.
const FIXED: u64 = 24 << 20;

/// An extent of which a thread wants a part is decoded whole, and LZMA's decoder has a dictionary as long as what it decodes.
const COPIES: u64 = 2;
/// For long extents, the system does not get back at once what was freed.
const LONG_COPIES: u64 = 3;
/// Bytes for each piece: in the tables of the header, which are decoded at once, and in lists of them.
const OF_PIECE: u64 = 160;

/// What applying a patch costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyCost {
    /// Bytes that are read for the digests: the image once, and what is appended.
    pub digest_read: u64,
    /// Bytes of the image, decoded, against which the payloads of all pieces are decoded: old files, and old metadata.
    pub base_read: u64,
    /// Bytes that are written to the image: what is appended, the journal, the sector under it, the superblock's sector, and the root
    /// inode in free slots. Changes that are undone write more.
    pub written: u64,
    /// An upper bound of the memory of the process, in bytes: the largest piece, the tables of the compressors, and the program.
    pub memory: u64,
    /// Bytes of content that each algorithm encodes again.
    pub encoded: Vec<(&'static str, u64)>,
    /// Appended bytes that are not encoded: stored content, bytes that the patch carries, and metadata.
    pub copied: u64,
}

impl Patch {
    /// What applying the patch costs. It reads the plans of all pieces, and no payload.
    ///
    /// # Errors
    /// [`crate::Error::Io`], [`crate::Error::Patch`].
    pub fn apply_cost(&self) -> Result<ApplyCost> {
        let header = self.header();
        let growth = self.result_size().saturating_sub(self.base_size());
        let root = header.root.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
        let mut cost = ApplyCost {
            digest_read: self.base_size().saturating_add(growth),
            written: growth.saturating_add(2 * SECTOR as u64).saturating_add(root),
            ..ApplyCost::default()
        };
        let methods = self.known_methods();
        // The buffers for pieces are used again, so the largest of each counts.
        let mut most = PieceSizes::default();
        let mut encoded =
            [(Algorithm::Lz4, 0u64), (Algorithm::Lzma, 0), (Algorithm::Deflate, 0), (Algorithm::Zstd, 0)];
        // The longest unit of each method.
        let mut longest = vec![0u64; methods.len()];
        let mut references = 0u64;
        self.each_plan(|sizes, plan| {
            references = references.max(plan.references.len() as u64);
            let dictionary = plan.references.iter().map(|reference| u64::from(reference.len()));
            let dictionary = dictionary.fold(0, u64::saturating_add);
            cost.base_read = plan
                .references
                .iter()
                .filter(|reference| !reference.is_predicted())
                .fold(cost.base_read, |sum, reference| sum.saturating_add(reference.len().into()));
            most = most.max(PieceSizes { dictionary, ..sizes });
            for item in &plan.items {
                let Item::Unit(unit) = item else {
                    cost.copied = cost.copied.saturating_add(item.region_len());
                    continue;
                };
                let copied = unit
                    .extents
                    .iter()
                    .filter(|extent| matches!(extent.kind, ExtentKind::Stored | ExtentKind::Carried));
                let (content, size) = copied.fold((0u64, 0u64), |(content, size), extent| {
                    (content.saturating_add(extent.len.into()), size.saturating_add(extent.size.into()))
                });
                cost.copied = cost.copied.saturating_add(size);
                let number = usize::from(unit.method);
                let len = u64::from(unit.content_len).saturating_sub(content);
                if let (Some(Some(params)), true) = (methods.get(number), len > 0) {
                    let sum = encoded.iter_mut().find(|(algorithm, _)| *algorithm == params.algorithm());
                    if let Some((_, sum)) = sum {
                        *sum = sum.saturating_add(len);
                    }
                    if let Some(longest) = longest.get_mut(number) {
                        *longest = (*longest).max(unit.content_len.into());
                    }
                }
            }
        })?;
        let encoded = encoded.into_iter().filter(|(_, len)| *len > 0);
        cost.encoded = encoded.map(|(algorithm, len)| (algorithm.name(), len)).collect();
        let used = methods.iter().zip(longest).filter(|(_, longest)| *longest > 0);
        let tables = used.filter_map(|(params, longest)| Some(tables_of(params.as_ref()?, longest)));
        let tables = tables.fold(0, u64::saturating_add);
        // With LZ4 several threads encode, with a table each, and before their bytes come together.
        let is_lz4 = methods.iter().flatten().all(|params| params.algorithm() == Algorithm::Lz4);
        let (tables, apart) =
            if is_lz4 { (tables.saturating_mul(THREADS_MAX as u64), most.region) } else { (tables, 0) };
        // Each thread decodes short extents, but only one thread at a time a longer one.
        let longest = u64::from(header.longest_extent);
        let short = longest.min(SMALL_EXTENT).saturating_mul(THREADS_MAX as u64);
        let long = if longest > SMALL_EXTENT { longest } else { 0 };
        let decoded = short.saturating_mul(COPIES).saturating_add(long.saturating_mul(LONG_COPIES));
        let waiting = references.saturating_mul(WAITING as u64);
        let pieces = OF_PIECE.saturating_mul(self.appended().count() as u64);
        cost.memory = [FIXED, decoded, waiting, pieces, most.sum(), apart, tables, self.prediction_memory()?]
            .into_iter()
            .fold(0, u64::saturating_add);
        Ok(cost)
    }
}

/// An upper bound for the tables of the compressor with `params`, in bytes, as far as units of up to `longest` bytes use them.
fn tables_of(params: &Params, longest: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    /// The longest input in which the Zstandard compressor searches matches once, and keeps them for all trials.
    const PARSED: u64 = MIB / 2;
    // An extent has at most this content.
    let input = longest.min(params.window as u64);
    match params.method {
        Method::Lz4(lz4) => match lz4.level {
            0..=2 => MIB,
            _ => 4 * MIB,
        },
        // liblzma: 4 bytes for each second byte of the dictionary, and the content of an extent with 8 to 10 bytes for each of its
        // bytes. The dictionary is at most 16 times as large as the largest output.
        Method::Lzma(lzma) => {
            let dictionary = u64::from(lzma.dict_size).min(16 * ferofs_codec::MAX_ENCODED as u64);
            dictionary.saturating_mul(2).saturating_add(11 * input).saturating_add(4 * MIB)
        }
        Method::Deflate(deflate) => {
            if deflate.level < 10 {
                2 * MIB
            } else {
                12 * MIB
            }
        }
        Method::Zstd(zstd) => {
            // libzstd makes its tables for the window or for the input, whichever is shorter. Each has an entry of 4 bytes for up to two
            // positions; high levels have the largest ones.
            let window = (1u64 << zstd.window_log.min(27)).min(longest.next_power_of_two());
            let tables = |window: u64| {
                let each = match zstd.level {
                    0..=4 => 3,
                    5 => 5,
                    6..=12 => 14,
                    _ => 24,
                };
                window.saturating_mul(each).saturating_add(2 * MIB)
            };
            // One context for whole inputs, one for inputs that are searched once, with their matches, and the output of a trial.
            let searched = tables(window.min(PARSED)).saturating_add(4 * MIB);
            tables(window).saturating_add(searched).saturating_add(input)
        }
    }
}
