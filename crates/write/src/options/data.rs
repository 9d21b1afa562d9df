//! How the content of files is stored: encoded or not, in which order, and shared or not. A text
//! can ask for an order: it has the form of mksquashfs's sort files.

use std::num::NonZeroU32;
use std::path::PathBuf;

use ferofs_read::Profile;

use crate::options::compression::Compression;

/// How the content of files is stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DataOptions {
    /// How content is compressed; `None`: not at all.
    pub compression: Option<Compression>,
    /// Store files in chunks, and equal chunks once, in place of [`Self::compression`].
    pub chunks: Option<ChunkOptions>,
    /// Files with identical content share it.
    pub share_identical: bool,
    /// Files that are read most come first. This has no effect on content that stays in the
    /// sources.
    pub hot_files: Option<HotFiles>,
    /// Files whose content comes before or after that of others. Hot files come before all.
    pub priorities: Priorities,
    /// The order of the content of all other files.
    pub order: ContentOrder,
    /// Content starts at multiples of this many blocks.
    pub alignment: NonZeroU32,
    /// Chunks of zeroes are holes. Otherwise they refer to one stored chunk of zeroes, for
    /// erofs-utils before 1.10, which extract holes wrongly, and GRUB. No effect on content that
    /// stays in the sources or is absent.
    pub chunk_holes: bool,
}

/// The order in which the content of files is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentOrder {
    /// In the order of a program that reads the whole tree.
    #[default]
    Tree,
    /// Versions of a file are adjacent: directories whose names are mostly the same are read at the
    /// same time. With fragments in large pclusters, many versions of a tree take little more space
    /// than one; reading one version decodes data of the others.
    Similar,
    /// [`Self::Similar`] if half of the content is in files that have versions, and there are
    /// fragments; else [`Self::Tree`].
    Auto,
}

impl ContentOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Similar, Self::Auto];

    /// The name for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Similar => "similar",
            Self::Auto => "auto",
        }
    }

    /// The order with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            compression: None,
            chunks: None,
            share_identical: true,
            hot_files: None,
            priorities: Priorities::default(),
            order: ContentOrder::default(),
            alignment: NonZeroU32::MIN,
            chunk_holes: true,
        }
    }
}

/// How files are cut into chunks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChunkOptions {
    /// Bytes of a chunk: a power of two, at least a block and at most 64 MiB.
    pub size: u64,
    /// Write chunk indexes of 8 bytes, which name a device, where block addresses of 4 bytes would
    /// do.
    pub force_indexes: bool,
    /// The file or block device that chunks go to, as the image's extra device 1; `None`: the
    /// image.
    pub device: Option<PathBuf>,
}

impl ChunkOptions {
    /// Chunks of `size` bytes, in the image.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size, force_indexes: false, device: None }
    }
}

/// The files that are read most, and how many of them are stored uncompressed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HotFiles {
    /// The recorded reads. Files that it does not name count as not read.
    pub profile: Profile,
    /// The files with the most reads per byte are stored uncompressed, up to this many bytes in
    /// total.
    pub stored: u64,
}

impl HotFiles {
    /// The reads of `profile`, and up to `stored` bytes uncompressed.
    #[must_use]
    pub const fn new(profile: Profile, stored: u64) -> Self {
        Self { profile, stored }
    }
}

/// Files whose content is stored before or after that of others.
///
/// One line is `PATH PRIORITY`: a path relative to the root of the image, and a number from -32768
/// to 32767. Content of a higher priority is stored first; files that no line names have the
/// priority 0. The line of a directory holds for everything below it that has no line.
#[derive(Clone, Debug, Default)]
pub struct Priorities(pub(crate) Vec<(Vec<u8>, i16)>);

/// A line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: not PATH PRIORITY, with a number from -32768 to 32767")]
pub struct PrioritiesError {
    /// The line, from 1.
    pub line: usize,
}

impl Priorities {
    /// Parses the lines of a file. Empty lines and lines that start with `#` are left out.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, PrioritiesError> {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1..);
        let used = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(b"#"));
        used.map(|(line, number)| entry(line).ok_or(PrioritiesError { line: number }))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn entry(line: &[u8]) -> Option<(Vec<u8>, i16)> {
    let space = line.iter().rposition(u8::is_ascii_whitespace)?;
    let priority = std::str::from_utf8(&line[space + 1..]).ok()?.parse().ok()?;
    let path = line[..space].trim_ascii_end();
    let path = path.strip_prefix(b".").filter(|path| path.first() == Some(&b'/')).unwrap_or(path);
    let path = path.strip_prefix(b"/").unwrap_or(path);
    Some((path.strip_suffix(b"/").unwrap_or(path).to_vec(), priority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_path_and_a_priority() {
        let parsed = Priorities::parse(b"# first\n\n/boot/ 100\na file\t-1\n./etc 5").unwrap();
        assert_eq!(
            parsed.0,
            [(b"boot".to_vec(), 100), (b"a file".to_vec(), -1), (b"etc".to_vec(), 5)]
        );
        assert_eq!(Priorities::parse(b"a 1\nb\n").unwrap_err(), PrioritiesError { line: 2 });
        assert!(Priorities::parse(b"a 40000").is_err() && Priorities::parse(b"a x").is_err());
    }
}
