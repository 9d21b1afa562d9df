//! Names: of lengths up to 255 bytes, of all bytes except NUL and the slash, and many similar ones.

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
    // Several blocks of long names that differ only at the end, so that a search compares equal prefixes.
    writer.sub(b"alike", |writer| {
        (0..200).try_for_each(|n| writer.file(format!("{}{n:03}", "same ".repeat(50)).as_bytes(), b""))
    })
}
