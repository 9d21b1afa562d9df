//! Compact indexes: bit-packed lclusters, 2 or 16 to a pack. Source: FORMAT.md 6.5.
//!
//! Reading: [`CompactIndex::place`] returns the position of an lcluster's pack, [`CompactIndex::pack`] reads the pack, and
//! [`Pack::get`] decodes a record from the pack alone. Writing: a [`CompactWriter`] takes lclusters in order.
//!
//! A pack stores one address, its base. The address of a HEAD is the base plus the blocks of the pclusters before it in the
//! pack. Without big pclusters the kth HEAD (from 1) is at base + k. With big pclusters the block counts are added; if the
//! pack's first record is a block count, it is added, too, although its HEAD is in the previous pack.

mod index;
mod writer;

pub use index::{CompactIndex, Pack, PackPlace};
pub use writer::{CompactWriter, encode};
