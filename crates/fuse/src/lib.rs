//! FUSE.
