//! The `ferofs` command: build, mount, check, extract, inspect and patch EROFS images.
//!
//! The name of the program selects the command line: `ferofs` has subcommands (`cmd/`, one module
//! each), and the names of erofs-utils have the options of erofs-utils (`compat/`). Each command
//! returns an exit code or an [`exit::Failure`], which becomes one line on standard error.

// Only `loop_device`, `passed_device` and `daemon::keeper::fork` in `cmd::mount` allow it.
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

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: ferofs_threads::ReportingAllocator =
    ferofs_threads::ReportingAllocator { program: "ferofs", code: exit::OUT_OF_MEMORY };

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
    ferofs_threads::reserve_less_if_limited();
    signals::report_file_size_limit();
    let args: Vec<OsString> = args::hidden::args();
    let program = args.first().and_then(|name| compat::find_program(name));
    exit::finish(match program {
        Some((run, mounts)) => {
            limit_memory((!mounts).then_some(0));
            run(&args)
        }
        None if compat::is_mount_helper(&args) => compat::run_mount_helper(&args),
        None => match parse(&args) {
            Ok(cli) => {
                print::output::set_strict(cli.strict);
                limit_memory(match &cli.command {
                    cmd::Command::Mount(_) | cmd::Command::UnmountHelper(_) => None,
                    // Compressors with large tables, of which most content uses 60 to 70 percent.
                    cmd::Command::Patch(_) => Some(25),
                    cmd::Command::Delta(args) if args.is_apply() => Some(25),
                    _ => Some(0),
                });
                cmd::run(cli.command, compat::definitions).map_err(exit::Failure::with_usage_code)
            }
            Err(error) if args.get(1).is_some_and(|command| command == "check") => {
                Ok(exit::print_usage_as_fsck(&error))
            }
            Err(error) => Ok(exit::print_usage(&error, exit::USAGE)),
        },
    })
}

/// Lets the kernel refuse memory that the cgroup does not have: a process that is killed says
/// nothing. Not for mounts, which last: the limit of their cgroup can change.
#[cfg(target_os = "linux")]
fn limit_memory(unused: Option<u64>) {
    if let Some(unused) = unused {
        ferofs_threads::refuse_memory_beyond_cgroup(unused);
        ferofs_threads::reserve_less_if_limited();
    }
}

#[cfg(not(target_os = "linux"))]
fn run() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    exit::finish(match parse(&args) {
        Ok(cli) => {
            print::output::set_strict(cli.strict);
            cmd::run(cli.command).map_err(exit::Failure::with_usage_code)
        }
        Err(error) if args.get(1).is_some_and(|command| command == "check") => {
            Ok(exit::print_usage_as_fsck(&error))
        }
        Err(error) => Ok(exit::print_usage(&error, exit::USAGE)),
    })
}
