//! Extracts an image's tree to a new directory, with what every operating system has.
//! [`super::directory`] needs Linux, and keeps all.
//!
//! What becomes of the tree follows from the image alone, and nothing is left out without a report:
//!
//! - Directories, regular files, hard links and modification times of files are made. Holes read as
//!   zeroes.
//! - Unix keeps the permissions of files; elsewhere a file that nobody may write is read-only.
//!   Owners are those of new files.
//! - Symbolic links, devices, pipes and sockets are not made: each is a failure. Lost extended
//!   attributes are reported once.
//! - Names that Windows does not allow are written as [`ferofs_read::names`] says. If a file system
//!   takes two names as one (`a` and `A`), the second one is a failure.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use ferofs_format::FileOffset;
use ferofs_format::units::{to_u64, to_usize};

use super::options::{OnError, Options, Summary};
use super::walk::{Name, Step, Walk};
use crate::error::{Error, IoError, Result};
use crate::inspect::type_name;
use ferofs_read::escape::Escaped;
use ferofs_read::{ExtentData, FileType, Image, Inode};

/// Bytes that are read and written at a time.
const PIECE: u64 = 1 << 20;

/// Extracts `from` to `target`. If `from` is a directory, `target` must be empty or not exist;
/// otherwise it is the name of the new file. The options `existing` and `owners` mean nothing here,
/// and one thread does all.
///
/// A file that fails is passed to `on_error`, and the others are still extracted.
///
/// # Errors
/// [`Error::Io`] for the target itself, or when the image cannot be read or the target is full;
/// [`Error::Interrupted`], and [`Error::Limit`].
pub fn extract_portable(
    image: &Image,
    from: &Inode,
    target: impl AsRef<Path>,
    options: &Options,
    on_error: OnError<'_>,
) -> Result<Summary> {
    let target = target.as_ref();
    let image = &image.cancelled_by(&options.cancel);
    let mut extraction =
        Extraction { image, options, on_error, target, buffer: Vec::new(), lost: None };
    if from.is_dir() {
        fs::create_dir_all(target).map_err(|e| Error::io("create", target, e))?;
        let mut entries = fs::read_dir(target).map_err(|e| Error::io("open", target, e))?;
        if entries.next().is_some() {
            return Err(Error::io(
                "extract",
                target,
                io::Error::from(io::ErrorKind::DirectoryNotEmpty),
            ));
        }
        extraction.tree(from)?;
    } else {
        let made = extraction.file(target, target, from);
        extraction.count(target, made)?;
    }
    extraction.report_lost_xattrs();
    Ok(options.progress.summary())
}

struct Extraction<'a> {
    image: &'a Image,
    options: &'a Options,
    on_error: OnError<'a>,
    target: &'a Path,
    buffer: Vec<u8>,
    /// The first file with extended attributes, one of them, and the number of such files.
    lost: Option<(PathBuf, String, u64)>,
}

impl Extraction<'_> {
    fn tree(&mut self, from: &Inode) -> Result<()> {
        let image = self.image;
        let mut walk = Walk::new(image, from, &self.options.select);
        let mut links = Vec::new();
        while let Some(step) = walk.next() {
            self.options.cancel.check()?;
            match step {
                Step::Dir(dir) => {
                    let path = walk.path(dir);
                    let made = self.directory(&path, walk.inode(dir));
                    if made.is_err() {
                        walk.skip_directory();
                    }
                    // The start is the target itself.
                    if made.is_err() || !path.as_os_str().is_empty() {
                        self.count(&path, made)?;
                    }
                }
                Step::Files(dir, files) => {
                    let parent = walk.path(dir);
                    for file in files {
                        match file.first {
                            Some(first) => links.push((Name { dir, name: file.name }, first)),
                            None => {
                                let path = parent.join(&file.name);
                                let made = self
                                    .place(&path)
                                    .and_then(|at| self.file(&path, &at, &file.inode));
                                self.count(&path, made)?;
                            }
                        }
                    }
                }
                Step::Failed(path, error) => self.count(&path, Err(error))?,
            }
        }
        for (name, first) in links {
            let path = walk.path_of(&name);
            let made = self.link(&walk.path_of(&first), &path);
            self.count(&path, made)?;
        }
        Ok(())
    }

    /// The place of a path of the image in the target.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let steps = to_u64(path.as_os_str().len() / 64);
        self.image.budget().charge(steps.saturating_add(100))?;
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::io(
                "extract",
                path,
                io::Error::from(io::ErrorKind::InvalidFilename),
            ));
        }
        Ok(self.target.join(path))
    }

    fn directory(&mut self, path: &Path, inode: &Inode) -> Result<()> {
        if !path.as_os_str().is_empty() {
            let place = self.place(path)?;
            fs::create_dir(place).map_err(|e| Error::io("create", path, taken(e)))?;
        }
        self.note_xattrs(path, inode)
    }

    /// Extracts the file `path` of the image to `place`.
    fn file(&mut self, path: &Path, place: &Path, inode: &Inode) -> Result<()> {
        if inode.file_type() != FileType::Regular {
            let reason =
                format!("a {}, which only an archive can keep here", type_name(inode.file_type()));
            return Err(Error::io("extract", path, io::Error::other(reason)));
        }
        let failed = |action| move |e: io::Error| Error::io(action, path, e);
        let created = OpenOptions::new().write(true).create_new(true).open(place);
        let mut file = created.map_err(taken).map_err(failed("create"))?;
        file.set_len(inode.size()).map_err(failed("set size of"))?;
        self.content(&mut file, path, inode)?;
        if let Some(time) = inode.modified() {
            file.set_times(FileTimes::new().set_modified(time)).map_err(failed("set times"))?;
        }
        if self.options.permissions {
            set_permissions(&file, inode.permissions()).map_err(failed("set permissions"))?;
        }
        self.options.progress.bytes.add(inode.size());
        self.note_xattrs(path, inode)
    }

    /// Writes the content. Holes are not written.
    fn content(&mut self, file: &mut File, path: &Path, inode: &Inode) -> Result<()> {
        let image = self.image;
        let mut range = 0..0;
        for extent in image.extents(inode, FileOffset::new(0))? {
            let extent = extent?;
            if extent.data == ExtentData::Hole {
                continue;
            }
            if extent.start.get() > range.end {
                self.copy(file, path, inode, range)?;
                range = extent.start.get()..extent.start.get();
            }
            range.end = extent.end().min(inode.size());
        }
        self.copy(file, path, inode, range)
    }

    fn copy(
        &mut self,
        file: &mut File,
        path: &Path,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<()> {
        let failed = |e: io::Error| Error::io("write", path, e);
        file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        let mut at = range.start;
        while at < range.end {
            let len = PIECE.min(range.end.saturating_sub(at));
            self.buffer.resize(to_usize(len), 0);
            self.image.read_at(inode, FileOffset::new(at), &mut self.buffer)?;
            file.write_all(&self.buffer).map_err(failed)?;
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Gives a file that was extracted another name.
    fn link(&self, first: &Path, path: &Path) -> Result<()> {
        let (first, place) = (self.place(first)?, self.place(path)?);
        fs::hard_link(first, place).map_err(|e| Error::io("link", path, taken(e)))
    }

    fn note_xattrs(&mut self, path: &Path, inode: &Inode) -> Result<()> {
        if self.options.xattrs
            && let Some(xattr) = self.image.xattrs(inode)?.first()
        {
            let new = || (path.to_owned(), Escaped(&xattr.name).to_string(), 0);
            let (_, _, files) = self.lost.get_or_insert_with(new);
            *files = files.saturating_add(1);
        }
        Ok(())
    }

    fn report_lost_xattrs(&mut self) {
        if let Some((path, name, files)) = self.lost.take() {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            (self.on_error)(&path, &Error::XattrLost { path: path.clone(), name, files, source });
        }
    }

    /// Counts a name that was made, or reports why it failed.
    ///
    /// # Errors
    /// Failures that end all work.
    fn count(&self, path: &Path, made: Result<()>) -> Result<()> {
        let progress = &self.options.progress;
        match made {
            Ok(()) => progress.names.add(1),
            Err(error) if error.ends_all() || is_lasting(&error) => return Err(error),
            Err(error) => {
                progress.failures.add(1);
                (self.on_error)(path, &error);
            }
        }
        Ok(())
    }
}

/// Whether all other files would also fail: the image cannot be read, or the target is full or
/// read-only.
fn is_lasting(error: &Error) -> bool {
    let Error::Io(IoError { path, source, .. }) = error else { return false };
    let kinds = [
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::ReadOnlyFilesystem,
    ];
    path.is_none() || kinds.contains(&source.kind())
}

/// The target was empty, so that an existing file is one that was extracted.
fn taken(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(
            error.kind(),
            "this file system takes the name for another one of the same directory",
        ),
        _ => error,
    }
}

#[cfg(unix)]
fn set_permissions(file: &File, permissions: u16) -> io::Result<()> {
    let mode = u32::from(permissions & 0o777);
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(not(unix))]
fn set_permissions(file: &File, permissions: u16) -> io::Result<()> {
    let mut new = file.metadata()?.permissions();
    new.set_readonly(permissions & 0o222 == 0);
    file.set_permissions(new)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ferofs_write::{Attributes, Builder, Compression, Content};

    use super::*;

    fn image() -> Image {
        let mut builder = Builder::new();
        builder.options().data.compression = Some(Compression::lz4(0).unwrap());
        builder.directory("dir", Attributes::default());
        builder.file(
            "dir/file",
            Content::bytes("words ".repeat(500_000)),
            Attributes::default().mode(0o640),
        );
        builder.file("dir/empty", Content::bytes(""), Attributes::default().xattr("user.a", "1"));
        builder.symlink("link", "dir/file", Attributes::default());
        let mut bytes = Vec::new();
        builder.write_to(&mut bytes).unwrap();
        Image::open(bytes).unwrap()
    }

    #[test]
    fn what_cannot_be_made_is_reported() {
        let (image, dir) = (image(), tempfile::tempdir().unwrap());
        let target = dir.path().join("target");
        let errors = Mutex::new(Vec::new());
        let extract = || {
            let on_error = |_: &Path, error: &Error| errors.lock().unwrap().push(error.to_string());
            extract_portable(
                &image,
                &image.root().unwrap(),
                &target,
                &Options::default(),
                &on_error,
            )
        };
        let summary = extract().unwrap();
        assert_eq!((summary.names, summary.failures), (3, 1));
        let errors = errors.into_inner().unwrap();
        assert_eq!(errors[0], "link: extract: a symlink, which only an archive can keep here");
        assert!(errors[1].starts_with("dir/empty: attribute user.a is lost"), "{errors:?}");
        assert_eq!(errors.len(), 2);
        let file = target.join("dir/file");
        assert_eq!(fs::read(&file).unwrap(), "words ".repeat(500_000).into_bytes());
        let inode = image.resolve(Path::new("dir/file"), false).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().modified().ok(), inode.modified());
        assert!(!target.join("link").exists());
    }

    #[test]
    fn only_an_empty_directory_is_a_target() {
        let (image, dir) = (image(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("own"), "").unwrap();
        let root = image.root().unwrap();
        let error = extract_portable(&image, &root, dir.path(), &Options::default(), &|_, _| ())
            .unwrap_err();
        assert!(error.to_string().ends_with("extract: directory not empty"), "{error}");
    }
}
