//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Threads for the builder, the checker and the extractor. An error or a panic of any thread
//! reaches the thread that waits for its result, so that no thread waits forever.
//!
//! | function | what it does |
//! |---|---|
//! | [`parallel`] | runs numbered tasks and returns their results in the order of the numbers |
//! | [`with_pipeline`] | sends jobs to workers while it takes results, in the order of the jobs |
//! | [`with_workers`] | sends jobs to workers while it takes results, in any order |
//! | [`start`] | starts threads for all other work |
//! | [`fitting_workers`] | how many workers fit into the memory that this process may take |
//! | [`ReportingAllocator`] | ends a program that finds no memory, with one line |
//!
//! All of them continue with fewer threads when the system does not start more.

#[cfg(target_os = "linux")]
mod allocator;
mod memory;
mod pipeline;
mod workers;

#[cfg(target_os = "linux")]
pub use crate::allocator::{ReportingAllocator, reserve_less_if_limited, return_large_buffers};
#[cfg(target_os = "linux")]
pub use crate::memory::refuse_memory_beyond_cgroup;
pub use crate::memory::{
    STACK, are_threads_limited, fitting_workers, free_memory, limited_memory, too_little_memory,
};
pub use crate::workers::{Error, catch, check_start, parallel, pass_on, start};
pub use pipeline::{Pipeline, Queue, with_pipeline};
pub use workers::{Workers, with_workers};
