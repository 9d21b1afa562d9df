//! The extents of a compressed file, until the file is complete and its [`index`] is encoded. A
//! large file has millions of them, so that the log takes only about two bytes for each.

pub(crate) mod index;
#[cfg(test)]
mod tests;

use ferofs_format::BytePos;

/// One extent of a file. It starts where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes that it decodes to: at least 1.
    pub len: u64,
    /// Encoded, or stored uncompressed.
    pub encoded: bool,
    /// Bytes in the image, 0 for a hole: whole blocks, unless the index is
    /// [`Extents`](crate::IndexKind::Extents), which places them to the byte.
    pub size: u64,
    pub place: ExtentPlace,
}

impl Extent {
    /// Zeroes that are not stored.
    pub(crate) const fn hole(len: u64) -> Self {
        Self { len, encoded: false, size: 0, place: ExtentPlace::Next }
    }

    pub(crate) const fn is_hole(&self) -> bool {
        self.size == 0
    }
}

/// Where an extent's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentPlace {
    /// Directly after the previous extent of the file that has this place.
    Next,
    /// At the place of an extent that was stored before.
    Shared {
        at: BytePos,
        /// The stored bytes decode to more than this extent.
        partial: bool,
    },
}

/// Extents in the order of the file, as variable-length integers.
#[derive(Clone, Debug)]
pub(crate) struct ExtentLog {
    bytes: Vec<u8>,
    /// The usual size of an extent, which the log does not write.
    unit: u64,
    count: u64,
    /// Decoded bytes of all extents.
    len: u64,
    /// Bytes in the image of the extents with [`ExtentPlace::Next`].
    size: u64,
    /// Bytes in the image of all extents.
    size_with_shared: u64,
    /// No extent is encoded, shared or a hole.
    flat: bool,
    shares: bool,
    has_holes: bool,
    /// If the last extent is a hole: where it is in `bytes`, and its length.
    last_hole: Option<(usize, u64)>,
    /// Some extent needs the image's `DEDUPE` feature.
    deduplicates: bool,
}

/// A state of an [`ExtentLog`].
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Everything but the bytes.
    log: ExtentLog,
    bytes: usize,
}

const ENCODED: u64 = 1;
const SHARED: u64 = 2;
const PARTIAL: u64 = 4;
const SIZED: u64 = 8;

/// The most bytes of a hole; a longer one is divided. Linux 6.15 to 6.17 reads ahead up to the end
/// of an extent when one of its pages is read: with this limit, that takes about a second. Source:
/// FORMAT.md 6.7.
pub(crate) const HOLE_MAX: u64 = 1 << 30;

impl ExtentLog {
    /// The state that [`Self::roll_back`] can go back to.
    pub(crate) fn mark(&self) -> Mark {
        Mark { log: Self { bytes: Vec::new(), ..*self }, bytes: self.bytes.len() }
    }

    /// Removes all extents after `mark`, which is of this log.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(mark.bytes);
        *self = Self { bytes, ..mark.log };
    }

    /// An empty log of extents that usually take `unit` bytes.
    pub(crate) const fn new(unit: u64) -> Self {
        Self {
            bytes: Vec::new(),
            unit,
            count: 0,
            len: 0,
            size: 0,
            size_with_shared: 0,
            flat: true,
            shares: false,
            has_holes: false,
            last_hole: None,
            deduplicates: false,
        }
    }

    pub(crate) fn push(&mut self, extent: Extent) {
        self.deduplicates |= extent.place != ExtentPlace::Next;
        self.push_without_dedupe(extent);
    }

    /// Needs `DEDUPE` if `other` does: call it for a copy of `other` that is made with
    /// [`Self::push_without_dedupe`].
    pub(crate) const fn inherit_dedupe(&mut self, other: &Self) {
        self.deduplicates |= other.deduplicates;
    }

    /// Adds an extent that does not need the `DEDUPE` feature even if it is shared: a patch keeps
    /// it at the offset of the file where it was before, which kernels without this feature can
    /// read.
    pub(crate) fn push_without_dedupe(&mut self, mut extent: Extent) {
        if extent.is_hole() {
            // A hole continues the one before it.
            if let Some((at, before)) = self.last_hole {
                self.bytes.truncate(at);
                self.count -= 1;
                self.len -= before;
                extent.len += before;
            }
            while extent.len > HOLE_MAX {
                self.add(Extent::hole(HOLE_MAX));
                extent.len -= HOLE_MAX;
            }
            self.last_hole = Some((self.bytes.len(), extent.len));
            self.has_holes = true;
        } else {
            self.last_hole = None;
        }
        self.add(extent);
    }

    fn add(&mut self, extent: Extent) {
        let Extent { len, encoded, size, place } = extent;
        let mut flags = if encoded { ENCODED } else { 0 };
        if size != self.unit {
            flags |= SIZED;
        }
        match place {
            ExtentPlace::Next => self.size += size,
            ExtentPlace::Shared { partial, .. } => {
                flags |= SHARED | if partial { PARTIAL } else { 0 };
                self.shares = true;
            }
        }
        self.number((len << 4) | flags);
        if size != self.unit {
            self.number(size);
        }
        if let ExtentPlace::Shared { at, .. } = place {
            self.number(at.get());
        }
        self.count += 1;
        self.len += len;
        self.size_with_shared += size;
        self.flat &= !encoded && place == ExtentPlace::Next && !extent.is_hole();
    }

    /// Adds the extents of the next part of the file.
    pub(crate) fn extend(&mut self, other: &Self) {
        debug_assert_eq!(self.unit, other.unit);
        if other.has_holes {
            other.iter().for_each(|extent| self.push_without_dedupe(extent));
            self.inherit_dedupe(other);
            return;
        }
        if other.count > 0 {
            self.last_hole = None;
        }
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.len += other.len;
        self.size += other.size;
        self.size_with_shared += other.size_with_shared;
        self.flat &= other.flat;
        self.shares |= other.shares;
        self.deduplicates |= other.deduplicates;
    }

    fn number(&mut self, mut rest: u64) {
        while rest > 0x7f {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// The usual size of an extent.
    pub(crate) const fn unit(&self) -> u64 {
        self.unit
    }

    /// Number of extents.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Decoded bytes of all extents.
    pub(crate) const fn decoded_len(&self) -> u64 {
        self.len
    }

    /// Bytes in the image of the extents that are not shared.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in the image of all extents.
    pub(crate) const fn size_with_shared(&self) -> u64 {
        self.size_with_shared
    }

    /// Whether the image holds the content uncompressed, in one piece.
    pub(crate) const fn is_flat(&self) -> bool {
        self.flat
    }

    /// Whether the image needs the `DEDUPE` feature.
    pub(crate) const fn deduplicates(&self) -> bool {
        self.deduplicates
    }

    /// Whether any extent is a hole.
    pub(crate) const fn has_holes(&self) -> bool {
        self.has_holes
    }

    /// Whether any extent is shared.
    pub(crate) const fn shares(&self) -> bool {
        self.shares
    }

    /// The extents, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        let mut bytes = self.bytes.iter();
        let mut number = move || {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some(value);
                }
            }
        };
        let unit = self.unit;
        std::iter::from_fn(move || {
            let head = number()?;
            let size = if head & SIZED != 0 { number()? } else { unit };
            let place = if head & SHARED != 0 {
                ExtentPlace::Shared { at: BytePos::new(number()?), partial: head & PARTIAL != 0 }
            } else {
                ExtentPlace::Next
            };
            Some(Extent { len: head >> 4, encoded: head & ENCODED != 0, size, place })
        })
    }

    /// The extents with their positions, when the first one with [`ExtentPlace::Next`] is at
    /// `first`.
    pub(crate) fn placed(&self, first: BytePos) -> impl Iterator<Item = (BytePos, Extent)> {
        let mut next = first.get();
        self.iter().map(move |extent| match extent.place {
            ExtentPlace::Shared { at, .. } => (at, extent),
            ExtentPlace::Next => {
                let at = BytePos::new(next);
                next += extent.size;
                (at, extent)
            }
        })
    }
}
