//! The tree of names: directories, paths, walks, open files, and the device ranges of files.

pub mod device_range;
pub(crate) mod dir;
pub(crate) mod file;
pub(crate) mod fs;
pub(crate) mod inode_ref;
pub(crate) mod path;
pub mod walk;
