//! Chooses parts of the content: at equal distances in the order of the image.

use ferofs_codec::{Algorithm, Compressor, Fit, Params};

use crate::build::estimate::identical::Stored;
use crate::data::encode::SEGMENT;
use crate::data::order::Order;
use crate::error::{Error, Result};
use crate::options::run::RunOptions;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::{NodeId, Tree};

/// Bytes of a probe, and of the pieces in which a window is probed. Smaller ones say less about compression, larger ones take more
/// time.
pub(super) const PROBE_LEN: usize = 16 << 10;
/// The most probes. Each reads one or a few files.
const PROBES_MAX: u64 = 3000;

/// Files that are stored in the same way, in the order of the image, without those whose content another file has.
pub(super) struct Stream {
    files: Vec<(NodeId, u64)>,
    /// By file: the bytes of the files before it, and last the bytes of all.
    starts: Vec<u64>,
    /// Windows are parts of files, not several files.
    is_large: bool,
}

/// A part of the content that is encoded.
#[derive(Clone, Debug)]
pub(super) enum Window {
    /// Whole files.
    Files(Vec<NodeId>, u64),
    /// A part of a large file.
    Range { node: NodeId, offset: u64, len: u64 },
}

impl Stream {
    /// The streams of small and of large files. The former have fewer bytes than a window.
    pub(super) fn of(tree: &Tree, order: &Order, stored: &Stored, window: u64) -> [Self; 2] {
        let mut streams = [false, true].map(|is_large| Self { files: Vec::new(), starts: vec![0], is_large });
        for id in order.ids().filter(|id| stored.contains(*id)) {
            let size = tree.node(id).size;
            let stream = &mut streams[usize::from(size > window)];
            stream.files.push((id, size));
            stream.starts.push(stream.bytes() + size);
        }
        streams
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// `count` windows of about `len` bytes, or as many as there are.
    pub(super) fn windows(&self, count: u64, len: u64) -> Vec<Window> {
        let count = count.min(self.bytes().div_ceil(len)).max(1);
        let mut windows = Vec::new();
        for number in 0..count {
            let at = place(self.bytes(), count, number);
            if self.is_large {
                let file = self.file_at(at);
                let (node, size) = self.files[file];
                // Within one segment, as the data stage cuts the file, and at a block boundary.
                let within = (at - self.starts[file]) / len * len;
                let start = within.min(size.saturating_sub(len)) / PROBE_LEN as u64 * PROBE_LEN as u64;
                let end = (start + len).min(size).min((start / SEGMENT + 1) * SEGMENT);
                windows.push(Window::Range { node, offset: start, len: end - start });
                continue;
            }
            // The files that start within the window: each file has the same chance to be in a window, whatever its size is.
            let end = at.saturating_add(len / 2);
            let first = self.starts.partition_point(|start| *start < at.saturating_sub(len / 2));
            let next = self.starts.partition_point(|start| *start < end).min(self.files.len());
            let files = self.files.get(first..next).unwrap_or_default();
            if !files.is_empty() {
                let bytes = files.iter().map(|(_, size)| size).sum();
                windows.push(Window::Files(files.iter().map(|(node, _)| *node).collect(), bytes));
            }
        }
        windows
    }

    /// The file that has the byte at `at` of the stream.
    fn file_at(&self, at: u64) -> usize {
        let files = self.starts.partition_point(|start| *start <= at);
        files.saturating_sub(1).min(self.files.len().saturating_sub(1))
    }
}

/// The middle of part `number` of `count` equal parts of `bytes`.
fn place(bytes: u64, count: u64, number: u64) -> u64 {
    let half = u128::from(bytes) * (2 * u128::from(number) + 1) / (2 * u128::from(count.max(1)));
    half as u64
}

/// The numbers of `wanted` of `count` things, at equal distances.
pub(super) fn every(count: usize, wanted: usize) -> Vec<usize> {
    let wanted = wanted.min(count);
    (0..wanted).map(|number| place(count as u64, wanted as u64, number as u64) as usize).collect()
}

/// How compressible a stream is.
pub(super) struct Probes {
    /// The mean ratio of the encoded size to the size of pieces of the stream, encoded with LZ4 each for itself.
    pub(super) mean: f64,
}

impl Probes {
    pub(super) fn of(run: &RunOptions, tree: &Tree, contents: &Contents, stream: &Stream) -> Result<Self> {
        let count = stream.bytes().div_ceil(PROBE_LEN as u64).min(PROBES_MAX);
        let each = run.parallel(
            count as usize,
            || Prober::new(tree, contents),
            |prober, number| prober.probe(stream, place(stream.bytes(), count, number as u64)),
        )?;
        let (size, bytes) =
            each.iter().fold((0.0, 0.0), |sum, one: &(f64, f64)| (sum.0 + one.0, sum.1 + one.1));
        Ok(Self { mean: if bytes > 0.0 { size / bytes } else { 1.0 } })
    }
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
        Self {
            tree,
            reader: Reader::new(contents, tree),
            compressor: compressor.and_then(|params| ferofs_codec::compressor(&params).ok()),
            piece: Vec::new(),
            encoded: Vec::new(),
        }
    }

    /// The encoded size and the size of the piece at `at` of `stream`.
    fn probe(&mut self, stream: &Stream, at: u64) -> Result<(f64, f64)> {
        self.piece.clear();
        let first = stream.file_at(at);
        let mut offset = at - stream.starts[first].min(at);
        for (node, size) in stream.files.iter().skip(first) {
            self.append(*node, offset, size - offset.min(*size))?;
            if self.piece.len() >= PROBE_LEN {
                break;
            }
            offset = 0;
        }
        self.finish_piece()
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
                    self.append(*node, at, offset + len - at)?;
                    add(self.finish_piece()?);
                    at += PROBE_LEN as u64;
                }
            }
            Window::Files(nodes, _) => {
                for node in nodes {
                    let file = self.tree.node(*node).size;
                    let mut at = 0;
                    while at < file {
                        at += self.append(*node, at, file - at)?;
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

    /// Appends up to `len` bytes of `node` to the piece; returns how many.
    fn append(&mut self, node: NodeId, offset: u64, len: u64) -> Result<u64> {
        let before = self.piece.len();
        let len = len.min(PROBE_LEN.saturating_sub(before) as u64);
        self.piece.resize(before + len as usize, 0);
        match self.reader.read(node, offset, &mut self.piece[before..]) {
            Ok(()) => {}
            // The build says what cannot be read; here it is left out.
            Err(error) if error.is_unreadable() => self.piece.truncate(before),
            Err(error) => return Err(error),
        }
        Ok(len)
    }

    /// Encodes the piece, and starts another one.
    fn finish_piece(&mut self) -> Result<(f64, f64)> {
        let len = self.piece.len();
        if len == 0 {
            return Ok((0.0, 0.0));
        }
        self.encoded.resize(len.max(64), 0);
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
    fn places_are_at_equal_distances() {
        assert_eq!((0..4).map(|number| place(80, 4, number)).collect::<Vec<_>>(), [10, 30, 50, 70]);
        assert_eq!(every(10, 3), [1, 5, 8]);
        assert_eq!(every(2, 5), [0, 1]);
    }

    #[test]
    fn windows_share_no_file_and_stay_in_their_file() {
        let files: Vec<(NodeId, u64)> = (0..100).map(|n| (NodeId(n), 1000)).collect();
        let starts = (0..=100).map(|n| n * 1000).collect();
        let small = Stream { files, starts, is_large: false };
        let mut seen = std::collections::HashSet::new();
        for window in small.windows(50, 10_000) {
            let Window::Files(nodes, bytes) = window else { panic!("a range") };
            assert_eq!(bytes, 1000 * nodes.len() as u64);
            assert!(nodes.iter().all(|node| seen.insert(*node)));
        }
        assert!(seen.len() > 90, "{}", seen.len());
        let sizes = [300 << 10, 9 << 20];
        let large = Stream {
            files: vec![(NodeId(0), sizes[0]), (NodeId(1), sizes[1])],
            starts: vec![0, sizes[0], sizes[0] + sizes[1]],
            is_large: true,
        };
        for window in large.windows(20, 256 << 10) {
            let Window::Range { node, offset, len } = window else { panic!("files") };
            assert!(len > 0 && offset + len <= sizes[node.index()]);
            assert_eq!(offset / SEGMENT, (offset + len - 1) / SEGMENT);
        }
    }
}
