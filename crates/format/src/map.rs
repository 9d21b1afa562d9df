//! The maps from file offsets to addresses, for the layouts that store a table after the inode.
//!
//! | layout | module | one record for each | docs/FORMAT.md |
//! |---|---|---|---|
//! | chunk-based | [`chunk`] | chunk | 5 |
//! | compressed, any | [`header`] | file: says which of the following | 6.2 |
//! | compressed full | [`full`] | logical cluster | 6.4 |
//! | compressed compact | [`compact`] | logical cluster, bit-packed | 6.5 |
//! | compressed full with `EXTENTS` | [`extents`] | extent | 6.7 |
//!
//! Full and compact indexes are two encodings of a sequence of [`Lcluster`]s; [`lcluster`] makes
//! the sequence from a file's pclusters. An [`Index`] of any form returns the position of an
//! lcluster's record and decodes the record from its bytes. The reader follows the distances from record to record.

pub mod addresses;
pub mod chunk;
pub mod compact;
pub mod extents;
pub mod full;
pub mod header;
pub mod index;
pub mod lcluster;

pub use addresses::{Address, change_addresses};
pub use chunk::{ChunkFormat, ChunkIndex, ChunkPlace};
pub use compact::{CompactIndex, Pack, PackPlace};
pub use extents::{Encoding, ExtentIndex, ExtentRecord};
pub use full::FullIndex;
pub use header::{ExtentsHeader, IndexFormat, IndexHeader, MapHeader, RecordSize, Records, Tail};
pub use index::Index;
pub use lcluster::{Delta0, Head, HeadKind, Lcluster, Lclusters, Pcluster};
