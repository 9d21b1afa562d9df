//! The superblock. Source: FORMAT.md 1.

/// Bytes from the image's start to the superblock.
pub const OFFSET: usize = 1024;
