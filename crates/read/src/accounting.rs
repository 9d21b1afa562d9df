//! Counts work, memory and system calls, and limits work and memory.
//!
//! The lowest layer of the read flow: all others charge their work to [`budget`] and their memory
//! to [`memory`], and count in [`stats`].

pub(crate) mod budget;
pub(crate) mod memory;
pub(crate) mod pressure;
pub(crate) mod progress;
pub(crate) mod recorder;
pub(crate) mod stats;
