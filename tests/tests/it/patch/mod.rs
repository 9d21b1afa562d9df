//! Patches: update images, and roll back.
//!
//! - `faults`: interrupted writes, and patches that do not fit.
//! - `update`: patches change an image to the new tree and back.

mod faults;
mod update;
