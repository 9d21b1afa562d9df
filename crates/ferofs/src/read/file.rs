//! A file's content: planned extents, read or decoded into the caller's buffer.
//!
//! Last in the read flow. An extent that the request wants from its start on is decoded right into the
//! request's buffer; else as much of it as is needed is decoded into a scratch buffer and copied.

use ferofs_codec::Extent as Decode;
use ferofs_format::inode::FileType;
use ferofs_format::{BytePos, Fault, FileOffset, Incompat, Structure};

use super::extent::{Extent, ExtentData, Location};
use super::image::{Image, to_u64};
use super::inode::Inode;
use super::map::FileMap;
use super::scratch::Scratch;
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
            self.fill(inode, offset, &mut buf[..len]).of_inode(inode.nid)?;
        }
        Ok(len)
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

    fn fill(&self, inode: &Inode, mut offset: FileOffset, mut buf: &mut [u8]) -> Result<()> {
        let mut map = FileMap::open(self, inode)?;
        self.scratches.with(|scratch| {
            while !buf.is_empty() {
                let extent = map.extent_at(offset)?;
                let have = usize::try_from(extent.end() - offset.get()).unwrap_or(usize::MAX);
                let len = have.min(buf.len());
                let (head, tail) = std::mem::take(&mut buf).split_at_mut(len);
                self.read_extent(&extent, offset, head, scratch)?;
                buf = tail;
                offset = FileOffset::new(offset.get() + to_u64(len));
            }
            Ok(())
        })
    }

    /// Fills `buf` with the part of `extent` that starts at `offset`.
    fn read_extent(
        &self,
        extent: &Extent,
        offset: FileOffset,
        buf: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let skip = offset.get() - extent.start.get();
        match extent.data {
            ExtentData::Hole => {
                buf.fill(0);
                Ok(())
            }
            ExtentData::Stored { at } => self.read_location(at, skip, buf),
            ExtentData::Interlaced { at } => self.read_interlaced(at, offset, buf),
            ExtentData::Fragment { offset } => {
                let fragment = offset.checked_add(skip).ok_or_else(|| {
                    Corruption::new(Structure::PackedInode, Fault::Overflow("h_fragmentoff"))
                })?;
                self.read_fragment(fragment, buf)
            }
            ExtentData::Encoded { algorithm, at, encoded_len, partial } => {
                let encoded_len = usize::try_from(encoded_len).unwrap_or(usize::MAX);
                scratch.encoded.resize(encoded_len, 0);
                self.read_location(at, 0, &mut scratch.encoded)?;
                let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                let end = skip + buf.len();
                // Decoders check that a pcluster ends with its extent, unless only a prefix is wanted, or
                // (before Linux 5.4) what follows the encoded bytes is not told apart from them.
                let right_aligned = self.superblock().incompat.contains(Incompat::LZ4_0PADDING);
                let whole = !partial && right_aligned && to_u64(end) == extent.len;
                let decode = if whole { Decode::Whole } else { Decode::Prefix };
                if skip == 0 {
                    return decoded(scratch.decoder.decode(algorithm, &scratch.encoded, buf, decode), at);
                }
                scratch.decoded.resize(end, 0);
                let result =
                    scratch.decoder.decode(algorithm, &scratch.encoded, &mut scratch.decoded, decode);
                decoded(result, at)?;
                buf.copy_from_slice(&scratch.decoded[skip..]);
                Ok(())
            }
        }
    }

    fn read_location(&self, at: Location, skip: u64, buf: &mut [u8]) -> Result<()> {
        match at {
            Location::Metadata(place) => self.read_metadata(place.offset(skip)?, Structure::InlineData, buf),
            Location::Device(device, pos) => {
                let overflow = || Corruption::new(Structure::Extent, Fault::Overflow("position")).at(pos);
                let pos = pos.checked_add(skip).ok_or_else(overflow)?;
                self.read_device(device, pos, Structure::Extent, buf)
            }
        }
    }

    /// Reads from a rotated block: byte `o` of the file is at `o` modulo the block size. An extent of
    /// this kind never leaves its block, see [`FileMap`].
    fn read_interlaced(&self, at: Location, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        let block_size = self.superblock().block_size;
        let start = offset.get() & block_size.mask();
        let room = usize::try_from(block_size.bytes64() - start).unwrap_or(usize::MAX);
        let (head, wrapped) = buf.split_at_mut(room.min(buf.len()));
        self.read_location(at, start, head)?;
        self.read_location(at, 0, wrapped)
    }

    fn read_fragment(&self, offset: FileOffset, buf: &mut [u8]) -> Result<()> {
        let no_packed = || Corruption::new(Structure::PackedInode, Fault::FeatureNotSet("FRAGMENTS"));
        let packed = self.inode(self.superblock().packed.ok_or_else(no_packed)?)?;
        self.read_exact(&packed, BytePos::new(offset.get()), Structure::PackedInode, buf)
    }
}

/// Iterates over the plan of a file's content.
#[derive(Debug)]
pub struct Extents<'a> {
    map: FileMap<'a>,
    inode: &'a Inode,
    next: FileOffset,
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

fn decoded<E>(result: Result<(), E>, at: Location) -> Result<()> {
    result.map_err(|_| {
        let corruption = Corruption::new(Structure::Extent, Fault::Decode);
        match at {
            Location::Device(_, pos) => corruption.at(pos),
            Location::Metadata(place) => corruption.at(place.pos),
        }
        .into()
    })
}
