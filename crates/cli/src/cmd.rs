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

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use clap::Subcommand;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Failure, INTERRUPTED, Outcome};
use crate::output::message;

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

/// Fails if `output` is one of the files that are read.
pub(crate) fn refuse_as_output(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    let identity = |path| {
        std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino(), metadata.is_file()))
    };
    match identity(output) {
        Some(own @ (.., true)) if inputs.iter().any(|input| identity(input) == Some(own)) => {
            Err(Failure::about(output, "the output would replace what is read"))
        }
        _ => Ok(()),
    }
}

/// How long work may take to end after a signal. What waits longer waits for somebody else, such as the writer of a pipe.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The same for what changes an image in place, and puts back what it changed.
pub(crate) const GRACE_IN_PLACE: Duration = Duration::from_secs(10);

/// The first SIGINT or SIGTERM ends the work cleanly; after `grace`, or with a second signal, the process ends in any case.
pub(crate) fn cancel_on_signals(cancel: &Arc<AtomicBool>, grace: Duration) -> Result<(), Failure> {
    const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
    for signal in SIGNALS {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(cancel))?;
        signal_hook::flag::register(signal, Arc::clone(cancel))?;
    }
    let mut signals = Signals::new(SIGNALS)?;
    // Without this thread a second signal is needed.
    let _ = thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            thread::sleep(grace);
            message!("interrupted");
            signal_hook::low_level::exit(INTERRUPTED);
        }
    });
    Ok(())
}
