//! The command line: options, exit codes, and failures of the system.
//!
//! - `failures`: a system call fails, for example for lack of threads or space.
//! - `options`: options, exit codes, errors, and what a failed command leaves behind.
//! - `overwrite`: outputs do not replace files of other kinds.
//! - `strict`: warnings, and --strict.

mod failures;
mod options;
mod overwrite;
mod strict;
