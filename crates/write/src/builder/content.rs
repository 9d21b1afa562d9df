//! The content of an entry of a [`super::Builder`], and where it is until the data stage reads it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_read::{FileType, Image, Inode};

use crate::error::faults::EntryFault;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::image::file::in_source;
use crate::tree::layered_tree::Body;
use crate::tree::{Origin, SourcePosition};

/// Files that are kept open until the image is built. The content of more files is copied to a
/// temporary file, because a process may not have many files open.
const OPEN_FILES: usize = 256;
/// Bytes that are copied at a time.
const BUFFER: usize = 256 << 10;

/// The content of a regular file.
pub struct Content(Kind);

enum Kind {
    Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>),
    Reader(Box<dyn Read + Send>),
    Range { path: PathBuf, start: u64, len: Option<u64> },
    Image { image: Image, inode: Box<Inode>, start: u64, len: Option<u64> },
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bytes(bytes) => write!(f, "{} bytes", (**bytes).as_ref().len()),
            Kind::Reader(_) => f.write_str("a reader"),
            Kind::Range { path, start, len } => {
                write!(f, "{} from {start}, {len:?}", path.display())
            }
            Kind::Image { inode, start, len, .. } => {
                write!(f, "{:?} from {start}, {len:?}", inode.nid())
            }
        }
    }
}

impl Content {
    /// Bytes in memory: a `Vec<u8>`, a `String`, an `Arc<[u8]>`, static bytes, a memory map. They
    /// are not copied.
    pub fn bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Kind::Bytes(Arc::new(bytes)))
    }

    /// All bytes of `reader`, which are copied to a temporary file when the build starts.
    pub fn reader(reader: impl Read + Send + 'static) -> Self {
        Self(Kind::Reader(Box::new(reader)))
    }

    /// The file at `path`. It must not change until the image is built.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self(Kind::Range { path: path.into(), start: 0, len: None })
    }

    /// `len` bytes of the file at `path`, from `start` on. The file must not change until the image
    /// is built.
    pub fn range(path: impl Into<PathBuf>, start: u64, len: u64) -> Self {
        Self(Kind::Range { path: path.into(), start, len: Some(len) })
    }

    /// The content of a regular file of another image. The build reads it without a temporary copy.
    pub fn image_file(image: &Image, file: &Inode) -> Self {
        Self(Kind::Image {
            image: image.clone(),
            inode: Box::new(file.clone()),
            start: 0,
            len: None,
        })
    }

    /// `len` bytes of a regular file of another image, from `start` on.
    pub fn image_range(image: &Image, file: &Inode, start: u64, len: u64) -> Self {
        Self(Kind::Image {
            image: image.clone(),
            inode: Box::new(file.clone()),
            start,
            len: Some(len),
        })
    }
}

/// The content that was added so far.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Open files and their sizes.
    files: HashMap<PathBuf, (u16, u64)>,
}

impl Stored {
    /// Registers `content` of the entry at `path` in `contents`.
    pub(super) fn add(
        &mut self,
        content: Content,
        path: &Path,
        options: &Options,
        contents: &mut Contents,
    ) -> Result<Body> {
        let mut sparse = false;
        let (size, origin) = match content.0 {
            Kind::Image { image, inode, start, len } => {
                let fault =
                    || Error::Entry { path: path.to_owned(), fault: EntryFault::ImageRange };
                if inode.file_type() != FileType::Regular {
                    return Err(fault());
                }
                let size = len.or_else(|| inode.size().checked_sub(start));
                let end = size
                    .and_then(|size| start.checked_add(size))
                    .filter(|end| *end <= inode.size());
                let size = size.filter(|_| end.is_some()).ok_or_else(fault)?;
                let number = contents.add_opened_image(&image, path)?;
                let has_holes = contents.image(number).has_holes(&inode);
                sparse = has_holes.map_err(|e| in_source(path.to_owned(), e))?;
                (size, Origin::Image { image: number, nid: inode.nid(), start })
            }
            Kind::Bytes(bytes) => {
                let size = (*bytes).as_ref().len() as u64;
                (size, contents.add_memory(bytes)?)
            }
            Kind::Reader(mut reader) => spool(&mut *reader, path, options, contents)?,
            Kind::Range { path, start, len } => {
                self.add_range(path, start, len, options, contents)?
            }
        };
        let origin = if size == 0 { Origin::None } else { origin };
        Ok(Body::Regular { size, origin, sparse: sparse && size > 0 })
    }

    fn add_range(
        &mut self,
        path: PathBuf,
        start: u64,
        len: Option<u64>,
        options: &Options,
        contents: &mut Contents,
    ) -> Result<(u64, Origin)> {
        let within = |size: u64| {
            let end = len.map_or(Some(size), |len| start.checked_add(len));
            let end = end.filter(|end| start <= *end && *end <= size);
            let problem = || std::io::Error::other("the file ends before the range that is wanted");
            end.map(|end| end - start).ok_or_else(|| Error::io("read", &path, problem()))
        };
        if let Some((file, size)) = self.files.get(&path) {
            return Ok((within(*size)?, Origin::At(SourcePosition { file: *file, at: start })));
        }
        let mut file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io("stat", &path, e))?;
        if metadata.is_dir() {
            return Err(Error::io("read", &path, rustix::io::Errno::ISDIR));
        }
        if self.files.len() < OPEN_FILES && metadata.is_file() {
            let size = within(metadata.len())?;
            let file = contents.add_file(file, &path)?.id();
            self.files.insert(path, (file, metadata.len()));
            return Ok((size, Origin::At(SourcePosition { file, at: start })));
        }
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(start))
            .map_err(|e| Error::io("seek in", &path, e))?;
        let (size, origin) =
            spool(&mut file.take(len.unwrap_or(u64::MAX)), &path, options, contents)?;
        if len.is_some_and(|len| len != size) {
            within(start.saturating_add(size))?;
        }
        Ok((size, origin))
    }
}

/// Copies all of `reader` to the spool.
fn spool(
    reader: &mut dyn Read,
    path: &Path,
    options: &Options,
    contents: &mut Contents,
) -> Result<(u64, Origin)> {
    let place = contents.spool_end()?;
    let (mut buffer, mut size) = (vec![0; BUFFER], 0);
    loop {
        options.run.cancel.check()?;
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((size, Origin::At(place))),
            Ok(len) => {
                // A reader that returns more than it was given breaks the rules of `Read`.
                let read = buffer
                    .get(..len)
                    .ok_or_else(|| Error::io("read", path, std::io::ErrorKind::InvalidData))?;
                contents.append_to_spool(read)?;
                size += len as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", path, error)),
        }
    }
}
