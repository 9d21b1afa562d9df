//! The options for the source of an image, and for the files that the image gets from it.

pub(crate) mod definition;
mod exclude;

use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::options::oci::OciOptions;
pub use definition::{Definitions, DefinitionsError};
pub use exclude::Exclude;

/// The source of an image, and which of its files the image gets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceOptions {
    /// The directory, archive, image layout or EROFS image; `-` is an archive on standard input.
    pub path: PathBuf,
    /// The source's format.
    pub format: SourceFormat,
    /// More sources of the same format, as layers above [`Self::path`]; the topmost is last.
    pub upper_layers: Vec<PathBuf>,
    /// If not empty, [`Self::path`] and [`Self::upper_layers`] are directories, and the image has
    /// each one below its root, under the name with the same number. Options for excluded files
    /// apply to the paths in each directory.
    pub version_names: Vec<Vec<u8>>,
    /// An EROFS image as the layer below [`Self::path`]. Options for owners, times and excluded
    /// files do not apply to its files.
    pub lower_image: Option<PathBuf>,
    /// The build also writes the archive to this file, decompressed. With [`SourceData::External`],
    /// this file is the extra device of a compressed archive.
    pub plain_copy: Option<PathBuf>,
    /// Whether the image holds the content of files.
    pub data: SourceData,
    /// How whiteouts in archives and images are treated.
    pub whiteouts: Whiteouts,
    /// Devices with number 0:0 are whiteouts of overlayfs, which looks for them only in directories
    /// with an attribute: they get it.
    pub overlay_whiteouts: bool,
    /// Leave out whiteouts, if [`Self::overlay_whiteouts`] says that there can be some, and the
    /// attributes of directories that have them or are opaque.
    pub strip_overlay: bool,
    /// Accept an archive of 0 bytes as one without members.
    pub allow_empty_archives: bool,
    /// Which image of an OCI image layout to build from.
    pub oci: OciOptions,
    /// Multiplies the limits on what a small archive may cost: the size of extended headers, memory
    /// for attributes and sparse maps, windows of decompressors, and holes. 1 is enough for real
    /// archives.
    pub archive_limit_factor: NonZeroU32,
    /// Files that the image does not get.
    pub excludes: Vec<Exclude>,
    /// Files that are defined without a source, and changes to those of the source. They come last:
    /// excluded files, owners and offsets of the options do not apply to them.
    pub definitions: Definitions,
    /// Leave out what is on other file systems than the source directory. Mount points stay, as
    /// empty directories.
    pub one_file_system: bool,
    /// Leave out files that cannot be read, each with a [`crate::Warning`], instead of failing.
    pub skip_unreadable: bool,
    /// Store each name of a file with several hard links as a separate file.
    pub hard_dereference: bool,
}

impl SourceOptions {
    /// The directory `path`, with every default.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            format: SourceFormat::Directory,
            upper_layers: Vec::new(),
            version_names: Vec::new(),
            lower_image: None,
            plain_copy: None,
            data: SourceData::default(),
            whiteouts: Whiteouts::default(),
            overlay_whiteouts: true,
            strip_overlay: false,
            allow_empty_archives: false,
            oci: OciOptions::default(),
            archive_limit_factor: NonZeroU32::MIN,
            excludes: Vec::new(),
            definitions: Definitions::default(),
            one_file_system: false,
            skip_unreadable: false,
            hard_dereference: false,
        }
    }
}

/// The format of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceFormat {
    /// A directory.
    Directory,
    /// A tar archive of any dialect, plain or compressed with gzip, xz, lzma, lzip or zstd.
    Tar,
    /// An OCI image layout, as a directory or an archive: its layers are merged.
    Oci,
    /// An EROFS image of any layout.
    Image,
}

impl SourceFormat {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Directory, Self::Tar, Self::Oci, Self::Image];

    /// The name on command lines, and its explanation.
    #[must_use]
    pub const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Directory => ("dir", "A directory, even if it is an OCI image layout"),
            Self::Tar => ("tar", "Tar archives"),
            Self::Oci => ("oci", "An OCI image layout: a directory, or a tar archive of one"),
            Self::Image => ("erofs", "EROFS images"),
        }
    }

    /// Whether [`add`](crate::incremental::add) takes it.
    #[must_use]
    pub const fn can_be_added(self) -> bool {
        matches!(self, Self::Directory | Self::Tar)
    }

    /// Whether images can refer to data that stays in the source.
    pub(crate) const fn can_keep_data(self) -> bool {
        matches!(self, Self::Tar | Self::Image)
    }
}

/// Whether the new image holds the content of the source's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceData {
    /// The image holds a copy.
    #[default]
    Copied,
    /// The archive consists of headers only, without content. Files have the size from the header,
    /// and read as zeroes.
    Absent,
    /// The image reserves blocks for the content of an archive's files, uncompressed and filled
    /// with zeroes, so that another program can write the content later. That needs
    /// [`super::DataOptions::share_identical`] and [`super::InodeOptions::inline_data`] off.
    Reserved,
    /// The content stays in the archives or images, uncompressed. They become extra devices of the
    /// new image (Linux 5.16), which must have their block size: see [`crate::block_size`].
    External,
}

/// How a build treats whiteouts, by which a layer removes files of the layers below it: names that
/// start with `.wh.` in archives, overlayfs' whiteouts in images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whiteouts {
    /// As ordinary files.
    #[default]
    Keep,
    /// Convert them to overlayfs' whiteouts and opaque directories.
    Overlay,
    /// Remove the files of lower layers that they name, and the whiteouts.
    Apply,
}
