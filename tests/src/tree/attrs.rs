//! Extended attributes of every namespace, alone and shared by many files, and POSIX ACLs.

use std::io;
use std::path::Path;

use rustix::fs::FileType;

use super::Plot;
use crate::acl::{self, Entry};
use crate::content::Content;
use crate::rng::Rng;

/// `security.capability` of revision 2: cap_net_raw, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Plants the files.
pub(super) fn plant(plot: &Plot) -> io::Result<()> {
    plot.sub(b"user", user)?;
    plot.sub(b"acls", acls)?;
    if plot.root() {
        plot.sub(b"privileged", privileged)?;
    }
    Ok(())
}

fn user(plot: &Plot) -> io::Result<()> {
    // ext4 holds about 4,000 bytes a file; see `plant_large` for more.
    for len in [0, 1, 2, 3, 4, 5, 100, 1_000, 3_900] {
        let name = format!("value of {len}");
        plot.file(name.as_bytes(), b"x")?;
        let value = Content::Noise.bytes(len, &mut plot.rng(name.as_bytes()));
        plot.xattr(name.as_bytes(), b"user.value", &value)?;
    }
    plot.file(b"many", b"many\n")?;
    for n in 0..60 {
        plot.xattr(b"many", format!("user.number {n}").as_bytes(), format!("{n}").as_bytes())?;
    }
    plot.file(b"long name", b"")?;
    plot.xattr(b"long name", format!("user.{}", "n".repeat(250)).as_bytes(), b"longest")?;
    plot.file(b"odd name", b"")?;
    plot.xattr(b"odd name", b"user.\xff\n.", b"\0\xff\0")?;
    // Shared by all, shared by half, and one's own: a builder stores the first two once.
    for n in 0..40u32 {
        let name = format!("shared {n}");
        plot.file(name.as_bytes(), b"contents that go inline after the xattrs")?;
        plot.xattr(name.as_bytes(), b"user.all", b"the same for each of them")?;
        plot.xattr(name.as_bytes(), b"user.half", if n % 2 == 0 { b"even" } else { b"odd " })?;
        plot.xattr(name.as_bytes(), b"user.own", &n.to_le_bytes())?;
    }
    plot.sub(b"directory", |_| Ok(()))?;
    plot.xattr(b"directory", b"user.directory", b"too")?;
    // The xattrs push the inline tail to the end of the block, and past it.
    for len in [3_500, 3_700, 3_800, 3_850] {
        let name = format!("xattr {len} and a tail");
        plot.file(name.as_bytes(), &Content::Text.bytes(4_096 + 300, &mut plot.rng(name.as_bytes())))?;
        plot.xattr(name.as_bytes(), b"user.pad", &Content::Noise.bytes(len, &mut plot.rng(b"pad")))?;
    }
    Ok(())
}

fn acls(plot: &Plot) -> io::Result<()> {
    let list = |other| {
        acl::encode(&[
            Entry::Owner(7),
            Entry::User(1_000, 5),
            Entry::User(70_000, 4),
            Entry::OwningGroup(5),
            Entry::Group(4_294_967_000, 6),
            Entry::Mask(7),
            Entry::Other(other),
        ])
    };
    plot.file(b"file", b"guarded\n")?;
    plot.xattr(b"file", acl::ACCESS, &list(4))?;
    plot.file(b"same list", b"guarded\n")?;
    plot.xattr(b"same list", acl::ACCESS, &list(4))?;
    plot.file(b"minimal", b"guarded\n")?;
    plot.xattr(
        b"minimal",
        acl::ACCESS,
        &acl::encode(&[Entry::Owner(6), Entry::OwningGroup(4), Entry::Other(0)]),
    )?;
    let heir = plot.enter(b"directory")?;
    plot.xattr(b"directory", acl::ACCESS, &list(5))?;
    plot.xattr(b"directory", acl::DEFAULT, &list(0))?;
    heir.file(b"heir", b"inherits\n")?;
    heir.sub(b"heir directory", |_| Ok(()))?;
    heir.finish()
}

fn privileged(plot: &Plot) -> io::Result<()> {
    plot.file(b"capability", b"#!/bin/true\n")?;
    plot.xattr(b"capability", b"security.capability", &CAPABILITY)?;
    plot.file(b"label", b"")?;
    plot.xattr(b"label", b"security.ferofs", b"system_u:object_r:bin_t:s0\0")?;
    plot.xattr(b"label", b"trusted.overlay.opaque", b"y")?;
    plot.symlink(b"symlink", b"label")?;
    plot.xattr(b"symlink", b"trusted.of.symlink", b"1")?;
    plot.node(b"fifo", FileType::Fifo, (0, 0))?;
    plot.xattr(b"fifo", b"trusted.of.fifo", b"1")?;
    plot.node(b"device", FileType::CharacterDevice, (1, 3))?;
    plot.xattr(b"device", b"trusted.of.device", b"1")?;
    plot.sub(b"directory", |_| Ok(()))?;
    plot.xattr(b"directory", b"trusted.overlay.opaque", b"y")?;
    Ok(())
}

/// Plants xattrs of up to 65,535 bytes in `dir`, the most that an image can hold. Only some file systems take them
/// (tmpfs, XFS, Btrfs); false if this one does not.
///
/// # Errors
/// When the files cannot be made.
pub fn plant_large(dir: &Path, seed: u64) -> io::Result<bool> {
    let plot = Plot::open(dir, Rng::new(seed), false)?;
    for (n, len) in [4_096, 5_000, 20_000, 65_000, 65_535].into_iter().enumerate() {
        let name = format!("value of {len}");
        plot.file(name.as_bytes(), &Content::Mixed.bytes(10_000 * n, &mut plot.rng(b"contents")))?;
        let value = Content::Noise.bytes(len, &mut plot.rng(name.as_bytes()));
        if !plot.xattr(name.as_bytes(), b"user.large", &value)? {
            return Ok(false);
        }
        // The same large value in two files: worth sharing.
        let name = format!("again {len}");
        plot.file(name.as_bytes(), b"")?;
        plot.xattr(name.as_bytes(), b"user.large", &value)?;
    }
    plot.finish()?;
    Ok(true)
}
