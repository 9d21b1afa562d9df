//! Finds the mount on a directory in /proc/self/mountinfo (proc(5)).
//!
//! stat(2) would send a request to the FUSE daemon of the mount, which may not answer any more.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The number of a mount. Linux may give it to another mount after the unmount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountId(Vec<u8>);

/// The mount on top of `dir`, an absolute path without symbolic links.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountId>> {
    Ok(find(&std::fs::read("/proc/self/mountinfo")?, dir))
}

/// The last line of `table` whose mount point is `dir`.
fn find(table: &[u8], dir: &Path) -> Option<MountId> {
    let wanted = escaped(dir);
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, point) = (fields.next(), fields.nth(3));
        if point == Some(wanted.as_slice()) {
            found = id.map(|id| MountId(id.to_vec()));
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
            31 22 0:41 / /mnt/a\\040b rw - fuse x.erofs ro\n\
            32 31 0:42 / /mnt/a\\040b ro - fuse y.erofs ro\n\
            33 22 0:43 / /mnt/a ro - fuse z.erofs ro\n";
        let mount = |id: &[u8]| Some(MountId(id.to_vec()));
        assert_eq!(find(table, Path::new("/mnt/a b")), mount(b"32"));
        assert_eq!(find(table, Path::new("/mnt/a")), mount(b"33"));
        assert_eq!(find(table, Path::new("/mnt")), None);
    }
}
