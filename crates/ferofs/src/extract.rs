//! Extracts an image's tree to a directory (`directory`), or as a tar stream (`tar`).

// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

mod content;
mod directory;
mod extraction;
mod inventory;
mod metadata;
mod options;
mod schedule;
mod tar;
mod target;
mod walk;
mod worker;

pub use crate::select::Selection;
pub use directory::extract;
pub use inventory::{Entry, inventory};
pub use options::{Existing, OnError, Options, Progress, Summary};
pub use tar::write_tar;
