//! The packed inode of an earlier image, which new fragments follow.

use std::cmp::Reverse;
use std::ops::Range;

use ferofs_format::{BlockSize, BytePos, FileOffset, Incompat};
use ferofs_read::Image;

use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::data::stored::{EarlierContent, PackedInode};
use crate::data::worker::context::WorkerContext;
use crate::error::Result;
use crate::incremental::create::content::extents::copy;
use crate::incremental::create::decide::growth::OldContent;
use crate::incremental::like::places::has;
use crate::output::spill::Spill;
use crate::tree::inode_sizes::PACKED_LEN;
use ferofs_host::stat::Ranges;

/// The packed inode of the earlier image.
pub(super) struct EarlierPacked {
    /// All of it, for an image without new fragments.
    pub(super) unchanged: PackedInode,
    /// Its extents, each with its place.
    extents: Vec<Extent>,
    /// Which of them do not stay: the new image has zeroes there.
    dropped: Vec<bool>,
    /// How many of them new fragments follow.
    count: usize,
    /// Encoded bytes of fragments that no file uses.
    pub(super) unused: u64,
}

impl EarlierPacked {
    /// The packed inode of `old`, if new fragments can follow it.
    pub(super) fn read(
        old: &Image,
        context: WorkerContext<'_>,
        range: &Range<u64>,
        spill: &mut Spill,
    ) -> Result<Option<Self>> {
        let (Some(nid), Some(compression)) = (old.superblock().packed, context.compression) else {
            return Ok(None);
        };
        let in_blocks = compression.index.in_blocks();
        let inode = old.inode(nid)?;
        let has_same_index = old.extents(&inode, FileOffset::new(0))?.are_records() != in_blocks;
        // In an index by blocks, a hole starts with a block of the content, and new fragments start
        // anywhere.
        if !has(old, Incompat::LZ4_0PADDING) || !has_same_index || in_blocks && compression.holes {
            return Ok(None);
        }
        let Some(OldContent { earlier, algorithm, .. }) = OldContent::of(old, nid, in_blocks)?
        else {
            return Ok(None);
        };
        let method = compression.methods.first().map(|method| method.algorithm);
        let extents: Vec<Extent> = earlier.log.iter().collect();
        let is_outside = |(at, end): (u64, u64)| at < range.start || end > range.end;
        if method != Some(algorithm) || extents.iter().filter_map(stored).any(is_outside) {
            return Ok(None);
        }
        let content = copy(old, &inode, PACKED_LEN, spill)?;
        let unchanged = content.map(|content| PackedInode { size: inode.size(), content });
        let (count, dropped) = (extents.len(), vec![false; extents.len()]);
        Ok(unchanged.map(|unchanged| Self { unchanged, extents, dropped, count, unused: 0 }))
    }

    /// Lets new content replace the last extents if they are so short that no other can follow
    /// them: in an index by blocks no two extents start in one. Returns where the content ends
    /// then.
    pub(super) fn end_with_block(&mut self, block: u64) -> u64 {
        let is_short = |extent: &Extent| extent.len < block;
        while self.extents[..self.count].last().is_some_and(is_short) {
            self.count -= 1;
        }
        self.extents[..self.count].iter().map(|extent| extent.len).sum()
    }

    /// Drops the extents of which most is unused, until at most `limit` encoded bytes of the others
    /// are. `fragments` are the used ranges, sorted. Returns the ranges of what was dropped; `None`
    /// if nothing was.
    pub(super) fn drop_unused(&mut self, fragments: &[(u64, u64)], limit: u64) -> Option<Ranges> {
        let mut unused: Vec<(u64, usize, (u64, u64))> = Vec::new();
        let mut start = 0;
        for (number, extent) in self.extents.iter().enumerate() {
            let end = start + extent.len;
            let first = fragments.partition_point(|(_, to)| *to <= start);
            let inside = fragments.iter().skip(first).take_while(|(from, _)| *from < end);
            let used: u64 = inside.map(|(from, to)| end.min(*to) - start.max(*from)).sum();
            // Zeroes instead of a dropped extent share one pcluster.
            let is_shared = matches!(extent.place, ExtentPlace::Shared { partial: true, .. });
            // Neither factor is larger than a pcluster that Linux reads.
            let bytes = extent.size * extent.len.saturating_sub(used) / extent.len.max(1);
            if bytes > 0 && !is_shared && !self.dropped[number] {
                unused.push((bytes, number, (start, end)));
            }
            start = end;
        }
        self.unused = unused.iter().map(|(bytes, ..)| bytes).sum();
        unused.sort_unstable_by_key(|(bytes, number, _)| (Reverse(*bytes), *number));
        let mut ranges = Ranges::new();
        for (bytes, number, range) in unused {
            if self.unused <= limit {
                break;
            }
            self.unused -= bytes;
            self.dropped[number] = true;
            ranges.push(range);
        }
        (!ranges.is_empty()).then_some(ranges)
    }

    /// Whether the new image has zeroes instead of an extent.
    pub(super) fn has_dropped(&self) -> bool {
        self.dropped.contains(&true)
    }

    /// The bytes of the extents that stay.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u64, u64)> {
        let extents = self.extents.iter().zip(&self.dropped).filter(|(_, dropped)| !**dropped);
        extents.filter_map(|(extent, _)| stored(extent))
    }

    /// What new fragments follow. `zeroes` is a pcluster of one block, and how many zeroes it
    /// decodes to.
    pub(super) fn content(&self, zeroes: (BytePos, u64), block: BlockSize) -> EarlierContent {
        let mut log = ExtentLog::new(block.bytes64());
        for (extent, dropped) in self.extents.iter().zip(&self.dropped).take(self.count) {
            if !dropped {
                log.push_without_dedupe(*extent);
                continue;
            }
            let ((at, most), mut rest) = (zeroes, extent.len);
            while rest > 0 {
                // Each part has at least a block.
                let len = if rest > most { most - block.bytes64() } else { rest };
                let place = ExtentPlace::Shared { at, partial: len < most };
                log.push(Extent { len, encoded: true, size: block.bytes64(), place });
                rest -= len;
            }
        }
        EarlierContent { size: log.decoded_len(), log, is_changed: self.has_dropped() }
    }
}

/// The bytes of the image that an extent has.
fn stored(extent: &Extent) -> Option<(u64, u64)> {
    match extent.place {
        ExtentPlace::Shared { at, .. } if !extent.is_hole() => {
            Some((at.get(), at.get().saturating_add(extent.size)))
        }
        ExtentPlace::Shared { .. } | ExtentPlace::Next => None,
    }
}
