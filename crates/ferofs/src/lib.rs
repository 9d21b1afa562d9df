//! Build, read and check EROFS images.
//!
//! | room | what it does |
//! |---|---|
//! | [`build`] | from a directory to an image |
//! | [`error`] | the one error type: I/O, corrupt, unsupported, the caller's mistake |
//! | [`read`] | from an image to names, attributes and bytes |

#![deny(unsafe_code)]

pub mod build;
pub mod error;
pub mod read;

pub use error::{Corruption, Error, Result};
