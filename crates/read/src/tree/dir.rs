//! Directories: listing, and looking up a name.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use ferofs_format::dirent::{DirBlock, Dirent, Search};
use ferofs_format::inode::FileType;
use ferofs_format::{Fault, FileOffset, FormatError, Nid, Structure};

use crate::error::{Corruption, Error, OfInode, Result};
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::tree::inode_ref::InodeRef;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// The name. It has no zero byte and no slash.
    pub name: Vec<u8>,
    /// Its inode.
    pub nid: Nid,
    /// The inode's type, if the directory has it.
    pub file_type: Option<FileType>,
}

impl From<Dirent<'_>> for DirEntry {
    fn from(entry: Dirent<'_>) -> Self {
        Self { name: entry.name.to_vec(), nid: entry.nid, file_type: entry.file_type }
    }
}

impl Image {
    /// The entries of `dir` with `.` and `..`, in stored order.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; each item fails by itself when its block is damaged, or when its
    /// name has a zero byte or a slash: programs would cut the name there, or take it for a path.
    /// The entries after such a name follow.
    pub fn read_dir(&self, dir: impl InodeRef) -> Result<ReadDir<'_>> {
        // A directory counts as two names: commands keep more memory for it.
        self.budget().charge_names(2)?;
        self.read_dir_from(dir, DirCookie::default())
    }

    /// The entries of `dir` from `cookie` on.
    ///
    /// # Errors
    /// As [`Self::read_dir`].
    pub fn read_dir_from(&self, dir: impl InodeRef, cookie: DirCookie) -> Result<ReadDir<'_>> {
        let path = dir.path().map(Path::to_owned);
        let dir = dir.find(self, true)?;
        if !dir.is_dir() {
            return Err(Error::NotADirectory(path.unwrap_or_else(|| nid_path(dir.nid))));
        }
        Ok(ReadDir {
            image: self,
            dir,
            cookie,
            block: Vec::new(),
            loaded: None,
            damaged: 0,
            ordered: None,
        })
    }

    /// The entry called `name` in `dir`, if there is one.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Corrupt`].
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<DirEntry>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory(nid_path(dir.nid)));
        }
        let mut search = Search::new(name, 0..self.superblock().block_size.blocks_for(dir.size()));
        // The last block whose first name is not greater.
        let mut candidate = Vec::new();
        let mut bytes = Vec::new();
        while let Some(middle) = search.middle() {
            self.read_dir_block(dir, middle, &mut bytes)?;
            let first = DirBlock::parse(&bytes).and_then(|block| block.get(0).transpose());
            let Some(first) = in_dir(first, dir)? else { break };
            match search.compare(middle, first.name) {
                Ordering::Equal => return Ok(Some(first.into())),
                Ordering::Less => {}
                Ordering::Greater => std::mem::swap(&mut bytes, &mut candidate),
            }
        }
        if candidate.is_empty() {
            return Ok(None);
        }
        let found = DirBlock::parse(&candidate).and_then(|block| block.find(name));
        Ok(in_dir(found, dir)?.map(DirEntry::from))
    }

    /// Reads block `index` of `dir` into `bytes`; the last one is as short as the directory says.
    fn read_dir_block(&self, dir: &Inode, index: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let block_size = self.superblock().block_size;
        let start = index.saturating_mul(block_size.bytes64());
        let len = dir.size().saturating_sub(start).min(block_size.bytes64());
        bytes.resize(usize::try_from(len).unwrap_or(0), 0);
        self.read_at(dir, FileOffset::new(start), bytes).map(drop)
    }
}

/// The place where a listing continues: a block of the directory, and an entry of that block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirCookie {
    block: u64,
    entry: u16,
}

impl DirCookie {
    /// After all entries of any directory.
    const END: Self = Self { block: u64::MAX, entry: 0 };

    const fn next_block(self) -> Self {
        Self { block: self.block.saturating_add(1), entry: 0 }
    }

    /// As one number that is above 0 after the first entry, for interfaces that want one.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "`From` is not usable in a constant function")]
    pub const fn to_raw(self) -> u64 {
        // Entries of a block are at most 65536 / 12, so 16 bits hold them.
        (self.block << 16) | self.entry as u64
    }

    /// From [`Self::to_raw`].
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the number has 16 bits")]
    pub const fn from_raw(raw: u64) -> Self {
        Self { block: raw >> 16, entry: (raw & 0xffff) as u16 }
    }
}

/// Damaged blocks after which a listing ends: the size of a directory may be exabytes.
const MAX_DAMAGED: u32 = 16;

/// Iterates over a directory's entries.
pub struct ReadDir<'a> {
    image: &'a Image,
    dir: Inode,
    cookie: DirCookie,
    block: Vec<u8>,
    loaded: Option<u64>,
    damaged: u32,
    /// A block, and the result of [`Self::is_ordered`].
    ordered: Option<(u64, bool)>,
}

impl ReadDir<'_> {
    /// The place where a new listing continues after the last entry that this one returned.
    #[must_use]
    pub const fn cookie(&self) -> DirCookie {
        self.cookie
    }

    /// Whether [`Image::lookup`] finds `entry`, the last one that this returned. In a damaged
    /// directory, which has a name twice or names out of order, it can find another one or none.
    #[must_use]
    pub fn is_found(&mut self, entry: &DirEntry) -> bool {
        let loaded = self.loaded.unwrap_or(u64::MAX);
        let ordered = self.ordered.filter(|ordered| ordered.0 == loaded);
        let ordered = ordered.unwrap_or_else(|| (loaded, self.is_ordered()));
        self.ordered = Some(ordered);
        ordered.1 || self.finds(entry)
    }

    fn finds(&self, entry: &DirEntry) -> bool {
        self.image.lookup(&self.dir, &entry.name).is_ok_and(|found| found.as_ref() == Some(entry))
    }

    /// Whether lookups find all entries of the loaded block, without a lookup of each: its names
    /// ascend, and lookups of the first and the last name end in this block, so those of the names
    /// between them do as well.
    fn is_ordered(&self) -> bool {
        let block = DirBlock::parse(&self.block);
        let entries =
            block.and_then(|block| block.entries().collect::<std::result::Result<Vec<_>, _>>());
        entries.is_ok_and(|entries| {
            let mut ends = [entries.first(), entries.last()].into_iter().flatten();
            let is_only = self.dir.size() <= self.image.superblock().block_size.bytes64();
            entries.is_sorted_by(|before, entry| before.name < entry.name)
                && (is_only || ends.all(|entry| self.finds(&(*entry).into())))
        })
    }

    /// The next entry, or an error if its name is invalid. Other errors concern the rest of the
    /// block.
    fn step(&mut self) -> Result<Option<Result<DirEntry>>> {
        let blocks = self.image.superblock().block_size.blocks_for(self.dir.size());
        while self.cookie.block < blocks {
            if self.loaded != Some(self.cookie.block) {
                self.image.read_dir_block(&self.dir, self.cookie.block, &mut self.block)?;
                self.loaded = Some(self.cookie.block);
            }
            let block = in_dir(DirBlock::parse(&self.block), &self.dir)?;
            if let Some(entry) = block.get(self.cookie.entry.into()) {
                let entry = DirEntry::from(in_dir(entry, &self.dir)?);
                self.image.budget().charge_names(1)?;
                self.cookie.entry = self.cookie.entry.saturating_add(1);
                let is_valid = !entry.name.iter().any(|byte| matches!(byte, 0 | b'/'));
                let invalid =
                    || Corruption::new(Structure::Directory, Fault::Name).of(self.dir.nid).into();
                let entry = is_valid.then_some(entry).ok_or_else(invalid);
                return Ok(Some(entry));
            }
            self.cookie = self.cookie.next_block();
        }
        Ok(None)
    }
}

impl Iterator for ReadDir<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let error = match self.step().of_inode(self.dir.nid) {
            Ok(item) => return item,
            Err(error) => error,
        };
        // The rest of a damaged block is unknown; the next block follows. After a block that cannot
        // be read, the listing ends.
        let readable = self.loaded == Some(self.cookie.block) && !error.ends_all();
        self.damaged = self.damaged.saturating_add(1);
        let goes_on = readable && self.damaged < MAX_DAMAGED;
        self.cookie = if goes_on { self.cookie.next_block() } else { DirCookie::END };
        Some(Err(error))
    }
}

fn in_dir<T>(result: Result<T, FormatError>, dir: &Inode) -> Result<T> {
    crate::error::Locate::located_in(result, dir.nid)
}

/// What errors call an inode without a path.
pub(super) fn nid_path(nid: Nid) -> PathBuf {
    PathBuf::from(nid.to_string())
}
