//! `ferofs umount`: unmounts what ferofs has mounted, and EROFS. It leaves other file systems
//! alone: a mistyped directory must not cost the data of a tmpfs.

use std::io;
use std::path::{Path, PathBuf};

use ferofs::escape::Escaped;
use ferofs::host::follow_links;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::cmd::mount::daemon::record::Record;
use crate::cmd::mount::daemon_end::DaemonEnd;
use crate::cmd::mount::mount_table::{MountEntry, mount_at};
use crate::cmd::mount::unmount_helper;
use crate::cmd::mount::users::users;
use crate::exit::{Concerning, Failure, Outcome};

/// Types of mounts that ferofs unmounts and changes.
pub(super) const OWN_TYPES: [&str; 3] = ["erofs", "fuse.ferofs", "fuse.erofsfuse"];

/// How often a mount is looked at. Two suffice if no other process uses it at the same time.
const ATTEMPTS: usize = 16;

/// Unmount an image
///
/// Returns when the FUSE daemon has ended and its access profile is written.
#[derive(clap::Args)]
pub(crate) struct UmountArgs {
    /// The directory on which the image is mounted, by ferofs or by the kernel's EROFS driver
    pub(crate) dir: PathBuf,

    /// Unmount now, even if programs use files of it
    ///
    /// They can go on until they close the files. Nobody else finds the mount any more. The daemon
    /// ends later.
    #[arg(short, long)]
    pub(crate) lazy: bool,
}

pub(crate) fn umount(args: &UmountArgs) -> Outcome {
    let dir = absolute(&args.dir).concerning(&args.dir)?;
    // This process must not keep the mount busy.
    let _ = std::env::set_current_dir("/");
    let outcome = match args.lazy {
        true => check_type(&dir, &args.dir).and_then(|_| unmount_helper::detach(&dir)),
        false => unmount_and_wait(&dir, &args.dir),
    };
    if matches!(outcome, Ok(0)) {
        // The unmount helper has removed the record, unless it was killed.
        drop(Record::take(&dir));
    }
    outcome
}

/// Unmounts `dir`, which messages call `shown`, and waits for the end of its daemon.
fn unmount_and_wait(dir: &Path, shown: &Path) -> Outcome {
    let daemon = DaemonEnd::of(dir, &check_type(dir, shown)?);
    let code = unmount_own(dir, shown)?;
    if code == 0 {
        daemon.wait()?;
    }
    Ok(code)
}

fn unmount_own(dir: &Path, shown: &Path) -> Outcome {
    // No call unmounts a certain mount only. But with MNT_EXPIRE a call marks a mount that nobody
    // uses, and the next one unmounts what has the mark. So a mount that another process makes on
    // `dir` after the look at its type stays.
    for _ in 0..ATTEMPTS {
        check_type(dir, shown)?;
        match unmount(dir, UnmountFlags::NOFOLLOW | UnmountFlags::EXPIRE) {
            Err(Errno::AGAIN) => {}
            result => return finish(dir, shown, result),
        }
    }
    // Another process uses the mount again and again, which removes the mark.
    check_type(dir, shown)?;
    finish(dir, shown, unmount(dir, UnmountFlags::NOFOLLOW))
}

/// The mount on `dir`, if ferofs may unmount it.
fn check_type(dir: &Path, shown: &Path) -> Result<MountEntry, Failure> {
    let mount = mount_at(dir).concerning(shown)?;
    let mount = mount.ok_or_else(|| Failure::about(shown, "not a mount point"))?;
    // With -o subtype, its unmount helper tells.
    if OWN_TYPES.contains(&mount.kind.as_str()) || DaemonEnd::of(dir, &mount).has_helper() {
        return Ok(mount);
    }
    let kind = Escaped(mount.kind.as_bytes());
    let reason =
        format!("a mount of type {kind}, which ferofs has not made; umount(8) can unmount it");
    Err(Failure::about(shown, reason))
}

fn finish(dir: &Path, shown: &Path, result: rustix::io::Result<()>) -> Outcome {
    let is_dead = || ferofs_fuse::has_no_daemon(dir);
    match result {
        Ok(()) => Ok(0),
        // Nobody can use what has lost its daemon, so nobody is disturbed.
        Err(Errno::BUSY) if is_dead() => unmount_helper::detach(dir),
        Err(Errno::PERM) if is_dead() => unmount_helper::fusermount(dir, &["-u", "-z", "--"]),
        // Its message says that the mount is busy, but not why.
        Err(Errno::PERM) => match unmount_helper::fusermount(dir, &["-u", "--"])? {
            0 => Ok(0),
            code => users(dir).map_or(Ok(code), |users| Err(busy(shown, &users))),
        },
        Err(Errno::BUSY) => {
            let users = users(dir)
                .unwrap_or_else(|| "used by processes that this user does not see".to_owned());
            Err(busy(shown, &users))
        }
        Err(error) => Err(Failure::about(shown, io::Error::from(error))),
    }
}

/// The mount on `dir` cannot be unmounted while it is used.
fn busy(dir: &Path, users: &str) -> Failure {
    let hint =
        "`ferofs umount --lazy` removes it now; these programs keep what they use until they end";
    Failure::about(dir, format!("is busy: {users}; {hint}"))
}

/// Whether the path is a directory. Does not start an automount on it: if this process is to mount
/// for the automounter, both would wait for each other. std gives statx(2) no `AT_NO_AUTOMOUNT`.
pub(super) fn is_directory(path: &Path) -> io::Result<bool> {
    let found = statx(CWD, path.components().as_path(), AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory)
}

/// The path of a directory without symbolic links, and without a slash at its end, which would
/// start an automount. The directory itself may be a mount that cannot be asked for anything.
pub(super) fn absolute(dir: &Path) -> io::Result<PathBuf> {
    // readlink(2) sends no request to a daemon, which may not answer any more. mount follows links,
    // too.
    let dir = follow_links(dir);
    let parent =
        dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match dir.file_name() {
        Some(name) => Ok(std::fs::canonicalize(parent)?.join(name)),
        None => std::fs::canonicalize(dir),
    }
}
