//! Build, read and check EROFS images.
//!
//! | room | what it does |
//! |---|---|
//! | [`error`] | the one error type: I/O, corrupt, unsupported, the caller's mistake |

#![deny(unsafe_code)]

pub mod error;

pub use error::{Corruption, Error, Result};
