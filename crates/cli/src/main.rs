//! The `ferofs` command: build, mount, check, extract, inspect and patch EROFS images.
//!
//! The name of the program selects the command line: `ferofs` has subcommands (`cmd/`, one module each), and the names of
//! erofs-utils have the options of erofs-utils (`compat/`). Each command returns an exit code or an [`exit::Failure`],
//! which becomes one line on standard error.

// Only `cmd::mount::loop_device` and `cmd::mount::daemon::keeper::fork` allow it.
#![deny(unsafe_code)]
// Other systems have the commands that read images; the others use more of the modules.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, unused_macros))]

mod args;
mod cmd;
#[cfg(target_os = "linux")]
mod compat;
mod exit;
mod print;
#[cfg(feature = "remote")]
mod servers;
#[cfg(target_os = "linux")]
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    exit::catch_panics(run)
}

fn parse(args: &[OsString]) -> Result<cmd::Cli, clap::Error> {
    let command = args::with_negative_values(cmd::Cli::command()).color(print::color::find(args));
    #[cfg(target_os = "linux")]
    let command = if args::may_show_help(args) { cmd::with_examples(command) } else { command };
    if let Some(error) = cmd::tips::option_of_squashfs_tools(&command, args) {
        return Err(error);
    }
    let matches = command.try_get_matches_from(args::with_short_help(args));
    cmd::Cli::from_arg_matches(&matches.map_err(|error| cmd::tips::with_tips(error, args))?)
}

#[cfg(target_os = "linux")]
fn run() -> ExitCode {
    signals::report_file_size_limit();
    let args: Vec<OsString> = args::hidden::args();
    let program = args.first().and_then(|name| compat::find_program(name));
    exit::finish(match program {
        Some(run) => run(&args),
        None if compat::is_mount_helper(&args) => compat::run_mount_helper(&args),
        None => match parse(&args) {
            Ok(cli) => {
                print::output::set_strict(cli.strict);
                cmd::run(cli.command, compat::definitions)
            }
            Err(error) if args.get(1).is_some_and(|command| command == "check") => {
                Ok(exit::print_usage_as_fsck(&error))
            }
            Err(error) => error.exit(),
        },
    })
}

#[cfg(not(target_os = "linux"))]
fn run() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    exit::finish(match parse(&args) {
        Ok(cli) => {
            print::output::set_strict(cli.strict);
            cmd::run(cli.command)
        }
        Err(error) if args.get(1).is_some_and(|command| command == "check") => {
            Ok(exit::print_usage_as_fsck(&error))
        }
        Err(error) => error.exit(),
    })
}
