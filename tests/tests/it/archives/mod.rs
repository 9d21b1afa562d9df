//! Tar archives and OCI image layouts: as sources of images, and tar archives made from images.
//!
//! - `broken`: archives that are damaged or unusual.
//! - `extract_tar`: `ferofs extract --tar` and `--metadata`.
//! - `formats`: all formats of tar.
//! - `limits`: archives that demand much memory or time.
//! - `oci`: OCI image layouts.

mod broken;
mod extract_tar;
mod formats;
mod limits;
mod oci;
