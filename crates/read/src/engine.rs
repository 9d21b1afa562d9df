//! The engine: from encoded clusters to decoded bytes, with few and large reads, little memory and
//! no unneeded copy.
//!
//! A request is cut into *runs* of wholly wanted extents whose encoded bytes are adjacent: one
//! system call reads them into the end of the range that they will fill, where LZ4 clusters are
//! decoded in place ([`run`]). A cluster that is wanted in part goes through the cache of encoded
//! blocks ([`partial`]), by one of several strategies ([`decode`]), as far as wanted, or whole if
//! the rest is expected to be wanted next ([`clusters`]). Buffers come from a pool
//! ([`buffer_pool`], [`scratch`]); all memory is counted, and released when memory is short. The
//! thread that took a request does all of its work. The flow through these files: [`state`] ->
//! [`request`] -> [`decode`] -> [`run`], [`partial`].

pub(crate) mod buffer_pool;
pub(crate) mod clusters;
#[cfg(feature = "comparison")]
pub(crate) mod comparison;
pub(crate) mod decode;
pub(crate) mod options;
pub(crate) mod partial;
pub(crate) mod pinned;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod scratch;
pub(crate) mod state;
pub(crate) mod strategy;
