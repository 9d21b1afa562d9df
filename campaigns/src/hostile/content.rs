//! Reads the whole content of an image, as extraction does, and computes two checksums.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ferofs::read::Result;
use ferofs::read::{ExtentData, FileType, Image, Inode};
use ferofs_format::FileOffset;

/// The checksums of an image's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Of the structure: files, types, sizes, links, and the locations of data.
    pub(crate) shape: u64,
    /// Of values that the format does not restrict: names, owners, times, xattrs, data.
    pub(crate) values: u64,
    /// Whether something could not be read.
    pub(crate) failed: bool,
}

struct Reader {
    shape: DefaultHasher,
    values: DefaultHasher,
    failed: bool,
    buffer: Vec<u8>,
}

/// Reads all of `image`, and continues after errors.
pub(crate) fn read_content(image: &Image) -> Content {
    let mut reader = Reader {
        shape: DefaultHasher::new(),
        values: DefaultHasher::new(),
        failed: false,
        buffer: vec![0; 64 << 10],
    };
    let mut seen = HashSet::new();
    let mut pending = Vec::new();
    match image.root() {
        Ok(root) => pending.push(root),
        Err(_) => reader.failed = true,
    }
    while let Some(inode) = pending.pop() {
        inode.nid().hash(&mut reader.shape);
        if !seen.insert(inode.nid()) {
            continue;
        }
        reader.note(|reader| reader.attributes(image, &inode));
        reader.note(|reader| reader.content(image, &inode));
        if inode.is_dir() {
            reader.note(|reader| reader.directory(image, &inode, &mut pending));
        }
    }
    Content { shape: reader.shape.finish(), values: reader.values.finish(), failed: reader.failed }
}

impl Reader {
    fn note(&mut self, read: impl FnOnce(&mut Self) -> Result<()>) {
        if read(self).is_err() {
            self.failed = true;
        }
    }

    fn attributes(&mut self, image: &Image, inode: &Inode) -> Result<()> {
        let disk = inode.on_disk();
        (disk.size, disk.nlink).hash(&mut self.shape);
        std::mem::discriminant(&disk.file_type).hash(&mut self.shape);
        let time = (disk.mtime.secs, disk.mtime.nanos);
        (disk.permissions, disk.uid, disk.gid, time, format!("{:?}", disk.place))
            .hash(&mut self.values);
        let xattrs = image.xattrs(inode)?;
        for xattr in xattrs {
            format!("{xattr:?}").hash(&mut self.values);
        }
        if disk.file_type == FileType::Symlink {
            image.read_link(inode)?.hash(&mut self.values);
        }
        Ok(())
    }

    fn content(&mut self, image: &Image, inode: &Inode) -> Result<()> {
        for extent in image.extents(inode, FileOffset::new(0))? {
            let extent = extent?;
            format!("{extent:?}").hash(&mut self.shape);
            if extent.data == ExtentData::Hole {
                continue;
            }
            let mut at = extent.start.get();
            while at < extent.end() {
                let len = self.buffer.len().min((extent.end() - at) as usize);
                let got = image.read_at(inode, FileOffset::new(at), &mut self.buffer[..len])?;
                self.buffer[..got].hash(&mut self.values);
                if got == 0 {
                    break;
                }
                at += got as u64;
            }
        }
        Ok(())
    }

    fn directory(&mut self, image: &Image, dir: &Inode, pending: &mut Vec<Inode>) -> Result<()> {
        for entry in image.read_dir(dir)? {
            let entry = entry?;
            entry.name.hash(&mut self.values);
            self.note(|_| image.lookup(dir, &entry.name).map(drop));
            if matches!(&entry.name[..], b"." | b"..") {
                continue;
            }
            match image.inode(entry.nid) {
                Ok(inode) => pending.push(inode),
                Err(_) => self.failed = true,
            }
        }
        Ok(())
    }
}
