//! Files of this machine, opened by directory and name and read through libc, so that fakeroot and its like can show others. For all that
//! reads or writes trees: sources, extraction, comparison.

pub mod open;
pub mod preload;
