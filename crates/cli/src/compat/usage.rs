//! Writes `mkfs.erofs --help` with options in the spelling of erofs-utils: `-b#`, `--chunksize=#`,
//! `--tar[=X]`. Scripts search the help for these words to find out which options exist.

use clap::{Arg, Command};

/// The column in which the descriptions start, in characters, as in erofs-utils. A longer option
/// has its description on the next line.
const COLUMN: usize = 24;
/// The most characters of a line.
const WIDTH: usize = 100;

/// The help of `command`, from its definition.
pub(super) fn help(mut command: Command) -> String {
    // Adds `--help`.
    command.build();
    let mut text = format!("Usage: {0} [OPTIONS] FILE SOURCE(s)\n\n", command.get_name());
    if let Some(about) = command.get_about() {
        text += &format!("{about}\n\n");
    }
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let words = arg.get_help().map(ToString::to_string).unwrap_or_default();
        text += &entry(&spelling(arg), &words);
    }
    if let Some(after) = command.get_after_help() {
        text += &format!("\n{after}\n");
    }
    text
}

/// How to write the option on a command line, or the name of the argument.
fn spelling(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first());
    let value = value.filter(|_| arg.get_action().takes_values()).map_or("", |name| name.as_str());
    let is_optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    match (arg.get_short(), arg.get_long()) {
        (None, None) => value.to_owned(),
        (Some(short), None) => format!("-{short}{value}"),
        (None, Some(long)) if value.is_empty() => format!("--{long}"),
        (None, Some(long)) if is_optional => format!("--{long}[={value}]"),
        (None, Some(long)) => format!("--{long}={value}"),
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
    }
}

/// An option with its description, in lines.
fn entry(spelling: &str, words: &str) -> String {
    let mut text = format!(" {spelling}");
    // Two spaces at least before the description.
    let mut column = text.chars().count();
    if column + 2 > COLUMN {
        text.push('\n');
        column = 0;
    }
    text.push_str(&" ".repeat(COLUMN - column));
    column = COLUMN;
    for word in words.split_whitespace() {
        let len = word.chars().count();
        if column > COLUMN && column + 1 + len > WIDTH {
            text.push_str(&format!("\n{}", " ".repeat(COLUMN)));
            column = COLUMN;
        }
        if column > COLUMN {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += len;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn options_are_spelled_as_in_erofs_utils() {
        let flag = |name: &'static str| Arg::new(name).long(name);
        assert_eq!(
            spelling(&Arg::new("b").short('b').value_name("#").action(ArgAction::Set)),
            "-b#"
        );
        assert_eq!(
            spelling(&flag("chunksize").value_name("#").action(ArgAction::Set)),
            "--chunksize=#"
        );
        assert_eq!(spelling(&flag("tar").value_name("X").num_args(0..=1)), "--tar[=X]");
        assert_eq!(spelling(&flag("aufs").action(ArgAction::SetTrue)), "--aufs");
        assert_eq!(spelling(&flag("help").short('h').action(ArgAction::Help)), "-h, --help");
    }

    #[test]
    fn lines_are_not_longer_than_a_terminal() {
        let text = entry("--a-very-long-name-of-an-option[=X]", &"word ".repeat(60));
        assert!(
            text.lines().count() > 3 && text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(COLUMN))), "{text}");
        assert_eq!(entry("-b#", "size"), format!(" -b#{}size\n", " ".repeat(COLUMN - 4)));
    }
}
