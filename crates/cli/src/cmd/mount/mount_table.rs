//! Finds the mount on a directory in /proc/self/mountinfo (proc(5)).
//!
//! stat(2) would send a request to the FUSE daemon of the mount, which may not answer any more.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ferofs::host::mount_path;

const TABLE: &str = "/proc/self/mountinfo";

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The number of the mount. Linux may give it to another mount after the unmount.
    id: Vec<u8>,
    /// The device number of the file system, for example `0:41`: its other mounts have the same.
    pub(crate) device: String,
    /// The type of the file system, for example `fuse.ferofs`.
    pub(crate) kind: String,
    /// Its source: for a mount by ferofs, the image, or a device with it.
    pub(crate) source: PathBuf,
    /// The flags of the mount, for example `ro,nosuid`.
    pub(crate) flags: String,
    /// The options of the file system, for example `ro,user_id=0`.
    pub(crate) options: String,
}

/// The mount on top of `dir`, an absolute path without symbolic links.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    match std::fs::read(TABLE) {
        Ok(table) => Ok(find(&table, dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::new(error.kind(), format!("{TABLE}: {error}; is /proc mounted?")))
        }
        Err(error) => Err(error),
    }
}

/// The mounts of a FUSE file system. Linux gives its device number to another one as soon as it is
/// unmounted.
pub(crate) struct FuseMounts {
    /// Lines of the table.
    lines: Vec<Vec<u8>>,
    /// The folder of the connection in fusectl, which is there while a mount in any namespace is,
    /// and its inode number.
    connection: Option<(PathBuf, u64)>,
}

impl FuseMounts {
    /// Of the file system with this device number.
    pub(crate) fn of(device: &str) -> Self {
        let table = std::fs::read(TABLE).unwrap_or_default();
        let lines = table.split(|byte| *byte == b'\n');
        let is_own =
            |line: &&[u8]| line.split(|byte| *byte == b' ').nth(2) == Some(device.as_bytes());
        let lines = lines.filter(is_own).map(<[u8]>::to_vec).collect();
        let number = device.strip_prefix("0:").unwrap_or("none");
        let folder = Path::new("/sys/fs/fuse/connections").join(number);
        let connection = std::fs::metadata(&folder).ok().map(|metadata| (folder, metadata.ino()));
        Self { lines, connection }
    }

    pub(crate) fn are_left(&self) -> bool {
        let is_connected = |(folder, number): &(PathBuf, u64)| {
            std::fs::metadata(folder).is_ok_and(|metadata| metadata.ino() == *number)
        };
        let table = std::fs::read(TABLE).unwrap_or_default();
        self.connection.as_ref().is_some_and(is_connected)
            || table
                .split(|byte| *byte == b'\n')
                .any(|line| self.lines.iter().any(|known| known == line))
    }
}

/// A mount point below `dir`, an absolute path without symbolic links.
pub(crate) fn mount_below(dir: &Path) -> Option<PathBuf> {
    let table = std::fs::read(TABLE).ok()?;
    let points = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(mount_path).find(|point| point.starts_with(dir) && point != dir)
}

/// The last line of `table` whose mount point is `dir`.
fn find(table: &[u8], dir: &Path) -> Option<MountEntry> {
    let wanted = escaped(dir);
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, device, point) = (fields.next(), fields.nth(1), fields.nth(1));
        if point == Some(wanted.as_slice()) {
            let text = |field: Option<&[u8]>| {
                String::from_utf8_lossy(field.unwrap_or_default()).into_owned()
            };
            let (device, flags) = (text(device), text(fields.next()));
            // Before the mark are any number of optional fields.
            let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
            let (kind, source) =
                (text(fields.next()), mount_path(fields.next().unwrap_or_default()));
            let options = text(fields.next());
            found =
                id.map(|id| MountEntry { id: id.to_vec(), device, kind, source, flags, options });
        }
    }
    found
}

/// The path in the form of mountinfo: some characters are octal escapes.
fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => bytes.extend(format!("\\{byte:03o}").into_bytes()),
            byte => bytes.push(*byte),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_topmost_mount_of_a_directory() {
        let table: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            31 22 0:41 / /mnt/a\\040b rw shared:1 master:2 - fuse.ferofs x.erofs ro\n\
            32 31 0:42 / /mnt/a\\040b ro - tmpfs y\\040z\\134.erofs rw,a=1\n\
            33 22 0:43 / /mnt/a ro shared:3 - fuse.ferofs z.erofs rw,a=1\n";
        let mount = |id: &[u8], device: &str, kind: &str, source: &str| {
            let (id, source) = (id.to_vec(), source.into());
            Some(MountEntry {
                id,
                device: device.to_owned(),
                kind: kind.to_owned(),
                source,
                flags: "ro".into(),
                options: "rw,a=1".into(),
            })
        };
        assert_eq!(
            find(table, Path::new("/mnt/a b")),
            mount(b"32", "0:42", "tmpfs", "y z\\.erofs")
        );
        assert_eq!(
            find(table, Path::new("/mnt/a")),
            mount(b"33", "0:43", "fuse.ferofs", "z.erofs")
        );
        assert_eq!(find(table, Path::new("/mnt")), None);
    }
}
