//! The tree of names: directories, paths, walks, and the device ranges of files.

pub mod device_range;
pub(crate) mod dir;
pub(crate) mod path;
pub mod walk;
