//! Opens block devices that are written: nothing else may use them.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, major, minor};

/// Opens the block device `path` for reading and writing.
///
/// # Errors
/// As [`OpenOptions::open`]; [`io::ErrorKind::ResourceBusy`], with what to do, if an image or another file system on the device is mounted, by Linux or
/// through FUSE, or if the device is used otherwise; [`io::ErrorKind::ReadOnlyFilesystem`] if it is read-only.
pub fn open_device(path: &Path) -> io::Result<File> {
    let busy = |reason| io::Error::new(io::ErrorKind::ResourceBusy, reason);
    // Without /proc, Linux still refuses what it has mounted itself.
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let number = std::fs::metadata(path)?.rdev();
    if let Some(place) = mount_of(&table, number) {
        return Err(busy(format!("it {place}: unmount it first, or write to another device")));
    }
    // Linux opens such a device, and refuses each write.
    let flag = format!("/sys/dev/block/{}:{}/ro", major(number), minor(number));
    if std::fs::read(flag).is_ok_and(|flag| flag.starts_with(b"1")) {
        let reason =
            "it is read-only: `blockdev --setrw` can change that, or write to another device";
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, reason));
    }
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let device = OpenOptions::new().read(true).write(true).custom_flags(exclusive).open(path);
    device.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => busy(
            "it is in use, for example mounted in another namespace, as swap, or as a part of a RAID or volume: end that first, or write to \
             another device"
                .to_owned(),
        ),
        _ => error,
    })
}

/// Where the table in the form of `/proc/self/mountinfo` says that the block device with this number is mounted. A daemon of FUSE, and Btrfs, have
/// other numbers: only the name of their source tells.
fn mount_of(table: &[u8], device: u64) -> Option<String> {
    let number = format!("{}:{}", major(device), minor(device));
    let is_device = |source: &[u8]| {
        // A name in another place could be on a file system that does not answer.
        source.starts_with(b"/dev/")
            && std::fs::metadata(OsStr::from_bytes(source))
                .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == device)
    };
    table.split(|byte| *byte == b'\n').find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let (own, dir) = (words.nth(2)?, words.nth(1)?);
        let mut words = words.skip_while(|word| *word != b"-").skip(1);
        let (kind, source) = (words.next()?, words.next()?);
        let fuse = if kind.starts_with(b"fuse") { " through FUSE" } else { "" };
        (own == number.as_bytes() || is_device(source))
            .then(|| format!("is mounted{fuse} on {}", String::from_utf8_lossy(dir)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number() {
        let table = b"22 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n\
            36 22 7:3 / /mnt/a\\040b ro - erofs /dev/none ro\n37 22 0:9 / /sys rw - sysfs sysfs rw\nshort\n";
        let place = |major, minor| mount_of(table, rustix::fs::makedev(major, minor));
        assert_eq!(place(7, 3).as_deref(), Some("is mounted on /mnt/a\\040b"));
        assert_eq!(place(8, 1).as_deref(), Some("is mounted on /"));
        assert_eq!(place(7, 4), None);
    }
}
