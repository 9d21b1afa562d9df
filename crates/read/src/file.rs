//! A file's content: its plan, and its bytes, which the engine reads and decodes into the caller's buffer.

use ferofs_format::inode::FileType;
use ferofs_format::{Fault, FileOffset, Incompat, Structure};

use super::engine::End;
use super::extent::Extent;
use super::image::{Image, MetadataPlace};
use super::inode::Inode;
use super::map::FileMap;
use crate::error::{Corruption, OfInode, Result};

/// Linux's limit on the target of a symbolic link, without its NUL.
const MAX_LINK: u64 = 4095;

impl Image {
    /// Reads `inode`'s content from `offset` on into `buf`; says how many bytes that gave, which are
    /// fewer than asked only at the content's end.
    ///
    /// Any inode with content may be read: a directory's content is its blocks, a symbolic link's its
    /// target.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the content is damaged where it is read, [`crate::Error::Io`].
    pub fn read_at(&self, inode: &Inode, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(inode.content_len().saturating_sub(offset.get())).unwrap_or(usize::MAX);
        let len = rest.min(buf.len());
        if len > 0 {
            if let Some(recorder) = &self.engine.recorder {
                recorder.note(inode.nid, offset, len);
            }
            self.fill(inode, offset, &mut buf[..len], End::Buffer).of_inode(inode.nid)?;
        }
        Ok(len)
    }

    /// Reads as [`Self::read_at`] does, but ends before a pcluster that `buf` cannot take whole, unless it
    /// starts with that one: who reads on from there has nothing decoded twice.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_whole_at(&self, inode: &Inode, offset: FileOffset, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(inode.content_len().saturating_sub(offset.get())).unwrap_or(usize::MAX);
        let len = rest.min(buf.len());
        if len == 0 {
            return Ok(0);
        }
        self.fill(inode, offset, &mut buf[..len], End::Extent).of_inode(inode.nid)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a target that no system could have, or damaged content.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        let size = inode.size();
        if inode.file_type() != FileType::Symlink || size == 0 || size > MAX_LINK {
            let fault = Fault::Field { field: "i_size of a symbolic link", value: size };
            return Err(Corruption::new(Structure::Inode, fault).at(inode.place.pos).of(inode.nid).into());
        }
        let mut target = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_at(inode, FileOffset::new(0), &mut target)?;
        if target.contains(&0) {
            return Err(Corruption::new(Structure::Inode, Fault::Name).of(inode.nid).into());
        }
        Ok(target)
    }

    /// The plan of `inode`'s content from `offset` on, without reading any data.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when the map's header is damaged; an item that fails ends the plan.
    pub fn extents<'a>(&'a self, inode: &'a Inode, offset: FileOffset) -> Result<Extents<'a>> {
        let map = FileMap::open(self, inode).of_inode(inode.nid)?;
        Ok(Extents { map, inode, next: offset })
    }
}

/// Iterates over the plan of a file's content.
#[derive(Debug)]
pub struct Extents<'a> {
    map: FileMap<'a>,
    inode: &'a Inode,
    next: FileOffset,
}

impl Extents<'_> {
    /// Where the inode's metadata ends: its map, and what is stored right after that.
    pub fn metadata_end(&self) -> Result<MetadataPlace> {
        self.map.metadata_end().of_inode(self.inode.nid)
    }

    /// Fails unless a look-up from anywhere in `extent`, which this gave, finds the same.
    pub fn check_steps(&mut self, extent: &Extent) -> Result<()> {
        self.map.check_steps(extent).of_inode(self.inode.nid)
    }

    /// Whether they are encoded extents, placed to the byte.
    pub const fn are_records(&self) -> bool {
        matches!(self.map, FileMap::Records(_))
    }

    /// Features that the superblock must announce for such a map.
    pub fn features(&self) -> Incompat {
        self.map.features()
    }
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.get() >= self.inode.content_len() {
            return None;
        }
        let extent = self.map.extent_at(self.next).of_inode(self.inode.nid);
        self.next = match &extent {
            Ok(extent) => FileOffset::new(extent.end()),
            Err(_) => FileOffset::new(u64::MAX),
        };
        Some(extent)
    }
}
