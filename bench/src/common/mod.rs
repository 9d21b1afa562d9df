//! What several benchmarks share: mounting a file system, running fio, statistics over rounds, and large test data.

pub(crate) mod device;
pub(crate) mod filesystem;
pub(crate) mod fio;
pub(crate) mod linux_source;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod rounds;
pub(crate) mod walk;
