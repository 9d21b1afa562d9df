//! Encodes content as extents. The result depends on the content and the arguments only, not on
//! earlier calls: so any worker can encode any part.

pub(crate) mod dedupe;
pub(crate) mod deflate_pages;
pub(crate) mod zero_runs;

use ferofs_codec::{Compressor, Fit, codec, random_before_others, right_align};
use ferofs_format::BlockSize;

use crate::data::encode::dedupe::{ExtentFingerprint, ExtentIndex, Match};
use crate::data::encode::zero_runs::HOLE_MIN;
use crate::data::extents::{Extent, ExtentLog, ExtentPlace, Mark};
use crate::error::Result;
pub(crate) use crate::options::compression::SEGMENT;
use crate::options::compression::{
    Compression, FileCompression, Fragments, PACKED_INODE_METHOD, PCLUSTER_MAX,
};
use crate::progress::{Activity, Timings};

/// One block more than the most encoded bytes of an extent with a byte position (`48bit` layout).
/// Linux has buffers of 1 MiB for the blocks of an LZ4 pcluster and refuses larger ones, and an
/// extent that starts within a block can need one block more than its size.
const PLACED_MAX: usize = PCLUSTER_MAX as usize;

/// The most bytes of an extent that is stored with a byte position: content after it may be worth
/// encoding.
const SLICE_MAX: usize = 512 << 10;

/// With fragments, the last pcluster of a file becomes a fragment if it leaves at least 1/64 of a
/// block empty. If it leaves less, a fragment saves less than it costs to read.
const FRAGMENT_FRACTION: usize = 64;

/// The part of the file after the encoded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// More of the same file.
    MoreData,
    /// Nothing. Up to `inline_capacity` bytes fit after the index of the file.
    EndOfFile { inline_capacity: usize },
}

/// The last bytes of a file that no extent holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EncodedTail {
    /// The extents hold all bytes.
    #[default]
    None,
    /// The tail follows the inode; [`Sink::tails`] ends with its bytes, which are encoded or not.
    Inline { bytes: usize, encoded: bool },
    /// The tail becomes a fragment; [`Sink::tails`] ends with its bytes, which are not encoded.
    Fragment { bytes: usize },
}

/// Encoded content. Its bytes are in the [`Sink`] of the call.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub log: ExtentLog,
    /// With deduplication: the fingerprints of the extents that are not shared.
    pub fingerprints: Vec<Option<ExtentFingerprint>>,
    pub tail: EncodedTail,
}

/// Extents of the image that new content may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReusableExtents<'a> {
    pub index: Option<&'a ExtentIndex>,
    /// The number of the job that encodes the content.
    pub job: usize,
    /// Parts of the content that the base image has; they ascend and do not overlap.
    pub base_matches: &'a [Match],
    /// Parts of the content that become holes; they ascend and do not overlap.
    pub holes: &'a [Match],
}

impl ReusableExtents<'_> {
    /// The parts of `src` that need no encoding: those of the base image, the holes that do not
    /// overlap them, and the parts from the index that overlap none of both.
    fn matches(&self, src: &[u8], method: usize) -> Result<Vec<Match>> {
        let found = self.index.map_or(Ok(Vec::new()), |index| index.find(src, self.job, method))?;
        let mut all = self.base_matches.to_vec();
        for more in [self.holes, &found] {
            let before = all.clone();
            all.extend(more.iter().filter(|found| {
                let next = before.partition_point(|other| other.start + other.len <= found.start);
                before.get(next).is_none_or(|other| found.start + found.len <= other.start)
            }));
            all.sort_unstable_by_key(|found| found.start);
        }
        Ok(all)
    }
}

/// The buffers to which encoded bytes are appended.
pub(crate) struct Sink<'a> {
    /// The bytes of the extents.
    pub extents: &'a mut Vec<u8>,
    /// The bytes of the tail: see [`EncodedTail`].
    pub tails: &'a mut Vec<u8>,
}

/// One worker's compressors.
pub(crate) struct Encoder<'a> {
    compression: &'a Compression,
    block: BlockSize,
    timings: &'a Timings,
    /// By method; created for the first file that uses it.
    compressors: Vec<Option<Box<dyn Compressor>>>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(
        compression: &'a Compression,
        block: BlockSize,
        timings: &'a Timings,
    ) -> Self {
        let compressors = compression.methods.iter().map(|_| None).collect();
        Self { compression, block, timings, compressors }
    }

    /// Encodes `src`, except for the parts that are `reusable`. Returns `None` when the result
    /// takes more than `budget` bytes; what was appended to `sink` is then of no use.
    pub(crate) fn encode(
        &mut self,
        src: &[u8],
        file_compression: FileCompression,
        following: Following,
        reusable: Option<ReusableExtents<'_>>,
        budget: u64,
        sink: Sink<'_>,
    ) -> Result<Option<Encoded>> {
        let compressor = match self.compressors.get_mut(file_compression.method) {
            Some(Some(compressor)) => compressor,
            slot => {
                let compressor =
                    self.compression.compressor(file_compression.method, self.block)?;
                // No file has a method that does not exist: `Compression::check` refused it.
                let Some(slot) = slot else { return Ok(None) };
                slot.insert(compressor)
            }
        };
        let call = EncodeCall {
            compression: self.compression,
            block: self.block.bytes(),
            compressor: compressor.as_mut(),
            src,
            file_compression,
            following,
            budget,
            sink,
            log: ExtentLog::new(self.block.bytes64()),
            fingerprints: reusable.and_then(|reusable| reusable.index).map(|_| Vec::new()),
            pos: 0,
            mark: None,
        };
        let matches = reusable.map_or(Ok(Vec::new()), |reusable| {
            self.timings
                .time(Activity::Find, src.len(), || reusable.matches(src, file_compression.method))
        })?;
        self.timings.time(Activity::Encode, src.len(), || call.encode_all(&matches))
    }
}

/// One call of [`Encoder::encode`].
struct EncodeCall<'a, 'b> {
    compression: &'a Compression,
    block: usize,
    compressor: &'b mut dyn Compressor,
    src: &'b [u8],
    file_compression: FileCompression,
    following: Following,
    budget: u64,
    sink: Sink<'b>,
    log: ExtentLog,
    /// With deduplication.
    fingerprints: Option<Vec<Option<ExtentFingerprint>>>,
    /// How many bytes of `src` are encoded.
    pos: usize,
    /// The last state before extents that depend on where the range ends that is being encoded.
    mark: Option<CallMark>,
}

/// A state of an [`EncodeCall`].
struct CallMark {
    log: Mark,
    extents: usize,
    fingerprints: usize,
    pos: usize,
}

/// How encoding a range ended.
enum RangeEnd {
    /// Extents hold all of it.
    Encoded,
    /// Extents hold all of it except for the tail.
    Tail(EncodedTail),
    /// No extent can end where the range ends.
    CannotEndHere,
    /// It takes more bytes than the budget.
    OverBudget,
}

impl EncodeCall<'_, '_> {
    fn encode_all(mut self, matches: &[Match]) -> Result<Option<Encoded>> {
        // The end of the last match that no extent could end at, if it is of stored bytes: those
        // that follow it start at the same offset in a block, and cannot be used either.
        let mut unusable = None;
        for found in matches {
            let is_stored = !found.stored.encoded && !found.is_hole();
            if is_stored && unusable == Some(found.start) {
                unusable = Some(found.start + found.len);
                continue;
            }
            let mut found = *found;
            loop {
                match self.encode_before_match(&found)? {
                    RangeEnd::OverBudget => return Ok(None),
                    // With more zeroes, the extent before the hole may be long enough.
                    RangeEnd::CannotEndHere
                        if found.is_hole() && found.len > HOLE_MIN / 2 + self.block =>
                    {
                        found.start += self.block;
                        found.len -= self.block;
                        continue;
                    }
                    RangeEnd::CannotEndHere => {
                        unusable = is_stored.then_some(found.start + found.len)
                    }
                    RangeEnd::Encoded | RangeEnd::Tail(_) => self.push_match(&found),
                }
                break;
            }
        }
        match self.encode_range(self.src.len())? {
            RangeEnd::OverBudget | RangeEnd::CannotEndHere => Ok(None),
            RangeEnd::Encoded => Ok(Some(self.finish(EncodedTail::None))),
            RangeEnd::Tail(tail) => Ok(Some(self.finish(tail))),
        }
    }

    /// Encodes the bytes before a match, so that an extent can start there.
    fn encode_before_match(&mut self, found: &Match) -> Result<RangeEnd> {
        let Match { start, len, .. } = *found;
        let in_blocks = self.compression.index.in_blocks();
        let gap = start - self.pos;
        // An index cannot describe two extents that start in the same lcluster. A hole starts with
        // an lcluster.
        let least = if found.is_hole() { self.block } else { 2 * self.block };
        if in_blocks && (gap > 0 && gap < least || len < self.block && start + len < self.src.len())
        {
            return Ok(RangeEnd::CannotEndHere);
        }
        let before = self.mark();
        self.mark = None;
        let end = self.encode_range(start)?;
        if matches!(end, RangeEnd::CannotEndHere) {
            // Results that do not depend on the end of the range are kept, so that nothing is
            // encoded again for each match.
            let mark = self.mark.take().unwrap_or(before);
            self.log.roll_back(mark.log);
            self.sink.extents.truncate(mark.extents);
            self.pos = mark.pos;
            self.fingerprints.iter_mut().for_each(|all| all.truncate(mark.fingerprints));
        }
        Ok(end)
    }

    fn mark(&self) -> CallMark {
        CallMark {
            log: self.log.mark(),
            extents: self.sink.extents.len(),
            fingerprints: self.fingerprints.as_ref().map_or(0, Vec::len),
            pos: self.pos,
        }
    }

    fn push_match(&mut self, found: &Match) {
        let Match { len, stored, same_offset, .. } = *found;
        self.pos += len;
        if found.is_hole() {
            self.fingerprints.iter_mut().for_each(|all| all.push(None));
            self.log.push(Extent::hole(len as u64));
            return;
        }
        let place = ExtentPlace::Shared { at: stored.at, partial: stored.partial };
        let extent = Extent { len: len as u64, encoded: stored.encoded, size: stored.size, place };
        if same_offset { self.log.push_without_dedupe(extent) } else { self.log.push(extent) }
    }

    /// Encodes up to `end`: the start of a match, or the end of `src`.
    fn encode_range(&mut self, end: usize) -> Result<RangeEnd> {
        self.compressor.begin();
        match self.compression.index.in_blocks() {
            true => self.in_blocks(end),
            false => self.in_slices(end),
        }
    }

    /// Fills pclusters of whole blocks.
    fn in_blocks(&mut self, end: usize) -> Result<RangeEnd> {
        let followed = end < self.src.len();
        while self.pos < end {
            if !followed && let Some(tail) = self.tail_without_encoding() {
                return Ok(RangeEnd::Tail(tail));
            }
            let (rest, start) = (end - self.pos, self.sink.extents.len());
            // A file of at most one block can save space, too, but only by an inline tail, which is
            // smaller than a block.
            let is_over = self.log.size() + self.block as u64 > self.budget;
            if is_over && self.src.len() > self.block {
                return Ok(RangeEnd::OverBudget);
            }
            if followed && rest > 2 * self.file_compression.pcluster {
                self.mark = Some(self.mark());
            }
            if rest <= self.block {
                if !followed && let Some(tail) = self.inline_rest()? {
                    return Ok(RangeEnd::Tail(tail));
                }
                if is_over {
                    return Ok(RangeEnd::OverBudget);
                }
                if followed && rest < self.block {
                    return Ok(RangeEnd::CannotEndHere);
                }
                // One block stays one block: encoding would save nothing.
                self.store(rest);
                continue;
            }
            // The encoded extent must be at least one block smaller than its content. Otherwise it
            // saves nothing, and it could have too few lclusters for its number of blocks.
            let capacity = self.file_compression.pcluster.min((rest - 1) / self.block * self.block);
            let mut fit = self.fit(capacity, end)?;
            // The rest before a match must be long enough for an extent.
            if followed && fit.is_some_and(|(consumed, _)| too_short(rest - consumed, self.block)) {
                self.compressor.begin();
                self.sink.extents.truncate(start);
                fit = self.fit(capacity, end - self.block)?;
            }
            match fit {
                Some((consumed, produced)) => {
                    let is_last = consumed == rest && !followed;
                    if is_last && let Some(tail) = self.tail_after_encoding(produced) {
                        return Ok(RangeEnd::Tail(tail));
                    }
                    let size = produced.next_multiple_of(self.block);
                    self.sink.extents.truncate(start + size);
                    right_align(&mut self.sink.extents[start..], produced);
                    self.push(consumed, true, size);
                }
                None => {
                    self.sink.extents.truncate(start);
                    let short = followed && too_short(rest - capacity, self.block);
                    let capacity = if short { capacity - self.block } else { capacity };
                    if capacity == 0 {
                        return Ok(RangeEnd::CannotEndHere);
                    }
                    self.store(capacity);
                }
            }
        }
        Ok(RangeEnd::Encoded)
    }

    /// Fills pclusters, and places each one to the byte. What does not get shorter is stored in
    /// slices.
    fn in_slices(&mut self, end: usize) -> Result<RangeEnd> {
        let most = self.file_compression.pcluster.min(PLACED_MAX - self.block);
        let method = self.compression.methods.get(self.file_compression.method);
        // Such an extent may have to be stored after all: see `deflate_pages`.
        let needs_place = method.is_some_and(|method| codec(method.algorithm).needs_place);
        let longest = if needs_place { SLICE_MAX } else { usize::MAX - self.src.len() };
        while self.pos < end {
            if self.log.size() > self.budget {
                return Ok(RangeEnd::OverBudget);
            }
            if end == self.src.len()
                && let Some(tail) = self.tail_without_encoding()
            {
                return Ok(RangeEnd::Tail(tail));
            }
            let (rest, start) = (end - self.pos, self.sink.extents.len());
            // Compressors need some capacity even for a few bytes.
            let (consumed, fit) =
                self.fit_bytes(most.min(rest.max(64)), end.min(self.pos + longest))?;
            self.sink.extents.truncate(start + fit);
            if consumed > 0 {
                if consumed == rest && end == self.src.len() && self.better_as_fragment(most, fit) {
                    self.sink.extents.truncate(start);
                    return Ok(RangeEnd::Tail(self.fragment(rest)));
                }
                self.push(consumed, true, fit);
                continue;
            }
            self.store_slice(most.min(SLICE_MAX).min(rest));
            // The rest of the random bytes would take room in the pcluster of the bytes that
            // follow.
            let random_end = self.pos + random_before_others(&self.src[self.pos..end]);
            while self.pos < random_end {
                self.store_slice(most.min(SLICE_MAX).min(random_end - self.pos));
            }
        }
        Ok(RangeEnd::Encoded)
    }

    /// Stores the next `len` bytes in one extent.
    fn store_slice(&mut self, len: usize) {
        self.sink.extents.extend_from_slice(&self.src[self.pos..self.pos + len]);
        self.push(len, false, len);
    }

    /// Encodes as much as fits into `capacity` bytes, but nothing after `end`, and appends it to
    /// the sink's extents. Returns the bytes consumed and produced.
    fn fit(&mut self, capacity: usize, end: usize) -> Result<Option<(usize, usize)>> {
        let (consumed, produced) = self.fit_bytes(capacity, end)?;
        Ok((consumed > produced.next_multiple_of(self.block)).then_some((consumed, produced)))
    }

    /// The same, for a result that is placed to the byte. Both are 0 if encoding does not make the
    /// content shorter.
    fn fit_bytes(&mut self, capacity: usize, end: usize) -> Result<(usize, usize)> {
        let start = self.sink.extents.len();
        self.sink.extents.resize(start + capacity, 0);
        let end = self.compression.max_extent.map_or(end, |most| end.min(self.pos + most as usize));
        let out = &mut self.sink.extents[start..];
        Ok(match self.compressor.fit(&self.src[..end], self.pos, out)? {
            Fit::Encoded { consumed, produced, .. } => (consumed, produced),
            Fit::Incompressible => (0, 0),
        })
    }

    /// Stores the next `len` bytes in extents of one block each.
    fn store(&mut self, len: usize) {
        for bytes in self.src[self.pos..self.pos + len].chunks(self.block) {
            let end = self.sink.extents.len() + self.block;
            self.sink.extents.extend_from_slice(bytes);
            self.sink.extents.resize(end, 0);
            self.push(bytes.len(), false, self.block);
        }
    }

    fn push(&mut self, len: usize, encoded: bool, size: usize) {
        if let Some(fingerprints) = &mut self.fingerprints {
            fingerprints.push(ExtentFingerprint::of(&self.src[self.pos..self.pos + len]));
        }
        self.pos += len;
        self.log.push(Extent {
            len: len as u64,
            encoded,
            size: size as u64,
            place: ExtentPlace::Next,
        });
    }

    /// Makes the rest a fragment if it cannot fill a pcluster even unencoded.
    fn tail_without_encoding(&mut self) -> Option<EncodedTail> {
        let rest = self.src.len() - self.pos;
        (self.has_fragments() && rest < self.file_compression.pcluster).then(|| self.fragment(rest))
    }

    /// Whether the rest of the file, which was encoded to `produced` of at most `most` bytes, takes
    /// less space as a fragment: there it is encoded together with other content. A file with an
    /// algorithm of its own keeps it.
    fn better_as_fragment(&self, most: usize, produced: usize) -> bool {
        let same_method = self.file_compression.method == PACKED_INODE_METHOD;
        self.has_fragments() && same_method && most - produced >= self.block / FRAGMENT_FRACTION
    }

    /// The rest was encoded to `produced` bytes: makes it a fragment or an inline tail if that
    /// saves space.
    fn tail_after_encoding(&mut self, produced: usize) -> Option<EncodedTail> {
        let start = self.sink.extents.len() - self.last_capacity();
        if self.better_as_fragment(self.file_compression.pcluster, produced) {
            self.sink.extents.truncate(start);
            return Some(self.fragment(self.src.len() - self.pos));
        }
        if !self.fits_inline(produced) {
            return None;
        }
        self.sink.tails.extend_from_slice(&self.sink.extents[start..start + produced]);
        self.sink.extents.truncate(start);
        Some(EncodedTail::Inline { bytes: produced, encoded: true })
    }

    /// The capacity of the last call of [`Self::fit`].
    fn last_capacity(&self) -> usize {
        let rest = self.src.len() - self.pos;
        self.file_compression.pcluster.min((rest - 1) / self.block * self.block)
    }

    /// Makes the rest, at most one block, an inline tail if it fits after the index.
    fn inline_rest(&mut self) -> Result<Option<EncodedTail>> {
        let rest = self.src.len() - self.pos;
        if !self.compression.inline_tails || self.following == Following::MoreData {
            return Ok(None);
        }
        let start = self.sink.tails.len();
        self.sink.tails.resize(start + self.block, 0);
        let out = &mut self.sink.tails[start..];
        let fit = self.compressor.fit(self.src, self.pos, out)?;
        if let Fit::Encoded { consumed, produced, .. } = fit
            && consumed == rest
            && self.fits_inline(produced)
        {
            self.sink.tails.truncate(start + produced);
            return Ok(Some(EncodedTail::Inline { bytes: produced, encoded: true }));
        }
        self.sink.tails.truncate(start);
        if !self.fits_inline(rest) {
            return Ok(None);
        }
        self.sink.tails.extend_from_slice(&self.src[self.pos..]);
        Ok(Some(EncodedTail::Inline { bytes: rest, encoded: false }))
    }

    fn fits_inline(&self, bytes: usize) -> bool {
        let Following::EndOfFile { inline_capacity } = self.following else { return false };
        self.compression.inline_tails && bytes <= inline_capacity.min(self.block - 1)
    }

    fn has_fragments(&self) -> bool {
        self.following != Following::MoreData && self.compression.fragments != Fragments::None
    }

    fn fragment(&mut self, bytes: usize) -> EncodedTail {
        self.sink.tails.extend_from_slice(&self.src[self.src.len() - bytes..]);
        EncodedTail::Fragment { bytes }
    }

    fn finish(self, tail: EncodedTail) -> Encoded {
        Encoded { log: self.log, fingerprints: self.fingerprints.unwrap_or_default(), tail }
    }
}

/// Whether an extent of `len` bytes is too short to be followed by another one: two extents cannot
/// start in one lcluster.
const fn too_short(len: usize, block: usize) -> bool {
    len > 0 && len < block
}

#[cfg(test)]
mod tests;
