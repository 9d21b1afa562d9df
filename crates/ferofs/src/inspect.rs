//! Shows what an image consists of, by one walk over its tree and its maps. It reads no content
//! except that of unused blocks, to see whether they are zero.
//!
//! [`inspect`] collects statistics, [`Inspection::map`] has the use of each block, [`block_owners`]
//! finds the files of a block.

mod blocks;
mod histogram;
mod owners;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ferofs_format::{Algorithm, FileOffset, Nid};

use crate::range_marks::RangeMarks;
use ferofs_read::device_range::DeviceRange;
use ferofs_read::error::{Corruption, Error, Result};
use ferofs_read::names::bytes_of;
use ferofs_read::walk::Walk;
use ferofs_read::{Extent, ExtentData, FileType, Image, Inode, Location, Place};

pub use blocks::{BlockKind, BlockMap, Run};
pub use histogram::{Histogram, Ratios};
pub use owners::{Owner, block_owners, path_of};

/// File name extensions with a group of their own; further ones are counted as `(others)`, so that
/// memory is limited.
const MAX_EXTENSIONS: usize = 4096;

/// The options of an inspection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The number of largest files to list. Default: 20.
    pub largest: usize,
    /// List all files, for example to draw the tree. Default: no.
    pub files: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { largest: 20, files: false }
    }
}

/// The sum of several files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTotals {
    /// The number of inodes.
    pub files: u64,
    /// Bytes of their content.
    pub size: u64,
    /// Bytes of their content in the image; shared bytes count for each file.
    pub stored: u64,
}

impl FileTotals {
    const fn add(&mut self, size: u64, stored: u64) {
        self.files += 1;
        self.size = self.size.saturating_add(size);
        self.stored = self.stored.saturating_add(stored);
    }
}

/// The sum of extents that are stored in the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtentTotals {
    /// The number of extents.
    pub extents: u64,
    /// Bytes of content.
    pub decoded: u64,
    /// Bytes in the image.
    pub encoded: u64,
}

/// How content is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// Not compressed, on blocks.
    Stored,
    /// After the inode, compressed or not.
    Inline,
    /// Compressed, on blocks.
    Encoded(Algorithm),
    /// In the packed inode, whose own extents are not counted. Bytes that several files refer to
    /// count once.
    Fragment,
    /// Not stored: zeroes.
    Hole,
}

/// A file and the space that it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The path from the root.
    pub path: PathBuf,
    /// The file type.
    pub file_type: FileType,
    /// Bytes of its content.
    pub size: u64,
    /// Bytes of its content in the image, with its share of the packed inode.
    pub stored: u64,
    /// Extents of its content.
    pub extents: u64,
    /// The nid of its inode.
    pub nid: Nid,
    /// The inode's link count.
    pub links: u32,
    /// The number of compressed blocks in the inode, if it is compressed.
    pub compressed_blocks: Option<u64>,
}

/// The bytes that sharing saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// Bytes of extents that refer to bytes which an earlier extent refers to.
    pub deduplicated: u64,
    /// Files with content in the packed inode.
    pub fragment_files: u64,
    /// Bytes of the packed inode's content that files refer to, each counted once.
    pub fragment_bytes: u64,
    /// Bytes of the packed inode's content.
    pub packed_size: u64,
    /// Bytes of the packed inode's content in the image.
    pub packed_stored: u64,
}

/// The contents of an image, in numbers.
#[derive(Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// Inodes by file type.
    pub types: BTreeMap<&'static str, FileTotals>,
    /// Regular files by extension; the empty one is for files without.
    pub extensions: BTreeMap<String, FileTotals>,
    /// Extents by the way they are stored.
    pub storage: BTreeMap<Storage, ExtentTotals>,
    /// Inodes by layout.
    pub layouts: BTreeMap<&'static str, u64>,
    /// The number of names, those of hard links included.
    pub names: u64,
    /// Inodes with extended attributes.
    pub with_xattrs: u64,
    /// The files that use the most bytes in the image.
    pub largest: Vec<FileInfo>,
    /// All files, if the options ask for them: a directory comes before its entries.
    pub files: Vec<FileInfo>,
    /// The bytes that sharing saves.
    pub sharing: Sharing,
    /// Decoded sizes of compressed extents on blocks.
    pub extent_sizes: Histogram,
    /// Encoded sizes in per cent of decoded sizes.
    pub ratios: Ratios,
    /// The use of each block.
    pub map: BlockMap,
    /// Parts that could not be inspected, with their paths; at most 100.
    pub damage: Vec<(PathBuf, Corruption)>,
}

/// Inspects all of `image`. Damaged parts are left out, and reported in [`Inspection::damage`].
///
/// # Errors
/// [`Error::Io`] when the image cannot be read.
pub fn inspect(image: &Image, options: &Options) -> crate::error::Result<Inspection> {
    let mut inspector = Inspector::new(image, *options);
    inspector.special_inodes()?;
    let mut walk = Walk::new(image);
    while let Some(walked) = walk.next() {
        match walked {
            Ok(walked) => {
                inspector.inspection.names += 1;
                let Some(inode) = inspector.value_of(&walked.path, walked.inode)? else { continue };
                if walked.first {
                    inspector.inode(walked.path, &inode)?;
                }
            }
            Err(error) => drop(inspector.value_of::<()>(&walk.failed_path(), Err(error))?),
        }
    }
    Ok(inspector.finish()?)
}

struct Inspector<'a> {
    image: &'a Image,
    options: Options,
    /// Bytes of blocks that extents refer to; shared ones count several times.
    referenced: u64,
    /// The ranges of the packed inode that files refer to.
    fragments: RangeMarks,
    inspection: Inspection,
}

impl<'a> Inspector<'a> {
    fn new(image: &'a Image, options: Options) -> Self {
        let inspection = Inspection {
            types: BTreeMap::new(),
            extensions: BTreeMap::new(),
            storage: BTreeMap::new(),
            layouts: BTreeMap::new(),
            names: 0,
            with_xattrs: 0,
            largest: Vec::new(),
            files: Vec::new(),
            sharing: Sharing::default(),
            extent_sizes: Histogram::default(),
            ratios: Ratios::default(),
            map: BlockMap::new(image),
            damage: Vec::new(),
        };
        Self { image, options, referenced: 0, fragments: RangeMarks::default(), inspection }
    }

    /// Inspects the packed inode and the metabox. They come first: the stored size of a fragment
    /// depends on the packed inode's.
    fn special_inodes(&mut self) -> Result<()> {
        let superblock = self.image.superblock();
        let specials =
            [(superblock.packed, BlockKind::Packed), (superblock.metabox, BlockKind::Metadata)];
        for (nid, kind) in specials {
            let Some(nid) = nid else { continue };
            let path = PathBuf::from("(special inode)");
            let Some(inode) = self.value_of(&path, self.image.inode(nid))? else { continue };
            let (stored, _) = self.content(&path, &inode, Some(kind))?;
            if kind == BlockKind::Packed {
                self.inspection.sharing.packed_size = inode.size();
                self.inspection.sharing.packed_stored = stored;
            }
        }
        Ok(())
    }

    fn inode(&mut self, path: PathBuf, inode: &Inode) -> Result<()> {
        let kind = inode.is_dir().then_some(BlockKind::Directory);
        let (stored, extents) = self.content(&path, inode, kind)?;
        let size = if inode.file_type().has_data() { inode.size() } else { 0 };
        let inspection = &mut self.inspection;
        *inspection.layouts.entry(inode.layout().name()).or_default() += 1;
        inspection.with_xattrs += u64::from(inode.on_disk().xattr_icount > 0);
        inspection.types.entry(type_name(inode.file_type())).or_default().add(size, stored);
        if inode.file_type() == FileType::Regular {
            let extension = extension(&path);
            let full = inspection.extensions.len() >= MAX_EXTENSIONS;
            let known = !full || inspection.extensions.contains_key(&extension);
            let key = if known { extension } else { "(others)".to_owned() };
            inspection.extensions.entry(key).or_default().add(size, stored);
        }
        let compressed_blocks = match inode.on_disk().place {
            Place::Compressed { blocks } => Some(blocks),
            _ => None,
        };
        let (file_type, nid, links) = (inode.file_type(), inode.nid(), inode.on_disk().nlink);
        let info =
            FileInfo { path, file_type, size, stored, extents, nid, links, compressed_blocks };
        if file_type == FileType::Regular {
            inspection.largest.push(info.clone());
            if inspection.largest.len() > self.options.largest * 2 + 20 {
                keep_largest(&mut inspection.largest, self.options.largest);
            }
        }
        if self.options.files {
            inspection.files.push(info);
        }
        Ok(())
    }

    /// Inspects the map of an inode. Returns the bytes of its content in the image, and the number
    /// of its extents.
    fn content(
        &mut self,
        path: &Path,
        inode: &Inode,
        kind: Option<BlockKind>,
    ) -> Result<(u64, u64)> {
        let image = self.image;
        let Some(extents) = self.value_of(path, image.extents(inode, FileOffset::new(0)))? else {
            return Ok((0, 0));
        };
        if let Some(end) = self.value_of(path, extents.metadata_end())? {
            self.inspection.map.metadata(inode.place(), end.pos);
        }
        let (mut stored, mut count, mut has_fragments) = (0u64, 0u64, false);
        for extent in extents {
            let Some(extent) = self.value_of(path, extent)? else { break };
            count += 1;
            let (storage, encoded) = self.extent(path, &extent, kind)?;
            stored = stored.saturating_add(encoded);
            has_fragments |= storage == Storage::Fragment;
        }
        self.inspection.sharing.fragment_files += u64::from(has_fragments);
        Ok((stored, count))
    }

    /// Counts an extent. Returns how it is stored, and its bytes in the image.
    fn extent(
        &mut self,
        path: &Path,
        extent: &Extent,
        kind: Option<BlockKind>,
    ) -> Result<(Storage, u64)> {
        let range = self.value_of(path, DeviceRange::of(self.image, extent))?.flatten();
        if let Some(range) = &range {
            let kind = kind.unwrap_or(match range.algorithm {
                Some(algorithm) => BlockKind::Encoded(algorithm),
                None => BlockKind::Stored,
            });
            self.referenced = self.referenced.saturating_add(self.inspection.map.data(range, kind));
        }
        let inline = |at: Location| matches!(at, Location::Metadata(_));
        let (storage, encoded) = match extent.data {
            ExtentData::Hole => (Storage::Hole, 0),
            ExtentData::Stored { at } if inline(at) => (Storage::Inline, extent.len),
            ExtentData::Encoded { at, encoded_len, .. } if inline(at) => {
                (Storage::Inline, encoded_len)
            }
            ExtentData::Stored { .. } | ExtentData::Interlaced { .. } => {
                (Storage::Stored, range.map_or(extent.len, |range| range.len))
            }
            ExtentData::Encoded { algorithm, encoded_len, .. } => {
                (Storage::Encoded(algorithm), encoded_len)
            }
            // A fragment uses a share of the packed inode's bytes in the image.
            ExtentData::Fragment { offset } => {
                let start = offset.get();
                self.fragments.add(0, start..start.saturating_add(extent.len), 1);
                (Storage::Fragment, self.share_of_packed(extent.len))
            }
        };
        if matches!(storage, Storage::Encoded(_)) {
            self.inspection.extent_sizes.add(extent.len);
            self.inspection.ratios.add(encoded, extent.len);
        }
        if kind == Some(BlockKind::Packed) {
            return Ok((storage, encoded));
        }
        let sum = self.inspection.storage.entry(storage).or_default();
        sum.extents += 1;
        sum.decoded = sum.decoded.saturating_add(extent.len);
        sum.encoded = sum.encoded.saturating_add(encoded);
        Ok((storage, encoded))
    }

    fn share_of_packed(&self, len: u64) -> u64 {
        let sharing = &self.inspection.sharing;
        let part = u128::from(len) * u128::from(sharing.packed_stored);
        let part = part.checked_div(u128::from(sharing.packed_size)).unwrap_or(0);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    fn finish(mut self) -> Result<Inspection> {
        keep_largest(&mut self.inspection.largest, self.options.largest);
        let fragment_bytes =
            self.fragments.merge().iter().fold(0, |sum, range| range.len().saturating_add(sum));
        let fragments_stored = self.share_of_packed(fragment_bytes);
        self.inspection.sharing.fragment_bytes = fragment_bytes;
        if let Some(sum) = self.inspection.storage.get_mut(&Storage::Fragment) {
            (sum.decoded, sum.encoded) = (fragment_bytes, fragments_stored);
        }
        self.inspection.map.sum_up();
        self.inspection.sharing.deduplicated =
            self.referenced.saturating_sub(self.inspection.map.data_bytes());
        self.inspection.map.find_nonzero(self.image)?;
        Ok(self.inspection)
    }

    /// The value of `result`. A broken rule is added to the damage; other errors are returned.
    fn value_of<T>(&mut self, path: &Path, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Corrupt(corruption) | Error::Unsupported(corruption)) => {
                if self.inspection.damage.len() < 100 {
                    self.inspection.damage.push((path.to_owned(), corruption));
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Sorts files by their bytes in the image, and keeps the `count` largest.
fn keep_largest(files: &mut Vec<FileInfo>, count: usize) {
    files.sort_by(|a, b| b.stored.cmp(&a.stored).then_with(|| a.path.cmp(&b.path)));
    files.truncate(count);
}

/// The extension after the last dot, in lower case; empty if there is none, if the dot is the first
/// byte, or if it is long.
fn extension(path: &Path) -> String {
    let name = path.file_name().map(bytes_of).unwrap_or_default();
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 && name.len() - dot <= 12 => {
            String::from_utf8_lossy(name.get(dot + 1..).unwrap_or_default()).to_lowercase()
        }
        _ => String::new(),
    }
}

/// The name of a file type, for people and programs.
#[must_use]
pub const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Symlink => "symlink",
    }
}

#[cfg(test)]
mod tests;
