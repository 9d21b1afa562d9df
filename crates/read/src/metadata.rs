//! Metadata: inodes, extended attributes, and the maps of files.
//!
//! Everything here reads through [`reader::ReadMetadata`], because metadata is on the primary device or in the decoded
//! content of the metabox.

pub(crate) mod extent;
pub(crate) mod inode;
pub(crate) mod map;
pub(crate) mod reader;
pub(crate) mod slow_lookups;
pub(crate) mod xattr;
