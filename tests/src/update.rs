//! Changes a tree like a software update: edits, appends, truncates, inserts, renames, deletes, changes attributes and types, and
//! makes links. The same seed gives the same changes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::content::Content;
use crate::need;
use crate::rng::Rng;

/// Files and directories below `root`, sorted. Leaves out names that are not UTF-8, because names are joined here as strings.
fn list(root: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut dirs, mut pending) = (Vec::new(), Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // Paths near PATH_MAX could not be extended.
            if entry.file_name().to_str().is_none() || entry.path().as_os_str().len() > 1000 {
                continue;
            }
            if kind.is_dir() {
                pending.push(entry.path());
                dirs.push(entry.path());
            } else if kind.is_file() && fs::metadata(entry.path())?.len() < 50 << 20 {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    dirs.sort();
    Ok((files, dirs))
}

/// Makes `count` changes of each kind in the tree below `root`.
///
/// # Errors
/// When the file system refuses.
pub fn update(root: &Path, seed: u64, count: usize) -> io::Result<()> {
    let mut rng = Rng::new(seed).fork(b"update");
    for number in 0..count {
        let (files, dirs) = list(root)?;
        let mut pick = |from: &[PathBuf]| from[rng.below(from.len() as u64) as usize].clone();
        let chosen: Vec<PathBuf> = (0..10).map(|_| pick(&files)).collect();
        let (dir, other) = (pick(&dirs), pick(&dirs));
        let name = |what: &str| format!("{what}-{seed}-{number}");
        edit(&chosen[0], &mut rng)?;
        let mut appended = File::options().append(true).open(&chosen[1])?;
        appended.write_all(&Content::Mixed.bytes(1 + rng.below(20_000) as usize, &mut rng))?;
        let shorter = File::options().write(true).open(&chosen[2])?;
        shorter.set_len(shorter.metadata()?.len() / 2)?;
        insert(&chosen[3], &mut rng)?;
        fs::set_permissions(
            &chosen[4],
            fs::Permissions::from_mode(0o400 + rng.below(0o400) as u32),
        )?;
        let value = Content::Text.bytes(rng.below(300) as usize, &mut rng);
        // Some file systems have no xattrs.
        let _ = rustix::fs::setxattr(
            &chosen[5],
            "user.update",
            &value,
            rustix::fs::XattrFlags::empty(),
        );
        if need::is_root() {
            rustix::fs::chown(
                &chosen[4],
                Some(rustix::fs::Uid::from_raw(rng.below(70_000) as u32)),
                None,
            )?;
        }
        let new = dir.join(name("new"));
        fs::create_dir(&new)?;
        fs::write(new.join("text"), Content::Text.bytes(rng.below(30_000) as usize, &mut rng))?;
        fs::write(new.join("noise"), Content::Noise.bytes(rng.below(9_000) as usize, &mut rng))?;
        symlink(name("nowhere"), new.join("link"))?;
        fs::hard_link(&chosen[6], new.join("hard"))?;
        // A file becomes an inode of another type.
        fs::remove_file(&chosen[7])?;
        match rng.below(3) {
            0 => fs::create_dir(&chosen[7])?,
            1 => symlink("..", &chosen[7])?,
            _ => fs::write(&chosen[7], b"")?,
        }
        if chosen[8].exists() {
            fs::rename(&chosen[8], other.join(name("moved")))?;
        }
        if chosen[9].exists() && !chosen[9].is_dir() {
            fs::remove_file(&chosen[9])?;
        }
        // Last, because these also move or delete the files chosen above.
        if !other.starts_with(&dir) && dir.parent() != Some(root) {
            fs::rename(&dir, root.join(name("renamed")))?;
        }
        if number % 4 == 3 && other.exists() && other.parent() != Some(root) {
            fs::remove_dir_all(&other)?;
        }
    }
    Ok(())
}

/// Overwrites some bytes and restores the modification time, as some programs do.
fn edit(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let metadata = file.metadata()?;
    let len = 1 + rng.below(100) as usize;
    file.write_all_at(&Content::Noise.bytes(len, rng), rng.below(metadata.size() + 1))?;
    let times = fs::FileTimes::new().set_modified(metadata.modified()?);
    file.set_times(times)
}

/// Inserts some bytes, so that all later bytes move.
fn insert(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let len = 1 + rng.below(50) as usize;
    let new = Content::Text.bytes(len, rng);
    bytes.splice(at..at, new);
    fs::write(path, bytes)
}

/// Copies the tree below `from` to `to`, with everything that `cp -a` keeps.
///
/// # Errors
/// The message of `cp`.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let output = std::process::Command::new("cp").args(["-a", "--"]).args([from, to]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
