//! Finds what keeps a mount busy: processes that use its files, and mounts below it.
//!
//! It reads only what /proc shows of processes: stat(2) of their files would ask the daemon of the
//! mount, which may not answer.

use std::path::{Path, PathBuf};

use ferofs::escape::Escaped;

use crate::cmd::mount::mount_table::mount_below;

/// Processes that a message names at most.
const NAMED: usize = 5;

/// What keeps the mount on `dir` busy, for a message; `None` if this user sees nothing that does.
/// `dir` has no symbolic links.
pub(super) fn users(dir: &Path) -> Option<String> {
    if let Some(below) = mount_below(dir) {
        return Some(format!("something is mounted on {}", Escaped::path(&below)));
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    // The links to this process have no numbers.
    let is_other = |path: &PathBuf| {
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        number.is_some_and(|number| number != std::process::id())
    };
    let processes =
        entries.map(|entry| entry.path()).filter(is_other).filter(|process| uses(process, dir));
    let mut names: Vec<String> = processes.filter_map(|process| name(&process)).collect();
    if names.is_empty() {
        return None;
    }
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("used by {}{more}", names.join(", ")))
}

/// Whether the process has its current or root directory, its program, an open file or a mapped
/// file below `dir`. Others' files are not visible.
fn uses(process: &Path, dir: &Path) -> bool {
    let is_below =
        |link: PathBuf| std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let maps = || {
        let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
        maps.lines()
            .any(|line| line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(dir)))
    };
    ["cwd", "root", "exe"].iter().any(|link| is_below(process.join(link)))
        || files.map(|file| file.path()).any(is_below)
        || maps()
}

/// The name of the program, and the number of the process.
fn name(process: &Path) -> Option<String> {
    let number = process.file_name()?.to_str()?;
    let name = std::fs::read(process.join("comm")).ok()?;
    Some(format!("{} ({number})", Escaped(name.trim_ascii_end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_open_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert_eq!(users(&dir), None);
        let file = std::fs::File::create(dir.join("file")).unwrap();
        // This process is not a user.
        assert_eq!(users(&dir), None);
        let mut other = std::process::Command::new("sleep").arg("100").stdin(file).spawn().unwrap();
        let found = users(&dir);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(found.unwrap(), format!("used by sleep ({})", other.id()));
    }
}
