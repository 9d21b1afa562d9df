//! What the tests of ferofs stand on. Nothing here knows the EROFS format or calls the library: ferofs is judged from
//! outside, as a command whose images the kernel mounts.
//!
//! The flow of a test is the order of the rooms:
//!
//! 1. [`tree`] plants a directory with every oddity a file system can hold, the same one for the same seed.
//! 2. [`run`] starts `ferofs` (or another tool) on it, with a limit on time and memory.
//! 3. [`mount`] shows the image through Linux or through FUSE, and takes it away again whatever happens.
//! 4. [`mod@compare`] walks both trees and lists each difference, by path and field.
//!
//! [`need`] says what this machine lacks, [`tools`] which programs it needs, [`mod@scratch`] has room for files, [`tar`] makes archives; [`xattr`], [`acl`], [`content`] [`rng`] and [`update`] serve the others.
#![forbid(unsafe_code)]

pub mod acl;
pub mod compare;
pub mod content;
pub mod mount;
pub mod need;
pub mod rng;
pub mod run;
pub mod scratch;
pub mod tar;
pub mod tools;
pub mod tree;
pub mod update;
pub mod xattr;

pub use compare::{Field, Report, compare};
pub use mount::Mount;
pub use run::{Outcome, Run, ferofs};
pub use scratch::scratch;
