//! Moves what was appended into free space of the image, which it has if it is built like an
//! earlier image: see [`FreeSpace`](crate::output::free_space::FreeSpace).

use ferofs_format::{BlockAddr, BytePos};

use crate::data::append::Appender;
use crate::data::extents::{Extent, ExtentLog, ExtentPlace};
use crate::error::Result;

impl Appender<'_> {
    /// Moves what was appended from `start` on into free space, if it fits there in one piece.
    /// Returns its address.
    pub(super) fn settle(&mut self, start: u64) -> Result<BlockAddr> {
        let block = self.context.block_size;
        // The index of extents has the places of what was appended.
        let to = match self.context.extent_index {
            None => self.output.move_to_free_space(start, block)?,
            Some(_) => start,
        };
        Ok(BytePos::new(to).block(block))
    }

    /// Moves the extents of `log` that were appended from `start` on into free space: all of them,
    /// or else the last ones, in several pieces. Returns the place of the first one that is not
    /// shared, and the new log.
    pub(super) fn settle_extents(
        &mut self,
        start: BytePos,
        log: ExtentLog,
        method: usize,
    ) -> Result<(BytePos, ExtentLog)> {
        if self.context.extent_index.is_some() || log.size() == 0 {
            return Ok((start, log));
        }
        let to = self.output.move_to_free_space(start.get(), self.context.block_size)?;
        // Linux decodes an extent by DEFLATE only at its place in a block.
        if to != start.get() || self.context.deflate_placer(method).is_some() {
            return Ok((BytePos::new(to), log));
        }
        let mut extents: Vec<Extent> = log.iter().collect();
        let (mut rest, mut is_moved) = (extents.len(), false);
        while let Some((at, room)) = self.output.longest_free() {
            let (mut first, mut len) = (rest, 0);
            while let Some(extent) = first.checked_sub(1).and_then(|last| extents.get(last)) {
                let size = if extent.place == ExtentPlace::Next { extent.size } else { 0 };
                if len + size > room {
                    break;
                }
                (first, len) = (first - 1, len + size);
            }
            if len == 0 {
                break;
            }
            self.output.move_end(len, at)?;
            let mut next = at;
            for extent in extents.iter_mut().take(rest).skip(first) {
                if extent.place == ExtentPlace::Next && !extent.is_hole() {
                    extent.place = ExtentPlace::Shared { at: BytePos::new(next), partial: false };
                    next += extent.size;
                }
            }
            (rest, is_moved) = (first, true);
        }
        if !is_moved {
            return Ok((start, log));
        }
        let mut moved = ExtentLog::new(log.unit());
        moved.inherit_dedupe(&log);
        extents.into_iter().for_each(|extent| moved.push_without_dedupe(extent));
        Ok((start, moved))
    }
}
