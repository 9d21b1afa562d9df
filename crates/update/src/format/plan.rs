//! The plan of a piece: which bytes of the base its payload is compressed against, and how the
//! payload becomes appended bytes. Layout: docs/PATCH_FORMAT.md.

#[cfg(test)]
mod tests;

use super::columns::{ColumnReader, Columns, decompress};
use crate::error::{Error, PatchFault, Result};
use ferofs_format::units::{to_u64, to_usize};

/// Bytes of a decoded plan at most: a piece of 4 MiB with an item for every 4 bytes. It bounds the
/// memory for a plan, and a plan beyond it is malformed.
pub(crate) const PLAN_MAX: usize = 8 << 20;
/// Zstandard's level for plans: they are short, so size counts more than speed.
const LEVEL: i32 = 19;

/// Bytes of the base, for the dictionary of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// As the image stores them.
    Image {
        /// The position in the image.
        pos: u64,
        /// Bytes.
        len: u32,
    },
    /// Decoded content of a file.
    File {
        /// The file's inode.
        nid: u64,
        /// The position in the file.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Bytes of the new image as they are [predicted](super::prediction).
    Predicted {
        /// The position in the new image.
        pos: u64,
        /// Bytes.
        len: u32,
    },
    /// The same for decoded content of the new metabox.
    PredictedMetabox {
        /// The position in the metabox.
        pos: u64,
        /// Bytes.
        len: u32,
    },
}

/// Bytes that one thread reads at once for a dictionary.
const FILE_PART: u32 = 1 << 20;
/// The same for predicted bytes, which take longer.
const PREDICTED_PART: u32 = 1 << 18;

impl Reference {
    /// The first part that one thread reads, and the rest; `None` if it is one part.
    pub(crate) fn split(self) -> Option<(Self, Self)> {
        let most = if self.is_predicted() { PREDICTED_PART } else { FILE_PART };
        let rest = self.len().checked_sub(most).filter(|rest| *rest > 0)?;
        let more = u64::from(most);
        Some(match self {
            Self::Image { pos, .. } => (
                Self::Image { pos, len: most },
                Self::Image { pos: pos.saturating_add(more), len: rest },
            ),
            Self::Predicted { pos, .. } => (
                Self::Predicted { pos, len: most },
                Self::Predicted { pos: pos.saturating_add(more), len: rest },
            ),
            Self::PredictedMetabox { pos, .. } => (
                Self::PredictedMetabox { pos, len: most },
                Self::PredictedMetabox { pos: pos.saturating_add(more), len: rest },
            ),
            Self::File { nid, offset, .. } => (
                Self::File { nid, offset, len: most },
                Self::File { nid, offset: offset.saturating_add(more), len: rest },
            ),
        })
    }

    /// Bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "nothing asks whether a part of a dictionary is empty"
    )]
    pub const fn len(&self) -> u32 {
        match self {
            Self::Image { len, .. }
            | Self::File { len, .. }
            | Self::Predicted { len, .. }
            | Self::PredictedMetabox { len, .. } => *len,
        }
    }

    /// Whether the bytes are computed, and so not read as they are.
    pub(crate) const fn is_predicted(&self) -> bool {
        matches!(self, Self::Predicted { .. } | Self::PredictedMetabox { .. })
    }
}

/// The next appended bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next bytes of the payload.
    Raw {
        /// Bytes.
        len: u32,
    },
    /// Content that is encoded.
    Unit(Unit),
}

/// Content that is encoded as extents. In the payload its decoded content comes first, then the
/// bytes of carried extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Number of the method.
    pub method: u8,
    /// Bytes of decoded content.
    pub content_len: u32,
    /// Its extents, in the order of the content.
    pub extents: Vec<UnitExtent>,
}

/// An extent of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitExtent {
    /// How its bytes are made.
    pub kind: ExtentKind,
    /// Bytes of content; 0 if only the compressor knows ([`ExtentKind::Fill`]).
    pub len: u32,
    /// Bytes that are appended for it.
    pub size: u32,
    /// Bytes of output that the compressor gets. [`ExtentKind::Fill`]: 0 means `size`.
    /// [`ExtentKind::Exact`]: at most `len`; 0 means more than any compressor needs.
    pub capacity: u32,
}

/// How the bytes of an extent are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// The compressor takes as much of the unit's content as fills its output, and so determines
    /// the length.
    Fill,
    /// The compressor encodes exactly the extent's content.
    Exact,
    /// The content itself, and zeroes up to `size`.
    Stored,
    /// The payload has the encoded bytes, as no compressor here makes the same.
    Carried,
}

impl ExtentKind {
    const ALL: [Self; 4] = [Self::Fill, Self::Exact, Self::Stored, Self::Carried];
}

impl Item {
    /// Bytes that it takes of the payload.
    pub(crate) fn payload_len(&self) -> u64 {
        match self {
            Self::Raw { len } => u64::from(*len),
            Self::Unit(unit) => u64::from(unit.content_len).saturating_add(unit.carried_len()),
        }
    }

    /// Bytes that it appends to the image.
    pub(crate) fn region_len(&self) -> u64 {
        match self {
            Self::Raw { len } => u64::from(*len),
            Self::Unit(unit) => unit
                .extents
                .iter()
                .map(|extent| u64::from(extent.size))
                .fold(0, u64::saturating_add),
        }
    }
}

impl Unit {
    /// Bytes of carried extents.
    pub(crate) fn carried_len(&self) -> u64 {
        let carried = self.extents.iter().filter(|extent| extent.kind == ExtentKind::Carried);
        carried.map(|extent| u64::from(extent.size)).fold(0, u64::saturating_add)
    }
}

/// The references and items of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The parts of the dictionary.
    pub references: Vec<Reference>,
    /// The appended bytes, in their order.
    pub items: Vec<Item>,
}

const MALFORMED: &str = "the plan of a piece is wrong";

fn malformed() -> Error {
    Error::Patch(PatchFault::Malformed(MALFORMED))
}

impl Plan {
    /// The plan as stored.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.columns().compress(LEVEL)
    }

    pub(super) fn columns(&self) -> Columns {
        let mut columns = Columns::default();
        let references = &self.references;
        columns.push(to_u64(references.len()));
        columns.push_deltas(references.iter().map(|reference| match reference {
            Reference::Image { .. } => 0,
            Reference::Predicted { .. } => 1,
            Reference::PredictedMetabox { .. } => 2,
            Reference::File { nid, .. } => nid.wrapping_add(3),
        }));
        columns.push_deltas(references.iter().map(|reference| match reference {
            Reference::Image { pos, .. }
            | Reference::Predicted { pos, .. }
            | Reference::PredictedMetabox { pos, .. } => *pos,
            Reference::File { offset, .. } => *offset,
        }));
        references.iter().for_each(|reference| columns.push(reference.len().into()));
        columns.push(to_u64(self.items.len()));
        // 0 for raw bytes, else the method's number and 1.
        for item in &self.items {
            columns.push(match item {
                Item::Raw { .. } => 0,
                Item::Unit(unit) => u64::from(unit.method) + 1,
            });
        }
        for item in &self.items {
            columns.push(
                match item {
                    Item::Raw { len } => *len,
                    Item::Unit(unit) => unit.content_len,
                }
                .into(),
            );
        }
        let units = || {
            self.items.iter().filter_map(|item| match item {
                Item::Unit(unit) => Some(unit),
                Item::Raw { .. } => None,
            })
        };
        units().for_each(|unit| columns.push(to_u64(unit.extents.len())));
        let extents = || units().flat_map(|unit| &unit.extents);
        let number =
            |kind| to_u64(ExtentKind::ALL.iter().position(|known| *known == kind).unwrap_or(0));
        extents().for_each(|extent| columns.push(number(extent.kind)));
        extents().for_each(|extent| columns.push(extent.len.into()));
        extents().for_each(|extent| columns.push(extent.size.into()));
        extents().for_each(|extent| columns.push(extent.capacity.into()));
        columns
    }

    /// Decodes what [`Self::encode`] made; also returns the bytes of the decoded columns, which are
    /// `most` at most.
    pub(crate) fn decode(stored: &[u8], most: usize) -> Result<(u64, Self)> {
        let bytes = decompress(stored, most.min(PLAN_MAX), MALFORMED)?;
        let mut columns = ColumnReader::new(&bytes, MALFORMED);
        let count = columns.count()?;
        let nids = columns.deltas(count)?;
        let positions = columns.deltas(count)?;
        let lens = columns.column(count)?;
        let references =
            nids.into_iter().zip(positions).zip(lens).map(|((nid, pos), len)| match nid {
                0 => Reference::Image { pos, len },
                1 => Reference::Predicted { pos, len },
                2 => Reference::PredictedMetabox { pos, len },
                nid => Reference::File { nid: nid.wrapping_sub(3), offset: pos, len },
            });
        let references: Vec<Reference> = references.collect();
        // Empty parts would take time, and no space in the patch.
        if references.iter().any(|reference| reference.len() == 0) {
            return Err(malformed());
        }
        let count = columns.count()?;
        let kinds = columns.column(count)?;
        let lens = columns.column(count)?;
        let mut counts = Vec::new();
        for _ in kinds.iter().filter(|kind| **kind > 0) {
            counts.push(columns.count()?);
        }
        let total = counts.iter().try_fold(0usize, |total, count| total.checked_add(*count));
        let total = total.filter(|total| *total <= columns.left()).ok_or_else(malformed)?;
        let mut extents = Vec::with_capacity(total);
        let (extent_kinds, extent_lens) = (columns.column(total)?, columns.column(total)?);
        let (sizes, capacities) = (columns.column(total)?, columns.column(total)?);
        let sizes = sizes.into_iter().zip(capacities);
        for ((kind, len), (size, capacity)) in extent_kinds.into_iter().zip(extent_lens).zip(sizes)
        {
            let kind = *ExtentKind::ALL.get(to_usize(kind)).ok_or_else(malformed)?;
            extents.push(UnitExtent { kind, len, size, capacity });
        }
        columns.finish()?;
        let (mut extents, mut counts) = (extents.into_iter(), counts.into_iter());
        let mut items = Vec::with_capacity(count);
        for (kind, len) in kinds.into_iter().zip(lens) {
            items.push(match kind.checked_sub(1) {
                None => Item::Raw { len },
                Some(method) => Item::Unit(Unit {
                    method: u8::try_from(method).map_err(|_| malformed())?,
                    content_len: len,
                    extents: extents.by_ref().take(counts.next().unwrap_or(0)).collect(),
                }),
            });
        }
        if items.iter().any(|item| item.region_len() == 0) {
            return Err(malformed());
        }
        Ok((to_u64(bytes.len()), Self { references, items }))
    }
}
