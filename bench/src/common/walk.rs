//! Visits the regular files of a directory tree.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Calls `visit` with the path and the size of each regular file below `dir`, sorted by name.
pub(crate) fn each_file(dir: &Path, visit: &mut dyn FnMut(&Path, u64) -> Result<()>) -> Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let meta = entry.metadata()?;
        if meta.is_dir() {
            each_file(&entry.path(), visit)?;
        } else if meta.is_file() {
            visit(&entry.path(), meta.len())?;
        }
    }
    Ok(())
}
