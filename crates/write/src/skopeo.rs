//! Names container images in forms that are not sources: skopeo's directories, and names with
//! skopeo's transports.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Transports whose image is at the path that follows.
const LOCAL: [&[u8]; 4] = [b"oci:", b"oci-archive:", b"docker-archive:", b"dir:"];
/// Transports whose image skopeo must copy.
const OTHERS: [&[u8]; 6] =
    [b"docker://", b"docker-daemon:", b"containers-storage:", b"ostree:", b"sif:", b"atomic:"];
/// The file that names the parts of an archive of `docker save`, or of an image in skopeo's form.
pub(super) const MANIFEST: &str = "manifest.json";
/// The file that marks a directory or an archive as an OCI image layout.
pub(super) const MARK: &str = "oci-layout";
/// The index of all images in a layout.
pub(super) const INDEX: &str = "index.json";

/// Bytes of a `manifest.json` that are read to recognise it: it begins with an image.
pub(super) const MANIFEST_READ: u64 = 1 << 16;

/// Recognises a container image by the members of an archive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContainerNames {
    /// A layout, or one in a directory of the archive.
    has_mark: bool,
    /// A list of images or their parts, and a blob, a configuration or a layer.
    has_list: bool,
    has_part: bool,
    /// The same in a directory of the archive.
    has_inner_list: bool,
    has_inner_part: bool,
    has_foreign: bool,
    is_readable: bool,
}

impl ContainerNames {
    /// Adds the next member. `manifest` is the start of `manifest.json`, if it is read. Whether the
    /// next members can still change what can be read.
    pub(super) fn add(&mut self, name: &[u8], is_dir: bool, manifest: &[u8]) -> bool {
        const NAMES: [&[u8]; 5] = [b"", b"repositories", b"blobs", b"version", MARK.as_bytes()];
        const ENDS: [&[u8]; 4] = [b".tar", b".tar.gz", b".tgz", b".tar.zst"];
        let (top, inside) = match name.iter().position(|byte| *byte == b'/') {
            Some(slash) => (&name[..slash], &name[slash + 1..]),
            None => (name, &b""[..]),
        };
        let is_layer = ENDS.iter().any(|end| top.ends_with(end)) || inside == b"layer.tar";
        let is_part = top == b"blobs" && !inside.is_empty() || is_layer || is_digest(name);
        let inner = inside.split(|byte| *byte == b'.').next().unwrap_or_default();
        let is_own = match inside {
            b"" => is_dir || NAMES.contains(&top) || top.ends_with(b".json"),
            inside => inside == b"VERSION" || inside == b"json",
        };
        let is_mark = top == MARK.as_bytes();
        self.has_mark |= is_mark || inside == MARK.as_bytes();
        self.has_list |= name == MANIFEST.as_bytes() || name == INDEX.as_bytes();
        self.has_part |= is_part;
        self.has_inner_list |= inside == MANIFEST.as_bytes();
        self.has_inner_part |= is_digest(inner) || inside.ends_with(b"/layer.tar");
        self.has_foreign |= !is_own && !is_part;
        self.is_readable |= !self.has_foreign && (is_mark || is_docker_manifest(manifest));
        !self.is_readable && !self.has_foreign
    }

    /// Whether it is an image in any form, or a part of one.
    pub(super) const fn is_image(self) -> bool {
        self.has_mark
            || self.has_list && self.has_part && !self.has_foreign
            || self.has_inner_list && self.has_inner_part
    }

    /// Whether it is an image in a form that can be read, and nothing else came before.
    pub(super) const fn is_readable(self) -> bool {
        self.is_readable
    }
}

fn is_digest(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b"sha256:").unwrap_or(name);
    digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a `manifest.json` is that of `docker save`: a list of images with their configuration
/// and layers. The names are any.
fn is_docker_manifest(bytes: &[u8]) -> bool {
    let has = |key: &[u8]| bytes.windows(key.len()).any(|found| found == key);
    bytes.trim_ascii_start().starts_with(b"[") && has(b"\"Config\"") && has(b"\"Layers\"")
}

/// How the file `version` of skopeo's directories begins.
const VERSION: &[u8] = b"Directory Transport Version";

/// Why `path` is not a source, and what to do, if it is such an image.
pub(super) fn problem(path: &Path) -> Option<&'static str> {
    if start_of(&path.join("version"), VERSION.len() as u64).is_some_and(|start| start == VERSION) {
        return Some(
            "an image in the form of skopeo's transport dir: make a layout of it with skopeo copy dir:DIR oci:LAYOUT, then ferofs build \
             LAYOUT IMAGE; --from dir takes the files as they are",
        );
    }
    if has_parts(path) {
        return Some(
            "the parts of a container image: make an archive of them with tar -C DIR -cf FILE ., then ferofs build FILE IMAGE; --from dir \
             takes the files as they are",
        );
    }
    let has = |name| path.join(name).is_file();
    if has(MARK) != has(INDEX) && path.join("blobs/sha256").is_dir() {
        return Some(
            "a part of an OCI image layout, without index.json or oci-layout: copy all of the layout, for example with skopeo copy; --from \
             dir takes the files as they are",
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

/// Whether the directory holds the parts of an archive of `docker save`.
fn has_parts(path: &Path) -> bool {
    let start = start_of(&path.join(MANIFEST), MANIFEST_READ);
    !path.join(MARK).is_file() && start.is_some_and(|start| is_docker_manifest(&start))
}

/// The first bytes of a file. `None` if it cannot be read: reading the directory reports the error.
fn start_of(path: &Path, most: u64) -> Option<Vec<u8>> {
    // Opening a FIFO would wait for a writer.
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mut start = Vec::new();
    std::fs::File::open(path).ok()?.take(most).read_to_end(&mut start).ok()?;
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_images_are_known_by_their_members() {
        let part = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let blob = "blobs/sha256/x";
        let docker = r#" [{"Config":"x","RepoTags":null,"Layers":["y"]}]"#;
        let other = r#"{"schemaVersion":2,"Config":"x","Layers":[]}"#;
        for (names, manifest, is_image, is_readable) in [
            (&["", "blobs", blob, "index.json", MARK, "etc/passwd"][..], "", true, true),
            (&[MANIFEST, &part, "etc/passwd"], docker, false, true),
            (&[MANIFEST, "blobs", blob, "blobs/sha256/x.tar.gz"], docker, true, true),
            (&[&part, "config.json", "000.tar", "l1.tgz", MANIFEST], docker, true, true),
            (&["a", "a/layer.tar", "a/json", "a/VERSION", MANIFEST], docker, true, true),
            (&["etc/passwd", &part, MANIFEST], docker, false, false),
            (&[&part, MANIFEST, "version"], other, true, false),
            (&["layout", "layout/oci-layout", "layout/index.json"], "", true, false),
            (&["layout", "layout/manifest.json", &format!("layout/{part}.tar")], "", true, false),
            (&["layout", "layout/manifest.json", "layout/icon.png"], "", false, false),
            (&["blobs", blob, "index.json"], "", true, false),
            (&[&part, "repositories"], "", false, false),
            (&["a", "a/json", "manifest.json"], "", false, false),
        ] {
            let (mut found, mut all) = (ContainerNames::default(), ContainerNames::default());
            let add = |found: &mut ContainerNames, name: &str| {
                let manifest = if name == MANIFEST { manifest } else { "" };
                found.add(name.as_bytes(), matches!(name, "a" | "layout"), manifest.as_bytes())
            };
            let _ = names.iter().take_while(|name| add(&mut found, name)).count();
            let _ = names.iter().map(|name| add(&mut all, name)).count();
            assert_eq!((all.is_image(), found.is_readable()), (is_image, is_readable), "{names:?}");
        }
    }

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
