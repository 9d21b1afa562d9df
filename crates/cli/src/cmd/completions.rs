//! `ferofs completions` and `ferofs man`: generated from the same definitions as `--help`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::exit::{Failure, Outcome};

/// Write a shell's completion script to standard output
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write a manual page for each command into a directory
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The directory for the pages
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    // The generator panics when its writer fails; a broken pipe is no reason for that.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "ferofs", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

pub(crate) fn man(args: &ManArgs) -> Outcome {
    let mut cli = crate::Cli::command();
    cli.build();
    let mut pages = vec![("ferofs".to_owned(), cli.clone())];
    for sub in cli.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        pages.push((format!("ferofs-{}", sub.get_name()), sub.clone()));
    }
    for (name, command) in pages {
        write_page(args, &name, command)?;
    }
    Ok(0)
}

fn write_page(args: &ManArgs, name: &str, command: Command) -> Result<(), Failure> {
    let path = args.dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.display_name(name)).title(name).render(&mut page)?;
    std::fs::write(&path, page).map_err(|e| Failure::about(&path, e))
}
