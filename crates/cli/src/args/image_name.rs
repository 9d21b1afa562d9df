//! The argument that names an image.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use ferofs_remote::Location;

/// The name of an image as it was given, and as messages show it: the address of an image on a server may have a password.
/// It dereferences to the name for messages.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ImageName {
    given: PathBuf,
    shown: PathBuf,
}

impl ImageName {
    /// The name as it was given, to open the image.
    pub(crate) fn given(&self) -> &Path {
        &self.given
    }

    /// Whether the image is on a server.
    pub(crate) fn is_remote(&self) -> bool {
        Location::is_remote(self.given.as_os_str())
    }

    /// Whether messages do not show all of the name.
    pub(crate) fn has_secret(&self) -> bool {
        self.shown != self.given
    }
}

impl From<OsString> for ImageName {
    fn from(given: OsString) -> Self {
        let given = PathBuf::from(given);
        let shown = if Location::is_remote(given.as_os_str()) {
            // An address that cannot be used may have a password, too.
            let text = given.to_string_lossy();
            let scheme = text.split("//").next().unwrap_or_default();
            Location::parse(&text)
                .map_or_else(|_| format!("{scheme}//..."), |location| location.to_string())
                .into()
        } else {
            given.clone()
        };
        Self { given, shown }
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
        for (given, shown) in [
            ("https://me:secret@h/a?key=secret", "https://h/a?..."),
            ("https://me:secret@/a", "https://..."),
            ("dir/me:secret@h", "dir/me:secret@h"),
        ] {
            let name = ImageName::from(given);
            assert_eq!((name.given(), &*name), (Path::new(given), Path::new(shown)));
            assert_eq!(name.has_secret(), given != shown);
            assert_eq!(format!("{name:?}"), format!("{shown:?}"));
        }
    }
}
