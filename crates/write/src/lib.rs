//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Build EROFS images from directories, archives, OCI images and other EROFS images, and from
//! entries in memory.
//!
//! [`build`] makes an image of a source in the file system, [`Builder`] one of entries that a
//! program gives. Both have [`Options`], whose [`set_preset`](Options::set_preset) chooses the
//! compression for a purpose.
//!
//! An image does not depend on the number of workers. No file has the image's name before it is
//! complete.
//!
//! # The modules
//!
//! | module | what it does |
//! |---|---|
//! | `sources` | reads a directory, archives, an OCI image layout, or EROFS images |
//! | `tree` | holds inodes, names and attributes until they have places in the image |
//! | `data` | reads, encodes and writes content, on all cores |
//! | `metadata` | places inodes and directories, and writes them and the superblock |
//! | `output` | writes the image to a file, a device or standard output |
//! | `verify` | compares the image with its source |
//! | [`estimate`](Estimator) | estimates size and time without building |
//! | [`incremental`] | makes patches: builds what is new after an image, with the modules above |
//!
//! An image is: block 0 with the superblock; data, in the order in which it was read; metadata, in
//! the order of the tree; shared attributes.

#![cfg_attr(
    not(all(feature = "oci", feature = "patch")),
    allow(dead_code, reason = "some parts are for layers of containers and for patches")
)]

mod build;
mod builder;
mod data;
mod error;
mod estimate;
#[cfg(feature = "patch")]
#[doc(hidden)]
pub mod incremental;
mod metadata;
mod options;
mod output;
mod paths;
mod progress;
#[cfg_attr(not(feature = "tar"), allow(dead_code, reason = "some is for archives"))]
mod skopeo;
mod sources;
mod tree;
mod verify;

pub use crate::error::faults::{EntryFault, OciFault};
pub use crate::options::attributes::{DIGEST_NAME, FsConfig, FsConfigError};
pub use crate::options::image::{InodeForm, Sealer};
pub use build::{build, now};
pub use builder::{Attributes, Builder, Content};
pub use error::faults::TarFault;
pub use error::settings::{SettingsError, SettingsProblem};
pub use error::{Error, Result, Warning};
pub use estimate::{Estimate, Estimator};
pub use ferofs_codec::{LzmaBits, Params, ParamsError, codec, compressor_names};
pub use ferofs_format::inode::{Rdev, Timestamp};
pub use ferofs_format::{Algorithm, BlockSize};
pub use ferofs_host::{KnownFormat, NewFile, Patterns, PatternsError, UsedPatterns};
pub use options::attributes::Target;
pub use options::compression::{
    Compression, Fragments, Hint, HintsError, IndexKind, MetadataCompression, PCLUSTER_MAX,
};
pub use options::data::{ChunkOptions, ContentOrder, HotFiles, Priorities, PrioritiesError};
pub use options::features::Features;
pub use options::labels::{Labels, LabelsError};
pub use options::oci::{OciOptions, Platform};
pub use options::preset::{Preset, level_settings};
pub use options::settings::Settings;
pub use options::source::{
    Definitions, DefinitionsError, Exclude, SourceData, SourceFormat, Whiteouts,
};
pub use options::{
    AttributeOptions, DataOptions, ImageOptions, InodeOptions, Options, OutputOptions, RunOptions,
    SourceOptions, XattrOptions,
};
pub use progress::{Activity, Progress, Spent, Stage, Summary, Timings};
pub use sources::block_size;

#[cfg(test)]
mod tests;
