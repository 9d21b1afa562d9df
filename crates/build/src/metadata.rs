//! The metadata stage: places inodes and directories, and writes them, shared xattrs and the superblock. Source: FORMAT.md 1 to 4.
//!
//! | module | what it does |
//! |---|---|
//! | [`compressed`] | encodes directories and the metabox |
//! | [`inodes`] | counts and writes inodes and directories, of images and of patches |
//! | [`places`] | holds the places of all inodes and blocks |
//! | [`self_check`] | parses each inode again before it is written |
//! | [`write`] | plans all places, and writes everything after the data |
//! | [`superblock_area`] | writes the superblock and the tables before the data |

pub(crate) mod compressed;
pub(crate) mod inodes;
pub(crate) mod places;
pub(crate) mod self_check;
pub(crate) mod superblock_area;
pub(crate) mod write;
