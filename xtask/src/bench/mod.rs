//! `cargo xtask bench`: measurements, one file each. Nothing is asserted: figures belong to a machine and a day.

mod build;
mod codec;
mod extract;
mod mount;
mod read;

pub(crate) use build::build;
pub(crate) use codec::codec;
pub(crate) use extract::extract;
pub(crate) use mount::mount;
pub(crate) use read::read;
