//! Sources of an image: directories, archives, OCI image layouts and EROFS images.
//!
//! The first stage of a build: [`read_source`] reads the names and attributes into a [`Tree`], and registers in [`Contents`] what
//! the data stage reads content from.

pub mod change_time;
pub mod content;
pub mod data_ranges;
pub mod digest;
pub mod directory;
pub mod image;
pub mod oci;
pub mod open;
pub mod reader;
pub mod source_file;
mod spool;
pub mod tar;

use std::path::Path;

use ferofs_format::BlockSize;
use ferofs_format::inode::Timestamp;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::source::{SourceData, SourceFormat, Whiteouts};
use crate::progress::Warning;
use crate::sources::content::Contents;
use crate::sources::tar::tar_stream::TarStream;
use crate::tree::Tree;
use crate::tree::layered_tree::LayeredTree;
use ferofs_read::{FileSource, Image};

impl SourceFormat {
    /// Detects the format of the source at `path`. An image layout is recognized by its marker file; in an archive, only other
    /// parts of a layout may come before that file.
    ///
    /// # Errors
    /// [`Error::Io`] when the source cannot be read.
    pub fn detect(path: &Path) -> Result<Self> {
        Ok(match path {
            path if path == Path::new("-") => Self::Archive,
            path if oci::is_layout(path) => Self::Oci,
            path if path.is_dir() => Self::Directory,
            path if image::is_image(path)? => Self::Image,
            _ => Self::Archive,
        })
    }
}

/// The block size that an image must have if its content stays in `source`.
///
/// # Errors
/// As [`ferofs_read::Image::open`].
pub fn block_size(format: SourceFormat, source: &Path) -> Result<BlockSize> {
    if format != SourceFormat::Image {
        return Ok(tar::BLOCK_SIZE);
    }
    let image = Image::open(FileSource::open(source, 0)?)
        .map_err(|e| image::file::in_source(source.to_owned(), e))?;
    Ok(image.superblock().block_size)
}

/// Fails if [`SourceData`] does not allow the other options.
pub fn check(options: &Options) -> Result<()> {
    let plain = options.data.compression.is_none() && options.data.chunks.is_none();
    match options.source.data {
        SourceData::External => {}
        SourceData::Reserved if options.source.format != SourceFormat::Archive || !plain => {
            let problem = "space can be reserved only for archives, without compression and chunks";
            return Err(Error::Option { option: "content", problem });
        }
        SourceData::Copied | SourceData::Absent | SourceData::Reserved => return Ok(()),
    }
    let problem = match options.source.format {
        _ if options.source.lower_image.is_some() => {
            "data that stays in the sources cannot be combined with a lower image"
        }
        SourceFormat::Archive | SourceFormat::Image if options.data.compression.is_some() => {
            "data that stays in the sources cannot be compressed"
        }
        SourceFormat::Archive | SourceFormat::Image if options.data.chunks.is_some() => {
            "data that stays in the sources cannot be divided into chunks"
        }
        SourceFormat::Archive | SourceFormat::Image => return Ok(()),
        SourceFormat::Directory | SourceFormat::Oci => "data can stay only in tar archives and EROFS images",
    };
    Err(Error::Option { option: "content", problem })
}

/// Reads the names and attributes of all files in the source. Files of `avoid`, as device numbers and inode number, are left out.
pub fn read_source(
    options: &Options,
    avoid: &[(u32, u32, u64)],
    temporary: &Path,
    time: Timestamp,
    warnings: &mut Vec<Warning>,
) -> Result<(Tree, Contents)> {
    if options.source.format == SourceFormat::Directory && options.source.lower_image.is_none() {
        let contents = Contents::directory(&options.source.path)?;
        let tree = directory::walk(options, contents.root()?, avoid, warnings)?;
        return Ok((tree, contents));
    }
    let mut contents = match options.source.format {
        SourceFormat::Directory => Contents::directory(&options.source.path)?,
        _ => Contents::archives(temporary, &options.source.path),
    };
    contents.is_external = options.source.data == SourceData::External;
    let mut layers = LayeredTree::new(time);
    if let Some(below) = &options.source.lower_image {
        let number = contents.add_image(below)?;
        image::read(options, number, Whiteouts::Keep, &contents, &mut layers)?;
    }
    for (layer, source) in
        std::iter::once(&options.source.path).chain(&options.source.upper_layers).enumerate()
    {
        if layer > 0 || options.source.lower_image.is_some() {
            layers.next_layer();
        }
        match options.source.format {
            SourceFormat::Directory => {
                let tree = directory::walk(options, contents.root()?, avoid, warnings)?;
                let misplaced = |(path, fault)| Error::Entry { path: options.source.path.join(path), fault };
                layers.apply_directory(&tree).map_err(misplaced)?;
            }
            format => read_layer(options, format, source, &mut contents, &mut layers, warnings)?,
        }
    }
    contents.finish_spool()?;
    Ok((layers.finish(options, warnings)?, contents))
}

/// Reads the names and attributes of a source that is not a directory into the current layer.
pub(crate) fn read_layer(
    options: &Options,
    format: SourceFormat,
    source: &Path,
    contents: &mut Contents,
    layers: &mut LayeredTree,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    match format {
        SourceFormat::Oci => oci::read(options, source, contents, layers, warnings),
        SourceFormat::Image => {
            let number = contents.add_image(source)?;
            image::read(options, number, options.source.whiteouts, contents, layers)
        }
        SourceFormat::Archive => {
            let tar_stream = TarStream::open(source, options, contents)?;
            tar::read(options, tar_stream, options.source.whiteouts, contents, layers, warnings)
        }
        SourceFormat::Directory => {
            let problem = "a directory cannot be a layer of entries";
            Err(Error::Option { option: "layer", problem })
        }
    }
}
