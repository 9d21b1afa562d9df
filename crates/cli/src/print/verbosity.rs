//! `--quiet` and `--verbose` of long commands.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU8, Ordering};

const QUIET: u8 = 1;
const VERBOSE: u8 = 2;

/// The level from the command line; 0 without an option. Code that shows progress reads it from anywhere.
static WANTED: AtomicU8 = AtomicU8::new(0);

/// How much a long command prints.
#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print only errors, warnings and results; no progress and no summary
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Print the summary even if standard output is not a terminal
    #[arg(short, long)]
    verbose: bool,
}

impl OutputArgs {
    /// Applies the options to all that is printed from now on.
    pub(crate) fn apply(&self) {
        set(self.quiet, self.verbose);
    }
}

/// Applies the options of a command that defines them itself.
pub(crate) fn set(quiet: bool, verbose: bool) {
    let wanted = match (quiet, verbose) {
        (true, _) => QUIET,
        (_, true) => VERBOSE,
        _ => 0,
    };
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Whether progress may be shown on a terminal.
pub(crate) fn shows_progress() -> bool {
    WANTED.load(Ordering::Relaxed) != QUIET
}

/// Whether to print a summary: on a terminal, or if the command line asks for it.
pub(crate) fn wants_summary() -> bool {
    match WANTED.load(Ordering::Relaxed) {
        QUIET => false,
        VERBOSE => true,
        _ => std::io::stdout().is_terminal(),
    }
}
