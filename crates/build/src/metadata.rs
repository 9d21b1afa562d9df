//! The metadata: places for inodes and directories, and their bytes.

pub mod compressed;
pub mod emit;
pub mod layout;
pub mod self_check;
pub mod superblock;
