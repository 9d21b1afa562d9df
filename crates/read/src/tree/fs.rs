//! The methods that [`std::fs`] has, on an image.

use std::path::Path;

use ferofs_format::inode::FileType;
use ferofs_format::xattr::NamePrefix;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::metadata::xattr::Xattr;
use crate::tree::dir::nid_path;
use crate::tree::file::File;
use crate::tree::inode_ref::InodeRef;
use crate::tree::walk::Walk;
use ferofs_format::units::to_u64;

/// Bytes that are decoded at a time when a whole file is read.
const READ_PIECE: usize = 8 << 20;

impl Image {
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a target that no system could have, or damaged content.
    pub fn read_link(&self, link: impl InodeRef) -> Result<Vec<u8>> {
        self.content.read_link(&link.find(self, false)?)
    }

    /// The inode of a path, which has what `stat(2)` shows. A symbolic link at its end is followed.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn metadata(&self, of: impl InodeRef) -> Result<Inode> {
        of.find(self, true)
    }

    /// As [`Self::metadata`], but a symbolic link at the path's end is not followed.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn symlink_metadata(&self, of: impl InodeRef) -> Result<Inode> {
        of.find(self, false)
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`Error::NotAFile`].
    pub fn open_file(&self, file: impl InodeRef) -> Result<File> {
        let path = file.path().map(Path::to_owned);
        let inode = file.find(self, true)?;
        if inode.file_type() != FileType::Regular {
            return Err(Error::NotAFile(path.unwrap_or_else(|| nid_path(inode.nid()))));
        }
        Ok(File::open(self.clone(), inode))
    }

    /// The whole content of a regular file. Memory is allocated as the content is decoded, so a
    /// wrong size costs nothing.
    ///
    /// # Errors
    /// As [`Self::open_file`] and [`Self::read_at`].
    pub fn read(&self, file: impl InodeRef) -> Result<Vec<u8>> {
        let file = self.open_file(file)?;
        let mut content = Vec::new();
        loop {
            let len = content.len();
            let remaining = file.inode().size().saturating_sub(to_u64(len));
            let more = usize::try_from(remaining).unwrap_or(usize::MAX).min(READ_PIECE);
            content.resize(len.saturating_add(more), 0);
            let read = file.read_at(to_u64(len), content.get_mut(len..).unwrap_or_default())?;
            content.truncate(len.saturating_add(read));
            if read == 0 || read < more {
                return Ok(content);
            }
        }
    }

    /// Walks through all names of the image, directories before their entries.
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self)
    }

    /// All extended attributes, in stored order.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn xattrs(&self, of: impl InodeRef) -> Result<Vec<Xattr>> {
        let mut all = Vec::new();
        self.walk_xattrs(&of.find(self, true)?, |entry, _| {
            // A prefix that this program does not know makes one name unreadable, but not the
            // inode.
            if let Some(name) = entry.full_name(self.xattr_prefixes()) {
                all.push(Xattr { name, value: entry.value.to_vec() });
            }
        })?;
        Ok(all)
    }

    /// The value of the extended attribute called `name`, if there is one.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn xattr(&self, of: impl InodeRef, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((prefix, rest)) = NamePrefix::split(name) else { return Ok(None) };
        let mut found = None;
        self.walk_xattrs(&of.find(self, true)?, |entry, _| {
            if found.is_none() && entry.is_named(prefix, rest, self.xattr_prefixes()) {
                found = Some(entry.value.to_vec());
            }
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use ferofs_format::FileOffset;

    use super::*;
    use crate::tests::{content, images};
    use crate::volume::fetched_source::{Attempt, FetchedSource};
    use std::sync::Arc;

    #[test]
    fn a_path_a_number_and_an_inode_name_the_same_file() {
        let image = Image::open(images()[0].as_slice()).unwrap();
        let inode = image.metadata("file").unwrap();
        let content = content();
        assert!(image.read(inode.nid()).unwrap() == content);
        assert!(image.read(&inode).unwrap() == content);
        assert!(image.read(Path::new("/file")).unwrap() == content);
        assert!(matches!(image.read("none"), Err(Error::NotFound(_))));
        assert!(matches!(image.read("/"), Err(Error::NotAFile(path)) if path == Path::new("/")));
        let nid = image.superblock().root;
        assert!(
            matches!(image.read(nid), Err(Error::NotAFile(path)) if path == Path::new(&nid.to_string()))
        );
        assert!(
            matches!(image.read_dir("file"), Err(Error::NotADirectory(path)) if path == Path::new("file"))
        );
        assert_eq!(image.walk().count(), 2);
    }

    /// Repeats `read`, and fetches what it misses; returns the number of fetches, too.
    fn fetching<T>(source: &FetchedSource, bytes: &[u8], read: impl Fn() -> Result<T>) -> (T, u32) {
        for fetches in 0..1000 {
            match source.attempt(&read).unwrap() {
                Attempt::Done(done) => return (done, fetches),
                Attempt::Missing(ranges) => {
                    for range in ranges {
                        source
                            .insert(range.start, &bytes[range.start as usize..range.end as usize]);
                    }
                }
            }
        }
        panic!("the read is never complete");
    }

    #[test]
    fn an_image_is_read_from_fetched_bytes() {
        let content = content();
        let (mut all, mut saved) = (0, 0);
        for bytes in images() {
            let source = Arc::new(FetchedSource::new(bytes.len() as u64));
            let (image, _) = fetching(&source, bytes, || Image::open(Arc::clone(&source)));
            let (inode, _) = fetching(&source, bytes, || image.metadata("file"));
            let (start, len) = (content.len() / 2, content.len() / 3);
            let data = || image.data_ranges(&inode, FileOffset::new(start as u64), len as u64);
            let (ranges, _) = fetching(&source, bytes, data);
            for range in ranges {
                let (start, end) = (range.start.get(), range.end());
                source.insert(start, &bytes[start as usize..end as usize]);
            }
            let read = || {
                let mut buf = vec![0; len];
                image.read_at(&inode, FileOffset::new(start as u64), &mut buf).map(|_| buf)
            };
            let (read, fetches) = fetching(&source, bytes, read);
            assert!(read == content[start..start + len]);
            assert!(fetches <= 1, "{fetches} fetches for data that is there");
            (all, saved) = (all + bytes.len() as u64, saved + bytes.len() as u64 - source.held());
        }
        assert!(saved > all / 4, "most images are not needed as a whole: {saved} of {all} bytes");
    }
}
