//! New metadata: the position of the root's inode, directories, and the inodes that changed.

pub(crate) mod directory;
pub(crate) mod grown_inodes;
pub(crate) mod root;
pub(crate) mod writer;
