//! Tests of ferofs as a command, from outside. One test binary; each folder is a topic, and its `mod.rs` lists what its modules test.
//! `cargo test -p ferofs-tests --test it mount::fuse` runs one module.
//! `structure` checks the source code instead: the imports of each crate go one way.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]
#![allow(clippy::panic, reason = "the way to fail a test")]

/// Ends a test unless the machine has what it needs. `need` has said what is missing.
macro_rules! require {
    ($has:expr) => {
        if !($has) {
            return;
        }
    };
}

mod archives;
mod build;
mod cli;
mod common;
mod docs;
mod environments;
mod hostile;
mod mount;
mod patch;
mod read;
mod remote;
mod seal;
mod structure;
