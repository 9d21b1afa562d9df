//! Finds blocks of an image in other images on this machine, so that only different blocks are
//! fetched.
//!
//! A background thread reads the digests of the blocks that are stored in other entries of the
//! cache and in files (`base`), and puts them into an index (`known`). A worker that fetches a
//! range copies the blocks that the index finds (`copy`) and fetches the others by few requests
//! (`requests`). Copied bytes are checked like fetched ones, so the index may be wrong: its entries
//! age when the other image is evicted or changed.

mod base;
mod copy;
mod known;
mod requests;

pub(crate) use self::base::Base;
pub(super) use self::copy::{copy_blocks, copy_hashes};
pub(crate) use self::known::KnownBlocks;
pub(super) use self::requests::GapBudget;
