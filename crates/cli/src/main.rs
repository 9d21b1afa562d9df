//! The `ferofs` command: build, mount, check, extract, inspect and patch EROFS images.
//!
//! `main` looks at the name it was called by: `ferofs` has subcommands (`cmd/`, one module each), the names
//! of erofs-utils have their own command lines (`compat/`). Each command parses purely, runs, and
//! returns an exit code or a [`exit::Failure`], which becomes one line on standard error.

// Allowed in `cmd::mount::loop_device` alone.
#![deny(unsafe_code)]

mod args;
mod cmd;
mod compat;
mod exit;
mod print;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    exit::guard(run)
}

fn run() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let front_end = args.first().and_then(|name| compat::front_end(name));
    exit::finish(match front_end {
        Some(run) => run(&args),
        None => match cmd::Cli::try_parse_from(&args) {
            Ok(cli) => cmd::run(cli.command),
            Err(error) if args.get(1).is_some_and(|command| command == "check") => {
                Ok(exit::refuse_fsck(&error))
            }
            Err(error) => error.exit(),
        },
    })
}
