//! Names container images in forms that are no sources: skopeo's directories, and names with skopeo's transports.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Transports whose image is at the path that follows.
const LOCAL: [&[u8]; 4] = [b"oci:", b"oci-archive:", b"docker-archive:", b"dir:"];
/// Transports whose image skopeo must copy.
const OTHERS: [&[u8]; 6] =
    [b"docker://", b"docker-daemon:", b"containers-storage:", b"ostree:", b"sif:", b"atomic:"];
/// How the file `version` of skopeo's directories begins.
const VERSION: &[u8] = b"Directory Transport Version";

/// Why `path` is no source, and what to do, if it is such an image.
pub(super) fn problem(path: &Path) -> Option<&'static str> {
    if has_version(path) {
        return Some(
            "an image in the form of skopeo's transport dir: make a layout of it with skopeo copy dir:DIR oci:LAYOUT, then ferofs build \
             LAYOUT IMAGE; --from dir takes the files as they are",
        );
    }
    // A file may have such a name.
    if std::fs::symlink_metadata(path).is_ok() {
        return None;
    }
    let starts = |transports: &[&[u8]]| {
        transports.iter().any(|start| path.as_os_str().as_bytes().starts_with(start))
    };
    if starts(&[b"http://", b"https://", b"s3://", b"oci://"]) {
        return Some("an image on a server: ferofs pull fetches it, ferofs mount mounts it");
    }
    if starts(&LOCAL) {
        return Some(
            "begins with a transport of skopeo: give the path that follows, without a tag; --image-name selects an image",
        );
    }
    if starts(&OTHERS) {
        return Some(
            "a name of skopeo: skopeo copy NAME oci:LAYOUT, then ferofs build LAYOUT IMAGE",
        );
    }
    None
}

fn has_version(path: &Path) -> bool {
    let path = path.join("version");
    // Opening a FIFO would wait for a writer.
    if !std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    // A directory whose file cannot be read is an ordinary one: reading it as such reports the error.
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut start = Vec::new();
    file.take(VERSION.len() as u64).read_to_end(&mut start).is_ok() && start == VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_skopeo_are_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(problem(dir.path()), None);
        std::fs::write(dir.path().join("version"), "1.0\n").unwrap();
        assert_eq!(problem(dir.path()), None);
        std::fs::write(dir.path().join("version"), "Directory Transport Version: 1.1\n").unwrap();
        assert!(problem(dir.path()).unwrap().contains("skopeo copy dir:DIR"));
        for (name, expected) in [
            ("oci:layout:tag", "give the path that follows"),
            ("docker://alpine", "skopeo copy NAME"),
            ("https://example.org/a.tar", "ferofs pull"),
            ("oci://host/name:tag", "ferofs pull"),
        ] {
            assert!(problem(Path::new(name)).unwrap().contains(expected), "{name}");
        }
        assert_eq!(problem(Path::new("missing")), None);
    }
}
