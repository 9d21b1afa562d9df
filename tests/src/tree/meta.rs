//! Modes, owners and times at the limits of their ranges.

use std::io;

use super::DirWriter;

/// Creates the files.
pub(super) fn create(writer: &DirWriter) -> io::Result<()> {
    writer.sub(b"modes", |writer| {
        for mode in [0o000, 0o400, 0o644, 0o777, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777] {
            // Only root can copy files that their owner may not read.
            if !writer.root() && mode & 0o400 == 0 {
                continue;
            }
            let name = format!("{mode:04o}");
            writer.file(name.as_bytes(), b"mode\n")?;
            writer.mode(name.as_bytes(), mode)?;
            let name = format!("dir {mode:04o}");
            writer.sub(name.as_bytes(), |writer| writer.file(b"inside", b""))?;
            if writer.root() || mode & 0o500 == 0o500 {
                writer.mode(name.as_bytes(), mode)?;
            }
        }
        Ok(())
    })?;
    if writer.root() {
        writer.sub(b"owners", owners)?;
    }
    writer.sub(b"times", times)
}

fn owners(writer: &DirWriter) -> io::Result<()> {
    // 65,535 is the last id of a compact inode; all ones means "no id".
    for (uid, gid) in
        [(1_000, 1_000), (65_535, 65_535), (65_536, 1), (1, 65_536), (4_294_967_294, 2_147_483_648)]
    {
        let name = format!("{uid}-{gid}");
        writer.file(name.as_bytes(), b"owner\n")?;
        writer.owner(name.as_bytes(), uid, gid)?;
        let name = format!("link {uid}-{gid}");
        writer.symlink(name.as_bytes(), b"target")?;
        writer.owner(name.as_bytes(), uid, gid)?;
        writer.sub(format!("dir {uid}-{gid}").as_bytes(), |_| Ok(()))?;
        writer.owner(format!("dir {uid}-{gid}").as_bytes(), uid, gid)?;
    }
    Ok(())
}

fn times(writer: &DirWriter) -> io::Result<()> {
    let year = 31_556_952;
    for (seconds, nanoseconds) in [
        (0, 0),
        (0, 1),
        (0, 999_999_999),
        (-1, 999_999_999),
        (-1, 0),
        (-40 * year, 123_456_789),
        (-(1 << 31), 0),
        ((1 << 31) - 1, 5),
        (1 << 31, 0),
        ((1 << 32) - 1, 0),
        (1 << 32, 999_999_999),
        (400 * year, 7),
    ] {
        let name = format!("{seconds}.{nanoseconds:09}");
        writer.file(name.as_bytes(), b"time\n")?;
        writer.time(name.as_bytes(), seconds, nanoseconds)?;
        let name = format!("link {seconds}.{nanoseconds:09}");
        writer.symlink(name.as_bytes(), b"target")?;
        writer.time(name.as_bytes(), seconds, nanoseconds)?;
        let name = format!("dir {seconds}.{nanoseconds:09}");
        writer.sub(name.as_bytes(), |_| Ok(()))?;
        writer.time(name.as_bytes(), seconds, nanoseconds)?;
    }
    Ok(())
}
