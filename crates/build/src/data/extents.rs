//! The extents of a compressed file while it is built ([`log`]), and the index that its inode gets ([`index`]).

pub(crate) mod index;
pub(crate) mod log;
