//! Running other programs, visibly.

use std::env;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository.
pub(crate) fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The cargo that runs us, in the repository.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository());
    cargo
}

/// Shows the command line, runs it, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    let line = std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ");
    eprintln!("{}", dim(&format!("$ {line}")));
    let status = command.status().with_context(|| line.clone())?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Builds ferofs and says where it is. Profile `checked` is as fast as `release`, but tells of overflows.
pub(crate) fn build_ferofs(profile: &str) -> Result<PathBuf> {
    run(cargo().args(["build", "--package", "ferofs-cli", "--profile", profile]))?;
    // Cargo's name for the folder of the profile `dev`.
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(ferofs_tests::scratch::target_dir().join(folder).join("ferofs"))
}

/// Grey on a terminal.
pub(crate) fn dim(text: &str) -> String {
    colour(text, "2")
}

/// Bold on a terminal.
pub(crate) fn bold(text: &str) -> String {
    colour(text, "1")
}

/// Coloured on a terminal (the number is that of ANSI's "select graphic rendition"), plain elsewhere.
pub(crate) fn colour(text: &str, code: &str) -> String {
    let wanted = std::io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
