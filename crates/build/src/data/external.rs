//! The data stage of images that leave content in their sources: files become chunks on extra devices, which are the
//! archives or images that they come from. What cannot be pointed to, such as an inline tail, is copied.
//! Source: FORMAT.md 5.
//!
//! Stands where [`crate::data`] stands otherwise.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use ferofs_format::device::{DEVICE_TAG_SIZE, DeviceSlot};
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, BlockSize, DeviceId, Hex, Incompat};

use crate::data::{Content, Data};
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::inode_sizes::InodeSizes;
use crate::tree::origin::Origin;
use crate::tree::{Kind, NodeId, Tree};
use crate::{Error, Result};
use crate::{Options, Warning};

/// Chunks of up to 2^31 blocks can be said.
const EXTRA_BITS_MAX: u32 = 31;
/// Bytes that are copied at once.
const COPY: u64 = 4 << 20;

/// All that the stage works on.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) options: &'a Options,
    pub(crate) tree: &'a Tree,
    pub(crate) inode_sizes: &'a InodeSizes,
    pub(crate) contents: &'a Contents,
}

/// A range of a file, and where its first byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
    device: DeviceId,
    /// In bytes of the device.
    at: u64,
}

/// A range of a file: on a device, or to be copied.
type Found = (std::ops::Range<u64>, Option<(DeviceId, u64)>);

/// Points to the content of every regular file, and copies into `output` what cannot be pointed to.
pub(crate) fn run(
    room: Room<'_>,
    output: &mut Output,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<Data> {
    let mut data = Data {
        contents: vec![Content::None; room.tree.nodes.len()],
        features: Incompat::CHUNKED_FILE,
        ..Data::default()
    };
    let mut reader = Reader::new(room.contents, room.tree);
    for id in room.tree.ids() {
        let node = room.tree.node(id);
        if !matches!(node.kind, Kind::Regular { .. }) || node.size == 0 {
            continue;
        }
        room.options.run.check_cancelled()?;
        if let Origin::Unreadable(errno) = node.origin {
            warnings.push(Warning::Skipped(Error::io("read", room.contents.path(room.tree, id), errno)));
            data.contents[id.index()] = Content::Skipped;
            continue;
        }
        let progress = &room.options.run.progress;
        progress.bytes_done.fetch_add(node.size, Ordering::Relaxed);
        progress.files_done.fetch_add(1, Ordering::Relaxed);
        let found = found(room, id)?;
        if let [(range, None)] = found.as_slice()
            && *range == (0..node.size)
        {
            data.contents[id.index()] = whole(room, &mut reader, id, output, spill)?;
            continue;
        }
        let mut runs: Vec<Run> = Vec::new();
        for (number, (range, place)) in found.iter().enumerate() {
            let (device, at) = match *place {
                Some(place) => place,
                None => {
                    let next = found.get(number + 1).and_then(|(_, place)| *place);
                    keep_apart(room, output, runs.last(), range.end - range.start, next)?;
                    (DeviceId::new(0), copy(room, &mut reader, id, range.clone(), output)?)
                }
            };
            let run = Run { start: range.start, end: range.end, device, at };
            match runs.last_mut() {
                Some(last) if last.end == run.start && last.follows(&run) => last.end = run.end,
                _ => runs.push(run),
            }
        }
        let (format, places) =
            table(&runs, node.size, room.options.image.block_size).map_err(Error::Layout)?;
        // Entries are aligned to their size, and nodes begin at multiples of 32.
        let end = room.inode_sizes.len(id);
        let mut table = vec![0; end.next_multiple_of(format.entry_size()) - end];
        for place in places {
            format.encode(place, &mut table).map_err(Error::Layout)?;
        }
        let table = spill.push(&table)?;
        data.contents[id.index()] = Content::Chunked { format: format.raw(), table };
    }
    Ok(data)
}

/// The slots of the sources in the table of devices: in the unified address space they follow the image's `blocks`.
pub(crate) fn slots(options: &Options, contents: &Contents, blocks: u64) -> Vec<DeviceSlot> {
    let mut start = blocks;
    let slots = contents.devices().iter().map(|device| {
        let blocks = options.image.block_size.blocks_for(device.bytes);
        let mut tag = [0; DEVICE_TAG_SIZE];
        // As erofs-utils does: the image's UUID, in digits.
        let digits = device.uuid.map(|uuid| Hex(&uuid).to_string()).unwrap_or_default();
        tag[..digits.len()].copy_from_slice(digits.as_bytes());
        let slot = DeviceSlot { tag, blocks, start: Some(BlockAddr::new(start)) };
        start += blocks;
        slot
    });
    slots.collect()
}

impl Run {
    /// Whether `next`, whose start is this one's end in the file, follows on the device too.
    fn follows(&self, next: &Self) -> bool {
        self.device == next.device && self.at + (self.end - self.start) == next.at
    }
}

/// Where the content of `id` is, without its holes.
fn found(room: Room<'_>, id: NodeId) -> Result<Vec<Found>> {
    let Room { tree, contents, options, .. } = room;
    let (node, block) = (tree.node(id), options.image.block_size);
    let aligned = |offset: u64, len: u64, at: u64| {
        let ends = (offset + len).is_multiple_of(block.bytes64()) || offset + len == node.size;
        offset.is_multiple_of(block.bytes64()) && at.is_multiple_of(block.bytes64()) && ends
    };
    let on = |file: u16, offset: u64, len: u64, at: u64| {
        let device = contents.device(file).filter(|_| aligned(offset, len, at));
        (offset..offset + len, device.map(|device| (device, at)))
    };
    let mut pieces: Vec<Found> = match node.origin {
        Origin::At(place) => vec![on(place.file, 0, node.size, place.at)],
        Origin::Spans { first, count } => contents
            .spans(first, count)
            .iter()
            .map(|span| on(span.place.file, span.offset, span.len, span.place.at))
            .collect(),
        Origin::Image { image, nid } => {
            let image = contents.image(image);
            let file = image.file().id();
            let pieces = image
                .pieces(nid)
                .map_err(|e| crate::sources::image::file::in_source(contents.path(tree, id), e))?;
            let place = |at: Option<u64>, offset, len| match at {
                Some(at) => on(file, offset, len, at),
                None => (offset..offset + len, None),
            };
            pieces.into_iter().map(|piece| place(piece.at, piece.offset, piece.len)).collect()
        }
        Origin::Zeroes | Origin::None => Vec::new(),
        Origin::File(_) | Origin::Unreadable(_) => vec![(0..node.size, None)],
    };
    // Copies are of whole blocks, which a piece elsewhere may begin or end in the midst of: then all is copied.
    let torn = |(range, place): &Found| place.is_none() && !aligned(range.start, range.end - range.start, 0);
    if pieces.iter().any(torn) {
        pieces = vec![(0..node.size, None)];
    }
    Ok(pieces)
}

/// Copies a whole file, whose last bytes may follow its inode.
fn whole(
    room: Room<'_>,
    reader: &mut Reader<'_>,
    id: NodeId,
    output: &mut Output,
    spill: &mut Spill,
) -> Result<Content> {
    let size = room.tree.node(id).size;
    let tail = room.inode_sizes.inline_tail(id, size, room.options.image.block_size) as u64;
    let start = BlockAddr::new(
        copy(room, reader, id, 0..size - tail, output)? >> room.options.image.block_size.bits(),
    );
    let mut bytes = vec![0; tail as usize];
    reader.read(id, size - tail, &mut bytes)?;
    let tail = if tail > 0 { Some(spill.push(&bytes)?) } else { None };
    Ok(Content::Flat { start, tail })
}

/// Goes on by a block as long as a copy of `len` bytes would stand, by number, behind the run before it or in front of the
/// next one. Linux reads chunks whose sectors follow each other with one request, from one device.
fn keep_apart(
    room: Room<'_>,
    output: &mut Output,
    before: Option<&Run>,
    len: u64,
    next: Option<(DeviceId, u64)>,
) -> Result<()> {
    let block = room.options.image.block_size.bytes64();
    let before = before.filter(|run| run.device != DeviceId::new(0));
    let before = before.map(|run| run.at + (run.end - run.start));
    loop {
        let start = output.position();
        let end = start + len.next_multiple_of(block);
        if before != Some(start) && next.is_none_or(|(_, at)| at != end) {
            return Ok(());
        }
        output.pad_to(start + block)?;
    }
}

/// Copies a range of a file; says where it starts in the image.
fn copy(
    room: Room<'_>,
    reader: &mut Reader<'_>,
    id: NodeId,
    range: std::ops::Range<u64>,
    output: &mut Output,
) -> Result<u64> {
    if !room.contents.is_readable(room.tree.node(id).origin) {
        let path: PathBuf = room.contents.path(room.tree, id);
        let problem =
            "its data start where no block does, and cannot be left in a stream: build with --tar=f";
        return Err(Error::Layer { path, problem });
    }
    let start = output.position();
    let mut buffer = Vec::new();
    let mut at = range.start;
    while at < range.end {
        room.options.run.check_cancelled()?;
        let len = (range.end - at).min(COPY);
        buffer.resize(len as usize, 0);
        reader.read(id, at, &mut buffer)?;
        output.append(&buffer)?;
        at += len;
    }
    output.pad_to(output.position().next_multiple_of(room.options.image.block_size.bytes64()))?;
    Ok(start)
}

type Table = (ChunkFormat, Vec<Option<ChunkPlace>>);

/// The shortest table of chunks for `runs`, which start at blocks, and end there or with the file.
fn table(runs: &[Run], size: u64, block: BlockSize) -> Result<Table, ferofs_format::FormatError> {
    // Each boundary of a run must be one of a chunk, and no chunk need be larger than the file.
    let whole = size.next_power_of_two().trailing_zeros();
    let boundaries = runs.iter().flat_map(|run| [run.start, run.end]).filter(|at| *at != 0 && *at != size);
    let bits = boundaries.map(u64::trailing_zeros).chain([whole]).min().unwrap_or(whole);
    let extra = bits.saturating_sub(u32::from(block.bits())).min(EXTRA_BITS_MAX);
    let fault = ferofs_format::Fault::Map("no such chunk size");
    let fault = ferofs_format::FormatError::new(ferofs_format::Structure::ChunkIndex, fault);
    let format = ChunkFormat::new(extra as u8, EntryFormat::Indexes).ok_or(fault)?;
    let chunk = format.chunk_size(block);
    let mut runs = runs.iter().peekable();
    let places = (0..size.div_ceil(chunk)).map(|number| {
        let start = number * chunk;
        while runs.next_if(|run| run.end <= start).is_some() {}
        let run = runs.peek().filter(|run| run.start <= start)?;
        let addr = BlockAddr::new((run.at + (start - run.start)) >> block.bits());
        Some(ChunkPlace { device: run.device, addr })
    });
    Ok((format, places.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_short_as_can_be() {
        let block = BlockSize::from_bits(9).unwrap();
        let run = |start, end, at| Run { start, end, device: DeviceId::new(1), at };
        let shown = |runs: &[Run], size| {
            let (format, places) = table(runs, size, block).unwrap();
            (format.chunk_size(block), places.iter().map(|p| p.map(|p| p.addr.get())).collect::<Vec<_>>())
        };
        assert_eq!(shown(&[run(0, 9_000_000, 512)], 9_000_000), (16 << 20, vec![Some(1)]));
        assert_eq!(shown(&[run(0, 1, 1024)], 1), (512, vec![Some(2)]));
        // A hole, and a piece elsewhere.
        let (size, places) = shown(&[run(0, 4096, 512), run(12288, 13000, 0)], 13000);
        assert_eq!((size, places), (4096, vec![Some(1), None, None, Some(0)]));
        let (size, places) = shown(&[run(1024, 1536, 0)], 2048);
        assert_eq!((size, places), (512, vec![None, None, Some(0), None]));
        assert_eq!(shown(&[], 5000), (8192, vec![None]));
    }
}
