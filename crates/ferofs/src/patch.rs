//! Brings an image up to date with a small patch, in place or in memory, and goes back to earlier
//! states. docs/PATCH_FORMAT.md describes the format and the reasons.
//!
//! The crate `ferofs-update` applies patches, and [`build::incremental`](crate::build::incremental)
//! makes them, with the feature `build`; their items are here.
//!
//! ```
//! use std::sync::Arc;
//!
//! use ferofs::patch::{CreateOptions, FileMedium, Patch, TrailingData, apply, create, log, overlay, overlay_with, rollback};
//! use ferofs::read::{Cancel, FileSource, Image};
//!
//! # let dir = tempfile::tempdir()?;
//! # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
//! # for tree in [&old, &new] { std::fs::create_dir(tree)?; }
//! # std::fs::write(new.join("news"), "good")?;
//! # let (image, update) = (dir.path().join("image"), dir.path().join("update"));
//! # ferofs::build::build(&ferofs::build::Options::new(&old), &image)?;
//! let cancel = Cancel::default();
//! create(&image, &CreateOptions::new(&new), &update)?;
//! let patch = Patch::open(&update)?;
//!
//! // In memory: the image is only read.
//! let patched = overlay(Arc::new(FileSource::open(&image, 0)?), &patch, &cancel)?;
//! assert_eq!(Image::open(patched)?.read("news")?, b"good");
//!
//! // In place, and back.
//! let medium = FileMedium::open(&image)?;
//! apply(&medium, &patch, TrailingData::Keep, &cancel)?;
//! assert!(apply(&medium, &patch, TrailingData::Keep, &cancel).is_err(), "it is applied already");
//! rollback(&medium, None, TrailingData::Keep, 0)?;
//! assert_eq!(log(&medium)?.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use ferofs_update::{
    Applied, AppliedPatches, ApplyProgress, Change, ChangeKind, Delta, DeltaFile, DeltaOutput,
    Error as ApplyError, FileMedium, Medium, NewParents, Origin, Patch, PatchFault, PatchReader,
    PieceCache, Repaired, SizeParts, State, TrailingData, apply, apply_with, log,
    names_missing_device, overlay, overlay_with, part_file, repair, rollback,
};
#[cfg(feature = "build")]
pub use ferofs_write::incremental::{
    CreateOptions, DeltaOptions, DeltaSummary, Encoding, GrowthParts, IgnoredAttributes,
    LikeOptions, PatchFile, PatchSummary, add, build_like, compose, create, create_delta, squash,
    squash_in_place, squash_options,
};
