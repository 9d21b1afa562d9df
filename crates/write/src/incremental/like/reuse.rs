//! Decides which bytes of an earlier image stay in the new one: those of files that have the same
//! content in both, of extents at the same offset of changed files, and of the packed inode, whose
//! fragments other files use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use ferofs_format::{BytePos, Incompat, Nid};
use ferofs_read::Image;

use crate::data::encode::SEGMENT;
use crate::data::encode::dedupe::Match;
use crate::data::stored::{BaseImage, EarlierContent, EarlierInodes, StoredContent, StoredData};
use crate::data::worker::context::WorkerContext;
use crate::data::zeroes::encode_zeroes;
use crate::error::{Error, Result};
use crate::incremental::create::content::extents::{OldExtents, copy};
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::incremental::like::packed::EarlierPacked;
use crate::incremental::like::places::{Places, earlier_inodes, has, joined};
use crate::options::compression::PACKED_INODE_METHOD;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId};
use ferofs_host::stat::Ranges;

/// Unless the waste is 0, this many bytes may be unused, but at most [`SMALL_PART`]: the chunk that
/// an updater fetches for any change. In a small image, one changed file leaves more unused than
/// some percent, and nothing would stay.
const WASTE_MIN: u64 = 64 << 10;
/// The part of a small image that may be unused: its divisor.
const SMALL_PART: u64 = 5;

/// The bytes that may be unused beside `used` bytes, with a waste of `percent`.
pub(super) fn waste_max(used: u64, percent: u64) -> u64 {
    let least = if percent == 0 { 0 } else { WASTE_MIN.min(used / SMALL_PART) };
    (used.saturating_mul(percent) / 100).max(least)
}

/// The bytes that stay, for the data stage.
pub(super) struct Reuse<'a> {
    extents: OldExtents<'a>,
    /// The content that stays as it is, by node.
    placed: Vec<StoredContent>,
    /// The bytes of the earlier image that stay: sorted, and not adjacent.
    used: Ranges,
    /// The bytes of the earlier image that can stay.
    range: Range<u64>,
    packed: Option<EarlierPacked>,
    /// What new fragments follow, when the bytes that stay are copied.
    packed_content: Option<EarlierContent>,
    /// Bytes that may be unused, without those of fragments: two thirds of the waste. Metadata, and
    /// pclusters that end early because nothing follows them in the earlier image, take the rest.
    allowed: u64,
    /// Bytes of the extents of changed files.
    found: u64,
    /// Bytes of the content that does not stay, before its encoding.
    new: u64,
    inodes: Option<EarlierInodes>,
}

impl<'a> Reuse<'a> {
    /// Decides what stays of the bytes `range` of `old`, in an image whose data starts where it
    /// starts and may have `waste` percent of unused bytes. `None` if nothing stays.
    pub(super) fn plan(
        old: &'a Image,
        context: WorkerContext<'a>,
        decisions: &ReuseDecisions,
        range: Range<u64>,
        waste: u64,
        spill: &mut Spill,
    ) -> Result<Option<Self>> {
        let tree = context.tree;
        let mut packed = EarlierPacked::read(old, context, &range, spill)?;
        let mut files = Files::find(old, context, decisions, &range, packed.is_some(), spill)?;
        if let Some(earlier) = &mut packed
            && !files.choose_fragments(earlier, context, waste)
        {
            packed = None;
        }
        let (mut used, _) = files.used();
        used.extend(packed.iter().flat_map(EarlierPacked::stored));
        let open: Vec<NodeId> =
            files.ids.iter().filter(|id| !files.has_content(**id)).copied().collect();
        let mut reuse = Self {
            extents: OldExtents {
                old,
                placed: tree.ids().map(|id| files.has_content(id)).collect(),
                from: files.from,
                compression: context.compression.filter(|_| has(old, Incompat::LZ4_0PADDING)),
                sizes: tree.nodes.iter().map(|node| node.size).collect(),
                packed: None,
            },
            placed: files.placed,
            used: Ranges::new(),
            range,
            packed,
            packed_content: None,
            allowed: 0,
            found: 0,
            new: open.iter().map(|id| tree.node(*id).size).sum(),
            inodes: earlier_inodes(old, tree, decisions, waste)?,
        };
        let found = joined(reuse.extents_of_changed(context, &open)?);
        reuse.found = len(&found);
        used.extend(found);
        reuse.used = joined(used);
        let bytes = len(&reuse.used);
        let allowed = waste_max(bytes, waste) / 3 * 2;
        reuse.allowed = allowed.saturating_sub(reuse.unused_fragments());
        Ok((bytes > 0).then_some(reuse))
    }

    /// Unused bytes beyond those that may be unused, even if all new content were incompressible.
    pub(super) fn excess(&self) -> u64 {
        len(&self.free()).saturating_sub(self.allowed.saturating_add(self.new))
    }

    /// Bytes that nothing uses after the data stage: fragments, and extents of changed files that
    /// do not fit between their new ones.
    pub(super) fn unused(&self, data: &StoredData) -> u64 {
        self.unused_fragments() + self.found.saturating_sub(data.bytes_found)
    }

    /// The bytes of the extents that the data stage will find in the earlier versions of changed
    /// files.
    fn extents_of_changed(&self, context: WorkerContext<'_>, open: &[NodeId]) -> Result<Ranges> {
        let reader = || (Reader::new(context.contents, context.tree), Vec::new());
        let found =
            context.options.run.parallel(open.len(), reader, |(reader, buffer), number| {
                let id = open[number];
                let size = context.tree.node(id).size;
                let mut found = Ranges::new();
                let Some((_, file)) = context.file_compression(id) else {
                    return Ok::<_, Error>(found);
                };
                let whole = (0, size);
                let parts = match size {
                    0..=SEGMENT => vec![whole],
                    _ => self.split_ranges(id).unwrap_or_else(|| vec![whole]),
                };
                for (mut at, end) in parts {
                    while at < end {
                        let len = (end - at).min(context.segment().max(SEGMENT));
                        buffer.resize(len as usize, 0);
                        reader.read(id, at, buffer)?;
                        let matches = self.extents.find_extents(id, at, buffer, file.method)?;
                        found.extend(
                            matches.iter().filter_map(range_of).filter(|(at, end)| {
                                self.range.start <= *at && *end <= self.range.end
                            }),
                        );
                        at += len;
                    }
                }
                Ok(found)
            })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Bytes of the files whose content stays.
    pub(super) fn content_len(&self) -> u64 {
        let sizes = self.extents.sizes.iter().zip(&self.extents.placed);
        sizes.filter(|(_, placed)| **placed).map(|(size, _)| *size).sum()
    }

    /// The end of the last bytes that stay.
    pub(super) fn end(&self) -> u64 {
        self.used.last().map_or(self.range.start, |(_, end)| *end)
    }

    /// The ranges before the end that nothing uses.
    pub(super) fn free(&self) -> Ranges {
        let starts = std::iter::once(self.range.start).chain(self.used.iter().map(|(_, end)| *end));
        let ends = self.used.iter().map(|(start, _)| *start);
        starts.zip(ends).filter(|(start, end)| start < end).collect()
    }

    /// Bytes that may be unused, without those of fragments.
    pub(super) const fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Encoded bytes of fragments that no file uses.
    pub(super) fn unused_fragments(&self) -> u64 {
        self.packed.as_ref().map_or(0, |packed| packed.unused)
    }

    /// Appends what the packed inode refers to beside the bytes that stay.
    pub(super) fn append_zeroes(
        &mut self,
        context: WorkerContext<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let Some(packed) = &self.packed else { return Ok(()) };
        let block = context.block_size;
        let mut zeroes = (BytePos::new(0), 0);
        if let Some(compression) = context.compression.filter(|_| packed.has_dropped()) {
            let (bytes, len) = encode_zeroes(compression, PACKED_INODE_METHOD, block)?;
            output.pad_to(output.position().next_multiple_of(block.bytes64()))?;
            zeroes = (BytePos::new(output.position()), len);
            output.append(&bytes)?;
        }
        self.packed_content = Some(packed.content(zeroes, block));
        Ok(())
    }

    /// Adds the content that stays to the result of the data stage. Metadata may have `unused_left`
    /// unused bytes.
    pub(super) fn complete(&mut self, data: &mut StoredData, unused_left: u64) {
        for (content, placed) in data.contents.iter_mut().zip(&self.placed) {
            if !matches!(placed, StoredContent::None) {
                *content = *placed;
            }
        }
        data.bytes_kept = len(&self.used);
        data.files_kept = self.extents.placed.iter().filter(|placed| **placed).count() as u64;
        data.earlier_inodes =
            self.inodes.take().map(|inodes| EarlierInodes { unused_left, ..inodes });
        if data.packed.is_none() {
            data.packed = self.packed.take().map(|packed| packed.unchanged);
        }
        let features = Incompat::LZ4_0PADDING
            | Incompat::CHUNKED_FILE
            | Incompat::ZTAILPACKING
            | Incompat::FRAGMENTS
            | Incompat::DEDUPE;
        data.features |= self.extents.old.superblock().incompat & features;
    }
}

impl BaseImage for Reuse<'_> {
    fn has_content(&self, node: NodeId) -> bool {
        self.extents.has_content(node)
    }

    fn find_extents(
        &self,
        node: NodeId,
        offset: u64,
        src: &[u8],
        method: usize,
    ) -> Result<Vec<Match>> {
        let mut matches = self.extents.find_extents(node, offset, src, method)?;
        let is_used = |(start, end): (u64, u64)| {
            let next = self.used.partition_point(|used| used.1 <= start);
            self.used.get(next).is_some_and(|used| used.0 <= start && end <= used.1)
        };
        // The bytes of all others may be those of other content now.
        matches.retain(|found| range_of(found).is_some_and(is_used));
        Ok(matches)
    }

    fn split_ranges(&self, node: NodeId) -> Option<Ranges> {
        // In an index by lclusters no two extents can start in one, so that parts start with one,
        // as those of the earlier image do.
        let in_blocks =
            self.extents.compression.is_some_and(|compression| compression.index.in_blocks());
        if in_blocks { None } else { self.extents.split_ranges(node) }
    }

    fn packed(&self) -> Option<&EarlierContent> {
        self.packed_content.as_ref()
    }
}

/// The files of the new tree, and what the earlier image has of them.
struct Files {
    /// Those with content.
    ids: Vec<NodeId>,
    /// The content that stays as it is, by node.
    placed: Vec<StoredContent>,
    /// The inode with the same content or an earlier version of it, by node.
    from: Vec<Option<Nid>>,
    /// The content of these inodes that is the same; `None` if it cannot stay.
    places: HashMap<Nid, Option<Places>>,
}

impl Files {
    fn find(
        old: &Image,
        context: WorkerContext<'_>,
        decisions: &ReuseDecisions,
        range: &Range<u64>,
        with_fragments: bool,
        spill: &mut Spill,
    ) -> Result<Self> {
        let tree = context.tree;
        let has_data = |id: &NodeId| {
            let node = tree.node(*id);
            matches!(node.kind, Kind::Regular { .. }) && node.size > 0
        };
        let mut files = Self {
            ids: tree.ids().filter(has_data).collect(),
            placed: vec![StoredContent::None; tree.nodes.len()],
            from: vec![None; tree.nodes.len()],
            places: HashMap::new(),
        };
        for id in &files.ids {
            let (nid, is_same) = match decisions.by_node[id.index()] {
                ReuseDecision::KeepInode(nid) | ReuseDecision::SameContent(nid) => (nid, true),
                ReuseDecision::ChangedContent(nid) => (nid, false),
                ReuseDecision::New => continue,
            };
            files.from[id.index()] = Some(nid);
            if !is_same {
                continue;
            }
            let inode = old.inode(nid)?;
            let stays = match files.places.entry(nid) {
                Entry::Occupied(places) => places.get().is_some(),
                Entry::Vacant(none) => {
                    none.insert(Places::of(old, &inode, range, with_fragments)?).is_some()
                }
            };
            // The map of a file cannot always be copied. Then the data stage finds its extents one
            // by one.
            if stays && let Some(content) = copy(old, &inode, context.inode_sizes.len(*id), spill)?
            {
                files.placed[id.index()] = content;
            }
        }
        Ok(files)
    }

    fn has_content(&self, id: NodeId) -> bool {
        !matches!(self.placed[id.index()], StoredContent::None)
    }

    /// Where the earlier image has the same content.
    fn places(&self, id: NodeId) -> Option<&Places> {
        self.places.get(&self.from[id.index()]?)?.as_ref()
    }

    /// Decides which fragments stay, so that few bytes of the packed inode are unused. Returns
    /// whether any does.
    fn choose_fragments(
        &mut self,
        packed: &mut EarlierPacked,
        context: WorkerContext<'_>,
        waste: u64,
    ) -> bool {
        let block = context.block_size.bytes64();
        let in_blocks =
            context.compression.is_some_and(|compression| compression.index.in_blocks());
        loop {
            if in_blocks && self.ids.iter().any(|id| !self.has_content(*id)) {
                let end = packed.end_with_block(block);
                self.remove_fragments(&[(end, u64::MAX)]);
            }
            let (stored, fragments) = self.used();
            if fragments.is_empty() {
                return false;
            }
            // The other half is for files.
            let bytes =
                len(&joined(stored)) + packed.stored().map(|(start, end)| end - start).sum::<u64>();
            let limit = waste_max(bytes, waste) / 2;
            match packed.drop_unused(&joined(fragments), limit) {
                Some(dropped) => self.remove_fragments(&joined(dropped)),
                None => return true,
            }
        }
    }

    /// Content that has fragments in these ranges of the packed inode, which are sorted, does not
    /// stay.
    fn remove_fragments(&mut self, ranges: &[(u64, u64)]) {
        let overlaps = |(start, end): &(u64, u64)| {
            let next = ranges.partition_point(|(_, to)| to <= start);
            ranges.get(next).is_some_and(|(from, _)| from < end)
        };
        for number in 0..self.ids.len() {
            let id = self.ids[number];
            if self.places(id).is_some_and(|places| places.fragments.iter().any(overlaps)) {
                self.placed[id.index()] = StoredContent::None;
            }
        }
    }

    /// The bytes of the earlier image that stay, and those of its packed inode.
    fn used(&self) -> (Ranges, Ranges) {
        let (mut stored, mut fragments) = (Ranges::new(), Ranges::new());
        for places in
            self.ids.iter().filter(|id| self.has_content(**id)).filter_map(|id| self.places(*id))
        {
            stored.extend_from_slice(&places.stored);
            fragments.extend_from_slice(&places.fragments);
        }
        (stored, fragments)
    }
}

/// The bytes of ranges.
fn len(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// The bytes of the image that `found` refers to, if it is not a hole.
fn range_of(found: &Match) -> Option<(u64, u64)> {
    let at = found.stored.at.get();
    (!found.is_hole()).then(|| (at, at.saturating_add(found.stored.size)))
}
