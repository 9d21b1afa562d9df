//! Extended attributes of every namespace, alone and shared by many files, and POSIX ACLs.

use std::io;
use std::path::Path;

use rustix::fs::FileType;

use super::DirWriter;
use crate::acl::{self, Entry};
use crate::content::Content;
use crate::rng::Rng;

/// `security.capability` of revision 2: cap_net_raw, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Creates the files.
pub(super) fn create(writer: &DirWriter) -> io::Result<()> {
    writer.sub(b"user", user)?;
    writer.sub(b"acls", acls)?;
    if writer.root() {
        writer.sub(b"privileged", privileged)?;
    }
    Ok(())
}

fn user(writer: &DirWriter) -> io::Result<()> {
    // ext4 holds about 4,000 bytes a file; see `create_large` for more.
    for len in [0, 1, 2, 3, 4, 5, 100, 1_000, 3_900] {
        let name = format!("value of {len}");
        writer.file(name.as_bytes(), b"x")?;
        let value = Content::Noise.bytes(len, &mut writer.rng(name.as_bytes()));
        writer.xattr(name.as_bytes(), b"user.value", &value)?;
    }
    writer.file(b"many", b"many\n")?;
    for n in 0..60 {
        writer.xattr(b"many", format!("user.number {n}").as_bytes(), format!("{n}").as_bytes())?;
    }
    writer.file(b"long name", b"")?;
    writer.xattr(b"long name", format!("user.{}", "n".repeat(250)).as_bytes(), b"longest")?;
    writer.file(b"odd name", b"")?;
    writer.xattr(b"odd name", b"user.\xff\n.", b"\0\xff\0")?;
    // An xattr shared by all files, one shared by half of them, and one of each file: a builder
    // stores the first two once.
    for n in 0..40u32 {
        let name = format!("shared {n}");
        writer.file(name.as_bytes(), b"contents that go inline after the xattrs")?;
        writer.xattr(name.as_bytes(), b"user.all", b"the same for each of them")?;
        writer.xattr(name.as_bytes(), b"user.half", if n % 2 == 0 { b"even" } else { b"odd " })?;
        writer.xattr(name.as_bytes(), b"user.own", &n.to_le_bytes())?;
    }
    writer.sub(b"directory", |_| Ok(()))?;
    writer.xattr(b"directory", b"user.directory", b"too")?;
    // With xattrs of these sizes, the inline tail ends at the end of the block, or would end after
    // it.
    for len in [3_500, 3_700, 3_800, 3_850] {
        let name = format!("xattr {len} and a tail");
        writer.file(
            name.as_bytes(),
            &Content::Text.bytes(4_096 + 300, &mut writer.rng(name.as_bytes())),
        )?;
        writer.xattr(
            name.as_bytes(),
            b"user.pad",
            &Content::Noise.bytes(len, &mut writer.rng(b"pad")),
        )?;
    }
    Ok(())
}

fn acls(writer: &DirWriter) -> io::Result<()> {
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
    writer.file(b"file", b"guarded\n")?;
    writer.xattr(b"file", acl::ACCESS, &list(4))?;
    writer.file(b"same list", b"guarded\n")?;
    writer.xattr(b"same list", acl::ACCESS, &list(4))?;
    writer.file(b"minimal", b"guarded\n")?;
    writer.xattr(
        b"minimal",
        acl::ACCESS,
        &acl::encode(&[Entry::Owner(6), Entry::OwningGroup(4), Entry::Other(0)]),
    )?;
    let heir = writer.enter(b"directory")?;
    writer.xattr(b"directory", acl::ACCESS, &list(5))?;
    writer.xattr(b"directory", acl::DEFAULT, &list(0))?;
    heir.file(b"heir", b"inherits\n")?;
    heir.sub(b"heir directory", |_| Ok(()))?;
    heir.finish()
}

fn privileged(writer: &DirWriter) -> io::Result<()> {
    writer.file(b"capability", b"#!/bin/true\n")?;
    writer.xattr(b"capability", b"security.capability", &CAPABILITY)?;
    writer.file(b"label", b"")?;
    writer.xattr(b"label", b"security.ferofs", b"system_u:object_r:bin_t:s0\0")?;
    writer.xattr(b"label", b"trusted.overlay.opaque", b"y")?;
    writer.symlink(b"symlink", b"label")?;
    writer.xattr(b"symlink", b"trusted.of.symlink", b"1")?;
    writer.node(b"fifo", FileType::Fifo, (0, 0))?;
    writer.xattr(b"fifo", b"trusted.of.fifo", b"1")?;
    writer.node(b"device", FileType::CharacterDevice, (1, 3))?;
    writer.xattr(b"device", b"trusted.of.device", b"1")?;
    writer.sub(b"directory", |_| Ok(()))?;
    writer.xattr(b"directory", b"trusted.overlay.opaque", b"y")?;
    Ok(())
}

/// Creates xattrs of up to 65,535 bytes in `dir`, the largest that an image can store. Only some
/// file systems support them (tmpfs, XFS, Btrfs); false if this one does not.
///
/// # Errors
/// When the files cannot be made.
pub fn create_large(dir: &Path, seed: u64) -> io::Result<bool> {
    let writer = DirWriter::open(dir, Rng::new(seed), false)?;
    for (n, len) in [4_096, 5_000, 20_000, 65_000, 65_535].into_iter().enumerate() {
        let name = format!("value of {len}");
        writer.file(
            name.as_bytes(),
            &Content::Mixed.bytes(10_000 * n, &mut writer.rng(b"contents")),
        )?;
        let value = Content::Noise.bytes(len, &mut writer.rng(name.as_bytes()));
        if !writer.xattr(name.as_bytes(), b"user.large", &value)? {
            return Ok(false);
        }
        // The same large value in two files, so that a builder can share it.
        let name = format!("again {len}");
        writer.file(name.as_bytes(), b"")?;
        writer.xattr(name.as_bytes(), b"user.large", &value)?;
    }
    writer.finish()?;
    Ok(true)
}
