//! Compression settings: algorithms, sizes of pclusters, indexes, and where the tails of files go.
//! Also what they mean for each file and for the superblock.

use ferofs_codec::{Compressor, Filling, MAX_DECODED, Params, codec};
use ferofs_format::algorithm::{AlgorithmConfig, CompressionConfigs};
use ferofs_format::superblock::Superblock;
use ferofs_format::{Algorithm, BlockSize, Incompat, byte_size, superblock};

use crate::error::{Error, Result};

/// Bytes of content that are encoded with one call: large files, the packed inode and metadata are
/// cut at multiples of it, or of more if pclusters are large (see [`Compression::segment`]). A
/// larger segment takes more memory in each worker; a smaller one shortens more extents. The image
/// depends on this value, so it must not depend on the machine.
pub(crate) const SEGMENT: u64 = 4 << 20;

/// The largest pcluster that Linux reads, in bytes.
pub const PCLUSTER_MAX: u32 = 1 << 20;

/// The most blocks of a pcluster. Linux does not mount LZ4 images with more, whatever the block
/// size.
const BLOCKS_MAX: u16 = 256;

/// The most decoded bytes of a pcluster for each encoded byte of the largest pclusters: Linux
/// decodes 12 MiB from 1 MiB. Smaller pclusters could have a higher ratio, but content with one is
/// rare.
const MAX_RATIO: u64 = 12;

/// What [`Filling::Trials`] may leave unused of pclusters that are placed to the byte, which take
/// no space for what they leave unused, but become shorter.
const PLACED_UNUSED: u16 = 24;

/// The algorithm of the packed inode: an index into [`Compression::methods`].
pub(crate) const PACKED_INODE_METHOD: usize = 0;

/// How content is encoded. A [`Preset`](crate::Preset) chooses it for a purpose. A Linux version in
/// brackets is the first that reads it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compression {
    /// Algorithms with their levels; files take the first unless a [`Hint`] says otherwise. At
    /// least one.
    pub methods: Vec<Params>,
    /// The most encoded bytes of a pcluster: a multiple of the block size, up to [`PCLUSTER_MAX`];
    /// `None`: one block. A pcluster never has more than 256 blocks.
    pub pcluster: Option<u32>,
    /// The same for the packed inode; `None`: like [`Self::pcluster`].
    pub fragment_pcluster: Option<u32>,
    /// Exceptions for some files; the first one that matches applies.
    pub hints: Vec<Hint>,
    /// Index into [`Self::methods`] of the algorithm for files of more than 4 MiB; `None`: the
    /// first. No other file is near them, so that they gain most from a large window, and decoding
    /// them takes as long in each order of reading.
    pub large_files: Option<usize>,
    /// The most decoded bytes of an extent.
    pub max_extent: Option<u32>,
    /// How extents are indexed.
    pub index: IndexKind,
    /// The encoded tail of a file follows its inode if it fits (`ztailpacking`; Linux 5.17).
    pub inline_tails: bool,
    /// The data that is stored in the packed inode (Linux 6.1).
    pub fragments: Fragments,
    /// Content that equals an extent stored before refers to it (`dedupe`; Linux 6.1).
    pub dedupe: bool,
    /// Long runs of zeroes are holes. With [`IndexKind::Extents`], Linux shows them as holes from
    /// 6.18 on; in the other indexes, Linux shows them as holes from 7.2 on, and reads them as
    /// zeroes from 6.1 on; older versions refuse the image.
    pub holes: bool,
    /// Directories of more than one block are encoded.
    pub directories: bool,
    /// Inodes, and the bytes that follow them, are encoded in the metabox (Linux 6.17).
    pub metadata: Option<MetadataCompression>,
}

/// How the metabox is encoded, and directories if they are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataCompression {
    /// Index into [`Compression::methods`].
    pub method: usize,
    /// The most encoded bytes of a pcluster: see [`Compression::pcluster`].
    pub pcluster: u32,
}

impl MetadataCompression {
    /// Compresses with the method of this number, in pclusters of up to `pcluster` bytes.
    #[must_use]
    pub const fn new(method: usize, pcluster: u32) -> Self {
        Self { method, pcluster }
    }
}

/// How a file's extents are indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexKind {
    /// Packs of two to four bytes for each block of content.
    #[default]
    Compact,
    /// Eight bytes for each block of content.
    Full,
    /// One record for each extent; extents are placed to the byte (`48bit`; Linux 6.15).
    Extents,
}

impl IndexKind {
    /// The first Linux version that reads it: `(6, 15)` is 6.15; `None`: no version does.
    #[must_use]
    pub const fn linux_version(self) -> Option<(u8, u8)> {
        match self {
            Self::Compact | Self::Full => Some((5, 4)),
            Self::Extents => Some((6, 15)),
        }
    }

    /// Whether extents take whole blocks. Otherwise they start at any byte.
    pub(crate) const fn in_blocks(self) -> bool {
        !matches!(self, Self::Extents)
    }
}

/// The data that is stored in the packed inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fragments {
    /// Nothing.
    #[default]
    None,
    /// Small files, and the tails of other files that do not fill a pcluster.
    Tails,
    /// Files up to 4 MiB, and the tails of larger ones.
    All,
}

/// How some files are encoded.
#[derive(Clone, Debug)]
pub struct Hint {
    /// Applies to paths, relative to the source, in which this expression is found.
    pub pattern: regex::bytes::Regex,
    /// Replaces [`Compression::pcluster`]; 0: the files are stored uncompressed.
    pub pcluster: Option<u32>,
    /// Index into [`Compression::methods`].
    pub method: usize,
}

/// A line of hints that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct HintsError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: &'static str,
    /// Only the size is wrong.
    pub is_size: bool,
}

impl Hint {
    /// Parses lines of `SIZE [NUMBER] REGEX`; lines that start with `#` are comments. Collect the
    /// results to stop at the first wrong line.
    pub fn parse(text: &str, block: BlockSize) -> impl Iterator<Item = Result<Self, HintsError>> {
        let lines = text.lines().map(str::trim).zip(1..);
        let used = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        used.map(move |(text, line)| {
            let mut words = text.split_whitespace();
            let size = hinted_size(words.next().unwrap_or_default(), block);
            let size = size.map_err(|problem| HintsError { line, problem, is_size: true })?;
            Self::parse_words(size, words).map_err(|problem| HintsError {
                line,
                problem,
                is_size: false,
            })
        })
    }

    /// Parses the words after the size.
    fn parse_words<'a>(
        size: u32,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<Self, &'static str> {
        let first = words.next().ok_or("the regular expression is missing")?;
        let (method, pattern) = match words.next() {
            Some(pattern) => (first.parse().map_err(|_| "the algorithm is not a number")?, pattern),
            None => (0, first),
        };
        if words.next().is_some() {
            return Err("too many words");
        }
        let pattern = regex::bytes::Regex::new(pattern).map_err(|_| "not a regular expression")?;
        Ok(Self { pattern, pcluster: Some(size), method })
    }
}

fn hinted_size(text: &str, block: BlockSize) -> Result<u32, &'static str> {
    match byte_size::parse::<u32>(text) {
        None => Err("the size of the pcluster is not a number of bytes"),
        Some(size) if !u64::from(size).is_multiple_of(block.bytes64()) => {
            Err("the size of the pcluster is not a multiple of the block size")
        }
        Some(size) if size > PCLUSTER_MAX => Err("the size of the pcluster is more than 1 MiB"),
        Some(size) => Ok(size),
    }
}

/// How one file is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileCompression {
    /// Index into [`Compression::methods`].
    pub method: usize,
    /// The most encoded bytes of a pcluster.
    pub pcluster: usize,
}

impl Compression {
    /// One method, with pclusters of one block and without all other features: the image is larger
    /// than with a [`Preset`](crate::Preset).
    #[must_use]
    pub fn new(method: Params) -> Self {
        Self {
            methods: vec![method],
            pcluster: None,
            fragment_pcluster: None,
            hints: Vec::new(),
            large_files: None,
            max_extent: None,
            index: IndexKind::Compact,
            inline_tails: false,
            fragments: Fragments::None,
            dedupe: false,
            holes: false,
            directories: false,
            metadata: None,
        }
    }

    /// LZ4 at `level` (0: fast; 1 to 12: the levels of lz4hc).
    ///
    /// # Errors
    /// [`Error::Params`].
    pub fn lz4(level: u8) -> Result<Self> {
        Params::new(Algorithm::Lz4, Some(level)).map(Self::new).map_err(Error::Params)
    }

    /// Zstandard at `level` (1 to 22).
    ///
    /// # Errors
    /// [`Error::Params`].
    pub fn zstd(level: u8) -> Result<Self> {
        Params::new(Algorithm::Zstd, Some(level)).map(Self::new).map_err(Error::Params)
    }

    /// Whether long runs of zeroes become holes in content that this method encodes. A
    /// level that only stores cannot make the pcluster of zeroes that holes of indexes need.
    pub(crate) fn has_holes(&self, method: usize) -> bool {
        let stores = |params: &Params| codec(params.algorithm).storing_level == Some(params.level);
        self.has_long_holes() || self.holes && !self.methods.get(method).is_some_and(stores)
    }

    /// Whether a hole of any length takes one record.
    pub(crate) fn has_long_holes(&self) -> bool {
        self.holes && !self.index.in_blocks()
    }

    /// Checks all limits of the format and of the block size.
    pub fn check(&self, block: BlockSize) -> Result<()> {
        let refuse = |option, problem| Err(Error::Option { option, problem });
        if self.methods.is_empty() {
            return refuse("compression", "no algorithm is given");
        }
        self.params(block).try_for_each(|params| params.check()).map_err(Error::Params)?;
        let sizes = [
            ("pcluster size (-C)", self.pcluster),
            ("pcluster size of fragments (-E)", self.fragment_pcluster),
            ("pcluster size of metadata (-m)", self.metadata.map(|metadata| metadata.pcluster)),
        ];
        let hinted = self.hints.iter().map(|hint| hint.pcluster.filter(|size| *size > 0));
        let hinted = hinted.map(|size| ("pcluster size of compress hints", size));
        for (option, size) in sizes.into_iter().chain(hinted) {
            let Some(size) = size else { continue };
            if size == 0 || !u64::from(size).is_multiple_of(block.bytes64()) {
                return refuse(option, "not a multiple of the block size, or 0");
            }
            if size > PCLUSTER_MAX {
                return refuse(option, "more than 1 MiB");
            }
        }
        if self.max_extent.is_some_and(|most| u64::from(most) < block.bytes64()) {
            return refuse("largest extent", "less than a block");
        }
        if self.large_files.is_some_and(|method| method >= self.methods.len()) {
            return refuse("compression of large files", "there is no algorithm with that number");
        }
        if self.hints.iter().any(|hint| hint.method >= self.methods.len()) {
            return refuse("compress hints", "there is no algorithm with that number");
        }
        Ok(())
    }

    /// How the file of `len` bytes at `path`, relative to the source, is encoded; `None`: it is
    /// stored uncompressed.
    pub(crate) fn for_file(
        &self,
        len: u64,
        path: impl FnOnce() -> Vec<u8>,
        block: BlockSize,
    ) -> Option<FileCompression> {
        let size = |size: Option<u32>| pcluster_size(size, block);
        let method = if len > SEGMENT { self.large_files.unwrap_or(0) } else { 0 };
        let usual = FileCompression { method, pcluster: size(self.pcluster) };
        if self.hints.is_empty() {
            return Some(usual);
        }
        let path = path();
        match self.hints.iter().find(|hint| hint.pattern.is_match(&path)) {
            None => Some(usual),
            Some(Hint { pcluster: Some(0), .. }) => None,
            Some(hint) => Some(FileCompression {
                method: hint.method,
                pcluster: size(hint.pcluster.or(self.pcluster)),
            }),
        }
    }

    /// About how many bytes of a file of `size` bytes become a fragment.
    pub(crate) fn fragment_len(&self, size: u64, block: BlockSize) -> u64 {
        match self.fragments {
            Fragments::None => 0,
            Fragments::Tails => size.min(pcluster_size(self.pcluster, block) as u64),
            Fragments::All => size,
        }
    }

    /// How the packed inode is encoded.
    pub(crate) fn for_packed_inode(&self, block: BlockSize) -> FileCompression {
        let size = self.fragment_pcluster.or(self.pcluster);
        FileCompression { method: PACKED_INODE_METHOD, pcluster: pcluster_size(size, block) }
    }

    /// The same methods for metadata, which has no inline tails, no fragments and no deduplication.
    pub(crate) fn for_metadata(&self) -> Self {
        Self {
            index: match self.index {
                IndexKind::Full => IndexKind::Full,
                IndexKind::Compact | IndexKind::Extents => IndexKind::Compact,
            },
            inline_tails: false,
            fragments: Fragments::None,
            dedupe: false,
            holes: false,
            ..self.clone()
        }
    }

    /// How directories and the metabox are encoded.
    pub(crate) fn for_directories(&self, block: BlockSize) -> FileCompression {
        let method = self.metadata.map_or(0, |metadata| metadata.method);
        let size = self.metadata.map(|metadata| metadata.pcluster).or(self.pcluster);
        FileCompression { method, pcluster: pcluster_size(size, block) }
    }

    /// The largest pcluster, in blocks.
    fn max_blocks(&self, block: BlockSize) -> u16 {
        let hinted = self.hints.iter().filter_map(|hint| hint.pcluster);
        let metadata = self.metadata.map(|metadata| metadata.pcluster);
        let sizes =
            [self.pcluster, self.fragment_pcluster, metadata].into_iter().flatten().chain(hinted);
        let most = u16::try_from(PCLUSTER_MAX >> block.bits()).unwrap_or(u16::MAX).min(BLOCKS_MAX);
        let blocks =
            u16::try_from(sizes.max().unwrap_or(0) >> block.bits()).unwrap_or(u16::MAX).max(1);
        // An extent that is placed to the byte can start and end within a block, and so touches one
        // block more.
        let blocks = if self.index.in_blocks() { blocks } else { blocks.saturating_add(1) };
        blocks.min(most)
    }

    /// The largest pcluster of files and fragments, in bytes.
    fn largest_pcluster(&self, block: BlockSize) -> u64 {
        let hinted = self.hints.iter().map(|hint| hint.pcluster);
        let sizes = hinted.chain([self.pcluster, self.fragment_pcluster]);
        sizes.map(|size| pcluster_size(size, block) as u64).max().unwrap_or(0)
    }

    /// Bytes of a large file or of the packed inode that are encoded with one call: at least 4 MiB,
    /// and enough for two pclusters that decode to as much as Linux allows, so that the cut between
    /// segments does not shorten every pcluster.
    pub(crate) fn segment(&self, block: BlockSize) -> u64 {
        SEGMENT.max(self.largest_pcluster(block) * 2 * MAX_RATIO)
    }

    /// Whether a pcluster may have more than one block.
    pub(crate) fn is_big(&self, block: BlockSize) -> bool {
        self.max_blocks(block) > 1
    }

    /// The parameters of all methods, with dictionaries for the largest cluster.
    pub(crate) fn params(&self, block: BlockSize) -> impl Iterator<Item = Params> {
        let hinted = self.hints.iter().filter_map(|hint| hint.pcluster);
        let metadata = self.metadata.map(|metadata| metadata.pcluster);
        let sizes = hinted.chain(self.pcluster).chain(metadata);
        let largest = sizes.max().unwrap_or(0).max(block.bytes() as u32);
        self.methods.iter().map(move |params| params.for_clusters(largest))
    }

    /// The configurations of an image: one for each algorithm, which suits all methods with it.
    pub(crate) fn configs(&self, block: BlockSize) -> CompressionConfigs {
        let mut configs = CompressionConfigs::default();
        for Params { algorithm, dictionary: window, .. } in self.params(block) {
            let is_lz4 = algorithm == Algorithm::Lz4;
            let max_pcluster_blocks = if is_lz4 { self.max_blocks(block) } else { 0 };
            configs.extend(algorithm, AlgorithmConfig { window, max_pcluster_blocks });
        }
        configs
    }

    /// Sets the algorithms in `superblock`; returns the configurations that follow it.
    pub(crate) fn configure(&self, superblock: &mut Superblock) -> Vec<u8> {
        let configs = self.configs(superblock.block_size);
        if let Some(max_distance) = configs.lz4_only() {
            superblock.compression = superblock::Compression::Lz4Only { max_distance };
            return Vec::new();
        }
        superblock.incompat |= Incompat::COMPR_CFGS;
        superblock.compression =
            superblock::Compression::Configured { available: configs.available() };
        configs.to_bytes()
    }

    /// The parameters of the compressor of a method.
    pub(crate) fn compressor_params(&self, method: usize, block: BlockSize) -> Result<Params> {
        let no_method =
            Error::Option { option: "compression", problem: "an algorithm is not in the list" };
        let mut params = self.params(block).nth(method).ok_or(no_method)?;
        // Versions of one file compress by more than four, which the default window allows the
        // largest pclusters.
        let window = self.largest_pcluster(block) * MAX_RATIO;
        params.window = params.window.max(window as usize).min(MAX_DECODED);
        params.filling = match (self.index.in_blocks(), codec(params.algorithm).one_pass_level) {
            (false, Some(_)) => Filling::Bytes,
            (false, None) => Filling::Trials { unused: PLACED_UNUSED },
            (true, Some(most)) if params.level <= most => Filling::Blocks { log: block.bits() },
            (true, _) => params.filling,
        };
        Ok(params)
    }

    pub(crate) fn compressor(
        &self,
        method: usize,
        block: BlockSize,
    ) -> Result<Box<dyn Compressor>> {
        ferofs_codec::compressor(&self.compressor_params(method, block)?).map_err(Error::Params)
    }
}

/// The size of a pcluster in bytes: `size`, or one block by default; at most [`BLOCKS_MAX`] blocks.
fn pcluster_size(size: Option<u32>, block: BlockSize) -> usize {
    size.map_or(block.bytes(), |size| (size as usize).min(usize::from(BLOCKS_MAX) * block.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_checked_line_by_line() {
        let block = BlockSize::DEFAULT;
        let text = "# comment\n\n65536 \\.so$\n 1M 1 ^etc/\n0 \\.jpg$\n";
        let good: Vec<Hint> = Hint::parse(text, block).collect::<Result<_, _>>().unwrap();
        assert_eq!(good.len(), 3);
        assert_eq!((good[1].pcluster, good[1].method), (Some(1 << 20), 1));
        for (bad, line, size) in [
            ("x .*", 1, true),
            ("\n4095 .*", 2, true),
            ("#\n#\n2M .*", 3, true),
            ("4096", 1, false),
            ("4096 a b", 1, false),
            ("4096 1 b c", 1, false),
            ("4096 (", 1, false),
        ] {
            let error = Hint::parse(bad, block).find_map(Result::err).unwrap();
            assert_eq!((error.line, error.is_size), (line, size), "{bad}");
        }
    }
}
