//! Modes, owners and times at the ends of their ranges.

use std::io;

use super::Plot;

/// Plants the files.
pub(super) fn plant(plot: &Plot) -> io::Result<()> {
    plot.sub(b"modes", |plot| {
        for mode in [0o000, 0o400, 0o644, 0o777, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777] {
            // What its owner may not read is for root alone to copy.
            if !plot.root() && mode & 0o400 == 0 {
                continue;
            }
            let name = format!("{mode:04o}");
            plot.file(name.as_bytes(), b"mode\n")?;
            plot.mode(name.as_bytes(), mode)?;
            let name = format!("dir {mode:04o}");
            plot.sub(name.as_bytes(), |plot| plot.file(b"inside", b""))?;
            if plot.root() || mode & 0o500 == 0o500 {
                plot.mode(name.as_bytes(), mode)?;
            }
        }
        Ok(())
    })?;
    if plot.root() {
        plot.sub(b"owners", owners)?;
    }
    plot.sub(b"times", times)
}

fn owners(plot: &Plot) -> io::Result<()> {
    // 65,535 is the last id of a compact inode; all ones means "no id".
    for (uid, gid) in
        [(1_000, 1_000), (65_535, 65_535), (65_536, 1), (1, 65_536), (4_294_967_294, 2_147_483_648)]
    {
        let name = format!("{uid}-{gid}");
        plot.file(name.as_bytes(), b"owner\n")?;
        plot.owner(name.as_bytes(), uid, gid)?;
        let name = format!("link {uid}-{gid}");
        plot.symlink(name.as_bytes(), b"target")?;
        plot.owner(name.as_bytes(), uid, gid)?;
        plot.sub(format!("dir {uid}-{gid}").as_bytes(), |_| Ok(()))?;
        plot.owner(format!("dir {uid}-{gid}").as_bytes(), uid, gid)?;
    }
    Ok(())
}

fn times(plot: &Plot) -> io::Result<()> {
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
        plot.file(name.as_bytes(), b"time\n")?;
        plot.time(name.as_bytes(), seconds, nanoseconds)?;
        let name = format!("link {seconds}.{nanoseconds:09}");
        plot.symlink(name.as_bytes(), b"target")?;
        plot.time(name.as_bytes(), seconds, nanoseconds)?;
        let name = format!("dir {seconds}.{nanoseconds:09}");
        plot.sub(name.as_bytes(), |_| Ok(()))?;
        plot.time(name.as_bytes(), seconds, nanoseconds)?;
    }
    Ok(())
}
