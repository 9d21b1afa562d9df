//! Runs other programs and prints their command lines, builds `ferofs`, and styles text and formats
//! sizes for terminals.

use std::env;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The root directory of the repository.
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The cargo that started this program, with the repository as its working directory.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository());
    cargo
}

/// Prints the command line and runs it.
///
/// # Errors
/// When the program cannot be started, or its exit code is not 0.
pub fn run(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let words = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    let line = std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ");
    eprintln!("{}", dim(&format!("$ {line}"), &io::stderr()));
    let status = command.status().with_context(|| line.clone())?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Starts this program again in a mount namespace whose root is a mount, if the root is a directory
/// that only chroot(1) entered: there, no program could make its mounts private. The new root is a
/// copy of all mounts, which lies over /proc, so that nothing is seen outside.
///
/// # Errors
/// When the program cannot be started again.
pub fn with_private_root() -> Result<()> {
    let can_mount = |options: &[&str]| {
        let tried = Command::new("unshare").arg("--mount").args(options).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let unchanged = ["--propagation", "unchanged"];
    if can_mount(&[]) || !can_mount(&unchanged) {
        return Ok(());
    }
    let enter =
        "mount --make-private /proc && mount --rbind / /proc && mount --make-rprivate /proc || exit
        exec chroot /proc sh -c 'cd \"$0\" && exec \"$@\"' \"$0\" \"$@\"";
    let mut again = Command::new("unshare");
    again.arg("--mount").args(unchanged).args(["sh", "-c", enter]).arg(env::current_dir()?);
    Err(again.arg(env::current_exe()?).args(env::args_os().skip(1)).exec()).context("unshare")
}

/// Runs a command, and returns what it prints.
///
/// # Errors
/// When it cannot be started, or fails: with its command line and standard error.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Runs a command, and prints its output only after an error.
///
/// # Errors
/// As [`output`].
pub fn run_quietly(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Builds ferofs and returns the path of the program. The profile `checked` is as fast as `release`
/// and also detects integer overflows.
///
/// # Errors
/// When cargo fails.
pub fn build_ferofs(profile: &str) -> Result<PathBuf> {
    build_program("ferofs-cli", "ferofs", profile)
}

/// Builds `program` of `package` and returns its path.
///
/// # Errors
/// When cargo fails.
pub fn build_program(package: &str, program: &str, profile: &str) -> Result<PathBuf> {
    run(cargo().args(["build", "--package", package, "--profile", profile]))?;
    // Cargo calls the folder of the profile `dev` "debug".
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(ferofs_tests::scratch::target_dir().join(folder).join(program))
}

/// `text` in grey, if `stream`, to which it is printed, is a terminal.
pub fn dim(text: &str, stream: &impl IsTerminal) -> String {
    style(text, "2", stream)
}

/// `text` in bold, if standard output is a terminal.
pub fn bold(text: &str) -> String {
    colour(text, "1")
}

/// `text` in the style `code` (ANSI "select graphic rendition"), if standard output is a terminal.
pub fn colour(text: &str, code: &str) -> String {
    style(text, code, &io::stdout())
}

fn style(text: &str, code: &str, stream: &impl IsTerminal) -> String {
    let wanted = stream.is_terminal() && env::var_os("NO_COLOR").is_none();
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A size in powers of ten, as disks are sold: `1.2 MB`.
pub fn size(bytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 1e3 && unit < units.len() - 1 {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

/// Bytes per second.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!("{}/s", size((bytes as f64 / time.as_secs_f64().max(1e-9)) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(999), "1.0 kB");
        assert_eq!(size(1_234_567), "1.2 MB");
        assert_eq!(rate(2_000_000, Duration::from_secs(2)), "1.0 MB/s");
    }
}
