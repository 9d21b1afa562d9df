//! The library of the tests. It does not know the EROFS format and does not call the ferofs
//! library: the tests run ferofs as a command, and Linux mounts the images.
//!
//! A test uses these modules in this order:
//!
//! 1. [`tree`] creates a source directory with all kinds of inodes, names and attributes. The same
//!    seed gives the same tree.
//! 2. [`run`](mod@run) runs `ferofs` or another tool, with limits on time and memory.
//! 3. [`mount`] mounts the image with Linux or FUSE, and unmounts it even if the test panics.
//! 4. [`mod@compare`] compares two trees and lists each difference, with path and field.
//!
//! [`model`] has random trees in memory, and their changes. [`need`] skips a test if this machine
//! lacks something, [`tools`] lists the programs that tests start, [`mod@scratch`] makes temporary
//! directories, [`tar`] and [`oci`] make archives and container images, and [`web`] starts a web
//! server and a browser. [`xattr`], [`acl`], [`content`] and [`rng`] help the others.
#![forbid(unsafe_code)]

pub mod acl;
pub mod compare;
pub mod content;
pub mod loop_device;
pub mod model;
pub mod mount;
pub mod need;
pub mod oci;
pub mod rng;
pub mod run;
pub mod scratch;
pub mod tar;
pub mod tools;
pub mod tree;
pub mod web;
pub mod xattr;

pub use compare::{Field, Report, compare};
pub use content::Content;
pub use loop_device::LoopDevice;
pub use model::Model;
pub use mount::Mount;
pub use rng::Rng;
pub use run::{Outcome, Run, ferofs, ferofs_path, ferofs_with_fault};
pub use scratch::{scratch, scratch_in_memory};
