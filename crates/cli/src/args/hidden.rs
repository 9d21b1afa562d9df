//! The arguments of processes that this program starts with its own arguments again.
//!
//! Every user sees the arguments of a process (`ps`), and arguments may have passwords: `--user
//! me:secret`, `https://me:secret@host/`. A mount has processes that live as long as it does. They
//! get their arguments in environment variables, which only the same user and root can read, and
//! show only what names the mount.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The variables are this, and the number of the argument.
const VARIABLE: &str = "FEROFS_ARGUMENT_";
/// All variables of ferofs start with it.
pub(crate) const OWN_VARIABLES: &str = "FEROFS_";
/// The variables with which processes of a mount tell each other what they are start with it.
const MOUNT_VARIABLES: &str = "FEROFS_MOUNT_";
/// The root hash, for processes that a mount starts later: the file that an argument names may have
/// another name or content then.
pub(crate) const ROOT_HASH: &str = "FEROFS_MOUNT_ROOTHASH";

/// The arguments of this process, the program's name first.
pub(crate) fn args() -> Vec<OsString> {
    let visible = std::env::args_os();
    if !are_hidden() {
        return visible.collect();
    }
    (0..).map_while(|number| std::env::var_os(format!("{VARIABLE}{number}"))).collect()
}

/// The directory from which a process with the same arguments starts. No relative path leads
/// anywhere from a directory that was removed, so that any other one does.
pub(crate) fn current_dir() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

/// Whether this process shows other arguments than it has.
pub(crate) fn are_hidden() -> bool {
    std::env::var_os(format!("{VARIABLE}0")).is_some()
}

/// The root hash that the first process of this mount has read.
pub(crate) fn root_hash() -> Option<String> {
    are_hidden().then(|| std::env::var(ROOT_HASH).ok()).flatten()
}

/// This program again with the same arguments, of which a list of processes shows only `shown`.
pub(crate) fn again<'a>(shown: impl IntoIterator<Item = &'a OsStr>) -> io::Result<Command> {
    with(&args(), shown)
}

/// Whether only processes of one mount give each other this variable.
pub(crate) fn is_internal(variable: &str) -> bool {
    variable.starts_with(VARIABLE) || variable.starts_with(MOUNT_VARIABLES)
}

/// This program with these arguments, the program's name first, of which a list of processes shows
/// only `shown`.
pub(crate) fn with<'a>(
    args: &[OsString],
    shown: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(args.first().map_or(OsStr::new("ferofs"), OsString::as_os_str)).args(shown);
    command.envs(args.iter().enumerate().map(|(number, arg)| (format!("{VARIABLE}{number}"), arg)));
    Ok(command)
}

/// Removes what only a process with the same arguments needs from the environment of `command`,
/// which has other arguments.
pub(crate) fn forget(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes()) {
            command.env_remove(name);
        }
    }
    command
}
