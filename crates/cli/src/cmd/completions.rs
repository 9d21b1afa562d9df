//! `ferofs completions`: shell completions, generated from the definitions of `--help`.

use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use ferofs::build::{Features, compressor_names};

use super::links;
use crate::exit::{Failure, Outcome};

/// Write a completion script for a shell
///
/// To standard output.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,

    /// Name of the program: ferofs, or a name of erofs-utils
    #[arg(default_value = FEROFS, value_parser = names())]
    name: String,
}

const FEROFS: &str = "ferofs";

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new([FEROFS].into_iter().chain(links::NAMES))
}

/// Runs `ferofs completions`; `command` is the definition of the whole command line, and `others`
/// are those of other names of the program.
pub(crate) fn completions(
    args: &CompletionsArgs,
    command: Command,
    others: Vec<(Command, &str)>,
) -> Outcome {
    let mut all = std::iter::once(command).chain(others.into_iter().map(|(command, _)| command));
    let command = all.find(|command| command.get_name() == args.name);
    let command =
        command.ok_or_else(|| Failure::about(Path::new(&args.name), "has no completions"))?;
    // The generator panics if its writer fails, for example at a broken pipe, so it writes to
    // memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_values(command), &args.name, &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// Gives the options with free text the values that a shell can complete.
fn with_values(command: Command) -> Command {
    let compressors = || compressor_names().into_iter().chain(["none"]);
    command
        .mut_args(|arg| match arg.get_id().as_str() {
            "compress" | "compress_large" | "compressor" => {
                arg.value_parser(PossibleValuesParser::new(compressors()))
            }
            "features" | "extended" => arg.value_parser(PossibleValuesParser::new(Features::NAMES)),
            _ => arg,
        })
        .mut_subcommands(with_values)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn scripts_have_the_values_of_options() {
        let mut script = Vec::new();
        let mut command = with_values(crate::cmd::Cli::command());
        clap_complete::generate(Shell::Bash, &mut command, FEROFS, &mut script);
        let script = String::from_utf8(script).unwrap();
        for values in
            ["lz4 lz4hc lzma deflate", "48bit all-fragments dedupe", "default fast small smallest"]
        {
            assert!(script.contains(values), "{values}");
        }
    }
}
