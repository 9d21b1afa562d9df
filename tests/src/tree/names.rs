//! Names: of every length up to 255 bytes, of any bytes but NUL and the slash, and many alike.

use std::io;

use super::Plot;

/// Plants the files.
pub(super) fn plant(plot: &Plot) -> io::Result<()> {
    for len in [1, 2, 11, 12, 13, 100, 254, 255] {
        plot.file(&vec![b'n'; len], b"")?;
    }
    plot.sub(b"bytes", |plot| {
        // A name of each single byte; "." is taken.
        for byte in (1..=255u8).filter(|byte| !b"./".contains(byte)) {
            plot.file(&[byte], &[byte])?;
        }
        Ok(())
    })?;
    plot.sub(b"odd", |plot| {
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
        names.iter().try_for_each(|name| plot.file(name, name))?;
        plot.sub(b"d\xffr\n", |plot| plot.file(b"inside", b"inside"))
    })?;
    // Long names that differ at the end only: whole blocks of them, so that a search meets equal prefixes.
    plot.sub(b"alike", |plot| {
        (0..200).try_for_each(|n| plot.file(format!("{}{n:03}", "same ".repeat(50)).as_bytes(), b""))
    })
}
