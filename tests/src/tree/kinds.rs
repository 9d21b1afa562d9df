//! Every file type, symlinks of every length, and hard links to each type that can have them;
//! modes, owners and times at the limits of their ranges.

use std::io;

use rustix::fs::FileType;

use super::DirWriter;

/// Creates the files.
pub(super) fn create(writer: &DirWriter) -> io::Result<()> {
    writer.node(b"fifo", FileType::Fifo, (0, 0))?;
    writer.node(b"socket", FileType::Socket, (0, 0))?;
    if writer.root() {
        // Numbers over 255 do not fit the 16 bits of old device numbers.
        for (major, minor) in [(1, 3), (8, 255), (8, 256), (259, 1_048_575), (4_095, 77)] {
            writer.node(
                format!("chr-{major}-{minor}").as_bytes(),
                FileType::CharacterDevice,
                (major, minor),
            )?;
            writer.node(
                format!("blk-{major}-{minor}").as_bytes(),
                FileType::BlockDevice,
                (major, minor),
            )?;
        }
    }
    writer.sub(b"symlinks", symlinks)?;
    writer.sub(b"links", |links| hard_links(writer, links))
}

fn symlinks(writer: &DirWriter) -> io::Result<()> {
    // A target of 4,095 bytes is the longest that Linux allows.
    for len in
        [1, 31, 59, 60, 64, 255, 1_000, 3_967, 3_999, 4_000, 4_031, 4_032, 4_064, 4_094, 4_095]
    {
        let target: Vec<u8> = b"../any/where/".iter().copied().cycle().take(len).collect();
        writer.symlink(format!("{len}").as_bytes(), &target)?;
    }
    writer.symlink(b"dangling", b"no/such/file")?;
    writer.symlink(b"self", b"self")?;
    writer.symlink(b"directory", b"..")?;
    writer.symlink(b"absolute", b"/")?;
    writer.symlink(b"odd bytes", b"new\nline \xff\xfe \x01 \\ 'quote' ")
}

fn hard_links(parent: &DirWriter, writer: &DirWriter) -> io::Result<()> {
    writer.file(b"file", b"a file of four names\n")?;
    writer.link(b"file", writer, b"file, second name")?;
    writer.link(b"file", writer, b"0 file, third name")?;
    writer.link(b"file", parent, b"zz file, fourth name, elsewhere")?;
    writer.file(b"empty", b"")?;
    writer.link(b"empty", writer, b"empty too")?;
    writer.symlink(b"symlink", b"file")?;
    writer.link(b"symlink", writer, b"symlink too")?;
    writer.node(b"fifo", FileType::Fifo, (0, 0))?;
    writer.link(b"fifo", writer, b"fifo too")?;
    if writer.root() {
        writer.node(b"device", FileType::CharacterDevice, (1, 5))?;
        writer.link(b"device", writer, b"device too")?;
    }
    writer.file(b"popular", b"more than 255 names\n")?;
    (0..300).try_for_each(|n| writer.link(b"popular", writer, format!("popular {n}").as_bytes()))
}

/// Creates the files.
pub(super) fn create_metadata(writer: &DirWriter) -> io::Result<()> {
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
