//! `cargo xtask bench`: measurements, one file each. Nothing is asserted: figures belong to a machine and a day.

mod build;
mod codec;
mod contestant;
mod extract;
mod fio;
mod measure;
mod mount;
mod paper;
mod patch;
mod read;

pub(crate) use build::build;
pub(crate) use codec::codec;
pub(crate) use contestant::Lacks;
pub(crate) use extract::extract;
pub(crate) use mount::mount;
pub(crate) use paper::paper;
pub(crate) use patch::patch;
pub(crate) use read::read;
