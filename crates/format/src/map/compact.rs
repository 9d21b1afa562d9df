//! Compact indexes: lclusters bit-packed, some 16 to a pack. Source: FORMAT.md 6.5.
//!
//! Reading: [`CompactIndex::place`] says which bytes hold an lcluster's pack, [`CompactIndex::pack`] opens
//! them, and [`Pack::get`] decodes from them alone. Writing: a [`CompactWriter`] takes lclusters in order.
//!
//! A pack has one address, its base; a HEAD's follows from the blocks of the pclusters before it in the
//! pack. Without big pclusters, the kth HEAD (from 1) is at base + k. With them, each HEAD adds the blocks
//! before it: those of a pcluster whose block count is the pack's first record belong to these, although
//! its HEAD is in the pack before.

mod index;
mod writer;

pub use index::{CompactIndex, Pack, PackPlace};
pub use writer::{CompactWriter, encode};
