//! Finds the mount on a directory in /proc/self/mountinfo (proc(5)).
//!
//! stat(2) would send a request to the FUSE daemon of the mount, which may not answer any more.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const TABLE: &str = "/proc/self/mountinfo";

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The number of the mount. Linux may give it to another mount after the unmount.
    id: Vec<u8>,
    /// The type of the file system, for example `fuse.ferofs`.
    pub(crate) kind: String,
}

/// The mount on top of `dir`, an absolute path without symbolic links.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    match std::fs::read(TABLE) {
        Ok(table) => Ok(find(&table, dir)),
        Err(error) => Err(io::Error::new(error.kind(), format!("{TABLE}: {error}; is /proc mounted?"))),
    }
}

/// The last line of `table` whose mount point is `dir`.
fn find(table: &[u8], dir: &Path) -> Option<MountEntry> {
    let wanted = escaped(dir);
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, point) = (fields.next(), fields.nth(3));
        if point == Some(wanted.as_slice()) {
            // Before the mark are any number of optional fields.
            let kind = fields.skip_while(|field| *field != b"-").nth(1).unwrap_or_default();
            let kind = String::from_utf8_lossy(kind).into_owned();
            found = id.map(|id| MountEntry { id: id.to_vec(), kind });
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
            32 31 0:42 / /mnt/a\\040b ro - tmpfs y.erofs ro\n\
            33 22 0:43 / /mnt/a ro shared:3 - fuse.ferofs z.erofs ro\n";
        let mount = |id: &[u8], kind: &str| Some(MountEntry { id: id.to_vec(), kind: kind.to_owned() });
        assert_eq!(find(table, Path::new("/mnt/a b")), mount(b"32", "tmpfs"));
        assert_eq!(find(table, Path::new("/mnt/a")), mount(b"33", "fuse.ferofs"));
        assert_eq!(find(table, Path::new("/mnt")), None);
    }
}
