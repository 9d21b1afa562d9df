//! Patches: update images, and roll back.
//!
//! - `faults`: interrupted writes, and data behind an image.
//! - `growth`: additions that are compressed together.
//! - `sparse`: files with holes.
//! - `update`: patches change an image to the new tree and back; patches for other images are refused.

mod faults;
mod growth;
mod sparse;
mod update;
