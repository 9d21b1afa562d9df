//! `ferofs completions` and `ferofs man`: shell completions and manual pages, generated from the definitions of `--help`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use ferofs::build::NewFile;

use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::exit::{Failure, Outcome};

/// Write a completion script for a shell to standard output
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,
}

/// Write a manual page for each command and subcommand, and for the names of erofs-utils, to a directory
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The directory in which to write the pages; it is created if it does not exist
    dir: PathBuf,

    #[command(flatten)]
    overwrite: OverwriteArgs,
}

/// Pages and their files.
type Pages = Vec<(PathBuf, Vec<u8>)>;

/// Runs `ferofs completions`; `command` is the definition of the whole command line.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Outcome {
    // The generator panics if its writer fails, for example at a broken pipe, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "ferofs", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// Runs `ferofs man`; `command` is the definition of the whole command line, and `others` are those of other names of the program, with the
/// sections of their pages.
pub(crate) fn man(args: &ManArgs, mut command: Command, others: Vec<(Command, &str)>) -> Outcome {
    command.build();
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::about(&args.dir, e))?;
    let mut pages = Pages::new();
    add_pages(&mut pages, args, "ferofs", &command)?;
    for (command, section) in others {
        let name = command.get_name().to_owned();
        add_page(&mut pages, args, &name, section, command)?;
    }
    // Nothing is written if something else would be lost.
    for (path, _) in &pages {
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Failure::about(path, "not a regular file: a manual page cannot replace it"));
        }
        args.overwrite.check(path, OutputKind::ManPage)?;
    }
    for (path, page) in pages {
        let mut file = NewFile::create(&path).map_err(Failure::without_subject)?;
        file.write_all(&page).map_err(|e| Failure::about(&path, e))?;
        file.finish().map_err(Failure::without_subject)?;
    }
    Ok(0)
}

/// Adds the page `name` of `command`, and those of its subcommands: `ferofs-patch-create` is the page of `ferofs patch create`.
fn add_pages(pages: &mut Pages, args: &ManArgs, name: &str, command: &Command) -> Result<(), Failure> {
    add_page(pages, args, name, "1", command.clone())?;
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    for sub in subcommands {
        add_pages(pages, args, &format!("{name}-{}", sub.get_name()), sub)?;
    }
    Ok(())
}

fn add_page(
    pages: &mut Pages,
    args: &ManArgs,
    name: &str,
    section: &str,
    command: Command,
) -> Result<(), Failure> {
    let path = args.dir.join(format!("{name}.{section}"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.display_name(name)).title(name).section(section).render(&mut page)?;
    pages.push((path, page));
    Ok(())
}
