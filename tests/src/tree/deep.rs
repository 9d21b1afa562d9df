//! Directories nested deeper than the longest path, and a directory with very many names.

use std::io;

use super::DirWriter;

/// Creates `depth` nested directories, some of them with entries. Their path is soon longer than PATH_MAX (4,096 bytes).
pub(super) fn create_deep(writer: &DirWriter, depth: usize) -> io::Result<()> {
    // All descriptors stay open: the time of a directory is set after its entries are created, from the deepest one up.
    let mut levels: Vec<DirWriter> = Vec::with_capacity(depth);
    for level in 1..=depth {
        let here = levels.last().unwrap_or(writer);
        let next = here.enter(format!("level {level} of {depth}").as_bytes())?;
        if level % 100 == 0 || level == depth {
            next.file(b"file", format!("{level}\n").as_bytes())?;
            next.symlink(b"symlink", b"../file")?;
            next.sub(b"beside", |_| Ok(()))?;
        }
        levels.push(next);
    }
    levels.iter().rev().try_for_each(DirWriter::finish)
}

/// Creates `count` entries in this one directory: empty files, symlinks, directories and small files.
pub(super) fn create_wide(writer: &DirWriter, count: usize) -> io::Result<()> {
    for n in 0..count {
        let name = format!("{:x}-{n}", writer.rng(&n.to_le_bytes()).below(1 << 40));
        match n % 100 {
            0 => writer.sub(name.as_bytes(), |_| Ok(()))?,
            1 => writer.symlink(name.as_bytes(), b"target")?,
            2..20 => writer.file(name.as_bytes(), name.as_bytes())?,
            _ => writer.file(name.as_bytes(), b"")?,
        }
    }
    Ok(())
}
