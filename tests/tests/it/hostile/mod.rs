//! Images that are damaged or malicious.
//!
//! - `damaged`: truncated images and flipped bits.
//! - `false_fields`: images with one false field; `check` finds it.
//! - `huge`: small images that describe exabytes.
//! - `linux_rules`: images that Linux alone refuses; `check` finds them.
//! - `malformed`: images that caused defects in other readers.
//! - `regressions`: images in tests/corrupt, which caused defects in ferofs.

mod damaged;
mod false_fields;
mod huge;
mod linux_rules;
mod malformed;
mod regressions;
