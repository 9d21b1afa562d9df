//! Copies some of the machine's programs, with all files that they need, into a tree. They then start from any image of the tree.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::common::filesystem::Unavailable;
use crate::common::walk::each_file;

/// A program whose start is measured.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The command line. The first word is a path in the tree.
    pub(crate) command: &'static [&'static str],
    /// What the program needs: programs (their shared libraries are added) and directories (`*` stands for the directory of the
    /// processor architecture).
    needs: &'static [&'static str],
}

/// Each command needs nothing outside of the tree and writes nothing.
pub(crate) const PROGRAMS: [Program; 5] = [
    Program {
        name: "python3",
        command: &["/usr/bin/python3", "-c", "import json, asyncio, http.client, decimal, sqlite3, unittest"],
        needs: &["/usr/bin/python3", "/usr/lib/python3", "/usr/lib/python3.*"],
    },
    Program {
        name: "git",
        command: &["/usr/bin/git", "help", "--all"],
        needs: &["/usr/bin/git", "/usr/lib/git-core"],
    },
    Program {
        name: "perl",
        command: &["/usr/bin/perl", "-MPOSIX", "-MEncode", "-MIO::Socket", "-MData::Dumper", "-e1"],
        needs: &["/usr/bin/perl", "/usr/share/perl", "/usr/lib/*/perl", "/usr/lib/*/perl-base"],
    },
    Program {
        name: "gcc",
        command: &["/usr/bin/gcc", "-fsyntax-only", "-include", "stdio.h", "-x", "c", "/dev/null"],
        needs: &["/usr/bin/gcc", "/usr/lib/gcc", "/usr/include"],
    },
    Program {
        name: "vim",
        command: &["/usr/bin/vim", "-es", "-u", "NONE", "-c", "qa!"],
        needs: &["/usr/bin/vim", "/usr/share/vim"],
    },
];

/// Copies the first `count` programs, with all that they need, to `root`. Leaves out those that this machine does not have.
pub(crate) fn create_tree(root: &Path, count: usize) -> Result<()> {
    let mut parts = BTreeSet::new();
    let mut found = false;
    for program in PROGRAMS.iter().take(count).filter(|program| Path::new(program.command[0]).exists()) {
        found = true;
        for part in program.needs {
            add(&mut parts, expand(Path::new(part)));
        }
    }
    if !found {
        return Err(Unavailable("needs python3, git or perl in /usr/bin".into()).into());
    }
    for part in &parts {
        let to = root.join(part.strip_prefix("/")?);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        let output = Command::new("cp").args(["-a", "-T"]).args([part, &to]).output()?;
        if !output.status.success() {
            bail!("copying {}: {}", part.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        fs::create_dir_all(root.join(target))?;
        symlink(target, root.join(link))?;
    }
    for dir in ["dev", "proc", "tmp", "etc"] {
        fs::create_dir_all(root.join(dir))?;
    }
    // The experiment binds the machine's /dev/null to this file.
    fs::write(root.join("dev/null"), "")?;
    Ok(())
}

/// Adds the paths, the targets of symbolic links, and the shared libraries of all programs among them.
fn add(parts: &mut BTreeSet<PathBuf>, paths: Vec<PathBuf>) {
    for path in paths {
        let mut files = vec![path.clone()];
        if path.is_dir() {
            files = Vec::new();
            parts.insert(path.clone());
            // ldd on every file would take too long: only large files without an extension, or with ".so", can be programs.
            let may_be_program = |path: &Path, len: u64| {
                len > 16 << 10 && path.extension().is_none_or(|extension| extension == "so")
            };
            let listed = each_file(&path, &mut |path, len| {
                if may_be_program(path, len) {
                    files.push(path.to_owned());
                }
                Ok(())
            });
            if listed.is_err() {
                continue;
            }
        }
        for file in &files {
            follow(parts, file);
        }
        if !files.is_empty() {
            let output = Command::new("ldd").args(&files).output();
            let text = output.map(|output| output.stdout).unwrap_or_default();
            for word in String::from_utf8_lossy(&text).split_whitespace().filter(|word| word.starts_with('/'))
            {
                let library = Path::new(word.trim_end_matches(':'));
                follow(parts, &canonical_parent(library));
            }
        }
    }
}

/// Adds a path, and the targets of symbolic links that start at it.
fn follow(parts: &mut BTreeSet<PathBuf>, path: &Path) {
    let mut path = path.to_owned();
    for _ in 0..8 {
        if !path.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
            return;
        }
        // A directory in `parts` is copied with its content.
        if !parts.iter().any(|part| part.is_dir() && path.starts_with(part)) {
            parts.insert(path.clone());
        }
        let (Ok(target), Some(parent)) = (fs::read_link(&path), path.parent()) else { return };
        path = canonical_parent(&parent.join(target));
    }
}

/// The path without `..` and without symbolic links in its parent: /lib and /bin are links into /usr.
fn canonical_parent(path: &Path) -> PathBuf {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else { return path.to_owned() };
    parent.canonicalize().unwrap_or_else(|_| parent.to_owned()).join(name)
}

/// The existing paths that match a pattern, in which `*` stands for a part of one name.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str().to_string_lossy().into_owned();
        let Some((start, end)) = part.split_once('*') else {
            found.iter_mut().for_each(|path| path.push(&part));
            continue;
        };
        let entries = found.iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
        let fits = |name: &str| name.starts_with(start) && name.ends_with(end);
        let names = entries.map(|entry| entry.path());
        found = names.filter(|path| fits(&path.file_name().unwrap_or_default().to_string_lossy())).collect();
        found.sort();
    }
    found.retain(|path| path.exists());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_existing_paths() {
        assert_eq!(expand(Path::new("/nowhere/*/x")), Vec::<PathBuf>::new());
        let found = expand(Path::new("/proc/self/stat*"));
        assert!(found.contains(&"/proc/self/status".into()), "{found:?}");
        assert!(found.contains(&"/proc/self/stat".into()));
    }

    #[test]
    fn links_and_libraries_are_added() {
        let mut parts = BTreeSet::new();
        add(&mut parts, expand(Path::new("/usr/bin/env")));
        let names: Vec<String> = parts.iter().map(|part| part.display().to_string()).collect();
        assert!(names.iter().any(|name| name.ends_with("/env")), "{names:?}");
    }
}
