//! Options and values that several commands take.

pub(crate) mod byte_size;
#[cfg(target_os = "linux")]
pub(crate) mod exclude;
#[cfg(target_os = "linux")]
pub(crate) mod hidden;
pub(crate) mod image;
#[cfg(target_os = "linux")]
pub(crate) mod other_format;
#[cfg(target_os = "linux")]
pub(crate) mod outputs;
#[cfg(target_os = "linux")]
pub(crate) mod overwrite;
pub(crate) mod seal;
#[cfg(target_os = "linux")]
pub(crate) mod settings;
#[cfg(target_os = "linux")]
pub(crate) mod signature;
#[cfg(target_os = "linux")]
pub(crate) mod text_file;

use std::ffi::OsString;
use std::num::NonZeroUsize;

use clap::{Arg, ArgAction, Command};

/// The groups of options that follow a command's own options in its help, beside those of servers
/// and of output.
pub(crate) const SOURCES: &str = "Sources";
pub(crate) const IMAGE: &str = "Image";

/// The help of a command in which `-h` is an option for sizes, as in ls(1).
#[derive(clap::Args)]
pub(crate) struct HelpArgs {
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    /// Print a short help
    #[arg(long, hide = true, action = ArgAction::HelpShort)]
    short_help: Option<bool>,
}

/// Makes `-h` alone ask for help in these commands, too.
pub(crate) fn with_short_help(args: &[OsString]) -> Vec<OsString> {
    let mut args = args.to_vec();
    if let [_, command, option] = args.as_mut_slice()
        && option == "-h"
        && (command == "ls" || command == "du")
    {
        *option = OsString::from("--short-help");
    }
    args
}

/// Whether these arguments may show help. Otherwise its examples, which take a millisecond, are not
/// made.
pub(crate) fn may_show_help(args: &[OsString]) -> bool {
    let asks = |arg: &[u8]| arg == b"help" || arg.starts_with(b"-") && arg.contains(&b'h');
    args.len() < 3 || args.iter().any(|arg| asks(arg.as_encoded_bytes()))
}

/// The number of threads that an option asks for, or that this machine has processors, as far as
/// memory allows.
pub(crate) fn threads(option: Option<NonZeroUsize>) -> usize {
    /// Bytes of the buffers of a thread that hashes.
    const BUFFERS: u64 = 2 << 20;
    ferofs_threads::fitting_workers(option, BUFFERS)
}

/// Lets the values of options begin with a minus sign: the message about `-b -1` then names the
/// option and what it takes.
pub(crate) fn with_negative_values(command: Command) -> Command {
    let takes_one = |arg: &Arg| {
        let is_optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
        !arg.is_positional() && arg.get_action().takes_values() && !is_optional
    };
    command
        .mut_args(|arg| if takes_one(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_values)
}

/// Returns "; the nearest is X" if one of `names` is similar to `name`, else nothing.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    // Jaro-Winkler similarity, from 0 to 1. Names below this value look unrelated to people.
    const MIN_SIMILARITY: f64 = 0.75;
    let similarity = |other: &str| strsim::jaro_winkler(name, other);
    let best = names.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    best.filter(|best| similarity(best) > MIN_SIMILARITY)
        .map_or(String::new(), |best| format!("; the nearest is {best}"))
}
