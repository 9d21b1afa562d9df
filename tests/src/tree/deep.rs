//! A way down that is longer than any path, and a directory with very many names.

use std::io;

use super::Plot;

/// Plants `depth` directories below each other, with something in some of them. Names are long enough that the whole
/// path passes PATH_MAX (4,096 bytes) early.
pub(super) fn plant_deep(plot: &Plot, depth: usize) -> io::Result<()> {
    // All descriptors stay open: a directory's time is set once all names below are there, from the bottom up.
    let mut way: Vec<Plot> = Vec::with_capacity(depth);
    for level in 1..=depth {
        let here = way.last().unwrap_or(plot);
        let next = here.enter(format!("level {level} of {depth}").as_bytes())?;
        if level % 100 == 0 || level == depth {
            next.file(b"file", format!("{level}\n").as_bytes())?;
            next.symlink(b"symlink", b"../file")?;
            next.sub(b"beside", |_| Ok(()))?;
        }
        way.push(next);
    }
    way.iter().rev().try_for_each(Plot::finish)
}

/// Plants `count` entries in this one directory: empty files, symlinks, directories and small files by turns.
pub(super) fn plant_wide(plot: &Plot, count: usize) -> io::Result<()> {
    for n in 0..count {
        let name = format!("{:x}-{n}", plot.rng(&n.to_le_bytes()).below(1 << 40));
        match n % 100 {
            0 => plot.sub(name.as_bytes(), |_| Ok(()))?,
            1 => plot.symlink(name.as_bytes(), b"target")?,
            2..20 => plot.file(name.as_bytes(), name.as_bytes())?,
            _ => plot.file(name.as_bytes(), b"")?,
        }
    }
    Ok(())
}
