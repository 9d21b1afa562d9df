//! `--color`: whether output has colours.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::{ColorChoice, ValueEnum};

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless $NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The value of the option, for messages: threads print them, too.
static WHEN: AtomicU8 = AtomicU8::new(When::Auto as u8);

/// Finds the option before the command line is parsed, because parsing prints help and errors in
/// colours. A wrong value is left to the parser.
pub(crate) fn find(args: &[OsString]) -> ColorChoice {
    let values = args.iter().enumerate().filter_map(|(number, arg)| match arg.to_str()? {
        "--color" => args.get(number + 1)?.to_str(),
        arg => arg.strip_prefix("--color="),
    });
    let when = values
        .filter_map(|value| When::from_str(value, false).ok())
        .next_back()
        .unwrap_or_default();
    WHEN.store(when as u8, Ordering::Relaxed);
    match when {
        When::Auto => ColorChoice::Auto,
        When::Always => ColorChoice::Always,
        When::Never => ColorChoice::Never,
    }
}

/// Whether messages on standard error have colours.
pub(super) fn messages_have_colors() -> bool {
    match WHEN.load(Ordering::Relaxed) {
        when if when == When::Always as u8 => true,
        when if when == When::Never as u8 => false,
        _ => {
            std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_valid_value_counts() {
        let find =
            |args: &[&str]| super::find(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            find(&["ferofs", "ls", "--color=always", "--color", "never"]),
            ColorChoice::Never
        );
        assert_eq!(find(&["ferofs", "ls", "--color"]), ColorChoice::Auto);
        assert_eq!(find(&["ferofs", "ls", "--color=x"]), ColorChoice::Auto);
    }
}
