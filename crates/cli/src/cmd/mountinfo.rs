//! What the kernel's table of mounts, /proc/self/mountinfo (see proc(5)), says of a directory.
//!
//! Unlike stat(2), looking there asks nothing of the daemon that serves the mount.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A mount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Its number, which no other mount has at the same time.
    pub(crate) id: String,
    /// Its device, as `major:minor`.
    pub(crate) device: String,
}

/// The mount on top of `dir`, an absolute path without symbolic links.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    Ok(find(&std::fs::read("/proc/self/mountinfo")?, dir))
}

/// The last line of `table` whose mount point is `dir`.
fn find(table: &[u8], dir: &Path) -> Option<MountEntry> {
    let wanted = escaped(dir);
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, device, point) = (fields.next(), fields.nth(1), fields.nth(1));
        if let (Some(id), Some(device), Some(point)) = (id, device, point)
            && point == wanted
        {
            let text = |field| String::from_utf8_lossy(field).into_owned();
            found = Some(MountEntry { id: text(id), device: text(device) });
        }
    }
    found
}

/// A path as the kernel's tables of mounts write it.
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
            31 22 0:41 / /mnt/a\\040b rw - fuse x.erofs ro\n\
            32 31 0:42 / /mnt/a\\040b ro - fuse y.erofs ro\n\
            33 22 0:43 / /mnt/a ro - fuse z.erofs ro\n";
        let entry = |id: &str, device: &str| Some(MountEntry { id: id.into(), device: device.into() });
        assert_eq!(find(table, Path::new("/mnt/a b")), entry("32", "0:42"));
        assert_eq!(find(table, Path::new("/mnt/a")), entry("33", "0:43"));
        assert_eq!(find(table, Path::new("/mnt")), None);
    }
}
