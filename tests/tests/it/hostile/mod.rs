//! Images that are damaged or malicious.
//!
//! - `damaged`: truncated images and flipped bits.
//! - `false_fields`: images with one false field; `check` finds it.
//! - `huge`: small images that describe exabytes.
//! - `malformed`: images that broke other readers.
//! - `regressions`: images in tests/corrupt, which once broke ferofs.

mod damaged;
mod false_fields;
mod huge;
mod malformed;
mod regressions;
