//! Compares one entry that exists in both trees.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};

use super::Field;
use crate::xattr;

/// A callback for each difference: the field and the values of both sides.
pub(super) type Report<'a> = dyn FnMut(Field, [String; 2]) + 'a;

/// The file's attributes.
pub(super) fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS)?)
}

/// The file's type.
pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Opens a directory or file without following symlinks and without waiting for the writer of a
/// fifo.
pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Compares all attributes except the link count; [`contents`] compares the content. False if the
/// types differ; then nothing else is compared.
pub(super) fn attributes(
    dirs: [BorrowedFd<'_>; 2],
    name: &[u8],
    stats: [&Statx; 2],
    report: &mut Report<'_>,
) -> io::Result<bool> {
    let [left, right] = stats;
    if kind(left) != kind(right) {
        differ(report, Field::Type, kind(left), kind(right));
        return Ok(false);
    }
    differ(report, Field::Mode, Octal(left.stx_mode & 0o7777), Octal(right.stx_mode & 0o7777));
    differ(report, Field::Uid, left.stx_uid, right.stx_uid);
    differ(report, Field::Gid, left.stx_gid, right.stx_gid);
    let time = |stat: &Statx| (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    differ(report, Field::Mtime, time(left), time(right));
    match kind(left) {
        FileType::RegularFile => differ(report, Field::Size, left.stx_size, right.stx_size),
        FileType::Symlink => {
            differ(report, Field::Size, left.stx_size, right.stx_size);
            let target = |dir| rustix::fs::readlinkat(dir, name, Vec::new());
            differ(report, Field::Target, target(dirs[0])?, target(dirs[1])?);
        }
        FileType::CharacterDevice | FileType::BlockDevice => {
            let device = |stat: &Statx| (stat.stx_rdev_major, stat.stx_rdev_minor);
            differ(report, Field::Device, device(left), device(right));
        }
        _ => {}
    }
    xattrs(dirs, name, report)?;
    Ok(true)
}

fn xattrs(dirs: [BorrowedFd<'_>; 2], name: &[u8], report: &mut Report<'_>) -> io::Result<()> {
    let (left, right) = (xattr::all(dirs[0], name)?, xattr::all(dirs[1], name)?);
    let shown = |value: Option<&Vec<u8>>| value.map_or("none".into(), |value| escape(value));
    for (key, value) in &left {
        if right.get(key) != Some(value) {
            report(Field::Xattr(escape(key)), [shown(Some(value)), shown(right.get(key))]);
        }
    }
    for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
        report(Field::Xattr(escape(key)), [shown(None), shown(Some(value))]);
    }
    Ok(())
}

/// Compares the content of two regular files and returns the number of equal bytes at the start.
pub(super) fn contents(
    dirs: [BorrowedFd<'_>; 2],
    name: &[u8],
    report: &mut Report<'_>,
) -> io::Result<u64> {
    const STEP: usize = 256 << 10;
    let files = [open(dirs[0], name, OFlags::RDONLY)?, open(dirs[1], name, OFlags::RDONLY)?];
    let mut buffers = [vec![0; STEP], vec![0; STEP]];
    let mut offset = 0;
    loop {
        let [left_buffer, right_buffer] = &mut buffers;
        let left = fill(&files[0], left_buffer)?;
        let right = fill(&files[1], right_buffer)?;
        if left != right {
            let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
            let shown =
                |bytes: &[u8]| escape(&bytes[same.min(bytes.len())..bytes.len().min(same + 16)]);
            offset += same as u64;
            report(Field::Content(offset), [shown(left), shown(right)]);
            return Ok(offset);
        }
        if left.is_empty() {
            return Ok(offset);
        }
        offset += left.len() as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: impl AsFd, buffer: &mut [u8]) -> io::Result<&[u8]> {
    let mut len = 0;
    while len < buffer.len() {
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer[len..]))? {
            0 => break,
            more => len += more,
        }
    }
    Ok(&buffer[..len])
}

fn differ<T: PartialEq + Debug>(report: &mut Report<'_>, field: Field, left: T, right: T) {
    if left != right {
        report(field, [format!("{left:?}"), format!("{right:?}")]);
    }
}

/// Permission bits, printed in octal.
#[derive(PartialEq)]
struct Octal(u16);

impl Debug for Octal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// Bytes as text: non-printable ones are escaped, and the middle of long sequences is left out.
pub(super) fn escape(bytes: &[u8]) -> String {
    const SHOWN: usize = 150;
    if bytes.len() <= 2 * SHOWN {
        return bytes.escape_ascii().to_string();
    }
    let (start, end) = (&bytes[..SHOWN], &bytes[bytes.len() - SHOWN..]);
    format!("{} ... {} ({} bytes)", start.escape_ascii(), end.escape_ascii(), bytes.len())
}
