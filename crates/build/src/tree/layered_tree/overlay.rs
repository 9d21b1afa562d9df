//! Recognizes the marks of overlayfs: whiteouts, opaque directories and redirects.

use ferofs_format::inode::{FileType, Rdev};

/// The prefixes of overlayfs' attributes.
const PREFIXES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The marks of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The file removes its name from lower layers.
    pub(crate) is_whiteout: bool,
    /// The directory hides those of lower layers.
    pub(crate) is_opaque: bool,
    /// Its content or its entries are those of another path.
    pub(crate) redirects: bool,
}

impl Marks {
    pub(crate) fn of(kind: FileType, device: Option<Rdev>, attributes: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let mut marks = Self {
            is_whiteout: kind == FileType::CharDevice && device == Some(Rdev { major: 0, minor: 0 }),
            ..Self::default()
        };
        for (name, value) in attributes {
            match (own_part(name), kind) {
                (Some(b"opaque"), FileType::Directory) => marks.is_opaque |= value == b"y",
                (Some(b"whiteout"), FileType::Regular) => marks.is_whiteout = true,
                (Some(b"redirect" | b"metacopy"), _) => marks.redirects = true,
                _ => {}
            }
        }
        marks
    }
}

/// Whether an attribute has a meaning only for overlayfs, and none after the layers are merged.
pub(crate) fn is_mark(name: &[u8]) -> bool {
    own_part(name).is_some_and(|part| matches!(part, b"opaque" | b"whiteout" | b"origin" | b"impure"))
}

/// Whether an attribute can mark a directory as opaque, so that it hides those of lower layers.
pub(super) fn is_opaque_mark(name: &[u8]) -> bool {
    own_part(name) == Some(b"opaque")
}

fn own_part(name: &[u8]) -> Option<&[u8]> {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(*prefix))
}
