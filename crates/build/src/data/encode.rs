//! From bytes to extents: cuts content into what pclusters take, and encodes them. Pure: the result depends on
//! the bytes and on what is asked, on nothing that was encoded before.

pub mod dedupe;
pub mod deflate_pages;

use ferofs_codec::{Compressor, Fit, right_align};
use ferofs_format::BlockSize;

use crate::data::encode::dedupe::{Known, Match, Stamp};
use crate::data::extents::list::{Extent, ExtentLog, ExtentPlace};
use crate::options::compression::{Compression, Fragments, Index, Recipe};
use crate::progress::timings::{Activity, Timings};
use crate::{Error, Result};

/// Linux sets aside one MiB for the blocks of an LZ4 pcluster, and what is placed to the byte can touch one block more
/// than it has.
const SLICE_MAX: usize = 512 << 10;

/// A last pcluster that leaves at least this part of a block empty becomes a fragment, where there are some.
const WORTH: usize = 64;

/// What follows the bytes that are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More of the same file.
    More,
    /// Nothing; `inline_room` bytes can stand behind the file's index.
    Nothing { inline_room: usize },
}

/// The last bytes of a file that are in none of its extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// There are none.
    #[default]
    None,
    /// The last bytes that were pushed to the tails, encoded or not.
    Inline { bytes: usize, encoded: bool },
    /// The last bytes of the content, as they are, in the tails.
    Fragment { bytes: usize },
}

/// Content in encoded form; its bytes were appended to the buffers of the call.
#[derive(Clone, Debug)]
pub struct Encoded {
    pub log: ExtentLog,
    /// Of the extents that are not shared, when deduplicating.
    pub stamps: Vec<Option<Stamp>>,
    pub end: End,
}

/// Extents that may be referred to, and by which work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub known: Option<&'a Known>,
    /// The work's number.
    pub work: usize,
    /// Extents that stand in the content for sure, ascending and apart.
    pub given: &'a [Match],
}

impl Seen<'_> {
    /// What of `src` need not be stored: what is given, and what is found beside that.
    fn matches(&self, src: &[u8], method: usize) -> Vec<Match> {
        let found = self.known.map_or(Vec::new(), |known| known.find(src, self.work, method));
        let mut all = self.given.to_vec();
        all.extend(found.into_iter().filter(|found| {
            let next = self.given.partition_point(|given| given.start + given.len <= found.start);
            self.given.get(next).is_none_or(|given| found.start + found.len <= given.start)
        }));
        all.sort_unstable_by_key(|found| found.start);
        all
    }
}

/// Where encoded bytes are appended.
pub(crate) struct Sink<'a> {
    /// What extents take.
    pub extents: &'a mut Vec<u8>,
    /// What stands elsewhere: see [`End`].
    pub tails: &'a mut Vec<u8>,
}

/// One worker's compressors.
pub(crate) struct Encoder<'a> {
    compression: &'a Compression,
    block: BlockSize,
    timings: &'a Timings,
    /// By method, made when first needed.
    compressors: Vec<Option<Box<dyn Compressor>>>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(compression: &'a Compression, block: BlockSize, timings: &'a Timings) -> Self {
        let compressors = compression.methods.iter().map(|_| None).collect();
        Self { compression, block, timings, compressors }
    }

    /// Encodes all of `src`, but for what has been `seen`; `None`, and nothing useful in `sink`, when that takes
    /// more than `budget` bytes.
    pub(crate) fn encode(
        &mut self,
        src: &[u8],
        recipe: Recipe,
        next: Next,
        seen: Option<Seen<'_>>,
        budget: u64,
        sink: Sink<'_>,
    ) -> Result<Option<Encoded>> {
        let compressor = match self.compressors.get_mut(recipe.method) {
            Some(Some(compressor)) => compressor,
            slot => {
                let compressor = self.compression.compressor(recipe.method)?;
                // The builder's recipes name methods that there are.
                let Some(slot) = slot else { return Ok(None) };
                slot.insert(compressor)
            }
        };
        let run = Run {
            compression: self.compression,
            block: self.block.bytes(),
            compressor: compressor.as_mut(),
            src,
            recipe,
            next,
            budget,
            sink,
            log: ExtentLog::new(self.block.bytes64()),
            stamps: seen.and_then(|seen| seen.known).map(|_| Vec::new()),
            pos: 0,
        };
        let matches = seen.map_or(Vec::new(), |seen| {
            self.timings.time(Activity::Find, src.len(), || seen.matches(src, recipe.method))
        });
        self.timings.time(Activity::Encode, src.len(), || run.all(&matches))
    }
}

/// One call of [`Encoder::encode`].
struct Run<'a, 'b> {
    compression: &'a Compression,
    block: usize,
    compressor: &'b mut dyn Compressor,
    src: &'b [u8],
    recipe: Recipe,
    next: Next,
    budget: u64,
    sink: Sink<'b>,
    log: ExtentLog,
    /// When deduplicating.
    stamps: Option<Vec<Option<Stamp>>>,
    /// Bytes of `src` that are done.
    pos: usize,
}

/// How encoding a range ended.
enum Reached {
    /// All of it is in extents.
    All,
    /// What is left is elsewhere.
    End(End),
    /// No extent can start where the range ends.
    Never,
    /// It takes too much.
    OverBudget,
}

impl Run<'_, '_> {
    fn all(mut self, matches: &[Match]) -> Result<Option<Encoded>> {
        for found in matches {
            match self.reach(found.start, found.len)? {
                Reached::OverBudget => return Ok(None),
                Reached::Never => {}
                Reached::All | Reached::End(_) => self.share(found),
            }
        }
        match self.range(self.src.len())? {
            Reached::OverBudget | Reached::Never => Ok(None),
            Reached::All => Ok(Some(self.finish(End::None))),
            Reached::End(end) => Ok(Some(self.finish(end))),
        }
    }

    /// Encodes what is before a match of `len` bytes at `start`, so that an extent can start there.
    fn reach(&mut self, start: usize, len: usize) -> Result<Reached> {
        let in_blocks = self.compression.index != Index::Extents;
        let gap = start - self.pos;
        // Of two extents that start in one lcluster an index cannot tell.
        if in_blocks && (gap > 0 && gap < 2 * self.block || len < self.block && start + len < self.src.len())
        {
            return Ok(Reached::Never);
        }
        let (before, extents, pos) = (self.log.clone(), self.sink.extents.len(), self.pos);
        let stamps = self.stamps.as_ref().map_or(0, Vec::len);
        let reached = self.range(start)?;
        if matches!(reached, Reached::Never) {
            self.log = before;
            self.sink.extents.truncate(extents);
            self.pos = pos;
            self.stamps.iter_mut().for_each(|all| all.truncate(stamps));
        }
        Ok(reached)
    }

    fn share(&mut self, found: &Match) {
        let Match { len, stored, kept, .. } = *found;
        self.pos += len;
        let place = ExtentPlace::Shared { at: stored.at, partial: stored.partial };
        let extent = Extent { len: len as u64, encoded: stored.encoded, size: stored.size, place };
        if kept { self.log.push_kept(extent) } else { self.log.push(extent) }
    }

    /// Encodes up to `end`: a match's start, or the end of all.
    fn range(&mut self, end: usize) -> Result<Reached> {
        self.compressor.begin();
        match self.compression.index {
            Index::Extents => self.by_slices(end),
            Index::Compact | Index::Full => self.in_blocks(end),
        }
    }

    /// Fills pclusters of whole blocks.
    fn in_blocks(&mut self, end: usize) -> Result<Reached> {
        let followed = end < self.src.len();
        while self.pos < end {
            if !followed && let Some(end) = self.end_before_trial() {
                return Ok(Reached::End(end));
            }
            if self.log.size() + self.block as u64 > self.budget {
                return Ok(Reached::OverBudget);
            }
            let (rest, start) = (end - self.pos, self.sink.extents.len());
            if rest <= self.block {
                if !followed && let Some(end) = self.inline_rest()? {
                    return Ok(Reached::End(end));
                }
                if followed && rest < self.block {
                    return Ok(Reached::Never);
                }
                // What fits into a block as it is gains nothing from being encoded.
                self.store(rest);
                continue;
            }
            // An encoding must save a block: else nothing is gained, and its extent could be too short to
            // say how many blocks it has.
            let room = self.recipe.pcluster.min((rest - 1) / self.block * self.block);
            let mut fit = self.fit(room, end)?;
            // What is left before a match must be enough for an extent.
            if followed && fit.is_some_and(|(consumed, _)| too_short(rest - consumed, self.block)) {
                self.compressor.begin();
                self.sink.extents.truncate(start);
                fit = self.fit(room, end - self.block)?;
            }
            match fit {
                Some((consumed, produced)) => {
                    let is_last = consumed == rest && !followed;
                    if is_last && let Some(end) = self.end_after_trial(produced) {
                        return Ok(Reached::End(end));
                    }
                    let size = produced.next_multiple_of(self.block);
                    self.sink.extents.truncate(start + size);
                    right_align(&mut self.sink.extents[start..], produced);
                    self.push(consumed, true, size);
                }
                None => {
                    self.sink.extents.truncate(start);
                    let short = followed && too_short(rest - room, self.block);
                    let room = if short { room - self.block } else { room };
                    if room == 0 {
                        return Ok(Reached::Never);
                    }
                    self.store(room);
                }
            }
        }
        Ok(Reached::All)
    }

    /// Cuts content into slices and encodes each to the byte. What the last one has shown says how much will fill most
    /// of a pcluster: nothing is lost if it is less, so that one trial will do.
    fn by_slices(&mut self, end: usize) -> Result<Reached> {
        let least = self.slice(self.recipe.pcluster);
        let mut slice = least;
        while self.pos < end {
            if self.log.size() > self.budget {
                return Ok(Reached::OverBudget);
            }
            if end == self.src.len()
                && let Some(end) = self.end_before_trial()
            {
                return Ok(Reached::End(end));
            }
            let len = slice.min(end - self.pos);
            let (start, src) = (self.sink.extents.len(), &self.src[self.pos..self.pos + len]);
            // Compressors ask for some room, whatever they are given.
            self.sink.extents.resize(start + len.min(self.recipe.pcluster).max(64), 0);
            let out = &mut self.sink.extents[start..];
            match self.compressor.fit_exact(src, out).map_err(Error::Encode)? {
                Fit::Encoded { produced, .. } => {
                    self.sink.extents.truncate(start + produced);
                    self.push(len, true, produced);
                    slice = self.slice(len * (self.recipe.pcluster / 8 * 7) / produced).max(least);
                }
                Fit::Incompressible if len > least => {
                    self.sink.extents.truncate(start);
                    slice = least;
                }
                Fit::Incompressible => {
                    self.sink.extents.truncate(start);
                    self.sink.extents.extend_from_slice(src);
                    self.push(len, false, len);
                }
            }
        }
        Ok(Reached::All)
    }

    /// Bytes that an extent of [`Self::by_slices`] decodes to: about `wanted`, whole blocks.
    fn slice(&self, wanted: usize) -> usize {
        let most = self.compression.max_extent.map_or(usize::MAX, |most| most as usize);
        (wanted.min(most).min(SLICE_MAX) / self.block * self.block).max(self.block)
    }

    /// Encodes the most before `end` that fits into `room` bytes behind the sink's extents.
    fn fit(&mut self, room: usize, end: usize) -> Result<Option<(usize, usize)>> {
        let start = self.sink.extents.len();
        self.sink.extents.resize(start + room, 0);
        let end = self.compression.max_extent.map_or(end, |most| end.min(self.pos + most as usize));
        let out = &mut self.sink.extents[start..];
        Ok(match self.compressor.fit(&self.src[..end], self.pos, out).map_err(Error::Encode)? {
            Fit::Encoded { consumed, produced, .. } if consumed > produced.next_multiple_of(self.block) => {
                Some((consumed, produced))
            }
            Fit::Encoded { .. } | Fit::Incompressible => None,
        })
    }

    /// Stores the next `len` bytes in extents of a block each.
    fn store(&mut self, len: usize) {
        for bytes in self.src[self.pos..self.pos + len].chunks(self.block) {
            let end = self.sink.extents.len() + self.block;
            self.sink.extents.extend_from_slice(bytes);
            self.sink.extents.resize(end, 0);
            self.push(bytes.len(), false, self.block);
        }
    }

    fn push(&mut self, len: usize, encoded: bool, size: usize) {
        if let Some(stamps) = &mut self.stamps {
            stamps.push(dedupe::stamp(&self.src[self.pos..self.pos + len]));
        }
        self.pos += len;
        self.log.push(Extent { len: len as u64, encoded, size: size as u64, place: ExtentPlace::Next });
    }

    /// What is left becomes a fragment when it surely fills no pcluster.
    fn end_before_trial(&mut self) -> Option<End> {
        let rest = self.src.len() - self.pos;
        (self.has_fragments() && rest < self.recipe.pcluster).then(|| self.fragment(rest))
    }

    /// What is left was encoded to `produced` bytes, and may be better off elsewhere.
    fn end_after_trial(&mut self, produced: usize) -> Option<End> {
        let start = self.sink.extents.len() - self.last_room();
        let unused = self.recipe.pcluster - produced;
        if self.has_fragments() && unused >= self.block / WORTH {
            self.sink.extents.truncate(start);
            return Some(self.fragment(self.src.len() - self.pos));
        }
        if !self.fits_inline(produced) {
            return None;
        }
        self.sink.tails.extend_from_slice(&self.sink.extents[start..start + produced]);
        self.sink.extents.truncate(start);
        Some(End::Inline { bytes: produced, encoded: true })
    }

    /// Bytes that [`Self::fit`] was last given.
    fn last_room(&self) -> usize {
        let rest = self.src.len() - self.pos;
        self.recipe.pcluster.min((rest - 1) / self.block * self.block)
    }

    /// Puts the last bytes, no more than a block, behind the index if they fit there.
    fn inline_rest(&mut self) -> Result<Option<End>> {
        let rest = self.src.len() - self.pos;
        if !self.compression.inline_tails || self.next == Next::More {
            return Ok(None);
        }
        let start = self.sink.tails.len();
        self.sink.tails.resize(start + self.block, 0);
        let out = &mut self.sink.tails[start..];
        let fit = self.compressor.fit(self.src, self.pos, out).map_err(Error::Encode)?;
        if let Fit::Encoded { consumed, produced, .. } = fit
            && consumed == rest
            && self.fits_inline(produced)
        {
            self.sink.tails.truncate(start + produced);
            return Ok(Some(End::Inline { bytes: produced, encoded: true }));
        }
        self.sink.tails.truncate(start);
        if !self.fits_inline(rest) {
            return Ok(None);
        }
        self.sink.tails.extend_from_slice(&self.src[self.pos..]);
        Ok(Some(End::Inline { bytes: rest, encoded: false }))
    }

    fn fits_inline(&self, bytes: usize) -> bool {
        let Next::Nothing { inline_room } = self.next else { return false };
        self.compression.inline_tails && bytes <= inline_room.min(self.block - 1)
    }

    fn has_fragments(&self) -> bool {
        self.next != Next::More && self.compression.fragments != Fragments::None
    }

    fn fragment(&mut self, bytes: usize) -> End {
        self.sink.tails.extend_from_slice(&self.src[self.src.len() - bytes..]);
        End::Fragment { bytes }
    }

    fn finish(self, end: End) -> Encoded {
        Encoded { log: self.log, stamps: self.stamps.unwrap_or_default(), end }
    }
}

/// Whether an index could not say that an extent of so many bytes is followed by another.
const fn too_short(len: usize, block: usize) -> bool {
    len > 0 && len < block
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferofs_codec::{Decoder, Params, Portion};
    use ferofs_format::Algorithm;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..9000),
            (any::<u8>(), 1usize..30_000).prop_map(|(byte, len)| vec![byte; len]),
            (proptest::collection::vec(0u8..4, 1..40), 1usize..800).prop_map(|(text, n)| text.repeat(n)),
        ];
        proptest::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
    }

    fn compression() -> impl Strategy<Value = Compression> {
        let method = prop_oneof![
            4 => Just((Algorithm::Lz4, 0u8)),
            1 => Just((Algorithm::Lz4, 9)),
            1 => Just((Algorithm::Deflate, 1)),
            1 => Just((Algorithm::Zstd, 1)),
        ];
        let index = prop_oneof![Just(Index::Compact), Just(Index::Full), Just(Index::Extents)];
        let fragments = prop_oneof![Just(Fragments::None), Just(Fragments::Tails)];
        let max_extent = prop_oneof![3 => Just(None), 1 => (4096u32..20_000).prop_map(Some)];
        (method, 0u32..6, index, fragments, max_extent, any::<bool>()).prop_map(
            |((algorithm, level), blocks, index, fragments, max_extent, inline_tails)| Compression {
                pcluster: Some(4096 << blocks),
                index,
                fragments,
                max_extent,
                inline_tails,
                ..Compression::new(Params::new(algorithm, Some(level)).unwrap())
            },
        )
    }

    proptest! {
        #[test]
        fn extents_decode_to_the_content(
            compression in compression(), src in content(), more: bool, inline_room in 0usize..5000,
        ) {
            let (block, timings) = (BlockSize::DEFAULT, Timings::default());
            let mut encoder = Encoder::new(&compression, block, &timings);
            let recipe = compression.recipe(Vec::new, block).unwrap();
            let next = if more { Next::More } else { Next::Nothing { inline_room } };
            let (mut extents, mut tails) = (Vec::new(), Vec::new());
            let sink = Sink { extents: &mut extents, tails: &mut tails };
            let Encoded { log, end, .. } = encoder.encode(&src, recipe, next, None, u64::MAX, sink).unwrap().unwrap();
            let algorithm = compression.methods[0].algorithm();
            let mut out = Vec::new();
            let mut decoder = Decoder::default();
            let mut decode = |bytes: &[u8], len: usize| {
                let mut decoded = vec![0; len];
                decoder.decode(algorithm, bytes, &mut decoded, Portion::Whole).unwrap();
                decoded
            };
            prop_assert_eq!(log.size(), extents.len() as u64);
            for (at, extent) in log.placed(ferofs_format::BytePos::new(0)) {
                let bytes = &extents[at.get() as usize..][..extent.size as usize];
                match extent.encoded {
                    true => out.extend(decode(bytes, extent.len as usize)),
                    false => out.extend_from_slice(&bytes[..extent.len as usize]),
                }
                prop_assert!(extent.size <= recipe.pcluster as u64);
                if compression.index != Index::Extents {
                    prop_assert_eq!(extent.size % block.bytes64(), 0);
                    prop_assert!(!extent.encoded || extent.len > extent.size);
                }
            }
            let rest = src.len() - out.len();
            match end {
                End::None => prop_assert!(tails.is_empty()),
                End::Fragment { bytes } => {
                    prop_assert!(!more && bytes == tails.len());
                    out.extend_from_slice(&tails);
                }
                End::Inline { bytes, encoded } => {
                    prop_assert!(!more && bytes == tails.len() && bytes <= inline_room);
                    if encoded { out.extend(decode(&tails, rest)) } else { out.extend_from_slice(&tails) }
                }
            }
            prop_assert!(out == src);
        }
    }
}
