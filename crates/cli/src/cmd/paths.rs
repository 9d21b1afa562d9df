//! Paths in an image with patterns, such as `/usr/lib/*.so`. The shell cannot expand them, because
//! it does not see the files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ferofs::build::{Patterns, UsedPatterns};
use ferofs::escape::Escaped;
use ferofs::read::{Error, Image, Inode};

use crate::exit::{About, Failure};
use crate::print::output::message;
use crate::print::shown;

/// `paths`, with what the patterns match instead of them, in the order of names. Paths without a
/// pattern need not exist. Messages are about `subject`, the image.
///
/// # Errors
/// A pattern matches nothing or is broken, or a directory cannot be read.
pub(super) fn expand(
    image: &Image,
    subject: &Path,
    paths: &[PathBuf],
) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        // A file may have such a name.
        if !has_pattern(path.as_os_str()) || image.resolve(path, false).is_ok() {
            all.push(path.clone());
            continue;
        }
        let found = matches(image, subject, path)?;
        if found.is_empty() {
            let reason = format!("{}: no file of the image matches it", Escaped::path(path));
            return Err(Failure::about(subject, reason));
        }
        all.extend(found);
    }
    Ok(all)
}

/// `patterns` for [`Selection`](ferofs::extract::Selection), with the names that exist below
/// `start` exactly so taken as they are: as for [`expand`].
pub(super) fn patterns(image: &Image, start: &Inode, patterns: &[String]) -> Vec<String> {
    let exists = |path: &str| {
        let mut names = path.split('/').filter(|name| !matches!(*name, "" | "."));
        let found = names.try_fold(start.clone(), |dir, name| {
            let entry = image.lookup(&dir, name.as_bytes()).ok()??;
            image.inode(entry.nid).ok()
        });
        found.is_some()
    };
    let exactly = |pattern: &String| match exists(pattern) {
        true => Patterns::exactly(pattern),
        false => pattern.clone(),
    };
    patterns.iter().map(exactly).collect()
}

/// The value of `result`. `None` if the image is damaged at `path`: this prints the damage and sets
/// `is_damaged`, so that the caller can go on with other files.
///
/// # Errors
/// The walk ends: it was interrupted, or a limit is reached.
pub(super) fn unless_damaged<T>(
    result: Result<T, Error>,
    subject: &Path,
    path: &Path,
    is_damaged: &mut bool,
) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.ends_all() => Err(error).about(subject),
        Err(error) => {
            // Without a slash at the end, as `join` leaves it after an empty path.
            let path: PathBuf = path.components().collect();
            message!("{}: {}: {error}", Escaped::path(subject), shown(&path));
            *is_damaged = true;
            Ok(None)
        }
    }
}

fn has_pattern(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

fn matches(image: &Image, subject: &Path, path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = vec![PathBuf::from(if path.is_absolute() { "/" } else { "" })];
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::ParentDir => OsStr::new(".."),
            _ => continue,
        };
        let Some(pattern) = name.to_str().filter(|_| has_pattern(name)) else {
            found.iter_mut().for_each(|dir| dir.push(name));
            continue;
        };
        // With a slash, it is not a name at any depth.
        let patterns = Patterns::new(&[format!("/{pattern}")]).map_err(|error| {
            Failure::about(subject, format!("{}: {}", Escaped::path(path), error.reason))
        })?;
        let mut entries = Vec::new();
        for dir in &found {
            list(image, dir, &patterns, pattern.starts_with('.'), &mut entries).about(subject)?;
        }
        found = entries;
    }
    // A name after a pattern is only in some of the directories.
    found.retain(|path| image.resolve(path, false).is_ok());
    found.sort();
    Ok(found)
}

/// Adds the entries of `dir` that `patterns` match, as in a shell: those with a leading dot only if
/// `with_dot`. What is not a directory has none.
fn list(
    image: &Image,
    dir: &Path,
    patterns: &Patterns,
    with_dot: bool,
    found: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let inode = match image.resolve(dir, true) {
        Ok(inode) if inode.is_dir() => inode,
        Ok(_) | Err(Error::NotFound(_) | Error::NotADirectory(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let used = UsedPatterns::default();
    for entry in image.read_dir(&inode)? {
        let name = entry?.name;
        let is_left_out = name.starts_with(b".") && (!with_dot || name == b"." || name == b"..");
        if !is_left_out && patterns.matched(&name, &|| false, 0, &used) == Some(true) {
            let path = dir.join(OsStr::from_bytes(&name));
            image.charge_path(path.as_os_str().len())?;
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("source"), dir.path().join("image"));
        for file in [
            "etc/a.conf",
            "etc/b.conf",
            "etc/.c.conf",
            "etc/a.txt",
            "lib/x/a.conf",
            "odd[1]",
            "odd1",
        ] {
            let path = source.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        ferofs::build::build(&ferofs::build::Options::new(&source), &target).unwrap();
        let image = Image::open(fs::read(&target).unwrap()).unwrap();
        let expand = |path: &str| {
            let found = expand(&image, &target, &[PathBuf::from(path)])?;
            Ok::<_, Failure>(
                found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "),
            )
        };
        for (pattern, found) in [
            ("/etc/*.conf", "/etc/a.conf /etc/b.conf"),
            ("etc/.*", "etc/.c.conf"),
            ("/*/a.conf", "/etc/a.conf"),
            ("/lib/?/[ab].conf", "/lib/x/a.conf"),
            ("/missing", "/missing"),
            ("/odd[1]", "/odd[1]"),
            ("/od?1", "/odd1"),
        ] {
            assert_eq!(expand(pattern).unwrap(), found, "{pattern}");
        }
        for none in ["/etc/*.so", "/etc/a.txt/*"] {
            assert!(
                expand(none).unwrap_err().to_string().ends_with("no file of the image matches it"),
                "{none}"
            );
        }
    }
}
