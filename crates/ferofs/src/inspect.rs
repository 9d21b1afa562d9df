//! Inspect: what an image consists of, by one walk over its tree and its maps. No content is read, but for blocks that
//! nothing refers to, which may hold zeroes or something else.
//!
//! [`inspect`] sums up, [`Inspection::map`] keeps what each block is, [`block_owners`] says whose a block is.

mod blocks;
mod histogram;
mod owners;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ferofs_format::inode::DataLayout;
use ferofs_format::{Algorithm, FileOffset, Nid};

use ferofs_read::claim::Claim;
use ferofs_read::error::{Corruption, Error, Result};
use ferofs_read::walk::Walk;
use ferofs_read::{Extent, ExtentData, FileType, Image, Inode, Location, Place};

pub use blocks::{BlockKind, BlockMap, Run};
pub use histogram::{Histogram, Ratios};
pub use owners::{Owner, block_owners, path_of};

/// Extensions that are told apart; the others are summed up.
const MAX_EXTENSIONS: usize = 4096;

/// What to keep.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// So many of the largest files. Default: 20.
    pub largest: usize,
    /// Keep every file, for a picture of the tree. Default: no.
    pub files: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { largest: 20, files: false }
    }
}

/// Files of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many inodes.
    pub files: u64,
    /// Bytes of their content.
    pub size: u64,
    /// Bytes that it takes in the image; what several files share counts for each of them.
    pub stored: u64,
}

impl Group {
    const fn add(&mut self, size: u64, stored: u64) {
        self.files += 1;
        self.size = self.size.saturating_add(size);
        self.stored = self.stored.saturating_add(stored);
    }
}

/// Extents that are stored in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// How many extents.
    pub extents: u64,
    /// Bytes of content.
    pub decoded: u64,
    /// Bytes in the image.
    pub encoded: u64,
}

/// How content may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// As it is, on blocks.
    Stored,
    /// As it is or encoded, right after the inode.
    Inline,
    /// Encoded, on blocks.
    Encoded(Algorithm),
    /// In the packed inode.
    Fragment,
    /// Nowhere, being zeroes.
    Hole,
}

/// A file, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// From the root on.
    pub path: PathBuf,
    /// What it is.
    pub file_type: FileType,
    /// Bytes of its content.
    pub size: u64,
    /// Bytes that it takes in the image, with its part of the packed inode.
    pub stored: u64,
    /// Extents of its content.
    pub extents: u64,
    /// Its inode.
    pub nid: Nid,
    /// Names that the inode says it has.
    pub links: u32,
    /// Blocks that the inode says its compressed content takes.
    pub compressed_blocks: Option<u64>,
}

/// What sharing saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Bytes in the image that more than one extent refers to, each time after the first.
    pub deduplicated: u64,
    /// Files with content in the packed inode.
    pub fragment_files: u64,
    /// Bytes of their content that is there.
    pub fragment_bytes: u64,
    /// Bytes of the packed inode's content.
    pub packed_size: u64,
    /// Bytes that it takes.
    pub packed_stored: u64,
}

/// What an image consists of.
#[derive(Debug)]
pub struct Inspection {
    /// By type of file.
    pub types: BTreeMap<&'static str, Group>,
    /// Regular files by extension; empty for those without.
    pub extensions: BTreeMap<String, Group>,
    /// By way of storing.
    pub storage: BTreeMap<Storage, Encoded>,
    /// Inodes by layout.
    pub layouts: BTreeMap<&'static str, u64>,
    /// Names, with those of hard links.
    pub names: u64,
    /// Inodes with extended attributes.
    pub with_xattrs: u64,
    /// The largest files, by what they take.
    pub largest: Vec<FileInfo>,
    /// All files, when they were asked for: parents before what is in them.
    pub files: Vec<FileInfo>,
    /// What sharing saves.
    pub sharing: Sharing,
    /// Decoded sizes of extents on blocks.
    pub extent_sizes: Histogram,
    /// Encoded sizes as parts of decoded ones.
    pub ratios: Ratios,
    /// What each block is.
    pub map: BlockMap,
    /// What could not be looked at, with paths; at most a hundred.
    pub damage: Vec<(PathBuf, Corruption)>,
}

/// Looks at all of `image`. What is damaged is left out, and told.
///
/// # Errors
/// [`Error::Io`] when the image cannot be read.
pub fn inspect(image: &Image, options: &Options) -> crate::Result<Inspection> {
    let mut inspector = Inspector::new(image, *options);
    inspector.special_inodes()?;
    for walked in Walk::new(image) {
        match walked {
            Ok(walked) => {
                inspector.inspection.names += 1;
                let Some(inode) = inspector.note(&walked.path, walked.inode)? else { continue };
                if walked.first {
                    inspector.inode(walked.path, &inode)?;
                }
            }
            Err(error) => drop(inspector.note::<()>(Path::new(""), Err(error))?),
        }
    }
    Ok(inspector.finish()?)
}

struct Inspector<'a> {
    image: &'a Image,
    options: Options,
    /// Bytes on blocks that extents refer to.
    referenced: u64,
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
        Self { image, options, referenced: 0, inspection }
    }

    /// The packed inode and the metabox come first: fragments need to know what the packed inode takes.
    fn special_inodes(&mut self) -> Result<()> {
        let superblock = self.image.superblock();
        let specials = [(superblock.packed, BlockKind::Packed), (superblock.metabox, BlockKind::Metadata)];
        for (nid, kind) in specials {
            let Some(nid) = nid else { continue };
            let path = PathBuf::from("(special inode)");
            let Some(inode) = self.note(&path, self.image.inode(nid))? else { continue };
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
        *inspection.layouts.entry(layout_name(inode.layout())).or_default() += 1;
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
        let info = FileInfo { path, file_type, size, stored, extents, nid, links, compressed_blocks };
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

    /// Looks at the map of an inode; gives the bytes that its content takes, and its extents.
    fn content(&mut self, path: &Path, inode: &Inode, kind: Option<BlockKind>) -> Result<(u64, u64)> {
        let image = self.image;
        let Some(extents) = self.note(path, image.extents(inode, FileOffset::new(0)))? else {
            return Ok((0, 0));
        };
        if let Some(end) = self.note(path, extents.metadata_end())? {
            self.inspection.map.metadata(inode.place(), end.pos);
        }
        let (mut stored, mut count, mut fragments) = (0u64, 0u64, 0u64);
        for extent in extents {
            let Some(extent) = self.note(path, extent)? else { break };
            count += 1;
            let (storage, encoded) = self.extent(path, &extent, kind)?;
            stored = stored.saturating_add(encoded);
            if storage == Storage::Fragment {
                fragments = fragments.saturating_add(extent.len);
            }
        }
        if fragments > 0 {
            self.inspection.sharing.fragment_files += 1;
            self.inspection.sharing.fragment_bytes =
                self.inspection.sharing.fragment_bytes.saturating_add(fragments);
        }
        Ok((stored, count))
    }

    /// Counts an extent; says how it is stored, and how many bytes it takes.
    fn extent(&mut self, path: &Path, extent: &Extent, kind: Option<BlockKind>) -> Result<(Storage, u64)> {
        let claim = self.note(path, Claim::of(self.image, extent))?.flatten();
        if let Some(claim) = &claim {
            let kind = kind.unwrap_or(match claim.algorithm {
                Some(algorithm) => BlockKind::Encoded(algorithm),
                None => BlockKind::Stored,
            });
            self.referenced = self.referenced.saturating_add(self.inspection.map.data(claim, kind));
        }
        let inline = |at: Location| matches!(at, Location::Metadata(_));
        let (storage, encoded) = match extent.data {
            ExtentData::Hole => (Storage::Hole, 0),
            ExtentData::Stored { at } if inline(at) => (Storage::Inline, extent.len),
            ExtentData::Encoded { at, encoded_len, .. } if inline(at) => (Storage::Inline, encoded_len),
            ExtentData::Stored { .. } | ExtentData::Interlaced { .. } => {
                (Storage::Stored, claim.map_or(extent.len, |claim| claim.len))
            }
            ExtentData::Encoded { algorithm, encoded_len, .. } => (Storage::Encoded(algorithm), encoded_len),
            // A fragment takes its part of what the packed inode takes.
            ExtentData::Fragment { .. } => (Storage::Fragment, self.part_of_packed(extent.len)),
        };
        let sum = self.inspection.storage.entry(storage).or_default();
        sum.extents += 1;
        sum.decoded = sum.decoded.saturating_add(extent.len);
        sum.encoded = sum.encoded.saturating_add(encoded);
        if matches!(storage, Storage::Encoded(_)) {
            self.inspection.extent_sizes.add(extent.len);
            self.inspection.ratios.add(encoded, extent.len);
        }
        Ok((storage, encoded))
    }

    fn part_of_packed(&self, len: u64) -> u64 {
        let sharing = &self.inspection.sharing;
        let part = u128::from(len) * u128::from(sharing.packed_stored);
        let part = part.checked_div(u128::from(sharing.packed_size)).unwrap_or(0);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    fn finish(mut self) -> Result<Inspection> {
        keep_largest(&mut self.inspection.largest, self.options.largest);
        self.inspection.map.settle();
        self.inspection.sharing.deduplicated =
            self.referenced.saturating_sub(self.inspection.map.data_bytes());
        self.inspection.map.look_at_unreferenced(self.image)?;
        Ok(self.inspection)
    }

    /// Takes down what is wrong with the image; fails when it cannot be read.
    fn note<T>(&mut self, path: &Path, result: Result<T>) -> Result<Option<T>> {
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

/// Sorts files by what they take, and keeps the first `count`.
fn keep_largest(files: &mut Vec<FileInfo>, count: usize) {
    files.sort_by(|a, b| b.stored.cmp(&a.stored).then_with(|| a.path.cmp(&b.path)));
    files.truncate(count);
}

/// What follows the last dot, in lower case; nothing for names that only start with one, and for long ones.
fn extension(path: &Path) -> String {
    let name = path.file_name().map_or(&[][..], OsStrExt::as_bytes);
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 && name.len() - dot <= 12 => {
            String::from_utf8_lossy(name.get(dot + 1..).unwrap_or_default()).to_lowercase()
        }
        _ => String::new(),
    }
}

/// The name of a type of file, for people and programs.
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

const fn layout_name(layout: DataLayout) -> &'static str {
    match layout {
        DataLayout::FlatPlain => "flat",
        DataLayout::FlatInline => "flat-inline",
        DataLayout::CompressedFull => "compressed-full",
        DataLayout::CompressedCompact => "compressed-compact",
        DataLayout::ChunkBased => "chunk-based",
    }
}

#[cfg(test)]
mod tests;
