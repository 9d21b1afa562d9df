//! Chooses parts of the content: one in each of equal parts, in the order of the image.

use std::collections::HashMap;
use std::ops::Range;

use ferofs_codec::{Algorithm, Compressor, Fit, Params, looks_random};

use crate::build::estimate::identical::Stored;
use crate::build::estimate::unreadable::is_tolerated;
use crate::data::chunks::sparse::ChunkPlan;
use crate::data::order::Order;
use crate::error::{Error, Result};
use crate::options::compression::PCLUSTER_MAX;
use crate::options::run::RunOptions;
use crate::progress::timings::processor_time;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::{NodeId, Tree};

/// Bytes of a probe, and of the pieces in which a window is probed. Smaller ones say less about compression, larger ones take more
/// time.
pub(super) const PROBE_LEN: usize = 16 << 10;
/// The most probes. Each reads one or a few files.
const PROBES_MAX: u64 = 3000;
/// The fewest probes of a stream that say more about it than its windows do.
const PROBES_MIN: usize = 50;

/// Shorter holes are content, for some settings.
const SHORT_HOLE: u64 = 12 << 20;

/// Content that is stored in the same way, in the order of the image, without that of files whose content another file has.
pub(super) struct Stream {
    parts: Vec<Part>,
    /// By part: the bytes of the parts before it, and last the bytes of all.
    starts: Vec<u64>,
    kind: StreamKind,
}

/// A whole file, or a range of a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    node: NodeId,
    offset: u64,
    len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// Whole files.
    Small,
    /// Larger files, of which windows are parts.
    Large,
    /// Long holes of files that are not stored in chunks.
    Holes,
}

/// A part of the content that is encoded.
#[derive(Clone, Debug)]
pub(super) enum Window {
    /// Whole files.
    Files(Vec<NodeId>, u64),
    /// A part of a large file.
    Range { node: NodeId, offset: u64, len: u64 },
}

/// Bytes of a stream that are encoded as one pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where they start in the stream.
    pub(super) at: u64,
    pub(super) len: u64,
    /// How many bytes follow that start which the image could encode together.
    pub(super) room: u64,
}

/// A piece that was encoded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Encoded {
    pub(super) bytes: f64,
    /// What it was encoded to.
    pub(super) size: f64,
    /// Processor time of reading it, and of encoding it.
    pub(super) reading: f64,
    pub(super) encoding: f64,
    /// Whether the compressor searched in it: some do not search in what looks like random bytes.
    pub(super) is_searched: bool,
}

impl Encoded {
    pub(super) fn ratio(&self) -> f64 {
        if self.bytes > 0.0 { self.size / self.bytes } else { 1.0 }
    }
}

/// Sizes that decide what a window is.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowLimits {
    /// About how many bytes a window has.
    pub(super) len: u64,
    /// The data stage cuts large files at multiples of this: no window crosses them.
    pub(super) segment: u64,
}

impl Stream {
    /// The streams of all kinds: files up to `small_max` bytes are small. Files of `chunked` are in none of them.
    pub(super) fn of(
        tree: &Tree,
        order: &Order,
        stored: &Stored,
        small_max: u64,
        chunked: &HashMap<NodeId, ChunkPlan>,
    ) -> [Self; 3] {
        let mut streams = [StreamKind::Small, StreamKind::Large, StreamKind::Holes].map(Self::new);
        let [small, large, holes] = &mut streams;
        for node in order.ids().filter(|id| stored.contains(*id) && !chunked.contains_key(id)) {
            let size = tree.node(node).size;
            if size <= small_max {
                small.push(Part { node, offset: 0, len: size });
                continue;
            }
            let mut end = 0;
            for (start, stop) in without_short_holes(&stored.data_ranges(node, size), small_max) {
                holes.push(Part { node, offset: end, len: start - end });
                large.push(Part { node, offset: start, len: stop - start });
                end = stop;
            }
            holes.push(Part { node, offset: end, len: size - end });
        }
        streams
    }

    fn new(kind: StreamKind) -> Self {
        Self { parts: Vec::new(), starts: vec![0], kind }
    }

    fn push(&mut self, part: Part) {
        if part.len > 0 {
            self.parts.push(part);
            self.starts.push(self.bytes() + part.len);
        }
    }

    pub(super) const fn kind(&self) -> StreamKind {
        self.kind
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// `count` windows, or as many as there are.
    pub(super) fn windows(&self, count: u64, limits: WindowLimits) -> Vec<Window> {
        let WindowLimits { len, segment } = limits;
        let count = count.min(self.bytes().div_ceil(len)).max(1);
        let mut windows = Vec::new();
        for number in 0..count {
            let at = place(self.bytes(), count, number, len);
            if self.kind != StreamKind::Small {
                let number = self.part_at(at);
                let part = self.parts[number];
                // At a boundary of blocks, except in sparse files.
                let within = (at - self.starts[number]) / len * len;
                let start = within.min(part.len.saturating_sub(len)) / PROBE_LEN as u64 * PROBE_LEN as u64;
                let start = part.offset + start;
                let end = (start + len).min(part.offset + part.len).min((start / segment + 1) * segment);
                windows.push(Window::Range { node: part.node, offset: start, len: end - start });
                continue;
            }
            // The files that start within the window: each file has the same chance to be in a window, whatever its size is.
            let end = at.saturating_add(len / 2);
            let first = self.starts.partition_point(|start| *start < at.saturating_sub(len / 2));
            let next = self.starts.partition_point(|start| *start < end).min(self.parts.len());
            windows.extend(self.files(first..next));
        }
        // No file starts within short windows if all windows are in long files.
        if windows.is_empty() && self.kind == StreamKind::Small {
            let middle = self.part_at(self.bytes() / 2);
            windows.extend(self.files(middle..middle + 1));
        }
        windows
    }

    /// Where pieces of at most `len` bytes start, at equal distances, and their bytes: `count` of them, or as many as there are. Small files follow each
    /// other in the packed inode, so that pieces there do not end with a file.
    pub(super) fn pieces(&self, count: u64, len: u64) -> Vec<Piece> {
        let len = len.min(self.bytes()).max(1);
        let count = count.min(self.bytes().div_ceil(len));
        let piece = |number| {
            let middle = place(self.bytes(), count, number, len);
            let (start, end) = match self.kind {
                StreamKind::Small => (0, self.bytes()),
                _ => {
                    let part = self.part_at(middle);
                    (self.starts[part], self.starts[part] + self.parts[part].len)
                }
            };
            let len = len.min(end - start);
            let at = middle.saturating_sub(len / 2).clamp(start, end - len);
            Piece { at, len, room: end - at }
        };
        (0..count).map(piece).collect()
    }

    /// A window of whole files; `None` without files.
    fn files(&self, parts: Range<usize>) -> Option<Window> {
        let files = self.parts.get(parts).filter(|files| !files.is_empty())?;
        let bytes = files.iter().map(|part| part.len).sum();
        Some(Window::Files(files.iter().map(|part| part.node).collect(), bytes))
    }

    /// One window: all zeroes are alike. It starts where the data stage starts a part, if there is such a place.
    pub(super) fn hole(&self, segment: u64) -> Option<Window> {
        let Part { node, offset, len } = *self.parts.iter().max_by_key(|part| part.len)?;
        let end = offset + len;
        let start = Some(offset.next_multiple_of(segment)).filter(|start| *start < end).unwrap_or(offset);
        Some(Window::Range { node, offset: start, len: segment.min(end - start) })
    }

    /// The part that has the byte at `at` of the stream.
    fn part_at(&self, at: u64) -> usize {
        let parts = self.starts.partition_point(|start| *start <= at);
        parts.saturating_sub(1).min(self.parts.len().saturating_sub(1))
    }
}

/// The ranges of a file of `size` bytes with data, and all holes that are too short for [`StreamKind::Holes`] with any setting.
fn with_short_holes(ranges: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    if size <= SHORT_HOLE { vec![(0, size)] } else { without_short_holes(ranges, SHORT_HOLE) }
}

/// Ranges of data, where holes with fewer bytes than `shortest` count as data.
fn without_short_holes(ranges: &[(u64, u64)], shortest: u64) -> Vec<(u64, u64)> {
    let mut wide: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match wide.last_mut() {
            Some(last) if start - last.1 < shortest => last.1 = *end,
            _ => wide.push((*start, *end)),
        }
    }
    wide
}

/// Where the middle of a sample of `len` bytes is, in part `number` of `count` equal parts of `bytes`: each time elsewhere in the part, because content can repeat
/// at the distance of the parts.
fn place(bytes: u64, count: u64, number: u64, len: u64) -> u64 {
    /// The multiples of the golden ratio are spread evenly, without their integer part.
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let part = bytes as f64 / count.max(1) as f64;
    let free = (part - len as f64).max(0.0);
    let within = (part - free) / 2.0 + free * (0.5 + number as f64 * GOLDEN).fract();
    ((number as f64 * part + within) as u64).min(bytes.saturating_sub(1))
}

/// A piece of content that LZ4 encoded.
#[derive(Debug)]
struct Probe {
    /// Where it starts in its file.
    offset: u64,
    bytes: f64,
    /// What it was encoded to.
    size: f64,
}

/// How compressible pieces of the whole content are, one in each of equal parts, encoded with LZ4 each for itself.
#[derive(Debug)]
pub(super) struct Probes {
    /// By file, in the order of their offsets.
    by_file: HashMap<NodeId, Vec<Probe>>,
}

impl Probes {
    /// Probes all stored content.
    pub(super) fn of(run: &RunOptions, tree: &Tree, contents: &Contents, stored: &Stored) -> Result<Self> {
        let mut all = Stream::new(StreamKind::Small);
        for node in tree.ids().filter(|id| stored.contains(*id)) {
            // Holes that no setting leaves out of its other streams count as content.
            let size = tree.node(node).size;
            for (start, end) in with_short_holes(&stored.data_ranges(node, size), size) {
                all.push(Part { node, offset: start, len: end - start });
            }
        }
        let count = all.bytes().div_ceil(PROBE_LEN as u64).min(PROBES_MAX);
        let each = run.parallel(
            count as usize,
            || Prober::new(tree, contents),
            |prober, number| {
                let at = place(all.bytes(), count, number as u64, PROBE_LEN as u64);
                let part = all.part_at(at);
                let Part { node, offset, .. } = all.parts[part];
                let (size, bytes) = prober.probe(&all, at)?;
                Ok::<_, Error>((node, Probe { offset: offset + at - all.starts[part], bytes, size }))
            },
        )?;
        let mut by_file: HashMap<NodeId, Vec<Probe>> = HashMap::new();
        for (node, probe) in each {
            by_file.entry(node).or_default().push(probe);
        }
        Ok(Self { by_file })
    }

    /// The mean ratio of the encoded size to the size of the pieces in `stream`; `None` if these are too few.
    pub(super) fn mean(&self, stream: &Stream) -> Option<f64> {
        let (mut count, mut bytes, mut size) = (0, 0.0, 0.0);
        for part in &stream.parts {
            let probes = self.by_file.get(&part.node).map_or(&[][..], Vec::as_slice);
            let first = probes.partition_point(|probe| probe.offset < part.offset);
            for probe in probes[first..].iter().take_while(|probe| probe.offset < part.offset + part.len) {
                (count, bytes, size) = (count + 1, bytes + probe.bytes, size + probe.size);
            }
        }
        (count >= PROBES_MIN && bytes > 0.0).then(|| size / bytes)
    }
}

/// Content that is sampled.
#[derive(Clone, Copy)]
pub(super) struct Sampled<'a> {
    pub(super) tree: &'a Tree,
    pub(super) contents: &'a Contents,
    pub(super) probes: &'a Probes,
}

/// Measures how compressible pieces are.
pub(super) struct Prober<'a> {
    tree: &'a Tree,
    reader: Reader<'a>,
    compressor: Option<Box<dyn Compressor>>,
    piece: Vec<u8>,
    encoded: Vec<u8>,
}

impl<'a> Prober<'a> {
    pub(super) fn new(tree: &'a Tree, contents: &'a Contents) -> Self {
        let compressor = Params::new(Algorithm::Lz4, None).ok();
        Self::with(tree, contents, compressor.and_then(|params| ferofs_codec::compressor(&params).ok()))
    }

    /// The same, with another compressor.
    pub(super) fn with(
        tree: &'a Tree,
        contents: &'a Contents,
        compressor: Option<Box<dyn Compressor>>,
    ) -> Self {
        let reader = Reader::new(contents, tree);
        Self { tree, reader, compressor, piece: Vec::new(), encoded: Vec::new() }
    }

    /// Reads `len` bytes at `at` of `stream`.
    fn read(&mut self, stream: &Stream, at: u64, len: usize) -> Result<()> {
        self.piece.clear();
        let first = stream.part_at(at);
        let mut skipped = at - stream.starts[first].min(at);
        for part in stream.parts.iter().skip(first) {
            self.append(part.node, part.offset + skipped, part.len - skipped.min(part.len), len)?;
            if self.piece.len() >= len {
                break;
            }
            skipped = 0;
        }
        Ok(())
    }

    /// The encoded size and the size of the probe at `at` of `stream`.
    fn probe(&mut self, stream: &Stream, at: u64) -> Result<(f64, f64)> {
        self.read(stream, at, PROBE_LEN)?;
        self.finish_piece()
    }

    /// Encodes `piece` of `stream`.
    pub(super) fn encode(&mut self, stream: &Stream, piece: Piece) -> Result<Encoded> {
        let searched = |prober: &Self| prober.compressor.as_ref().map(|compressor| compressor.searched());
        let (before, started) = (searched(self), processor_time());
        self.read(stream, piece.at, piece.len as usize)?;
        let was_read = processor_time();
        // A build stores such bytes.
        let is_random = looks_random(&self.piece, self.piece.len());
        let (size, bytes) = if is_random { self.store_piece() } else { self.finish_piece()? };
        Ok(Encoded {
            bytes,
            size,
            reading: was_read.saturating_sub(started).as_secs_f64(),
            encoding: processor_time().saturating_sub(was_read).as_secs_f64(),
            is_searched: !is_random && (searched(self) != before || before == Some(None)),
        })
    }

    /// How compressible a piece is, in probes.
    pub(super) fn probe_piece(&mut self, stream: &Stream, piece: Piece) -> Result<f64> {
        let (mut size, mut bytes) = (0.0, 0.0);
        for at in (piece.at..piece.at + piece.len).step_by(PROBE_LEN) {
            let (one, len) = self.probe(stream, at)?;
            (size, bytes) = (size + one, bytes + len);
        }
        Ok(if bytes > 0.0 { size / bytes } else { 1.0 })
    }

    /// How compressible the window is.
    pub(super) fn window(&mut self, window: &Window) -> Result<f64> {
        let (mut size, mut bytes) = (0.0, 0.0);
        let mut add = |(one, len): (f64, f64)| (size, bytes) = (size + one, bytes + len);
        self.piece.clear();
        match window {
            Window::Range { node, offset, len } => {
                let mut at = *offset;
                while at < offset + len {
                    self.append(*node, at, offset + len - at, PROBE_LEN)?;
                    add(self.finish_piece()?);
                    at += PROBE_LEN as u64;
                }
            }
            Window::Files(nodes, _) => {
                for node in nodes {
                    let file = self.tree.node(*node).size;
                    let mut at = 0;
                    while at < file {
                        at += self.append(*node, at, file - at, PROBE_LEN)?;
                        if self.piece.len() >= PROBE_LEN {
                            add(self.finish_piece()?);
                        }
                    }
                }
                add(self.finish_piece()?);
            }
        }
        Ok(if bytes > 0.0 { size / bytes } else { 1.0 })
    }

    /// Appends up to `len` bytes of `node` to the piece, which then has at most `most` bytes; returns how many.
    fn append(&mut self, node: NodeId, offset: u64, len: u64, most: usize) -> Result<u64> {
        let before = self.piece.len();
        let len = len.min(most.saturating_sub(before) as u64);
        self.piece.resize(before + len as usize, 0);
        match self.reader.read(node, offset, &mut self.piece[before..]) {
            Ok(()) => {}
            // The build says what cannot be read, or changes; here it is left out.
            Err(error) if is_tolerated(&error) => {
                self.piece.truncate(before);
            }
            Err(error) => return Err(error),
        }
        Ok(len)
    }

    /// Leaves the piece as it is, and starts another one.
    fn store_piece(&mut self) -> (f64, f64) {
        let len = self.piece.len() as f64;
        self.piece.clear();
        (len, len)
    }

    /// Encodes the piece, and starts another one.
    fn finish_piece(&mut self) -> Result<(f64, f64)> {
        let len = self.piece.len();
        if len == 0 {
            return Ok((0.0, 0.0));
        }
        self.encoded.resize(len.clamp(64, PCLUSTER_MAX as usize), 0);
        let fit = match &mut self.compressor {
            Some(compressor) => {
                compressor.fit_exact(&self.piece, &mut self.encoded).map_err(Error::Encode)?
            }
            None => Fit::Incompressible,
        };
        self.piece.clear();
        let size = match fit {
            Fit::Encoded { produced, .. } => produced,
            Fit::Incompressible => len,
        };
        Ok((size as f64, len as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_equal_parts_but_not_at_equal_distances() {
        assert_eq!(place(1000, 1, 0, 10), 500);
        // Samples that fill their parts are in the middle of them.
        assert_eq!((0..4).map(|number| place(80, 4, number, 20)).collect::<Vec<_>>(), [10, 30, 50, 70]);
        let places: Vec<u64> = (0..100).map(|number| place(200_000, 100, number, 100)).collect();
        for (number, at) in places.iter().enumerate() {
            let start = number as u64 * 2000;
            assert!((start + 50..start + 1950).contains(at), "{number}: {at}");
        }
        // As many in the first half of their part as in the second half.
        let early = places.iter().filter(|at| *at % 2000 < 1000).count();
        assert!((45..=55).contains(&early), "{early}");
    }

    fn stream(kind: StreamKind, parts: impl IntoIterator<Item = Part>) -> Stream {
        let mut stream = Stream::new(kind);
        parts.into_iter().for_each(|part| stream.push(part));
        stream
    }

    #[test]
    fn windows_share_no_file_and_stay_in_their_file() {
        let segment = 4 << 20;
        let files = (0..100).map(|n| Part { node: NodeId(n), offset: 0, len: 1000 });
        let small = stream(StreamKind::Small, files);
        let mut seen = std::collections::HashSet::new();
        for window in small.windows(50, WindowLimits { len: 10_000, segment }) {
            let Window::Files(nodes, bytes) = window else { panic!("a range") };
            assert_eq!(bytes, 1000 * nodes.len() as u64);
            assert!(nodes.iter().all(|node| seen.insert(*node)));
        }
        assert!(seen.len() > 90, "{}", seen.len());
        // The second file is sparse, and has data in a part of it.
        let parts = [
            Part { node: NodeId(0), offset: 0, len: 300 << 10 },
            Part { node: NodeId(1), offset: 11 << 20, len: 9 << 20 },
        ];
        let large = stream(StreamKind::Large, parts);
        for window in large.windows(20, WindowLimits { len: 256 << 10, segment }) {
            let Window::Range { node, offset, len } = window else { panic!("files") };
            let part = parts[node.index()];
            assert!(len > 0 && offset >= part.offset && offset + len <= part.offset + part.len);
            assert_eq!(offset / segment, (offset + len - 1) / segment);
        }
    }

    #[test]
    fn holes_are_between_ranges_of_data() {
        assert_eq!(without_short_holes(&[(0, 5), (7, 9), (20, 30)], 10), [(0, 9), (20, 30)]);
        let holes = [(3, 1 << 20), ((5 << 20) + 1, 20 << 20)];
        let holes = holes.map(|(offset, len)| Part { node: NodeId(0), offset, len });
        let Some(Window::Range { offset, len, .. }) = stream(StreamKind::Holes, holes).hole(4 << 20) else {
            panic!("no hole")
        };
        assert_eq!((offset, len), (8 << 20, 4 << 20));
        assert!(stream(StreamKind::Holes, []).hole(4 << 20).is_none());
    }
}
