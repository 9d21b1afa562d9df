//! The argument that names an image.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The schemes of addresses: other names are files.
const SCHEMES: [&str; 4] = ["https://", "http://", "s3://", "oci://"];

/// The name of an image as it was given, and as messages show it: the address of an image on a server may have a password.
/// It dereferences to the name for messages.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ImageName {
    /// The name as it was given, to open the image.
    pub(crate) given: PathBuf,
    shown: PathBuf,
}

impl ImageName {
    /// Whether this is the address of an image on a server.
    pub(crate) fn is_remote(&self) -> bool {
        scheme(&self.given).is_some()
    }
}

/// The scheme of an address; `None` for a file.
fn scheme(name: &Path) -> Option<&'static str> {
    let name = name.as_os_str().as_encoded_bytes();
    SCHEMES.into_iter().find(|scheme| name.starts_with(scheme.as_bytes()))
}

/// The name as messages show it.
fn without_secrets(given: &Path) -> PathBuf {
    let Some(scheme) = scheme(given) else { return given.to_owned() };
    #[cfg(feature = "remote")]
    if let Ok(location) = ferofs_remote::Location::parse(&given.to_string_lossy()) {
        return location.to_string().into();
    }
    // An address that cannot be used may have a password, too.
    format!("{scheme}...").into()
}

impl From<OsString> for ImageName {
    fn from(given: OsString) -> Self {
        let given = PathBuf::from(given);
        Self { shown: without_secrets(&given), given }
    }
}

impl From<PathBuf> for ImageName {
    fn from(given: PathBuf) -> Self {
        given.into_os_string().into()
    }
}

impl From<&str> for ImageName {
    fn from(given: &str) -> Self {
        OsString::from(given).into()
    }
}

impl Deref for ImageName {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.shown
    }
}

impl fmt::Debug for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_no_password() {
        let is_built = cfg!(feature = "remote");
        for (given, shown) in [
            ("https://me:secret@h/a?key=secret", if is_built { "https://h/a?..." } else { "https://..." }),
            ("https://me:secret@/a", "https://..."),
            ("dir/me:secret@h", "dir/me:secret@h"),
        ] {
            let name = ImageName::from(given);
            assert_eq!((&*name.given, &*name), (Path::new(given), Path::new(shown)));
            assert_eq!(format!("{name:?}"), format!("{shown:?}"));
        }
    }

    #[test]
    fn addresses_have_a_scheme() {
        for name in ["https://h/a", "http://h/a", "s3://b/k", "oci://h/a"] {
            assert!(ImageName::from(name).is_remote(), "{name}");
        }
        for name in ["image.erofs", "/https://h/a", "https:/h/a", "ftp://h/a", "HTTPS://h/a"] {
            assert!(!ImageName::from(name).is_remote(), "{name}");
        }
    }
}
