//! The command line: options, exit codes, and failures of the system.
//!
//! - `failures`: a system call fails, for example for lack of threads or space.
//! - `options`: options, exit codes, errors, and what a failed command leaves behind.

mod failures;
mod options;
