//! What an image is made of, and how each kind of source becomes a [`Tree`] with [`Contents`].
//!
//! The first step of a build: [`gather`] goes to the room of the source's kind.

pub mod change_time;
pub mod content;
pub mod directory;
pub mod image;
pub mod oci;
pub mod open;
pub mod overrides;
pub mod tar;

use std::path::Path;

use ferofs_format::BlockSize;
use ferofs_format::inode::Timestamp;

use crate::sources::content::Contents;
use crate::sources::tar::tape::Tape;
use crate::tree::Tree;
use crate::tree::layered::Sketch;
use crate::{Error, Result};
use crate::{Options, Warning};
use ferofs_read::{FileSource, Image};

/// What the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A directory, whose content becomes the image's.
    Directory,
    /// A tar archive of any dialect, plain or compressed with gzip, xz, lzip or zstd; `-` is standard input.
    Archive,
    /// An OCI image layout, a directory or an archive of one: the image's layers, flattened.
    Oci,
    /// An EROFS image of any layout.
    Image,
}

/// What becomes of the content in archives and images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceData {
    /// It becomes the image's.
    #[default]
    Copied,
    /// The archive has none, just headers; files are as large as these say, and all zeroes.
    Absent,
    /// It is left out of the image, which has room for it: archives' files are stored plain, and all zeroes. Whoever is to
    /// fill the room wants neither [`Options::share`] nor tails behind inodes.
    Reserved,
    /// It stays in the archives or images, plain, which are the image's extra devices (Linux 5.16). The image's block
    /// size must be the sources': see [`block_size`].
    Referred,
}

/// What becomes of the signs by which layers say that files of the layers below are gone: names that start with `.wh.` in
/// archives, overlayfs' own in images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whiteouts {
    /// They are files as any other.
    #[default]
    Keep,
    /// They become overlayfs' whiteouts and opaque directories.
    Overlay,
    /// What they name in lower layers is left out, and so are they.
    Apply,
}

impl Input {
    /// What the source at `path` seems to be: an OCI image layout has files that say so, and in archives no others
    /// before them, or it is taken for an ordinary directory or archive.
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

/// The block size of images whose content is to stay in `source`: that of the image that it is, or that of archives.
///
/// # Errors
/// As [`ferofs_read::Image::open`].
pub fn block_size(input: Input, source: &Path) -> Result<BlockSize> {
    if input != Input::Image {
        return Ok(tar::BLOCK_SIZE);
    }
    let image =
        Image::open(FileSource::open(source, 0)?).map_err(|e| image::in_source(source.to_owned(), e))?;
    Ok(image.superblock().block_size)
}

/// Fails if the options do not go with content that is not the image's own.
pub fn check(options: &Options) -> Result<()> {
    let plain = options.compression.is_none() && options.chunks.is_none();
    match options.source_data {
        SourceData::Referred => {}
        SourceData::Reserved if options.input != Input::Archive || !plain => {
            let problem = "room is reserved for that of archives, as it is";
            return Err(Error::Option { option: "content", problem });
        }
        SourceData::Copied | SourceData::Absent | SourceData::Reserved => return Ok(()),
    }
    let problem = match options.input {
        _ if options.below.is_some() => "it stays in its sources, which an image below has no place among",
        Input::Archive | Input::Image if options.compression.is_some() => {
            "it stays as it is: nothing is compressed"
        }
        Input::Archive | Input::Image if options.chunks.is_some() => {
            "it stays in its sources, and not in chunks"
        }
        Input::Archive | Input::Image => return Ok(()),
        Input::Directory | Input::Oci => "it stays only in tar archives and EROFS images",
    };
    Err(Error::Option { option: "content", problem })
}

/// Lists the source, whatever it is. Files of `avoid` are no part of it.
pub fn gather(
    options: &Options,
    avoid: &[(u32, u32, u64)],
    temporary: &Path,
    time: Timestamp,
    warnings: &mut Vec<Warning>,
) -> Result<(Tree, Contents)> {
    if options.input == Input::Directory && options.below.is_none() {
        let contents = Contents::directory(&options.source)?;
        let tree = directory::walk(options, contents.root()?, avoid, warnings)?;
        return Ok((tree, contents));
    }
    let mut contents = match options.input {
        Input::Directory => Contents::directory(&options.source)?,
        _ => Contents::archives(temporary, &options.source),
    };
    contents.keeps_devices = options.source_data == SourceData::Referred;
    let mut sketch = Sketch::new(time);
    if let Some(below) = &options.below {
        let number = contents.add_image(below)?;
        image::read(options, number, Whiteouts::Keep, &contents, &mut sketch)?;
    }
    for (layer, source) in std::iter::once(&options.source).chain(&options.upper).enumerate() {
        if layer > 0 || options.below.is_some() {
            sketch.next_layer();
        }
        match options.input {
            Input::Directory => {
                let tree = directory::walk(options, contents.root()?, avoid, warnings)?;
                let misplaced = |(path, fault)| Error::Misplaced { path: options.source.join(path), fault };
                sketch.lay(&tree).map_err(misplaced)?;
            }
            Input::Oci => oci::read(options, source, &mut contents, &mut sketch, warnings)?,
            Input::Image => {
                let number = contents.add_image(source)?;
                image::read(options, number, options.whiteouts, &contents, &mut sketch)?;
            }
            Input::Archive => {
                let tape = Tape::open(source, options, &mut contents)?;
                tar::read(options, tape, options.whiteouts, &mut contents, &mut sketch, warnings)?;
            }
        }
    }
    contents.seal()?;
    Ok((sketch.finish(options, warnings)?, contents))
}
