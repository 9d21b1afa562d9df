//! Tests of ferofs as a command, from outside. One test binary; each folder is a topic.
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

/// Tar archives and OCI image layouts: as sources of images, and tar archives made from images.
mod archives {
    mod broken;
    mod extract_tar;
    mod formats;
    mod limits;
    mod oci;
}
/// Building images: from a directory, with all options, compared with erofs-utils.
mod write {
    mod callers;
    mod definitions;
    mod erofs_utils;
    mod estimate;
    mod holes;
    mod layers;
    mod like;
    mod linux_versions;
    mod memory;
    mod mkfs;
    mod pinned;
    mod preload;
    mod round_trip;
    mod versions;
    mod wide;
}
/// The command line: options, exit codes, and failures of the system.
mod cli {
    mod everyday;
    mod failures;
    mod help;
    mod options;
    mod overwrite;
    mod strict;
    mod workers;
}
/// Code that several topics share.
mod common {
    pub(crate) mod erofs_utils;
    pub(crate) mod fixture;
    pub(crate) mod hostile;
    pub(crate) mod image_editor;
    pub(crate) mod image_writer;
    pub(crate) mod traced;
}
/// The documents: README.md and the pages of docs.
mod docs {
    mod commands;
    mod migration;
    mod names;
}
mod environments;
/// Images that are damaged or malicious.
mod hostile {
    mod damaged;
    mod extraction;
    mod false_fields;
    mod huge;
    mod linux_rules;
    mod malformed;
}
mod models;
/// Mounts by the kernel and by the FUSE daemon.
mod mount {
    pub(crate) mod daemon;
    mod fuse;
    mod helper;
    mod kernel;
    mod options;
    mod restart;
}
mod patch;
/// Reading images without a mount, and the read engine after mounts.
mod read {
    mod dump;
    mod engine;
    mod examples;
    mod extract;
    mod holes;
    mod inspect;
}
mod remote;
mod seal;
mod structure;
