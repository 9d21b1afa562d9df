//! Opens block devices and files that are written in place: nothing else may use them.

mod leases;
mod lock;

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};

use ferofs_read::escape::Escaped;

pub use lock::lock_to_change;

/// The mounts that this process sees: proc(5).
const MOUNTS: &str = "/proc/self/mountinfo";

/// Opens `path`, a block device or a file, for reading and writing, to change it in place.
///
/// # Errors
/// As [`open_device`]; [`io::ErrorKind::ResourceBusy`], with what to do, if a loop device shows the
/// file, if it backs a mount of Linux or through FUSE, or if another process has the lock of
/// [`lock_to_change`]. Such uses are known from /proc and /sys, and from leases, which also tell of
/// other mount namespaces and of files with other names.
pub fn open_in_place(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_block_device() {
        return open_device(path);
    }
    let open = || OpenOptions::new().read(true).write(true).open(path);
    if kind.is_file() {
        let table = std::fs::read(MOUNTS).unwrap_or_default();
        let known = use_of(&table, &open()?)?;
        if let Some(place) = known.map_or_else(|| leases::user_of(path), |place| Ok(Some(place)))? {
            return Err(busy(&format!("it {place}")));
        }
    }
    let file = open()?;
    lock_to_change(&file, path)?;
    Ok(file)
}

/// Opens the block device `path` for reading and writing.
///
/// # Errors
/// As [`OpenOptions::open`]; [`io::ErrorKind::ResourceBusy`], with what to do, if an image or
/// another file system on the device is mounted, by Linux or through FUSE, if a loop device shows
/// the device, or if it is used otherwise; [`io::ErrorKind::ReadOnlyFilesystem`] if it is read-only.
pub fn open_device(path: &Path) -> io::Result<File> {
    // Without /proc, Linux still refuses what it has mounted itself.
    let table = std::fs::read(MOUNTS).unwrap_or_default();
    let number = std::fs::metadata(path)?.rdev();
    if let Some(place) = mount_of(&table, number) {
        return Err(busy(&format!("it {place}: unmount it first, or write to another device")));
    }
    let shown = shown_by(&table, |backing| is_device(backing, number));
    if let Some(user) = shown.or_else(|| leases::daemon_of(number)) {
        return Err(busy(&format!("it {user}device")));
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
    let device = device.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => busy(
            "it is in use, for example mounted in another namespace, as swap, or as a part of a RAID or volume: end that first, or write to \
             another device",
        ),
        _ => error,
    })?;
    lock_to_change(&device, path)?;
    Ok(device)
}

fn busy(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, reason)
}

/// A line of the table of mounts.
struct MountLine<'t> {
    id: &'t [u8],
    /// The device number of the file system, for example `0:41`.
    device: &'t [u8],
    dir: PathBuf,
    kind: &'t [u8],
    /// The device or the image, or another name.
    source: PathBuf,
}

impl<'t> MountLine<'t> {
    fn all(table: &'t [u8]) -> impl Iterator<Item = Self> {
        table.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut words = line.split(|byte| *byte == b' ');
            let (id, device, dir) = (words.next()?, words.nth(1)?, words.nth(1)?);
            let mut words = words.skip_while(|word| *word != b"-").skip(1);
            let (kind, source) = (words.next()?, words.next()?);
            Some(Self { id, device, dir: mount_path(dir), kind, source: mount_path(source) })
        })
    }

    fn place(&self) -> String {
        let fuse = if self.kind.starts_with(b"fuse") { " through FUSE" } else { "" };
        format!("is mounted{fuse} on {}", Escaped::path(&self.dir))
    }
}

/// The path that the table of mounts has in this form: some characters are octal escapes.
#[must_use]
pub fn mount_path(mut text: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                text = rest.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                text = rest;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Where the table says that the block device with this number is mounted. A daemon of FUSE, and
/// Btrfs, have other numbers: only the name of their source tells.
fn mount_of(table: &[u8], device: u64) -> Option<String> {
    let number = format!("{}:{}", major(device), minor(device));
    let is_mount =
        |line: &MountLine<'_>| line.device == number.as_bytes() || is_device(&line.source, device);
    MountLine::all(table).find(is_mount).map(|line| line.place())
}

/// Whether `path` is the block device with this number. A name outside of /dev could be on a file
/// system that does not answer.
fn is_device(path: &Path, number: u64) -> bool {
    path.starts_with("/dev")
        && std::fs::metadata(path)
            .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number)
}

/// What mounts the regular file, or shows it as a device, and how to end that.
fn use_of(table: &[u8], file: &File) -> io::Result<Option<String>> {
    let own = file.metadata()?;
    let lines: Vec<_> = MountLine::all(table).collect();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
    let info = info.unwrap_or_default();
    let mount =
        info.lines().find_map(|line| line.strip_prefix("mnt_id:")).unwrap_or_default().trim();
    let device = lines.iter().find(|line| line.id == mount.as_bytes()).map(|line| line.device);
    let is_own = |path: &Path| {
        // stat(2) could wait for another file system for ever, and trigger automounts.
        let above = lines.iter().filter(|line| path.starts_with(&line.dir));
        let above = above.max_by_key(|line| line.dir.as_os_str().len()).map(|line| line.device);
        path.is_absolute()
            && (device.is_none() || above == device)
            && std::fs::metadata(path)
                .is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
    };
    let is_image =
        |line: &&MountLine<'_>| line.kind.starts_with(b"erofs") || line.kind.starts_with(b"fuse");
    if let Some(line) = lines.iter().filter(is_image).find(|line| is_own(&line.source)) {
        return Ok(Some(format!("{}: unmount it first, or write to another file", line.place())));
    }
    Ok(shown_by(table, is_own).map(|user| user + "file"))
}

/// Which loop device shows the file or device that `is_own` finds, and how to end that; the last
/// word is missing.
fn shown_by(table: &[u8], is_own: impl Fn(&Path) -> bool) -> Option<String> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let shown_by = devices.map(|entry| entry.path()).find(|path| {
        let backing = std::fs::read(path.join("loop/backing_file")).unwrap_or_default();
        backing
            .strip_suffix(b"\n")
            .is_some_and(|backing| is_own(Path::new(OsStr::from_bytes(backing))))
    });
    let name = shown_by.as_deref().and_then(Path::file_name)?;
    let name = Path::new("/dev").join(name);
    let mounted = std::fs::metadata(&name).ok().and_then(|found| mount_of(table, found.rdev()));
    let name = name.display();
    Some(match mounted {
        Some(place) => format!("{place}, by {name}: unmount it first, or write to another "),
        None => format!("is shown by {name}: `losetup -d {name}` first, or write to another "),
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
        assert_eq!(place(7, 3).as_deref(), Some("is mounted on /mnt/a b"));
        assert_eq!(place(8, 1).as_deref(), Some("is mounted on /"));
        assert_eq!(place(7, 4), None);
    }

    #[test]
    fn mounts_of_files_are_found_by_the_name_of_their_source() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("an image"), dir.path().join("link"));
        std::fs::write(&path, b"image").unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        let mounts = std::fs::read_to_string(MOUNTS).unwrap();
        let name = path.to_str().unwrap().replace(' ', "\\040");
        let place = |kind: &str, source: &str| {
            let table = format!("{mounts}999999 1 0:999 / /mnt/a\\040b ro - {kind} {source} ro\n");
            use_of(table.as_bytes(), &File::open(&link).unwrap()).unwrap()
        };
        let linux = place("erofs", &name).unwrap();
        assert!(linux.starts_with("is mounted on /mnt/a b: unmount"), "{linux}");
        let fuse = place("fuse.ferofs", &name).unwrap();
        assert!(fuse.starts_with("is mounted through FUSE on /mnt/a b: "), "{fuse}");
        assert_eq!(place("erofs", "image"), None);
        assert_eq!(place("tmpfs", &name), None);
        drop(open_in_place(&path).unwrap());
    }
}
