//! Extracts an image's tree to a directory, or as a tar stream.
//!
//! `directory` keeps all that Linux has. `portable` extracts on other systems, and `tar` writes an
//! archive on all of them.

// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]

mod boundary;
#[cfg(feature = "extract")]
mod content;
#[cfg(feature = "extract")]
mod directory;
#[cfg(feature = "extract")]
mod extraction;
mod inventory;
#[cfg(feature = "extract")]
mod metadata;
mod options;
mod portable;
#[cfg(feature = "extract")]
mod schedule;
mod tar;
#[cfg(feature = "extract")]
mod target;
mod walk;
#[cfg(feature = "extract")]
mod worker;

pub use crate::select::Selection;
#[cfg(feature = "extract")]
pub use directory::extract;
pub use inventory::{Entry, inventory};
pub use options::{Existing, OnError, Options, Progress, Summary};
pub use portable::extract_portable;
pub use tar::write_tar;
