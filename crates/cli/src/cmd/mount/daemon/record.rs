//! Records of mounts: the arguments with which each was made, so that `mount.erofs --reattach` can
//! make it again when all its processes were killed.
//!
//! A record is a file that only its user can read: the arguments may have passwords. Its name is
//! the number of the keeper. It has the directory of the mount, the current directory, the number
//! of variables, the variables, and the arguments; each ends with a zero byte. The unmount helper
//! removes it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::args::hidden;

/// Variables that change what the arguments mean. Those of ferofs are recorded, too.
const VARIABLES: [&str; 3] = ["HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"];

/// How a mount was made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The directory of the mount: an absolute path without symbolic links.
    pub(crate) dir: PathBuf,
    /// The current directory of the command.
    pub(crate) current: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// The arguments of the command, the program's name first.
    pub(crate) args: Vec<OsString>,
}

impl Record {
    /// The record of a mount on `dir` by this process.
    pub(super) fn of_this_process(dir: &Path) -> Self {
        let is_meant = |name: &OsStr| {
            let text = name.to_string_lossy();
            VARIABLES.contains(&&*text)
                || text.starts_with(hidden::OWN_VARIABLES) && !hidden::is_internal(&text)
        };
        Self {
            dir: dir.to_owned(),
            current: hidden::current_dir(),
            variables: std::env::vars_os().filter(|(name, _)| is_meant(name)).collect(),
            args: hidden::args(),
        }
    }

    /// Stores the record as `file`.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            if !is_own(&std::fs::symlink_metadata(folder)?) {
                return Err(io::Error::other("another user can write to its folder"));
            }
        }
        // A process with the same number, which has ended, may have left one.
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
        file.write_all(&self.to_bytes())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let count = OsString::from(self.variables.len().to_string());
        let variables = self.variables.iter().flat_map(|(name, value)| [name, value]);
        let head = [self.dir.as_os_str(), self.current.as_os_str(), &count];
        let texts = head.into_iter().chain(variables.chain(&self.args).map(OsString::as_os_str));
        texts.flat_map(|text| text.as_bytes().iter().chain(b"\0")).copied().collect()
    }

    /// `None` for bytes that are not a complete record.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut texts = bytes
            .strip_suffix(b"\0")?
            .split(|byte| *byte == 0)
            .map(|text| OsString::from_vec(text.to_vec()));
        let (dir, current) = (texts.next()?.into(), texts.next()?.into());
        let count: usize = texts.next()?.to_str()?.parse().ok()?;
        let mut variables = Vec::new();
        for _ in 0..count {
            variables.push((texts.next()?, texts.next()?));
        }
        let args: Vec<_> = texts.collect();
        (!args.is_empty()).then_some(Self { dir, current, variables, args })
    }

    /// Takes the records of mounts on `dir` whose keepers have ended, and returns the latest one.
    pub(crate) fn take(dir: &Path) -> Option<Self> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder()?).ok()?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            // Nobody else may decide what this process runs.
            let is_own = metadata.is_file() && is_own(&metadata);
            // A process that has ended has no program, also before its parent has looked at it.
            let program =
                std::fs::read_link(Path::new("/proc").join(entry.file_name()).join("exe"));
            let has_ended = program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if !is_own || !has_ended {
                continue;
            }
            let record = std::fs::read(entry.path()).ok().and_then(|bytes| Self::parse(&bytes));
            if let Some(record) = record.filter(|record| record.dir == dir) {
                // If it stays, it names a mount that does not exist.
                let _ = std::fs::remove_file(entry.path());
                found.extend(metadata.modified().ok().map(|time| (time, record)));
            }
        }
        found.into_iter().max_by_key(|(time, _)| *time).map(|(_, record)| record)
    }
}

/// Whether only this user can write to it.
fn is_own(metadata: &std::fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

/// The file for the record of this process; `None` if there is no folder for such files.
pub(super) fn file() -> Option<PathBuf> {
    Some(folder()?.join(std::process::id().to_string()))
}

/// The folder with the records of this user, which a restart of the machine empties.
fn folder() -> Option<PathBuf> {
    let base = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())?
    };
    Some(base.join("ferofs/mounts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = Record {
            dir: "/mnt".into(),
            current: "/".into(),
            variables: vec![("HOME".into(), "".into()), ("FEROFS_USER".into(), "me".into())],
            args: vec!["mount.erofs".into(), "".into(), OsString::from_vec(vec![0xff])],
        };
        let bytes = record.to_bytes();
        assert_eq!(Record::parse(&bytes), Some(record));
        for len in 0..bytes.len() - 5 {
            // A record that was written in part is invalid, or has fewer arguments.
            if let Some(record) = Record::parse(&bytes[..len]) {
                assert!(record.args.len() < 3, "{record:?}");
            }
        }
    }
}
