//! Images on web servers, in S3 stores and in OCI registries.
//!
//! [`object`] defines what a server offers: ranges of one object that does not change. The clients for the protocols
//! implement it. The fetcher asks them for ranges, verifies the bytes, and stores them in a cache on disk, which all mounts of
//! this machine share. Readers get the bytes from the cache, as a [`Source`](ferofs_read::Source).
#![forbid(unsafe_code)]

pub mod error;
pub mod object;

pub use error::{Error, FetchError, FetchErrorKind, Result};
pub use object::{RemoteObject, Validator};
