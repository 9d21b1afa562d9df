//! The subcommands of `ferofs`, one file each.

mod build;
mod cat;
mod completions;
mod image;
mod links;
mod ls;
pub(crate) mod mount;

use clap::Subcommand;

use crate::exit::Outcome;

#[derive(Subcommand)]
pub(crate) enum Command {
    Build(Box<build::Args>),
    Ls(ls::Args),
    Mount(mount::Args),
    Umount(mount::UmountArgs),
    Cat(cat::Args),
    Links(links::Args),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Build(args) => build::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => mount::umount(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Links(args) => links::run(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
    }
}
