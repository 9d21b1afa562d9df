//! The command lines of erofs-utils, chosen by the name that the program was called by.
//!
//! Each front end parses its own flags, with erofs-utils' spelling, and then does what the subcommands in
//! `cmd/` do.

mod dump;
mod erofsfuse;
mod fsck;
mod mkfs;
mod mount;
mod version;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::exit::Outcome;

/// A front end: takes the arguments, the program's name first.
pub(crate) type FrontEnd = fn(&[OsString]) -> Outcome;

/// The front end for a program called `program`, if that is one of erofs-utils' names.
pub(crate) fn front_end(program: &OsStr) -> Option<FrontEnd> {
    match Path::new(program).file_name()?.to_str()? {
        "mkfs.erofs" => Some(mkfs::run),
        "fsck.erofs" => Some(fsck::run),
        "dump.erofs" => Some(dump::run),
        "erofsfuse" => Some(erofsfuse::run),
        "mount.erofs" => Some(mount::run),
        _ => None,
    }
}
