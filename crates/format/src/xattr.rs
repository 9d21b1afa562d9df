//! Extended attributes: the region after an inode and the shared entries. Source: FORMAT.md 4.
//!
//! An entry holds a name and a value. It is in the inode's region, or shared by many inodes. [`name`] splits names into the
//! index of a prefix and the rest.

pub mod acl;
mod limits;
pub mod name;
mod region;

pub use limits::{NAME_MAX, UNIT};
pub use name::{LONG_PREFIXES_MAX, LongPrefix, NameFilter, NameIndex, NamePrefix, split_name};
pub use region::{
    ENTRY_HEADER_SIZE, Entries, Entry, HEADER_SIZE, Region, SHARED_MAX, VALUE_MAX, icount, region_size,
    shared_pos,
};
