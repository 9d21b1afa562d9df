//! `ferofs build --versions`: directories as versions, each below the root of the image under its
//! own name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// A directory, and its name in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) name: Vec<u8>,
    pub(super) directory: PathBuf,
}

impl Version {
    /// Parses `NAME=DIR`, or `DIR`, whose last part is the name. A path with `=` in it can be
    /// written with a slash before: `./a=b`.
    pub(super) fn parse(source: &Path) -> Result<Self, Failure> {
        let bytes = source.as_os_str().as_bytes();
        if let Some(equals) = bytes.iter().position(|byte| *byte == b'=')
            && !bytes[..equals].contains(&b'/')
        {
            let directory = PathBuf::from(OsString::from_vec(bytes[equals + 1..].to_vec()));
            return Ok(Self { name: bytes[..equals].to_vec(), directory });
        }
        let name = source.file_name().map(OsStr::as_bytes);
        let name =
            name.ok_or_else(|| Failure::about(source, "has no name: give it one with NAME=DIR"))?;
        Ok(Self { name: name.to_vec(), directory: source.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_a_name_of_its_own_or_that_of_its_directory() {
        let parse = |text: &str| Version::parse(text.as_ref()).map(|v| (v.name, v.directory)).ok();
        let version =
            |name: &str, directory: &str| Some((name.as_bytes().to_vec(), directory.into()));
        assert_eq!(parse("v1=/srv/a=b"), version("v1", "/srv/a=b"));
        assert_eq!(parse("/srv/monday/"), version("monday", "/srv/monday/"));
        assert_eq!(parse("./a=b"), version("a=b", "./a=b"));
        assert_eq!(parse("/"), None);
    }
}
