//! Helpers that `xtask` and `bench` share. They form a crate of their own, so that `cargo xtask`
//! does not compile the benchmarks and neither program contains a copy of the other's code.
//!
//! - [`shell`] runs programs and prints their command lines; it also builds `ferofs`.
//! - [`install`] installs missing Debian packages.
//! - [`peers`] installs the newest erofs-utils and squashfs-tools, the tools that ferofs is
//!   compared with.
//! - [`c_library`] installs libferofs, the library for C programs.
//! - [`page`] writes the measured parts of pages of docs/.
//! - [`cgroup`] limits and measures the memory of a group of processes.
//! - [`svg`] draws the pictures of the documentation.
#![forbid(unsafe_code)]

pub mod c_library;
pub mod cgroup;
pub mod install;
pub mod page;
pub mod peers;
pub mod shell;
pub mod svg;
