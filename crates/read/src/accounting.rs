//! What reading costs: work, memory and system calls, with the limits on them.
//!
//! The lowest layer of the read flow: every other one charges its work to [`budget`], its memory to [`memory`] and
//! counts in [`stats`].

pub(crate) mod budget;
pub(crate) mod memory;
pub(crate) mod pressure;
pub(crate) mod recorder;
pub(crate) mod stats;
