//! The self-check: parses each inode with its index, and each directory block, with the parser of
//! `ferofs_format` before they are written. So a defect of the builder ends the build, instead of
//! damaging an image.

use ferofs_format::dirent::{DirBlock, Dirent};
use ferofs_format::inode::{DataLayout, Inode, Place};
use ferofs_format::map::header::HEADER_SIZE;
use ferofs_format::map::{
    ChunkFormat, ChunkIndex, Delta0, Encoding, ExtentIndex, ExtentRecord, ExtentsHeader, Head,
    Index, IndexHeader, Lcluster, MapHeader, Records, Tail,
};
use ferofs_format::superblock::Superblock;
use ferofs_format::{BytePos, Fault, FormatError, Lcn, Structure};

use crate::error::{Error, Result};

/// Where an inode will be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodePlace {
    /// Its position in the image, or in the metabox's content.
    pub pos: u64,
    /// The end of the data in the image; the inode must not refer to bytes after it.
    pub data_end: u64,
}

impl InodePlace {
    /// Parses `bytes`, which are `inode` and the bytes that follow it.
    ///
    /// # Errors
    /// The rule of the format that the bytes break, or a difference from `inode`.
    pub(crate) fn check(
        self,
        inode: &Inode,
        bytes: &[u8],
        superblock: &Superblock,
    ) -> Result<(), FormatError> {
        // Addresses after the image can be on extra devices.
        let data_end = Some(self.data_end).filter(|_| superblock.extra_devices == 0);
        WrittenInode { inode, bytes, pos: BytePos::new(self.pos), data_end }.check(superblock)
    }
}

/// An inode that will be written, with the bytes that follow it.
#[derive(Clone, Copy, Debug)]
struct WrittenInode<'a> {
    /// The inode that `bytes` must hold.
    inode: &'a Inode,
    /// The inode, its xattrs, and the bytes that follow them.
    bytes: &'a [u8],
    pos: BytePos,
    /// The end of the data; `None` when addresses can be on extra devices.
    data_end: Option<u64>,
}

/// Names the inode in an error of [`InodePlace::check`] or [`check_dir_block`].
pub(crate) fn name_inode(
    result: Result<(), FormatError>,
    inode: impl FnOnce() -> String,
) -> Result<()> {
    result.map_err(|source| Error::SelfCheck { inode: inode(), source })
}

/// Parses a directory block, which must hold `entries` in this order.
pub(crate) fn check_dir_block(bytes: &[u8], entries: &[Dirent<'_>]) -> Result<(), FormatError> {
    let block = DirBlock::parse(bytes)?;
    let bad = |fault| Err(FormatError::new(Structure::Directory, fault));
    if block.len() != entries.len() {
        return bad(Fault::Map("the block has another number of entries than the directory"));
    }
    for (read, written) in block.entries().zip(entries) {
        if read? != *written {
            return bad(Fault::Map("an entry is read as another than was written"));
        }
    }
    match entries.is_sorted_by(|a, b| a.name < b.name) {
        true => Ok(()),
        false => bad(Fault::NameOrder),
    }
}

impl WrittenInode<'_> {
    fn check(&self, superblock: &Superblock) -> Result<(), FormatError> {
        let read = Inode::parse(self.bytes, superblock)?;
        if read != *self.inode {
            return Err(wrong(Structure::Inode, "the inode is read as another than was written"));
        }
        let xattrs = match usize::from(read.xattr_icount) {
            0 => 0,
            count => 12 + (count - 1) * 4,
        };
        let head = read.version.size() + xattrs;
        let block = superblock.block_size;
        let rest = (self.bytes.len() as u64).checked_sub(head as u64);
        let rest = rest.ok_or_else(|| wrong(Structure::Xattr, "attributes are missing"))?;
        match (read.layout, read.place) {
            (DataLayout::FlatPlain, Place::Blocks(start)) => {
                self.check_len(rest, 0)?;
                self.check_in_image(start.get().checked_mul(block.bytes64()), read.size)
            }
            (DataLayout::FlatPlain, _) => self.check_len(rest, 0),
            (DataLayout::FlatInline, place) => {
                let tail = read.size & block.mask();
                self.check_len(rest, tail)?;
                self.in_block(head as u64, tail, superblock)?;
                match place {
                    Place::Blocks(start) => self
                        .check_in_image(start.get().checked_mul(block.bytes64()), read.size - tail),
                    _ => Ok(()),
                }
            }
            (DataLayout::ChunkBased, Place::Chunked { format }) => {
                let index = ChunkIndex::new(
                    self.at(head as u64),
                    read.size,
                    ChunkFormat::parse(format)?,
                    block,
                )?;
                self.chunks(&index, superblock)
            }
            (
                DataLayout::CompressedCompact | DataLayout::CompressedFull,
                Place::Compressed { .. },
            ) => {
                let header = self.at(head as u64).get().next_multiple_of(8) - self.pos.get();
                self.compressed(&read, header, superblock)
            }
            _ => Err(wrong(Structure::Inode, "the layout does not fit the file's type")),
        }
    }

    fn at(&self, offset: u64) -> BytePos {
        BytePos::new(self.pos.get() + offset)
    }

    /// The bytes from position `pos` on.
    fn from(&self, pos: BytePos) -> &[u8] {
        let offset = usize::try_from(pos.get() - self.pos.get()).unwrap_or(usize::MAX);
        self.bytes.get(offset..).unwrap_or_default()
    }

    /// Checks that there are exactly `wanted` bytes where there are `have`.
    fn check_len(&self, have: u64, wanted: u64) -> Result<(), FormatError> {
        match have.checked_sub(wanted) {
            Some(0) => Ok(()),
            Some(more) => Err(FormatError::new(Structure::Inode, Fault::TrailingBytes(more))),
            None => {
                Err(FormatError::new(Structure::Inode, Fault::Truncated { need: wanted, have }))
            }
        }
    }

    /// Checks that inline content at `offset` does not cross a block boundary.
    fn in_block(&self, offset: u64, len: u64, superblock: &Superblock) -> Result<(), FormatError> {
        let block = superblock.block_size;
        if self.at(offset).in_block(block) + len > block.bytes64() {
            return Err(wrong(Structure::InlineData, "inline data crosses a block's end"));
        }
        Ok(())
    }

    /// Checks that data is within the image.
    fn check_in_image(&self, start: Option<u64>, len: u64) -> Result<(), FormatError> {
        let Some(limit) = self.data_end.filter(|_| len > 0) else { return Ok(()) };
        match start.and_then(|start| start.checked_add(len)) {
            Some(end) if end <= limit => Ok(()),
            end => {
                let fault =
                    Fault::OutOfRange { field: "data", value: end.unwrap_or(u64::MAX), limit };
                Err(FormatError::new(Structure::Extent, fault))
            }
        }
    }

    fn chunks(&self, index: &ChunkIndex, superblock: &Superblock) -> Result<(), FormatError> {
        let format = index.format();
        let end = self.at(self.bytes.len() as u64).get();
        self.check_len(end - index.start().get(), index.count() * format.entry_size() as u64)?;
        for number in 0..index.count() {
            let Some(place) = format.decode(self.from(index.pos(number)?))? else { continue };
            if place.device.get() == 0 {
                let start = place.addr.get().checked_mul(superblock.block_size.bytes64());
                self.check_in_image(start, 1)?;
            }
        }
        Ok(())
    }

    fn compressed(
        &self,
        inode: &Inode,
        header: u64,
        superblock: &Superblock,
    ) -> Result<(), FormatError> {
        let block = superblock.block_size;
        let header_end = self.at(header + HEADER_SIZE as u64);
        let end = match MapHeader::parse(self.from(self.at(header)), inode.layout, block)? {
            MapHeader::WholeFragment { .. } => header_end,
            MapHeader::Extents(extents) => self.records(inode, &extents, header_end)?,
            MapHeader::Index(index) => {
                let end = self.index(inode, &index, header_end, superblock)?;
                match index.tail {
                    Tail::Inline { size } => {
                        self.in_block(end.get() - self.pos.get(), size.into(), superblock)?;
                        BytePos::new(end.get() + u64::from(size))
                    }
                    Tail::Blocks | Tail::Fragment { .. } => end,
                }
            }
        };
        self.check_len(self.bytes.len() as u64, end.get() - self.pos.get())
    }

    /// Parses all encoded extents; returns where they end.
    fn records(
        &self,
        inode: &Inode,
        header: &ExtentsHeader,
        header_end: BytePos,
    ) -> Result<BytePos, FormatError> {
        let index = ExtentIndex::new(header_end, inode.size, header)?;
        let size = index.records().size();
        let mut next = match index.records() {
            Records::Regular { with_start: false, .. } => {
                let bytes = self.from(index.start()).first_chunk().copied();
                u64::from_le_bytes(
                    bytes.ok_or_else(|| wrong(Structure::EncodedExtent, "no start"))?,
                )
            }
            _ => 0,
        };
        let mut before = None;
        for number in 0..index.count() {
            let record = ExtentRecord::parse(self.from(index.pos(number)?), size)?;
            if matches!(index.records(), Records::Sorted { .. }) {
                let start = record.lstart.get();
                if before.map_or(start != 0, |before| start <= before) || start >= inode.size {
                    return Err(wrong(Structure::EncodedExtent, "extents out of order"));
                }
                before = Some(start);
            }
            if header.fragment_tail && number + 1 == index.count() {
                continue;
            }
            if let Encoding::Data { len, .. } = record.encoding()? {
                let start = match index.records() {
                    Records::Regular { with_start: false, .. } => next,
                    _ => record.pstart.get(),
                };
                self.check_in_image(Some(start), len.into())?;
                next = start + u64::from(len);
            }
        }
        Ok(BytePos::new(index.start().get() + index.size()))
    }

    /// Parses a full or compact index; returns where it ends.
    fn index(
        &self,
        inode: &Inode,
        header: &IndexHeader,
        header_end: BytePos,
        superblock: &Superblock,
    ) -> Result<BytePos, FormatError> {
        let size = inode.size;
        let index = Index::open(header_end, size, superblock.block_size, header)?;
        let structure = index.structure();
        let mut check =
            IndexCheck { written: self, header, structure, superblock, size, head: None };
        for lcn in (0..index.lclusters()).map(Lcn::new) {
            let place = index.place(lcn)?;
            check.next(lcn, index.decode(lcn, place, self.from(place.pos()))?)?;
        }
        check.finish()?;
        Ok(index.end())
    }
}

/// Checks the lclusters of an index, one after another.
struct IndexCheck<'a> {
    written: &'a WrittenInode<'a>,
    header: &'a IndexHeader,
    structure: Structure,
    superblock: &'a Superblock,
    /// The file's size.
    size: u64,
    /// The last HEAD, where its extent starts in the file, and the blocks of its pcluster.
    head: Option<(Lcn, u64, Head, u16)>,
}

impl IndexCheck<'_> {
    fn next(&mut self, lcn: Lcn, lcluster: Lcluster) -> Result<(), FormatError> {
        match (lcluster, &mut self.head) {
            (Lcluster::Head(head), before) => {
                let start = lcn.get() * self.header.cluster.bytes64() + u64::from(head.clusterofs);
                if before.is_none_or(|(_, before, ..)| start <= before)
                    && (before.is_some() || start > 0)
                {
                    return Err(self.wrong("extents out of order"));
                }
                // A HEAD at the end of the file marks only the end: the extent before it is the
                // last one.
                if start != self.size || self.header.tail == Tail::Blocks {
                    self.place()?;
                }
                self.head = Some((lcn, start, head, 1));
            }
            (Lcluster::NonHead { .. }, None) => {
                return Err(self.wrong("the first lcluster is not a HEAD"));
            }
            (Lcluster::NonHead { delta0, .. }, Some((head, _, _, blocks))) => {
                if u64::from(delta0.distance()) > lcn.get() - head.get() {
                    return Err(self.wrong("a distance leads beyond the extent's start"));
                }
                if let Delta0::BlockCount(count) = delta0 {
                    *blocks = count;
                }
            }
        }
        Ok(())
    }

    /// Checks that the pcluster of the last HEAD is in the image.
    fn place(&self) -> Result<(), FormatError> {
        let Some((_, _, head, blocks)) = self.head else { return Ok(()) };
        let block = self.superblock.block_size;
        self.written.check_in_image(
            head.addr.get().checked_mul(block.bytes64()),
            u64::from(blocks) * block.bytes64(),
        )
    }

    fn finish(self) -> Result<(), FormatError> {
        let size = self.size;
        match self.head {
            // A HEAD that marks the end of the file, or whose extent is inline or a fragment, has
            // no address.
            Some((_, start, ..)) if start == size || self.header.tail != Tail::Blocks => Ok(()),
            Some((_, start, ..)) if start > size => {
                Err(self.wrong("an extent starts after the file's end"))
            }
            _ => self.place(),
        }
    }

    fn wrong(&self, what: &'static str) -> FormatError {
        wrong(self.structure, what)
    }
}

const fn wrong(structure: Structure, what: &'static str) -> FormatError {
    FormatError::new(structure, Fault::Map(what))
}

#[cfg(test)]
mod tests;
