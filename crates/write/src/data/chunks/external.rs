//! The data stage of images whose content stays in the sources. The archives or images become extra
//! devices, and the chunks of files have addresses on them. Content that a chunk cannot address is
//! copied into the image, for example an inline tail of a source image. Source: FORMAT.md 5.

use std::path::PathBuf;

use ferofs_format::device::{DEVICE_TAG_SIZE, DeviceSlot};
use ferofs_format::map::chunk::{ChunkFormat, ChunkPlace, EntryFormat};
use ferofs_format::{BlockAddr, BlockSize, DeviceId, Hex, Incompat};

use crate::data::stored::{StoredContent, StoredData};
use crate::data::worker::context::WorkerContext;
use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::{Kind, NodeId, Origin};

/// The largest chunk that the format allows, as a power of two of blocks.
const EXTRA_BITS_MAX: u32 = 31;
/// Blocks that are reserved for the image itself in the unified address space: more than any index
/// has, 64 GiB with blocks of 512 bytes.
const OWN_BLOCKS: u64 = 1 << 27;
/// Bytes that are copied at once: this much memory is used.
const COPY_LEN: u64 = 4 << 20;

/// A range of a file, and where it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
    device: DeviceId,
    /// The position on the device, in bytes.
    at: u64,
}

/// A range of a file and its place on a device; `None`: it must be copied.
type PlacedRange = (std::ops::Range<u64>, Option<(DeviceId, u64)>);

/// Refers to the content of every regular file, and copies content that it cannot refer to into
/// `output`.
pub(crate) fn run(
    context: WorkerContext<'_>,
    output: &mut Output,
    spill: &mut Spill,
    warnings: &mut Vec<Warning>,
) -> Result<StoredData> {
    let mut data = StoredData {
        contents: vec![StoredContent::None; context.tree.nodes.len()],
        features: Incompat::CHUNKED_FILE,
        ..StoredData::default()
    };
    let mut reader = Reader::new(context.contents, context.tree);
    for id in context.tree.ids() {
        let node = context.tree.node(id);
        if !matches!(node.kind, Kind::Regular { .. }) || node.size == 0 {
            continue;
        }
        context.options.run.cancel.check()?;
        if let Origin::Unreadable(errno) = node.origin {
            warnings.push(Warning::Skipped(Error::io(
                "read",
                context.contents.path(context.tree, id),
                errno,
            )));
            data.contents[id.index()] = StoredContent::Skipped;
            continue;
        }
        let progress = &context.options.run.progress;
        progress.bytes_done.add(node.size);
        progress.files_done.add(1);
        let found = find(context, id)?;
        if let [(range, None)] = found.as_slice()
            && *range == (0..node.size)
        {
            data.contents[id.index()] = whole(context, &mut reader, id, output, spill)?;
            continue;
        }
        let mut runs: Vec<Run> = Vec::new();
        for (number, (range, place)) in found.iter().enumerate() {
            let (device, at) = match *place {
                Some(place) => place,
                None => {
                    let next = found.get(number + 1).and_then(|(_, place)| *place);
                    avoid_adjacent_runs(
                        context,
                        output,
                        runs.last(),
                        range.end - range.start,
                        next,
                    )?;
                    (DeviceId::new(0), copy(context, &mut reader, id, range.clone(), output)?)
                }
            };
            let run = Run { start: range.start, end: range.end, device, at };
            match runs.last_mut() {
                Some(last) if last.end == run.start && last.follows(&run) => last.end = run.end,
                _ => runs.push(run),
            }
        }
        let (format, places) =
            table(&runs, node.size, context.block_size).map_err(Error::Layout)?;
        // Entries are aligned to their size, and inodes start at multiples of 32.
        let end = context.inode_sizes.len(id);
        let mut table = vec![0; end.next_multiple_of(format.entry_size()) - end];
        for place in places {
            format.encode(place, &mut table).map_err(Error::Layout)?;
        }
        let table = spill.push(&table)?;
        data.contents[id.index()] = StoredContent::Chunked { format: format.raw(), table };
    }
    Ok(data)
}

/// Whether the unified address space of the image and its devices, or an address on a device, can
/// need more than 32 bits.
pub(crate) fn needs_wide_addresses(options: &Options, contents: &Contents) -> bool {
    let blocks =
        contents.devices().iter().map(|device| options.image.block_size.blocks_for(device.bytes));
    blocks.fold(OWN_BLOCKS, u64::saturating_add) >= 1 << 32
}

/// The sources' slots in the device table. In the unified address space they follow the `blocks` of
/// the image.
pub(crate) fn slots(options: &Options, contents: &Contents, blocks: u64) -> Vec<DeviceSlot> {
    let mut start = blocks;
    let slots = contents.devices().iter().map(|device| {
        let blocks = options.image.block_size.blocks_for(device.bytes);
        let mut tag = [0; DEVICE_TAG_SIZE];
        // Like erofs-utils: the UUID of the source image, in digits.
        let digits = device.uuid.map(|uuid| Hex(&uuid).to_string()).unwrap_or_default();
        tag[..digits.len()].copy_from_slice(digits.as_bytes());
        let slot = DeviceSlot { tag, blocks, start: Some(BlockAddr::new(start)) };
        start += blocks;
        slot
    });
    slots.collect()
}

impl Run {
    /// Whether `next`, which follows in the file, follows on the device, too.
    fn follows(&self, next: &Self) -> bool {
        self.device == next.device && self.at + (self.end - self.start) == next.at
    }
}

/// Finds where the content of `id` is, without its holes.
fn find(context: WorkerContext<'_>, id: NodeId) -> Result<Vec<PlacedRange>> {
    let WorkerContext { tree, contents, options, .. } = context;
    let (node, block) = (tree.node(id), options.image.block_size);
    let aligned = |offset: u64, len: u64, at: u64| {
        let ends = (offset + len).is_multiple_of(block.bytes64()) || offset + len == node.size;
        offset.is_multiple_of(block.bytes64()) && at.is_multiple_of(block.bytes64()) && ends
    };
    let on = |file: u16, offset: u64, len: u64, at: u64| {
        let device = contents.device(file).filter(|_| aligned(offset, len, at));
        (offset..offset + len, device.map(|device| (device, at)))
    };
    let mut pieces: Vec<PlacedRange> = match node.origin {
        Origin::At(place) => vec![on(place.file, 0, node.size, place.at)],
        Origin::Spans { first, count } => contents
            .spans(first, count)
            .iter()
            .map(|span| on(span.place.file, span.offset, span.len, span.place.at))
            .collect(),
        Origin::Image { image, nid, .. } => {
            let image = contents.image(image);
            let pieces = image
                .pieces(nid)
                .map_err(|e| crate::sources::image::file::in_source(contents.path(tree, id), e))?;
            // Only an image that is a file, all of which is a layer, can be a device.
            let place = |at: Option<u64>, offset, len| match at.zip(image.file()) {
                Some((at, file)) => on(file, offset, len, at),
                None => (offset..offset + len, None),
            };
            pieces.into_iter().map(|piece| place(piece.at, piece.offset, piece.len)).collect()
        }
        Origin::Zeroes | Origin::None => Vec::new(),
        Origin::File(_) | Origin::LayerFile { .. } | Origin::Memory(_) | Origin::Unreadable(_) => {
            vec![(0..node.size, None)]
        }
    };
    // Only whole blocks can be copied. If a range to copy starts or ends within a block, the whole
    // file is copied.
    let unaligned_copy = |(range, place): &PlacedRange| {
        place.is_none() && !aligned(range.start, range.end - range.start, 0)
    };
    if pieces.iter().any(unaligned_copy) {
        pieces = vec![(0..node.size, None)];
    }
    Ok(pieces)
}

/// Copies a whole file. Its tail can follow its inode.
fn whole(
    context: WorkerContext<'_>,
    reader: &mut Reader<'_>,
    id: NodeId,
    output: &mut Output,
    spill: &mut Spill,
) -> Result<StoredContent> {
    let size = context.tree.node(id).size;
    let tail = context.inode_sizes.inline_tail(id, size, context.block_size) as u64;
    let start = BlockAddr::new(
        copy(context, reader, id, 0..size - tail, output)? >> context.block_size.bits(),
    );
    let mut bytes = vec![0; tail as usize];
    reader.read(id, size - tail, &mut bytes)?;
    let tail = spill.push(&bytes)?;
    Ok(StoredContent::Flat { start, tail })
}

/// Skips blocks until a copy of `len` bytes has no address that directly follows the run before it
/// or directly precedes the next one. Linux reads chunks with consecutive addresses with one
/// request, even if they are on different devices.
fn avoid_adjacent_runs(
    context: WorkerContext<'_>,
    output: &mut Output,
    before: Option<&Run>,
    len: u64,
    next: Option<(DeviceId, u64)>,
) -> Result<()> {
    let block = context.block_size.bytes64();
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

/// Copies a range of a file; returns its position in the image.
fn copy(
    context: WorkerContext<'_>,
    reader: &mut Reader<'_>,
    id: NodeId,
    range: std::ops::Range<u64>,
    output: &mut Output,
) -> Result<u64> {
    if !context.contents.is_readable(context.tree.node(id).origin) {
        let path: PathBuf = context.contents.path(context.tree, id);
        let problem = "its data does not start at a block boundary, and a stream cannot be read again to copy it: build with --tar=f";
        return Err(Error::InvalidSource { path, problem });
    }
    let start = output.position();
    let mut buffer = Vec::new();
    let mut at = range.start;
    while at < range.end {
        context.options.run.cancel.check()?;
        let len = (range.end - at).min(COPY_LEN);
        buffer.resize(len as usize, 0);
        reader.read(id, at, &mut buffer)?;
        output.append(&buffer)?;
        at += len;
    }
    output.pad_to(output.position().next_multiple_of(context.block_size.bytes64()))?;
    Ok(start)
}

type Table = (ChunkFormat, Vec<Option<ChunkPlace>>);

/// The shortest chunk table for `runs`, which start and end at block boundaries, except at the end
/// of the file.
fn table(runs: &[Run], size: u64, block: BlockSize) -> Result<Table, ferofs_format::FormatError> {
    // Each run starts and ends at a chunk boundary. A chunk need not be larger than the file.
    let whole = size.next_power_of_two().trailing_zeros();
    let boundaries =
        runs.iter().flat_map(|run| [run.start, run.end]).filter(|at| *at != 0 && *at != size);
    let bits = boundaries.map(u64::trailing_zeros).chain([whole]).min().unwrap_or(whole);
    let extra = bits.saturating_sub(u32::from(block.bits())).min(EXTRA_BITS_MAX);
    let fault = ferofs_format::Fault::Map("no such chunk size");
    let fault = ferofs_format::FormatError::new(ferofs_format::Structure::ChunkIndex, fault);
    // The caller has turned on the wide addresses that such an entry needs.
    let end = runs.iter().map(|run| run.at.saturating_add(run.end - run.start)).max().unwrap_or(0);
    let is_far = block.blocks_for(end) >= 1 << 32;
    let entries = if is_far { EntryFormat::Indexes48 } else { EntryFormat::Indexes };
    let format = ChunkFormat::new(extra as u8, entries).ok_or(fault)?;
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
    fn tables_have_the_largest_possible_chunks() {
        let block = BlockSize::from_bits(9).unwrap();
        let run = |start, end, at| Run { start, end, device: DeviceId::new(1), at };
        let shown = |runs: &[Run], size| {
            let (format, places) = table(runs, size, block).unwrap();
            (
                format.chunk_size(block),
                places.iter().map(|p| p.map(|p| p.addr.get())).collect::<Vec<_>>(),
            )
        };
        assert_eq!(shown(&[run(0, 9_000_000, 512)], 9_000_000), (16 << 20, vec![Some(1)]));
        assert_eq!(shown(&[run(0, 1, 1024)], 1), (512, vec![Some(2)]));
        // A hole, and a run at a lower address.
        let (size, places) = shown(&[run(0, 4096, 512), run(12288, 13000, 0)], 13000);
        assert_eq!((size, places), (4096, vec![Some(1), None, None, Some(0)]));
        let (size, places) = shown(&[run(1024, 1536, 0)], 2048);
        assert_eq!((size, places), (512, vec![None, None, Some(0), None]));
        assert_eq!(shown(&[], 5000), (8192, vec![None]));
        let far = 3 << 40;
        assert_eq!(shown(&[run(0, 512, far)], 512), (512, vec![Some(far >> 9)]));
        assert_eq!(
            table(&[run(0, 512, far)], 512, block).unwrap().0.entries(),
            EntryFormat::Indexes48
        );
    }
}
