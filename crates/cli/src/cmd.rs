//! The subcommands of `ferofs`, one module each.

mod cat;
pub(crate) mod check;
#[cfg(target_os = "linux")]
mod completions;
#[cfg(target_os = "linux")]
mod delta;
#[cfg(target_os = "linux")]
mod diff;
#[cfg(target_os = "linux")]
mod du;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod examples;
#[cfg(target_os = "linux")]
pub(crate) mod extract;
mod inspect;
#[cfg(target_os = "linux")]
mod links;
pub(crate) mod linux;
pub(crate) mod ls;
#[cfg(target_os = "linux")]
mod manual;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
#[cfg(target_os = "linux")]
mod patch;
#[cfg(target_os = "linux")]
mod paths;
pub(crate) mod tips;
#[cfg(target_os = "linux")]
mod verity;
#[cfg(target_os = "linux")]
pub(crate) mod write;

use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::Outcome;
use crate::print::color;
use crate::print::output::OUTPUT;
#[cfg(target_os = "linux")]
pub(crate) use examples::with_examples;

#[cfg(not(target_os = "linux"))]
use elsewhere::paths;
#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Command, run};

/// Build, mount, check, extract, inspect and patch EROFS images.
#[derive(Parser)]
#[command(name = "ferofs", version, max_term_width = 100)]
#[cfg_attr(not(target_os = "linux"), command(about = elsewhere::ABOUT))]
#[cfg_attr(
    target_os = "linux",
    command(
        after_help = "Under the names of erofs-utils (`ferofs links`), it takes their options."
    )
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Use colours in messages and help; $NO_COLOR turns them off, too
    // `color::find` reads it before the parser does.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_short_help = true,
        help_heading = OUTPUT
    )]
    color: color::When,

    /// Make warnings errors: for example, a pattern that matches nothing ends the command, and no
    /// image is written
    #[arg(long, global = true, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) strict: bool,
}

#[cfg(target_os = "linux")]
#[derive(Subcommand)]
pub(crate) enum Command {
    Build(Box<write::Args>),
    Check(check::Args),
    Diff(diff::Args),
    Inspect(inspect::Args),
    Patch(patch::Args),
    Delta(delta::Args),
    Extract(extract::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Du(du::Args),
    Mount(mount::Args),
    #[command(alias = "unmount")]
    Umount(mount::UmountArgs),
    Stats(mount::stats::Args),
    Verity(verity::Args),
    #[cfg(feature = "remote")]
    #[command(flatten)]
    Servers(crate::servers::Command),
    #[command(hide = true)]
    UnmountHelper(mount::unmount_helper::Args),
    Links(links::Args),
    Completions(completions::CompletionsArgs),
    Man(manual::ManArgs),
}

/// The definitions of the command lines of other names of the program, each with the section of its
/// manual page.
#[cfg(target_os = "linux")]
pub(crate) type OtherNames = fn() -> Vec<(clap::Command, &'static str)>;

/// Runs a subcommand. `others` is for the manual and for completions.
#[cfg(target_os = "linux")]
pub(crate) fn run(command: Command, others: OtherNames) -> Outcome {
    match command {
        Command::Build(args) => write::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Patch(args) => patch::run(&args),
        Command::Delta(args) => delta::run(&args),
        Command::Extract(args) => extract::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Du(args) => du::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => mount::umount(&args),
        Command::Stats(args) => mount::stats::run(&args),
        Command::Verity(args) => verity::run(&args),
        #[cfg(feature = "remote")]
        Command::Servers(command) => command.run(),
        Command::UnmountHelper(args) => mount::unmount_helper::run(&args),
        Command::Links(args) => links::run(&args),
        Command::Completions(args) => completions::completions(&args, Cli::command(), others()),
        Command::Man(args) => manual::man(&args, Cli::command(), others()),
    }
}
