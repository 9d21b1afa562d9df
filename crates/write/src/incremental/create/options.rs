//! The options and the result of [`create`](crate::incremental::create()).

use std::path::PathBuf;

use crate::error::Warning;
use crate::options::Options;
use crate::options::compression::Compression;
use ferofs_format::Incompat;
use ferofs_read::Image;

/// How new content is encoded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Encoding {
    /// With the algorithm and settings that most of the old image's content has, as far as the
    /// image shows them.
    #[default]
    AsOld,
    /// Not compressed.
    Stored,
    /// With these settings.
    With(Compression),
}

/// How to make a patch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateOptions {
    /// The source of the new tree and how it is read: input kind, excludes, owners, times, workers,
    /// progress, cancelling, verifying. Options for the image's encoding and layout are ignored:
    /// these are as in the old image.
    pub build: Options,
    /// How new content is encoded.
    pub encoding: Encoding,
    /// Use no feature that the old image does not have, so that each kernel that mounts the old
    /// image mounts the new one.
    pub keep_features: bool,
    /// Keep a directory whose entries are unchanged even if its parent has a new inode. Its `..`
    /// then names the parent's old inode: Linux ignores that, programs that check images report it.
    pub loose_parents: bool,
    /// The patch contains encoded bytes, and not what to encode, so that programs with other
    /// versions of the compressors can apply it. It is larger.
    pub portable: bool,
    /// Attributes in which an old inode may differ from the new file and stay nevertheless. Files
    /// with other differences get all attributes of the new file. Verifying reports these
    /// differences, so it cannot be combined with this.
    pub ignore: IgnoredAttributes,
    /// The new tree, instead of the source of [`Self::build`].
    pub new_image: Option<Image>,
    /// Encode new metadata and new fragments after those of the old image, if these are compressed
    /// together. A patch file has them as encoded bytes then, and not as differences to old ones.
    pub(crate) grow: bool,
    /// Zstandard's level for the patch file; `None`: by the number of appended bytes.
    pub level: Option<i32>,
}

/// Attributes that do not count as a change of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredAttributes {
    /// The time of the last change of its content.
    pub times: bool,
    /// User and group.
    pub owner: bool,
    /// Permissions.
    pub mode: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

impl CreateOptions {
    /// Makes a patch to the tree in `source`, of any
    /// [format](crate::options::source::SourceFormat), with default options.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>) -> Self {
        let build = Options::new(source);
        Self {
            build,
            encoding: Encoding::AsOld,
            keep_features: false,
            loose_parents: false,
            portable: false,
            ignore: IgnoredAttributes::default(),
            new_image: None,
            grow: false,
            level: None,
        }
    }
}

/// What makes an image grow, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrowthParts {
    /// Stored or encoded content of new and changed files, but for inline tails.
    pub content: u64,
    /// Inodes of all but directories, with their xattrs, and symbolic links.
    pub inodes: u64,
    /// The indexes of these inodes.
    pub indexes: u64,
    /// Inline tails of new and changed content.
    pub new_tails: u64,
    /// Copies of inline tails whose file has other attributes, but the same content: a tail follows
    /// its inode.
    pub copied_tails: u64,
    /// Directories whose entries or attributes changed: also if an entry's inode has another place.
    pub directories: u64,
    /// Directories in which only `..` changed.
    pub parents: u64,
    /// Unused bytes before the ends of slots and blocks, and the record of the history.
    pub padding: u64,
}

impl GrowthParts {
    /// The parts with their names, for people; the sum is the growth.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("content", self.content),
            ("inodes", self.inodes),
            ("indexes", self.indexes),
            ("new tails", self.new_tails),
            ("copied tails", self.copied_tails),
            ("directories", self.directories),
            ("directories with another parent", self.parents),
            ("padding", self.padding),
        ]
    }
}

/// The sizes of a new patch, and what it needs.
#[derive(Debug)]
#[non_exhaustive]
pub struct PatchSummary {
    /// Bytes of the patch file.
    pub patch_len: u64,
    /// Bytes that the image grows by.
    pub growth: u64,
    /// What [`growth`](Self::growth) consists of.
    pub growth_parts: GrowthParts,
    /// Bytes of content in [`growth`](Self::growth).
    pub content_len: u64,
    /// Bytes of metadata in [`growth`](Self::growth).
    pub metadata_len: u64,
    /// Features that readers of the new image must know, and that the old image does not have.
    pub new_features: Incompat,
    /// Files and attributes that the new tree leaves out.
    pub warnings: Vec<Warning>,
}
