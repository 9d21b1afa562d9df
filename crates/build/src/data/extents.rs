//! Extents of a file until its inode is written, and the index that finds them.

pub mod index;
pub mod list;
