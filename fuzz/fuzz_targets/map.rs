//! Each form of a file's map: the header, full and compact indexes, extent records, chunk indexes.
#![no_main]

use ferofs_format::inode::DataLayout;
use ferofs_format::map::{ChunkFormat, ExtentIndex, ExtentRecord, Index, MapHeader};
use ferofs_format::{BlockSize, BytePos, Lcn};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [kind, size @ .., _, _] = data else { return };
    let Some((size, rest)) = size.split_first_chunk::<4>() else { return };
    let size = u64::from(u32::from_le_bytes(*size)) + 1;
    let block = BlockSize::from_bytes(4096).expect("a power of two");
    let (header, rest) = rest.split_at(8.min(rest.len()));
    let start = BytePos::new(4096);
    if *kind == 0 {
        let Some(raw) = header.first_chunk::<2>() else { return };
        if let Ok(format) = ChunkFormat::parse(u16::from_le_bytes(*raw)) {
            let _ = (format.chunk_size(block), format.decode(rest));
        }
        return;
    }
    let layout = if kind & 1 == 0 { DataLayout::CompressedFull } else { DataLayout::CompressedCompact };
    match MapHeader::parse(header, layout, block) {
        Ok(MapHeader::Index(header)) => {
            let Ok(index) = Index::open(start, size, block, &header) else { return };
            for (lcn, from) in (0..64).zip(0..).chain([(size / 4096, 0), (size, 0)]) {
                let lcn = Lcn::new(lcn);
                let Ok(place) = index.place(lcn) else { continue };
                let _ = index.decode(lcn, place, rest.get(from * place.size()..).unwrap_or(rest));
            }
        }
        Ok(MapHeader::Extents(header)) => {
            let size_of = header.records.size();
            if let Ok(index) = ExtentIndex::new(start, size, &header) {
                let _ = (index.start(), index.count());
            }
            for bytes in rest.chunks(size_of.bytes()) {
                if let Ok(record) = ExtentRecord::parse(bytes, size_of) {
                    let _ = (record.encoding(), record.fragment_offset(size_of));
                }
            }
        }
        _ => {}
    }
});
