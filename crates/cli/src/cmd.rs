//! The subcommands of `ferofs`, one file each.

pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod check;
mod completions;
mod daemon_log;
mod diff;
mod display;
pub(crate) mod extract;
pub(crate) mod image;
mod inspect;
mod keeper;
mod kernel_mount;
mod links;
mod loop_device;
pub(crate) mod ls;
pub(crate) mod mount;
mod mount_flags;
mod mount_memory;
mod mount_options;
mod mountinfo;
mod names;
mod patch;
mod sidecar;
mod stats;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;

use crate::exit::{Failure, Outcome};

#[derive(Subcommand)]
pub(crate) enum Command {
    Build(Box<build::Args>),
    Check(check::Args),
    Diff(diff::Args),
    Inspect(inspect::Args),
    Patch(patch::Args),
    Extract(extract::Args),
    Ls(ls::Args),
    Mount(mount::Args),
    Umount(mount::UmountArgs),
    Stats(stats::Args),
    #[command(hide = true)]
    Keeper(keeper::Args),
    Cat(cat::Args),
    Links(links::Args),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Build(args) => build::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Patch(args) => patch::run(&args),
        Command::Extract(args) => extract::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => mount::umount(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Keeper(args) => keeper::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Links(args) => links::run(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
    }
}

/// The first SIGINT or SIGTERM ends the work cleanly.
pub(crate) fn cancel_on_signals(cancel: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(cancel))?;
        signal_hook::flag::register(signal, Arc::clone(cancel))?;
    }
    Ok(())
}
