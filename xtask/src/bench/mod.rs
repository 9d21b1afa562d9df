//! `cargo xtask bench`: measurements, one file each. Nothing is asserted: figures belong to a machine and a day.

mod build;
mod codec;

pub(crate) use build::build;
pub(crate) use codec::codec;
