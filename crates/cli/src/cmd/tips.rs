//! What an error suggests for words of other tools: options of mksquashfs and unsquashfs, and names that a command has elsewhere.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands that do not exist, and what does their task.
const COMMANDS: [(&str, &str); 20] = [
    ("add", "ferofs patch add IMAGE DIR"),
    ("append", "ferofs patch add IMAGE DIR"),
    ("apply", "ferofs patch apply IMAGE PATCH"),
    ("compare", "ferofs diff A B"),
    ("create", "ferofs build DIR IMAGE"),
    ("dump", "ferofs inspect IMAGE"),
    ("fsck", "ferofs check IMAGE"),
    ("info", "ferofs inspect IMAGE"),
    ("list", "ferofs ls IMAGE"),
    ("log", "ferofs patch log IMAGE"),
    ("mkfs", "ferofs build DIR IMAGE"),
    ("mksquashfs", "ferofs build DIR IMAGE"),
    ("rollback", "ferofs patch rollback IMAGE"),
    ("sign", "ferofs verity sign ROOTHASH, ferofs patch sign PATCH, or ferofs delta sign DELTA"),
    ("stat", "ferofs inspect IMAGE"),
    ("test", "ferofs check --deep IMAGE"),
    ("tree", "ferofs ls --recursive IMAGE"),
    ("unpack", "ferofs extract IMAGE DIR"),
    ("unsquashfs", "ferofs extract IMAGE DIR"),
    ("verify", "ferofs verity verify IMAGE ROOTHASH, or ferofs check --deep IMAGE"),
];

/// Commands, options that they do not have, and what does the same.
const OPTIONS: [(&str, &str, &str); 9] = [
    ("build", "-comp", "`-z` chooses the compressor, as in `-z zstd,15`; xz is called lzma, gzip deflate"),
    ("build", "-e", "`--exclude PATTERN` leaves files out"),
    ("build", "-noappend", "an image that exists is replaced; `ferofs patch add` appends"),
    ("build", "-root-owned", "`--all-root` gives all files to root"),
    ("build", "-processors", "`--workers N` sets the number of threads"),
    ("build", "-f", "images replace images; `--force` replaces files of other kinds"),
    ("extract", "-d", "the directory follows the image: ferofs extract IMAGE DIR"),
    ("extract", "-f", "`--overwrite` replaces files that exist"),
    ("inspect", "-f", "`--force` replaces a file of another kind"),
];

/// The error of a command line, with suggestions for words of other tools, and none for commands that only ferofs itself calls.
pub(crate) fn with_tips(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let command = args.get(1).and_then(|command| command.to_str()).unwrap_or_default();
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand if args.get(2).is_none_or(|next| next != command) => {
            COMMANDS.iter().find(|(name, _)| *name == command).map(|(_, tip)| *tip)
        }
        ErrorKind::UnknownArgument => OPTIONS
            .iter()
            .find(|(name, option, _)| *name == command && args.iter().any(|arg| arg == option))
            .map(|(.., tip)| *tip),
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    let commands = super::Cli::command();
    names.retain(|name| commands.find_subcommand(name).is_none_or(|command| !command.is_hide_set()));
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cmd::Cli;

    fn message(words: &[&str]) -> String {
        let args: Vec<OsString> = [&["ferofs"], words].concat().into_iter().map(OsString::from).collect();
        with_tips(Cli::try_parse_from(&args).err().unwrap(), &args).to_string()
    }

    #[test]
    fn words_of_other_tools_get_a_tip() {
        for (command, tip) in COMMANDS {
            let message = message(&[command, "IMAGE"]);
            assert!(message.contains(&format!("tip: {tip}")), "{command}: {message}");
        }
        for (command, option, tip) in OPTIONS {
            let message = message(&[command, "A", "B", option]);
            assert!(message.contains(&format!("tip: {tip}")), "{command} {option}: {message}");
        }
    }

    #[test]
    fn errors_do_not_suggest_commands_that_only_ferofs_calls() {
        for (typed, suggested) in [("unmount-x", "'umount'"), ("unmount-helpe", "")] {
            let message = message(&[typed]);
            assert!(!message.contains("unmount-helper"), "{message}");
            assert!(message.contains(suggested), "{message}");
        }
    }
}
