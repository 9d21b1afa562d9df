//! The command line: options, exit codes, failures of the system, and the documents.
//!
//! - `docs`: files and tests that the documents name exist.
//! - `failures`: a system call fails, for example for lack of threads or space.
//! - `options`: options, exit codes, errors, and what a failed command leaves behind.

mod docs;
mod failures;
mod options;
