//! Build, read, check and extract EROFS images.
//!
//! | room | what it does |
//! |---|---|
//! | [`build`] | from a directory to an image |
//! | [`check`] | an image held against the format's rules |
//! | [`diff`] | two trees, images or directories, held against each other |
//! | [`inspect`] | what an image consists of, and where it is |
//! | [`escape`] | names as text that cannot steer a terminal |
//! | [`extract`] | from an image to a directory |
//! | [`error`] | the one error type: I/O, corrupt, unsupported, the caller's mistake |
//! | [`patch`] | an image brought up to date, in place or in memory, and back |
//! | [`read`] | from an image to names, attributes and bytes |

#![deny(unsafe_code)]

pub mod build;
pub mod check;
mod claim;
pub mod diff;
pub mod error;
pub mod escape;
pub mod extract;
pub mod inspect;
mod new_file;
pub mod patch;
pub mod read;
mod sparse;
mod threads;
mod walk;

pub use error::{Corruption, Error, Left, Result};
pub use new_file::NewFile;
