//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Images on web servers, in S3 stores and in OCI registries.
//!
//! [`object`] defines what a server offers: ranges of one object that does not change. The clients
//! for the protocols implement it. The fetcher asks them for ranges, verifies the bytes, and stores
//! them in a cache on disk, which all mounts of this machine share. Readers get the bytes from the
//! cache, as a [`Source`](ferofs_read::Source).

#![forbid(unsafe_code)]
// Not in tests, which fail when a number overflows.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)
)]
// Lists of ranges are common here, and never mean lists of numbers.
#![allow(clippy::single_range_in_vec_init)]

pub mod cache;
pub mod channel;
pub mod confine;
pub mod error;
pub mod fetch;
pub mod http;
pub mod location;
pub mod object;
pub mod oci;
pub mod open;
mod own_file;
pub mod pull;
mod ranges;
pub mod source;

pub use error::{Error, FetchError, FetchErrorKind, Result};
pub use location::{Location, Options};
pub use object::{RemoteObject, Validator};

#[cfg(test)]
mod tests;
