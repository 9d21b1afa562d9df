//! The parts of an image that creating and applying a patch both need: the superblock's sector, the history, digests, patched
//! images in memory, and interrupted changes.

pub mod digest;
pub mod history;
pub mod journal;
pub mod overlay;
pub mod sector;
