//! Every file type, symlinks of every length, and hard links to each type that can have them.

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
            writer.node(format!("blk-{major}-{minor}").as_bytes(), FileType::BlockDevice, (major, minor))?;
        }
    }
    writer.sub(b"symlinks", symlinks)?;
    writer.sub(b"links", |links| hard_links(writer, links))
}

fn symlinks(writer: &DirWriter) -> io::Result<()> {
    // A target of 4,095 bytes is the longest that Linux allows.
    for len in [1, 31, 59, 60, 64, 255, 1_000, 3_967, 3_999, 4_000, 4_031, 4_032, 4_064, 4_094, 4_095] {
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
