//! Build, read, check, extract and patch EROFS images.
//!
//! | module | what it does |
//! |---|---|
//! | [`build`] | builds an image from a directory, archives, or other images |
//! | [`read`] | reads an image: names, attributes, content |
//! | [`check`] | checks an image against the rules of the format |
//! | [`diff`] | compares two trees, each an image or a directory |
//! | [`inspect`] | shows what an image consists of, and where each part is |
//! | [`extract`] | writes an image's tree to a directory or a tar stream |
//! | [`patch`] | updates an image with a small patch, and rolls back |
//! | [`escape`] | prints names without control characters, which could change a terminal |
//! | [`verity`] | makes hash trees over images, and verifies each block that is read |
//! | [`error`] | the error of this crate; it wraps the errors of [`read`] and [`build`] |

#![deny(unsafe_code)]

pub use ferofs_build as build;
pub use ferofs_read as read;
pub use ferofs_verity as verity;

pub mod check;
pub mod diff;
pub mod error;
pub mod extract;
pub mod inspect;
pub mod patch;
mod range_marks;

pub use error::{AfterFailure, Corruption, Error, Result};
pub use ferofs_build::NewFile;
pub use ferofs_read::escape;
