//! Names: of lengths up to 255 bytes, of all bytes except NUL and the slash, and many similar ones;
//! directories nested deeper than the longest path, and a directory with very many names.

use std::io;

use super::DirWriter;

/// Creates the files.
pub(super) fn create(writer: &DirWriter) -> io::Result<()> {
    for len in [1, 2, 11, 12, 13, 100, 254, 255] {
        writer.file(&vec![b'n'; len], b"")?;
    }
    writer.sub(b"bytes", |writer| {
        // A name of each single byte; "." exists already.
        for byte in (1..=255u8).filter(|byte| !b"./".contains(byte)) {
            writer.file(&[byte], &[byte])?;
        }
        Ok(())
    })?;
    writer.sub(b"odd", |writer| {
        let names: [&[u8]; 14] = [
            b"new\nline",
            b" leading",
            b"trailing ",
            b"...",
            b".hidden",
            b"..also hidden",
            b"-rf",
            b"*",
            b"back\\slash",
            b"\xff\xfe not utf-8 \x80",
            b"\xe2\x82\xac euro",
            b"A",
            b"a",
            b"tab\there",
        ];
        names.iter().try_for_each(|name| writer.file(name, name))?;
        writer.sub(b"d\xffr\n", |writer| writer.file(b"inside", b"inside"))
    })?;
    // Several blocks of long names that differ only at the end, so that a search compares equal
    // prefixes.
    writer.sub(b"alike", |writer| {
        (0..200)
            .try_for_each(|n| writer.file(format!("{}{n:03}", "same ".repeat(50)).as_bytes(), b""))
    })
}

/// Creates `depth` nested directories, some of them with entries. Their path is soon longer than
/// PATH_MAX (4,096 bytes).
pub(super) fn create_deep(writer: &DirWriter, depth: usize) -> io::Result<()> {
    // All descriptors stay open: the time of a directory is set after its entries are created, from
    // the deepest one up.
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

/// Creates `count` entries in this one directory: empty files, symlinks, directories and small
/// files.
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
