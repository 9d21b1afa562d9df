//! Every file type, symlinks of every length, and hard links to all that can have them.

use std::io;

use rustix::fs::FileType;

use super::Plot;

/// Plants the files.
pub(super) fn plant(plot: &Plot) -> io::Result<()> {
    plot.node(b"fifo", FileType::Fifo, (0, 0))?;
    plot.node(b"socket", FileType::Socket, (0, 0))?;
    if plot.root() {
        // Minors over 255 and majors over 255 leave the 16 bits of old device numbers.
        for (major, minor) in [(1, 3), (8, 255), (8, 256), (259, 1_048_575), (4_095, 77)] {
            plot.node(format!("chr-{major}-{minor}").as_bytes(), FileType::CharacterDevice, (major, minor))?;
            plot.node(format!("blk-{major}-{minor}").as_bytes(), FileType::BlockDevice, (major, minor))?;
        }
    }
    plot.sub(b"symlinks", symlinks)?;
    plot.sub(b"links", |links| hard_links(plot, links))
}

fn symlinks(plot: &Plot) -> io::Result<()> {
    // A target of 4,095 bytes is the longest that Linux has.
    for len in [1, 31, 59, 60, 64, 255, 1_000, 3_967, 3_999, 4_000, 4_031, 4_032, 4_064, 4_094, 4_095] {
        let target: Vec<u8> = b"../any/where/".iter().copied().cycle().take(len).collect();
        plot.symlink(format!("{len}").as_bytes(), &target)?;
    }
    plot.symlink(b"dangling", b"no/such/file")?;
    plot.symlink(b"self", b"self")?;
    plot.symlink(b"directory", b"..")?;
    plot.symlink(b"absolute", b"/")?;
    plot.symlink(b"odd bytes", b"new\nline \xff\xfe \x01 \\ 'quote' ")
}

fn hard_links(parent: &Plot, plot: &Plot) -> io::Result<()> {
    plot.file(b"file", b"a file of four names\n")?;
    plot.link(b"file", plot, b"file, second name")?;
    plot.link(b"file", plot, b"0 file, third name")?;
    plot.link(b"file", parent, b"zz file, fourth name, elsewhere")?;
    plot.file(b"empty", b"")?;
    plot.link(b"empty", plot, b"empty too")?;
    plot.symlink(b"symlink", b"file")?;
    plot.link(b"symlink", plot, b"symlink too")?;
    plot.node(b"fifo", FileType::Fifo, (0, 0))?;
    plot.link(b"fifo", plot, b"fifo too")?;
    if plot.root() {
        plot.node(b"device", FileType::CharacterDevice, (1, 5))?;
        plot.link(b"device", plot, b"device too")?;
    }
    plot.file(b"popular", b"more than 255 names\n")?;
    (0..300).try_for_each(|n| plot.link(b"popular", plot, format!("popular {n}").as_bytes()))
}
