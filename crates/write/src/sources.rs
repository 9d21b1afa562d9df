//! Sources of an image: directories, archives, OCI image layouts and EROFS images.
//!
//! The first stage of a build: [`read_source`] reads the names and attributes into a [`Tree`], and
//! registers in [`Contents`] what the data stage reads content from. A new format is a variant of
//! [`SourceFormat`], which [`SourceFormat::detect`] recognises, and a module that fills a layered
//! tree.

pub(crate) mod content;
pub(crate) mod digest;
pub(crate) mod directory;
pub(crate) mod image;
#[cfg(feature = "oci")]
pub(crate) mod oci;
pub(crate) mod reader;
pub(crate) mod source_file;
#[cfg(feature = "tar")]
pub(crate) mod tar;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use ferofs_format::BlockSize;
use ferofs_format::inode::Timestamp;

use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::options::source::{SourceData, SourceFormat, Whiteouts};
use crate::output::OwnFile;
use crate::paths::as_path;
use crate::sources::content::Contents;
#[cfg(feature = "tar")]
use crate::sources::tar::tar_stream::TarStream;
use crate::tree::layered_tree::LayeredTree;
use crate::tree::{Kind, Origin, Tree};
use ferofs_format::inode::{FileType, Rdev};
use ferofs_read::{FileSource, Image};

impl SourceFormat {
    /// Detects the format of the source at `path`. An image layout is recognized by its marker
    /// file; in an archive, only other parts of a layout may come before that file.
    ///
    /// # Errors
    /// [`Error::Io`] when the source cannot be read; [`Error::InvalidSource`] for an image in
    /// another form of skopeo.
    pub fn detect(path: &Path) -> Result<Self> {
        if let Some(problem) = crate::skopeo::problem(path) {
            return Err(Error::InvalidSource { path: path.to_owned(), problem });
        }
        Ok(match path {
            path if path == Path::new("-") => Self::Tar,
            #[cfg(feature = "oci")]
            path if oci::is_layout(path) => Self::Oci,
            path if path.is_dir() => Self::Directory,
            path if image::is_image(path)? => Self::Image,
            _ => Self::Tar,
        })
    }
}

/// The block size that an image must have if its content stays in `source`.
///
/// # Errors
/// As [`ferofs_read::Image::open`].
pub fn block_size(format: SourceFormat, source: &Path) -> Result<BlockSize> {
    if format != SourceFormat::Image {
        // tar aligns data to 512 bytes.
        return Ok(BlockSize::MIN);
    }
    let image = Image::open(FileSource::open(source, 0)?)
        .map_err(|e| image::file::in_source(source.to_owned(), e))?;
    Ok(image.superblock().block_size)
}

/// Fails if [`SourceData`] does not allow the other options.
pub(crate) fn check(options: &Options) -> Result<()> {
    check_versions(options)?;
    let plain = options.data.compression.is_none() && options.data.chunks.is_none();
    match options.source.data {
        SourceData::External => {}
        SourceData::Reserved if options.source.format != SourceFormat::Tar || !plain => {
            let problem = "space can be reserved only for archives, without compression and chunks";
            return Err(Error::Option { option: "content", problem });
        }
        SourceData::Copied | SourceData::Absent | SourceData::Reserved => return Ok(()),
    }
    let problem = match options.source.format {
        _ if options.source.lower_image.is_some() => {
            "data that stays in the sources cannot be combined with a lower image"
        }
        format if !format.can_keep_data() => "data can stay only in tar archives and EROFS images",
        _ if options.data.compression.is_some() => {
            "data that stays in the sources cannot be compressed"
        }
        _ if options.data.chunks.is_some() => {
            "data that stays in the sources cannot be divided into chunks"
        }
        _ => return Ok(()),
    };
    Err(Error::Option { option: "content", problem })
}

/// Fails if [`crate::SourceOptions::version_names`] are not names of directories for all sources.
fn check_versions(options: &Options) -> Result<()> {
    let names = &options.source.version_names;
    if names.is_empty() {
        return Ok(());
    }
    let refuse = |problem| Err(Error::Option { option: "versions", problem });
    if options.source.format != SourceFormat::Directory {
        return refuse("only directories can be versions");
    }
    if names.len() != options.source.upper_layers.len() + 1 {
        return refuse("each source needs a name");
    }
    let is_name = |name: &Vec<u8>| {
        !matches!(name.as_slice(), b"" | b"." | b"..")
            && !name.contains(&b'/')
            && name.len() <= NAME_MAX
    };
    if !names.iter().all(is_name) {
        return refuse("a name is empty, longer than 255 bytes, `.` or `..`, or has a slash");
    }
    match names.iter().collect::<BTreeSet<_>>().len() == names.len() {
        true => Ok(()),
        false => refuse("two sources have the same name"),
    }
}

/// Bytes of the longest name that Linux accepts.
const NAME_MAX: usize = 255;

/// Reads the names and attributes of all files in the source. Files of `avoid` are left out.
pub(crate) fn read_source(
    options: &Options,
    avoid: &[OwnFile],
    temporary: &Path,
    time: Timestamp,
    warnings: &mut Vec<Warning>,
) -> Result<(Tree, Contents)> {
    options.run.progress.used_excludes.clear();
    let is_plain = options.source.lower_image.is_none()
        && options.source.definitions.0.is_empty()
        && options.source.version_names.is_empty()
        && !options.source.strip_overlay;
    if options.source.format == SourceFormat::Directory && is_plain {
        let contents = Contents::directory(&options.source.path)?;
        let earlier_warnings = warnings.len();
        let tree =
            directory::walk(options, &options.source.path, contents.root()?, avoid, warnings)?;
        let has_whiteouts = options.source.overlay_whiteouts
            && tree.nodes.iter().any(|node| {
                matches!(node.kind, Kind::Device(FileType::CharDevice, Rdev { major: 0, minor: 0 }))
            });
        if !has_whiteouts {
            options.warn_of_unused_excludes(warnings);
            return Ok((tree, contents));
        }
        // Their directories get an attribute, as in archives.
        warnings.truncate(earlier_warnings);
        options.run.progress.used_excludes.clear();
    }
    let mut contents = Contents::archives(temporary, &options.source.path);
    contents.is_external = options.source.data == SourceData::External;
    let mut layers = LayeredTree::new(time);
    if let Some(below) = &options.source.lower_image {
        let number = contents.add_image(below, &options.run.cancel)?;
        image::read(options, number, Whiteouts::Keep, &contents, &mut layers)?;
    }
    for (layer, source) in
        std::iter::once(&options.source.path).chain(&options.source.upper_layers).enumerate()
    {
        if layer > 0 || options.source.lower_image.is_some() {
            layers.next_layer();
        }
        let top = options.source.version_names.get(layer).map_or(&[][..], Vec::as_slice);
        let format = options.source.format;
        read_layer(options, format, source, top, avoid, &mut contents, &mut layers, warnings)?;
    }
    contents.finish_spool()?;
    for definition in &options.source.definitions.0 {
        let misplaced = |fault| Error::Entry { path: as_path(&definition.path).to_owned(), fault };
        layers.define(definition, time, options.attributes.all_time).map_err(misplaced)?;
    }
    if options.source.overlay_whiteouts {
        layers.mark_directories_with_whiteouts();
    }
    let tree = layers.finish(options, warnings)?;
    options.warn_of_unused_excludes(warnings);
    Ok((tree, contents))
}

/// As [`read_source`], for an image that is open already. Its name in messages is that of the
/// source in `options`.
///
/// # Errors
/// As [`read_source`].
pub(crate) fn read_opened_image(
    options: &Options,
    image: &Image,
    temporary: &Path,
    time: Timestamp,
    warnings: &mut Vec<Warning>,
) -> Result<(Tree, Contents)> {
    let mut contents = Contents::archives(temporary, &options.source.path);
    let number = contents.add_opened_image(image, &options.source.path)?;
    let mut layers = LayeredTree::new(time);
    image::read(options, number, Whiteouts::Keep, &contents, &mut layers)?;
    contents.finish_spool()?;
    Ok((layers.finish(options, warnings)?, contents))
}

/// Reads the names and attributes of a source into the current layer. A directory goes below the
/// directory `top` of the layer, which is empty for the root. Files of `avoid` are left out of a
/// directory: see [`read_source`].
#[allow(clippy::too_many_arguments)] // Two of them are for directories only.
pub(crate) fn read_layer(
    options: &Options,
    format: SourceFormat,
    source: &Path,
    top: &[u8],
    avoid: &[OwnFile],
    contents: &mut Contents,
    layers: &mut LayeredTree,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    match format {
        #[cfg(feature = "oci")]
        SourceFormat::Oci => oci::read(options, source, contents, layers, warnings),
        SourceFormat::Image => {
            let number = contents.add_image(source, &options.run.cancel)?;
            image::read(options, number, options.source.whiteouts, contents, layers)
        }
        #[cfg(feature = "tar")]
        SourceFormat::Tar => {
            let tar_stream = TarStream::open(source, options, contents)?;
            tar::read(options, tar_stream, options.source.whiteouts, contents, layers, warnings)
        }
        #[cfg(not(feature = "oci"))]
        SourceFormat::Oci => Err(Error::Option {
            option: "source",
            problem: "OCI image layouts need the feature `oci` of ferofs-write",
        }),
        #[cfg(not(feature = "tar"))]
        SourceFormat::Tar => Err(Error::Option {
            option: "source",
            problem: "archives need the feature `tar` of ferofs-write",
        }),
        SourceFormat::Directory => {
            let walk = |root: &OwnedFd| directory::walk(options, source, root, avoid, warnings);
            let layer = contents.add_directory(source, walk)?;
            let tree = contents.directory_tree(layer);
            let misplaced = |(path, fault)| Error::Entry { path: source.join(path), fault };
            layers
                .apply_directory(top, tree, |node, origin| match origin {
                    Origin::File(identity) => Origin::LayerFile { layer, node, identity },
                    origin => origin,
                })
                .map_err(misplaced)
        }
    }
}
