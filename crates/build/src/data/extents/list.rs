//! The extents of a file as the data stage hands them on: a few bytes each, since millions of them wait for
//! their file's last one.

use ferofs_format::BytePos;

/// One extent of a file. It starts where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes that it decodes to: at least 1.
    pub len: u64,
    /// Encoded, or stored as it is.
    pub encoded: bool,
    /// Bytes it takes in the image: whole blocks, unless extents are placed to the byte.
    pub size: u64,
    pub place: ExtentPlace,
}

/// Where an extent's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPlace {
    /// Right behind the file's extents before that are so placed.
    Next,
    /// Where another extent put them.
    Shared {
        at: BytePos,
        /// They decode to more than this extent.
        partial: bool,
    },
}

/// Extents in order, as variable-length integers: about two bytes for an extent of a block.
#[derive(Clone, Debug)]
pub struct ExtentLog {
    bytes: Vec<u8>,
    /// A size that need not be said.
    unit: u64,
    count: u64,
    /// Bytes that all extents decode to.
    len: u64,
    /// Bytes of the extents that follow each other.
    size: u64,
    /// Bytes of all extents.
    size_with_shared: u64,
    /// Every extent is stored, and takes as much as it decodes to, but for the last one.
    flat: bool,
    shares: bool,
    /// Some extent stands elsewhere than where its bytes were first.
    moves: bool,
}

const ENCODED: u64 = 1;
const SHARED: u64 = 2;
const PARTIAL: u64 = 4;
const SIZED: u64 = 8;

impl ExtentLog {
    /// For extents that usually take `unit` bytes.
    pub const fn new(unit: u64) -> Self {
        Self {
            bytes: Vec::new(),
            unit,
            count: 0,
            len: 0,
            size: 0,
            size_with_shared: 0,
            flat: true,
            shares: false,
            moves: false,
        }
    }

    /// Adds an extent.
    pub fn push(&mut self, extent: Extent) {
        self.moves |= extent.place != ExtentPlace::Next;
        self.push_kept(extent);
    }

    /// Takes over whether extents of `other`, which these were made of, stand elsewhere.
    pub const fn move_as(&mut self, other: &Self) {
        self.moves |= other.moves;
    }

    /// Adds an extent; one that is shared stands where it stood in the file before, so that kernels need know
    /// nothing of sharing.
    pub fn push_kept(&mut self, extent: Extent) {
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
        self.flat &= !encoded && place == ExtentPlace::Next;
    }

    /// Adds the extents of the part of the file that follows.
    pub fn extend(&mut self, other: &Self) {
        debug_assert_eq!(self.unit, other.unit);
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.len += other.len;
        self.size += other.size;
        self.size_with_shared += other.size_with_shared;
        self.flat &= other.flat;
        self.shares |= other.shares;
        self.moves |= other.moves;
    }

    fn number(&mut self, mut rest: u64) {
        while rest > 0x7f {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// Number of extents.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes that they decode to.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Bytes in the image of those that are not shared.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in the image of all.
    pub const fn size_with_shared(&self) -> u64 {
        self.size_with_shared
    }

    /// Whether the image holds the content as it is.
    pub const fn is_flat(&self) -> bool {
        self.flat
    }

    /// Whether any extent's bytes are another one's, at another place.
    pub const fn moves(&self) -> bool {
        self.moves
    }

    /// Whether any extent's bytes are another one's.
    pub const fn shares(&self) -> bool {
        self.shares
    }

    /// The extents, in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
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

    /// The extents with where each one's bytes are, when those that follow each other start at `first`.
    pub fn placed(&self, first: BytePos) -> impl Iterator<Item = (BytePos, Extent)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        let place = prop_oneof![
            3 => Just(ExtentPlace::Next),
            1 => (0u64..1 << 60, any::<bool>())
                .prop_map(|(at, partial)| ExtentPlace::Shared { at: BytePos::new(at), partial }),
        ];
        let size = prop_oneof![Just(4096), 1u64..1 << 20];
        let extent = (1u64..1 << 40, any::<bool>(), size, place)
            .prop_map(|(len, encoded, size, place)| Extent { len, encoded, size, place });
        proptest::collection::vec(extent, 0..50)
    }

    proptest! {
        #[test]
        fn gives_back_what_was_pushed(a in extents(), b in extents()) {
            let log = |extents: &[Extent]| {
                let mut log = ExtentLog::new(4096);
                extents.iter().for_each(|extent| log.push(*extent));
                log
            };
            let mut joined = log(&a);
            joined.extend(&log(&b));
            let all = [a, b].concat();
            prop_assert_eq!(joined.iter().collect::<Vec<_>>(), all.clone());
            prop_assert_eq!(joined.count(), all.len() as u64);
            prop_assert_eq!(joined.len(), all.iter().map(|extent| extent.len).sum::<u64>());
            let own = || all.iter().filter(|extent| extent.place == ExtentPlace::Next);
            prop_assert_eq!(joined.size(), own().map(|extent| extent.size).sum::<u64>());
            prop_assert_eq!(joined.shares(), own().count() < all.len());
            let mut end = 77;
            for (at, extent) in joined.placed(BytePos::new(77)) {
                if extent.place == ExtentPlace::Next {
                    prop_assert_eq!(at.get(), end);
                    end += extent.size;
                }
            }
        }
    }
}
