//! Reads the tree of an EROFS image as one layer. Source images may have any layout that
//! `ferofs-read` reads.
//!
//! The first step of a build from images. The data stage reads the content later, by
//! [`file::SourceImage::read`], or makes the image an extra device. Images are not trusted: a
//! directory that appears twice is an error, because it could be a cycle.

pub(crate) mod file;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ferofs_format::Nid;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::source::Whiteouts;
use crate::sources::content::Contents;
use crate::sources::image::file::{SourceImage, in_source};
use crate::tree::Origin;
use crate::tree::layered_tree::whiteouts::{OverlayMarks, is_overlay_mark};
use crate::tree::layered_tree::{Body, LayeredFile, LayeredTree};
use ferofs_read::walk::{DirectoryWalk, Step};
use ferofs_read::{FileType, Image, Inode, Place};

/// The offset of the superblock's magic, and its bytes.
const MAGIC: (u64, [u8; 4]) = (1024, [0xe2, 0xe1, 0xf5, 0xe0]);

/// The number of the lower image: see [`crate::SourceOptions::lower_image`].
pub(crate) const BELOW: u16 = 0;

/// Whether `path` is an image, by its magic. A pipe is never opened and never counts as an image.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read.
pub(crate) fn is_image(path: &Path) -> Result<bool> {
    use std::os::unix::fs::{FileExt, FileTypeExt};
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        // Opening the source later reports the error.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("stat", path, error)),
    };
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(false);
    }
    let file = std::fs::File::open(path).map_err(|e| Error::io("open", path, e))?;
    let mut magic = [0; 4];
    match file.read_exact_at(&mut magic, MAGIC.0) {
        Ok(()) => Ok(magic == MAGIC.1),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// Adds the tree of image `number` of `contents` to the current layer of `layers`.
pub(crate) fn read(
    options: &Options,
    number: u16,
    whiteouts: Whiteouts,
    contents: &Contents,
    layers: &mut LayeredTree,
) -> Result<()> {
    let source = contents.image(number);
    let ignores_options = options.source.lower_image.is_some() && number == BELOW;
    let layer = Layer {
        source,
        image: source.image(),
        number,
        whiteouts,
        ignores_options,
        name: source.name(),
    };
    let root = layer.image.root().map_err(|e| in_source(layer.name.to_owned(), e))?;
    // The first name of each file with several links.
    let mut firsts: HashMap<Nid, Vec<u8>> = HashMap::new();
    layer.put(layers, b"", &root)?;
    let mut walk = DirectoryWalk::new(layer.image, root.nid());
    while let Some(step) = walk.next() {
        options.run.cancel.check()?;
        let entry = match step {
            Step::Entry(entry) => entry,
            Step::Enter(_) | Step::Leave(_) => continue,
            Step::Failed(dir, error) => {
                return Err(layer.error(walk.path(dir).as_os_str().as_bytes(), error));
            }
        };
        options.run.progress.found.add(1);
        let path = walk.entry_path(&entry.name).into_os_string().into_vec();
        if let Some(first) = firsts.get(&entry.nid) {
            layers.link(&path, first).map_err(|fault| layer.misplaced(&path, fault))?;
            continue;
        }
        let inode = layer.image.inode(entry.nid).map_err(|e| layer.error(&path, e))?;
        if !layer.put(layers, &path, &inode)? {
            continue;
        }
        if inode.is_dir() {
            if walk.enter(&entry.name, entry.nid).is_none() {
                return Err(layer.problem(&path, "a directory with two names"));
            }
        } else if inode.on_disk().nlink > 1 {
            firsts.insert(inode.nid(), path);
        }
    }
    Ok(())
}

/// An image that is read as a layer.
struct Layer<'a> {
    source: &'a SourceImage,
    image: &'a Image,
    number: u16,
    whiteouts: Whiteouts,
    /// Options do not apply to its files.
    ignores_options: bool,
    name: &'a Path,
}

impl Layer<'_> {
    fn path(&self, path: &[u8]) -> PathBuf {
        self.name.join(OsStr::from_bytes(path))
    }

    fn error(&self, path: &[u8], error: impl Into<Error>) -> Error {
        in_source(self.path(path), error)
    }

    fn problem(&self, path: &[u8], problem: &'static str) -> Error {
        Error::InvalidSource { path: self.path(path), problem }
    }

    fn misplaced(&self, path: &[u8], fault: crate::error::faults::EntryFault) -> Error {
        Error::Entry { path: self.path(path), fault }
    }

    /// Adds one file. Returns `false` for a whiteout that is applied and not added.
    fn put(&self, layers: &mut LayeredTree, path: &[u8], inode: &Inode) -> Result<bool> {
        let xattrs = self.image.xattrs(inode).map_err(|e| self.error(path, e))?;
        let mut xattrs: Vec<_> =
            xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        let marks = OverlayMarks::of(inode.file_type(), device(inode), &xattrs);
        let misplaced = |fault| self.misplaced(path, fault);
        if self.whiteouts != Whiteouts::Keep {
            if marks.redirects {
                let problem = "an overlayfs redirect points to its content, which layers of images do not support";
                return Err(self.problem(path, problem));
            }
            if marks.is_whiteout {
                layers.remove_lower(path).map_err(misplaced)?;
                if self.whiteouts == Whiteouts::Apply {
                    return Ok(false);
                }
            }
            if self.whiteouts == Whiteouts::Apply {
                xattrs.retain(|(name, _)| !is_overlay_mark(name));
            }
        }
        let disk = inode.on_disk();
        let layered_file = LayeredFile {
            body: self.body(inode).map_err(|e| self.error(path, e))?,
            permissions: disk.permissions,
            uid: disk.uid,
            gid: disk.gid,
            mtime: disk.mtime.into(),
            xattrs: layers.attributes(xattrs),
            ignores_options: self.ignores_options,
        };
        layers.put(path, layered_file).map_err(misplaced)?;
        if self.whiteouts != Whiteouts::Keep {
            if marks.is_opaque {
                layers.remove_lower_entries(path).map_err(misplaced)?;
                if self.whiteouts == Whiteouts::Overlay {
                    layers.keep_opaque(path).map_err(misplaced)?;
                }
            }
            if marks.is_whiteout {
                layers.mark_whiteout(path).map_err(misplaced)?;
            }
        }
        Ok(true)
    }

    fn body(&self, inode: &Inode) -> Result<Body> {
        Ok(match inode.file_type() {
            FileType::Regular => {
                let size = inode.size();
                let origin = match size {
                    0 => Origin::None,
                    _ => Origin::Image { image: self.number, nid: inode.nid(), start: 0 },
                };
                Body::Regular { size, origin, sparse: self.source.has_holes(inode)? }
            }
            FileType::Directory => Body::Directory(Box::default()),
            FileType::Symlink => Body::Symlink(self.image.read_link(inode)?.into()),
            kind @ (FileType::CharDevice | FileType::BlockDevice) => {
                Body::Device(kind, device(inode).unwrap_or_default())
            }
            FileType::Fifo => Body::Fifo,
            FileType::Socket => Body::Socket,
        })
    }
}

fn device(inode: &Inode) -> Option<ferofs_read::Rdev> {
    match inode.on_disk().place {
        Place::Device(rdev) => Some(rdev),
        _ => None,
    }
}
