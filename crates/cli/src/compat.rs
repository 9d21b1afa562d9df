//! The command lines of erofs-utils, selected by the name of the program.
//!
//! Each module parses the options of one program of erofs-utils and then runs the code of the
//! subcommands in `cmd/`.

mod dump;
mod erofsfuse;
mod fsck;
mod mkfs;
mod mount;
mod number;
mod usage;
mod version;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::CommandFactory;

use crate::cmd::Cli;
use crate::cmd::mount::FEROFS;
use crate::cmd::tips::remove_guesses;
use crate::exit::{Outcome, USAGE, print_usage};

/// Runs a program of erofs-utils with these arguments, the program's name first.
pub(crate) type RunProgram = fn(&[OsString]) -> Outcome;

/// Finds the program of erofs-utils that has the name `program`, a path or a file name, and whether
/// it mounts.
pub(crate) fn find_program(program: &OsStr) -> Option<(RunProgram, bool)> {
    let (run, mounts): (RunProgram, _) = match Path::new(program).file_name()?.to_str()? {
        "mkfs.erofs" => (mkfs::run, false),
        "fsck.erofs" => (fsck::run, false),
        "dump.erofs" => (dump::run, false),
        "erofsfuse" => (erofsfuse::run, true),
        "mount.erofs" => (mount::run, true),
        "mount.fuse.ferofs" => (|args| mount::run_fuse(args, FEROFS), true),
        "mount.fuse.erofsfuse" => (|args| mount::run_fuse(args, erofsfuse::NAME), true),
        _ => return None,
    };
    Some((run, mounts))
}

/// Parses the arguments of a program of erofs-utils, the program's name first. After an error the
/// program ends.
fn parse<P: clap::Parser>(args: &[OsString]) -> P {
    P::try_parse_from(args).unwrap_or_else(|mut error| {
        remove_guesses(&mut error, args, P::command);
        std::process::exit(print_usage(&error, USAGE).into())
    })
}

/// Whether these are the arguments with which mount.fuse(8) starts the program `ferofs`: an image
/// instead of a command. The image can be a file in the current directory.
pub(crate) fn is_mount_helper(args: &[OsString]) -> bool {
    let is_command = |text: &str| Cli::command().find_subcommand(text).is_some();
    let is_image = |text: &str| {
        text.starts_with('/')
            || text.contains("://")
            || Path::new(text).exists() && !is_command(text)
    };
    args.iter().any(|arg| arg == "-o")
        && args.get(1).is_some_and(|source| is_image(&source.to_string_lossy()))
}

/// Runs `ferofs` as the helper of mount(8).
pub(crate) fn run_mount_helper(args: &[OsString]) -> Outcome {
    mount::run_fuse(args, FEROFS)
}

/// The definitions of the command lines, for manual pages, each with the section of the manual.
pub(crate) fn definitions() -> Vec<(clap::Command, &'static str)> {
    vec![
        (mkfs::definition(), "1"),
        (fsck::definition(), "1"),
        (dump::definition(), "1"),
        (erofsfuse::definition(), "1"),
        (mount::definition(), "8"),
    ]
}
