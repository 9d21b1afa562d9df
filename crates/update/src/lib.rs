//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Brings an image up to date with a small patch or delta, in place, in memory or as a new file, and
//! goes back to earlier states. docs/PATCH_FORMAT.md describes the format and the reasons.
//!
//! The crate has what a device needs, which gets patches and applies them.
//! `ferofs_write::incremental` makes patches, with the modules [`format`](mod@format) and
//! [`image`].
//!
//! | module | job |
//! |---|---|
//! | [`format`](mod@format) | the patch file: reads, decodes and writes it |
//! | `sequence` | files of several patches |
//! | `apply` | applies a patch, rolls back, repairs |
//! | `delta` | makes an exact new image from an old one and a delta |
//! | `memory` | the memory that applying a patch takes |
//! | [`image`] | what both sides need of an image: superblock sector, history, digest, interrupted changes |
//!
//! ```no_run
//! use std::path::Path;
//!
//! use ferofs_update::{FileMedium, Patch, TrailingData, apply};
//! use ferofs_read::Cancel;
//!
//! let patch = Patch::open(Path::new("update.patch"))?;
//! let medium = FileMedium::open(Path::new("system.erofs"))?;
//! apply(&medium, &patch, TrailingData::Keep, &Cancel::default())?;
//! # Ok::<(), ferofs_update::Error>(())
//! ```

#![deny(unsafe_code)]
// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

mod apply;
mod delta;
mod error;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod image;
mod memory;
mod sequence;

pub use self::apply::commit::TrailingData;
#[doc(hidden)]
pub use self::apply::commit::{check_trailing, recover};
pub use self::apply::lazy_region::PieceCache;
pub use self::apply::medium::{FileMedium, Medium};
pub use self::apply::repair::{Repaired, repair};
pub use self::apply::rollback::rollback;
pub use self::apply::{apply, apply_with, overlay, overlay_with};
pub use self::delta::files::{DeltaFile, names_missing_device, part_file};
pub use self::delta::{Applied, Delta, DeltaOutput};
pub use self::error::{AfterFailure, Error, PatchFault, Result};
pub use self::format::change::{Change, ChangeKind, NewParents};
pub use self::format::delta_file::DeltaHeader;
pub use self::format::reader::{Patch, SizeParts};
pub use self::image::history::{Origin, State, log};
pub use self::sequence::{AppliedPatches, PatchReader};
pub use crate::apply::repair::ApplyProgress;

#[cfg(test)]
mod tests;
