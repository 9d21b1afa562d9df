//! Refuses files of `ferofs mount` that would replace what they must not (--pid-file,
//! --record-profile, --log-file), or that the mount would hide.

use std::io;
use std::path::Path;

use ferofs::escape::Escaped;

use crate::args::outputs::{refuse_as_outputs, writes_below};
use crate::cmd::mount::args::Args;
use crate::cmd::mount::daemon::is_daemon;
use crate::cmd::mount::mount_table::mount_at;
use crate::cmd::mount::passed_device;
use crate::cmd::mount::umount::{OWN_TYPES, absolute, is_directory};
use crate::exit::{Concerning, Failure};
use crate::print::output::confirm;

/// Bytes of a number of a process, and more.
const PID_MAX: u64 = 32;

/// Fails if the mount point is not a directory, or in the first process of a mount, if a file that
/// the mount writes is one that it reads, lies below the mount point, or is of another kind, or if
/// the mount would hide another image.
pub(crate) fn check(args: &Args) -> Result<(), Failure> {
    check_directory(&args.dir)?;
    if is_daemon() {
        return Ok(());
    }
    check_files(args)?;
    if args.over || args.helper.is_helper { Ok(()) } else { ask_before_second_mount(&args.dir) }
}

/// Fails if an image is mounted on `dir`, unless the user answers that another one shall hide it.
fn ask_before_second_mount(dir: &Path) -> Result<(), Failure> {
    // Mounting reports other errors.
    let Ok(Some(mount)) = absolute(dir).and_then(|dir| mount_at(&dir)) else { return Ok(()) };
    if !OWN_TYPES.contains(&mount.kind.as_str()) {
        return Ok(());
    }
    let source = Escaped::path(&mount.source);
    if confirm(format_args!("{}: {source} is mounted there; mount over it?", Escaped::path(dir)))? {
        return Ok(());
    }
    let reason = format!(
        "{source} is mounted there: `ferofs umount` it first, or use --over to mount over it"
    );
    Err(Failure::about(dir, reason))
}

/// Fails if the path is not a directory: FUSE would cover a file with a directory, which nobody can
/// open. Mounting reports other errors, as the directory can be a mount that has lost its daemon.
fn check_directory(dir: &Path) -> Result<(), Failure> {
    if passed_device::number(dir).is_some() {
        return passed_device::check(dir).concerning(dir);
    }
    match is_directory(dir) {
        Ok(false) => Err(Failure::about(dir, "not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::about(dir, format!("{error}; mkdir makes it")))
        }
        _ => Ok(()),
    }
}

fn check_files(args: &Args) -> Result<(), Failure> {
    let record = args.memory.record_profile();
    let outputs: Vec<&Path> = [args.pid_file.as_deref(), args.log_file.as_deref(), record]
        .into_iter()
        .flatten()
        .collect();
    let image = (!args.image.path.is_remote()).then(|| args.image.path.as_ref());
    let others = args.image.devices.iter().chain(&args.patches).chain(&args.image.seal.hash_file);
    let others = others.map(std::path::PathBuf::as_path);
    let inputs: Vec<&Path> =
        image.into_iter().chain(others).chain(args.memory.pinned_profile()).collect();
    refuse_as_outputs(&outputs, &inputs)?;
    let dir = absolute(&args.dir).concerning(&args.dir)?;
    for output in &outputs {
        if writes_below(output, &dir) {
            return Err(Failure::about(
                output,
                "lies below the mount point, which the mount hides: choose another directory",
            ));
        }
    }
    args.pid_file.as_deref().map_or(Ok(()), check_pid_file)
}

/// The file is removed with the mount, so that it must not be anything else.
fn check_pid_file(file: &Path) -> Result<(), Failure> {
    let metadata = match std::fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.concerning(file)?,
    };
    if metadata.is_symlink() {
        let reason = "a symbolic link, which --pid-file would replace: give the file that it names";
        return Err(Failure::about(file, reason));
    }
    let is_number = metadata.is_file() && metadata.len() <= PID_MAX && {
        let text = std::fs::read_to_string(file).concerning(file)?;
        text.trim().bytes().all(|byte| byte.is_ascii_digit())
    };
    match is_number {
        true => Ok(()),
        false => Err(Failure::about(
            file,
            "exists and has no number of a process, so that --pid-file would replace something else",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_a_number_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let accepts = |content: &str| {
            std::fs::write(&file, content).unwrap();
            check_pid_file(&file).is_ok()
        };
        assert!(
            accepts("") && accepts("4711\n") && !accepts("thesis") && !accepts(&"1".repeat(100))
        );
        assert!(
            check_pid_file(&dir.path().join("new")).is_ok() && check_pid_file(dir.path()).is_err()
        );
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("new"), &link).unwrap();
        assert!(check_pid_file(&link).is_err());
    }
}
