//! Build, read, check, extract and patch EROFS images.
//!
//! | module | what it does |
//! |---|---|
//! | [`build`] | makes an image of a directory, of archives, or of images |
//! | [`read`] | gives an image's names, attributes and content |
//! | [`check`] | compares an image with the rules of the format |
//! | [`diff`] | compares two trees, each an image or a directory |
//! | [`inspect`] | tells what an image consists of, and where each part is |
//! | [`extract`] | writes an image's tree to a directory, or as a tar stream |
//! | [`patch`] | brings an image up to date by a small patch, and back |
//! | [`escape`] | prints names so that they cannot control a terminal |
//! | [`error`] | the error of all of these, over the errors of [`read`] and [`build`] |

#![deny(unsafe_code)]

pub use ferofs_build as build;
pub use ferofs_read as read;

pub mod check;
pub mod diff;
pub mod error;
pub mod extract;
pub mod inspect;
pub mod patch;
mod sparse;

pub use error::{Corruption, Error, Left, Result};
pub use ferofs_build::NewFile;
pub use ferofs_read::escape;
