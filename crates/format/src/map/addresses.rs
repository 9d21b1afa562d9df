//! Replaces the addresses in a file's map, whatever its form, without decoding the map into
//! extents. Source: FORMAT.md 5, 6.

use alloc::vec::Vec;

use super::chunk::{ChunkFormat, ChunkIndex, ChunkPlace};
use super::extents::{Encoding, ExtentIndex, ExtentRecord};
use super::header::{ExtentsHeader, HEADER_SIZE, IndexHeader, MapHeader, Records, Tail};
use super::index::Index;
use crate::error::{Fault, FormatError, Result, Structure};
use crate::inode::{Inode, Place};
use crate::units::{BlockAddr, BlockSize, BytePos, Lcn, to_u64, to_usize};

/// What a map refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// A position on the primary device.
    Data(BytePos),
    /// An offset in the packed inode.
    Packed(u64),
}

/// The bytes of a map, of which addresses are replaced.
struct MapBytes<'b, F> {
    bytes: &'b mut [u8],
    /// The position of the first byte.
    start: BytePos,
    block: BlockSize,
    change: F,
}

/// Passes each address in the map of `inode` to `change`, and stores what it returns. `after` are
/// the bytes that follow the inode and its xattrs, which end at `inode_end`; they may be cut off.
/// What `change` returns in another form, or beyond the width of a record, is not stored.
///
/// # Errors
/// A map that is not valid, or beyond 64 bits.
pub fn change_addresses(
    inode: &Inode,
    inode_end: BytePos,
    after: &mut [u8],
    block: BlockSize,
    change: impl FnMut(Address) -> Address,
) -> Result<()> {
    let mut map = MapBytes { bytes: after, start: inode_end, block, change };
    match inode.place {
        Place::Chunked { format } => {
            let format = ChunkFormat::parse(format)?;
            map.chunks(&ChunkIndex::new(inode_end, inode.size, format, block)?, format);
        }
        Place::Compressed { .. } => {
            let too_far = || FormatError::new(Structure::MapHeader, Fault::Overflow("map header"));
            let pos = MapHeader::pos(inode_end).ok_or_else(too_far)?;
            let end = pos.checked_add(to_u64(HEADER_SIZE)).ok_or_else(too_far)?;
            let Some(bytes) = map.at(pos, HEADER_SIZE) else { return Ok(()) };
            match MapHeader::parse(bytes, inode.layout, block)? {
                MapHeader::WholeFragment { offset } => {
                    let offset = map.packed(offset);
                    map.put_header(pos, &MapHeader::WholeFragment { offset });
                }
                MapHeader::Index(header) => map.index(pos, end, inode.size, header)?,
                MapHeader::Extents(header) => map.extents(end, inode.size, &header)?,
            }
        }
        Place::Hole | Place::Blocks(_) | Place::Device(_) | Place::Nothing => {}
    }
    Ok(())
}

impl<F: FnMut(Address) -> Address> MapBytes<'_, F> {
    /// The `len` bytes at `pos`.
    fn at(&mut self, pos: BytePos, len: usize) -> Option<&mut [u8]> {
        let start = to_usize(pos.checked_sub(self.start)?);
        self.bytes.get_mut(start..start.checked_add(len)?)
    }

    fn put(&mut self, pos: BytePos, bytes: &[u8]) {
        if let Some(place) = self.at(pos, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn put_header(&mut self, pos: BytePos, header: &MapHeader) {
        if let Ok(bytes) = header.to_bytes(self.block) {
            self.put(pos, &bytes);
        }
    }

    fn data(&mut self, pos: BytePos) -> BytePos {
        match (self.change)(Address::Data(pos)) {
            Address::Data(pos) => pos,
            Address::Packed(_) => pos,
        }
    }

    fn packed(&mut self, offset: u64) -> u64 {
        match (self.change)(Address::Packed(offset)) {
            Address::Packed(offset) => offset,
            Address::Data(_) => offset,
        }
    }

    fn addr(&mut self, addr: BlockAddr) -> BlockAddr {
        let block = self.block;
        addr.to_pos(block).map_or(addr, |pos| self.data(pos).block(block))
    }

    fn chunks(&mut self, index: &ChunkIndex, format: ChunkFormat) {
        let size = format.entry_size();
        let mut pos = Some(index.start());
        for _ in 0..index.count() {
            let Some(bytes) = pos.and_then(|pos| self.at(pos, size)) else { break };
            if let Ok(Some(place)) = format.decode(bytes)
                && place.device.get() == 0
            {
                let place = ChunkPlace { addr: self.addr(place.addr), ..place };
                let mut entry = Vec::new();
                if let (Some(pos), Ok(())) = (pos, format.encode(Some(place), &mut entry)) {
                    self.put(pos, &entry);
                }
            }
            pos = pos.and_then(|pos| pos.checked_add(to_u64(size)));
        }
    }

    fn index(&mut self, pos: BytePos, end: BytePos, size: u64, header: IndexHeader) -> Result<()> {
        if let Tail::Fragment { offset } = header.tail
            && let Ok(offset) = u32::try_from(self.packed(offset.into()))
        {
            let tail = Tail::Fragment { offset };
            self.put_header(pos, &MapHeader::Index(IndexHeader { tail, ..header }));
        }
        let index = Index::open(end, size, self.block, &header)?;
        let mut lcn = 0;
        while lcn < index.lclusters() {
            let place = index.place(Lcn::new(lcn))?;
            let Some(pack) = self.at(place.pos(), place.size()) else { break };
            if let Some(addr) = index.addr(place, pack) {
                let addr = self.addr(addr);
                if let Some(pack) = self.at(place.pos(), place.size()) {
                    index.set_addr(place, pack, addr);
                }
            }
            lcn = place.first().get().saturating_add(place.slots());
        }
        Ok(())
    }

    fn extents(&mut self, end: BytePos, size: u64, header: &ExtentsHeader) -> Result<()> {
        let index = ExtentIndex::new(end, size, header)?;
        let record_size = header.records.size();
        let with_start = match header.records {
            Records::Regular { with_start, .. } => with_start,
            Records::Sorted { .. } => true,
        };
        if !with_start
            && let Some(start) = self.at(index.start(), size_of::<u64>())
            && let Some(start) = start.first_chunk().copied()
        {
            let start = self.data(BytePos::new(u64::from_le_bytes(start)));
            self.put(index.start(), &start.get().to_le_bytes());
        }
        for number in 0..index.count() {
            let is_fragment = header.fragment_tail && number.saturating_add(1) == index.count();
            if !with_start && !is_fragment {
                continue;
            }
            let pos = index.pos(number)?;
            let Some(bytes) = self.at(pos, record_size.bytes()) else { break };
            let record = ExtentRecord::parse(bytes, record_size)?;
            let new = if is_fragment {
                let offset = self.packed(record.fragment_offset(record_size));
                ExtentRecord::fragment(offset, record.lstart)
            } else if let Ok(Encoding::Data { .. }) = record.encoding() {
                ExtentRecord { pstart: self.data(record.pstart), ..record }
            } else {
                continue;
            };
            let mut stored = Vec::new();
            if new.write(record_size, &mut stored).is_ok() {
                self.put(pos, &stored);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]
mod tests {
    use super::super::full;
    use super::super::header::IndexFormat;
    use super::super::lcluster::tests::{File, files};
    use super::super::lcluster::{Head, HeadKind, Lcluster};
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::inode::{DataLayout, FileType, InodeVersion, Timestamp};
    use crate::map::chunk::EntryFormat;
    use crate::units::{ClusterSize, DeviceId, FileOffset};
    use proptest::prelude::*;

    /// The end of the inode: a map header follows at once.
    const END: u64 = 4096 + 32;

    fn inode(layout: DataLayout, place: Place, size: u64) -> Inode {
        Inode {
            version: InodeVersion::Compact,
            layout,
            file_type: FileType::Regular,
            permissions: 0o644,
            uid: 0,
            gid: 0,
            size,
            nlink: 1,
            mtime: Timestamp::default(),
            ino: 1,
            xattr_icount: 0,
            place,
            dot_omitted: false,
        }
    }

    /// The bytes after the inode of a file with the map header `header`, and then `index`.
    fn compressed(header: &MapHeader, block: BlockSize, index: &[u8]) -> Vec<u8> {
        [&header.to_bytes(block).unwrap(), index].concat()
    }

    /// Shifts content by `blocks`, and offsets in the packed inode by one byte.
    fn shifted(
        layout: DataLayout,
        size: u64,
        block: BlockSize,
        after: &[u8],
        blocks: u64,
    ) -> Vec<u8> {
        let inode = inode(layout, Place::Compressed { blocks: 0 }, size);
        let mut after = after.to_vec();
        change_addresses(&inode, BytePos::new(END), &mut after, block, |address| match address {
            Address::Data(pos) => Address::Data(pos.checked_add(blocks * block.bytes64()).unwrap()),
            Address::Packed(offset) => Address::Packed(offset + 1),
        })
        .unwrap();
        after
    }

    fn header(file: &File, format: IndexFormat, tail: Tail) -> IndexHeader {
        IndexHeader {
            format,
            cluster: file.cluster,
            algorithms: [Algorithm::Lz4; 2],
            big_pclusters: [file.big_pclusters; 2],
            interlaced: false,
            tail,
        }
    }

    proptest! {
        #[test]
        fn all_heads_of_an_index_are_shifted(
            file in files(),
            full: bool,
            compacted_2b: bool,
            blocks in 0u64..1000,
        ) {
            let compact = IndexFormat::Compact { compacted_2b };
            let format = if full { IndexFormat::Full } else { compact };
            let header = header(&file, format, Tail::Fragment { offset: 7 });
            let end = BytePos::new(END + 8);
            let Ok(index) = Index::open(end, file.size, file.block, &header) else {
                return Ok(());
            };
            let mut bytes = Vec::new();
            index.write(file.lclusters().into_iter().map(Ok), &mut bytes).unwrap();
            let layout = MapHeader::Index(header).layout();
            let before = compressed(&MapHeader::Index(header), file.block, &bytes);
            let after = shifted(layout, file.size, file.block, &before, blocks);
            let expected = IndexHeader { tail: Tail::Fragment { offset: 8 }, ..header };
            prop_assert_eq!(
                MapHeader::parse(&after, layout, file.block).unwrap(),
                MapHeader::Index(expected)
            );
            let get = |bytes: &[u8], lcn| {
                let place = index.place(lcn).unwrap();
                index.decode(lcn, place, &bytes[to_usize(place.pos().get() - END)..]).unwrap()
            };
            for lcn in (0..index.lclusters()).map(Lcn::new) {
                let expected = match get(&before, lcn) {
                    Lcluster::Head(head) => Lcluster::Head(Head {
                        addr: BlockAddr::new((head.addr.get() + blocks) & u64::from(u32::MAX)),
                        ..head
                    }),
                    other => other,
                };
                prop_assert_eq!(get(&after, lcn), expected);
            }
        }

        #[test]
        fn garbage_never_panics(
            after: Vec<u8>,
            full: bool,
            chunked: bool,
            format in 0u16..0x80,
            size: u64,
        ) {
            let layout = match full {
                true => DataLayout::CompressedFull,
                false => DataLayout::CompressedCompact,
            };
            let place = match chunked {
                true => Place::Chunked { format },
                false => Place::Compressed { blocks: 1 },
            };
            let inode = inode(layout, place, size >> 20);
            let mut after = after;
            let block = BlockSize::DEFAULT;
            let _ = change_addresses(&inode, BytePos::new(END), &mut after, block, |at| at);
        }
    }

    #[test]
    fn records_of_extents_are_shifted_as_they_store_positions() {
        let block = BlockSize::DEFAULT;
        let unit = ClusterSize::new(block, 0).unwrap();
        let data = |len, at| {
            let encoding =
                Encoding::Data { len, algorithm: Some(Algorithm::Zstd), partial_ref: false };
            ExtentRecord::new(encoding, BytePos::new(at), FileOffset::new(0)).unwrap()
        };
        let cases = [
            Records::Regular { with_start: false, unit },
            Records::Regular { with_start: true, unit },
            Records::Sorted { wide: false, count: 3 },
            Records::Sorted { wide: true, count: 3 },
        ];
        for records in cases {
            let header = ExtentsHeader { records, interlaced: false, fragment_tail: true };
            let with = |step: u64| {
                let mut bytes = match records {
                    Records::Regular { with_start: false, .. } => {
                        (70_000 + step * 4096).to_le_bytes().to_vec()
                    }
                    _ => Vec::new(),
                };
                let fragment = ExtentRecord::fragment(500 + step / 3, FileOffset::new(0));
                let mut all = [data(100, 70_000), data(200, 90_000), fragment];
                all[..2].iter_mut().for_each(|record| {
                    record.pstart = record.pstart.checked_add(step * 4096).unwrap();
                });
                let size = records.size();
                all.iter().for_each(|record| record.write(size, &mut bytes).unwrap());
                let header = compressed(&MapHeader::Extents(header), block, &[]);
                let start = ExtentIndex::new(BytePos::new(END + 8), 9000, &header_of(&header))
                    .unwrap()
                    .start();
                let mut after = header;
                after.resize(to_usize(start.get() - END), 0);
                [after, bytes].concat()
            };
            let layout = DataLayout::CompressedFull;
            assert_eq!(shifted(layout, 9000, block, &with(0), 3), with(3), "{records:?}");
        }
    }

    fn header_of(bytes: &[u8]) -> ExtentsHeader {
        let block = BlockSize::DEFAULT;
        match MapHeader::parse(bytes, DataLayout::CompressedFull, block).unwrap() {
            MapHeader::Extents(header) => header,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn chunks_of_the_primary_device_and_whole_fragments_are_shifted() {
        let block = BlockSize::DEFAULT;
        for entries in [EntryFormat::Addresses, EntryFormat::Indexes, EntryFormat::Indexes48] {
            let format = ChunkFormat::new(0, entries).unwrap();
            let table = |step: u64| {
                let device = u16::from(entries != EntryFormat::Addresses);
                let place = |device, addr| {
                    Some(ChunkPlace { device: DeviceId::new(device), addr: BlockAddr::new(addr) })
                };
                let mut table = Vec::new();
                let other = if device == 0 { 9 + step } else { 9 };
                for place in [place(0, 5 + step), None, place(device, other)] {
                    format.encode(place, &mut table).unwrap();
                }
                table
            };
            let place = Place::Chunked { format: format.raw() };
            let inode = inode(DataLayout::ChunkBased, place, 3 * 4096);
            let mut after = table(0);
            change_addresses(
                &inode,
                BytePos::new(END),
                &mut after,
                block,
                |address| match address {
                    Address::Data(pos) => Address::Data(pos.checked_add(2 * 4096).unwrap()),
                    packed @ Address::Packed(_) => packed,
                },
            )
            .unwrap();
            assert_eq!(after, table(2), "{entries:?}");
        }
        let whole = |offset| compressed(&MapHeader::WholeFragment { offset }, block, &[]);
        assert_eq!(shifted(DataLayout::CompressedCompact, 9, block, &whole(77), 0), whole(78));
    }

    #[test]
    fn what_a_map_lacks_is_not_an_error() {
        let block = BlockSize::DEFAULT;
        assert_eq!(shifted(DataLayout::CompressedFull, 9, block, &[1, 2], 1), [1, 2]);
        let head = Head {
            kind: HeadKind::Head1,
            clusterofs: 0,
            addr: BlockAddr::new(4),
            partial_ref: false,
            hole: false,
        };
        let file = File {
            block,
            cluster: ClusterSize::new(block, 0).unwrap(),
            big_pclusters: false,
            size: 8192,
            pclusters: Vec::new(),
        };
        let header = MapHeader::Index(header(&file, IndexFormat::Full, Tail::Blocks));
        let record = |addr| {
            let head = Head { addr: BlockAddr::new(addr), ..head };
            full::encode(&Lcluster::Head(head)).unwrap()
        };
        // The second record is cut off.
        let with =
            |addr| [&compressed(&header, block, &[0; 8])[..], &record(addr), &[1; 7]].concat();
        assert_eq!(shifted(DataLayout::CompressedFull, 8192, block, &with(4), 3), with(7));
    }
}
