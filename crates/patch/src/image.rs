//! The parts of an image that creating and applying a patch both need: the superblock's sector, the history, digests, patched
//! images in memory, and interrupted changes.

pub(crate) mod digest;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod overlay;
pub(crate) mod sector;
