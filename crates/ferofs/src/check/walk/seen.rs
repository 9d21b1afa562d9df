//! The inodes that the walk has found, and the number of names that lead to each. An inode with one
//! name takes one bit, so that memory hardly grows with the number of files.

use std::collections::HashMap;

use ferofs_format::Nid;
use ferofs_read::{FileType, Inode};

/// Slots of a page, and words of 64 bits for them.
const SLOTS: u64 = 4096;
const WORDS: usize = 64;
/// The bit of a page's number that says that it is of the metabox.
const METABOX: u64 = 1 << 63;

/// An inode that could not be read.
pub(super) const UNREADABLE: Links = Links { file_type: None, stored: 0, found: 1 };

/// The links of an inode that is a directory, cannot be read, or has another number of links than
/// one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// Its file type, if the inode could be read.
    pub(super) file_type: Option<FileType>,
    pub(super) stored: u32,
    /// Names that lead to it; for a directory, 2 and the number of its subdirectories.
    pub(super) found: u32,
}

impl Links {
    /// The links of an inode with its first name.
    pub(super) fn first(inode: &Inode) -> Self {
        Self {
            file_type: Some(inode.file_type()),
            stored: inode.on_disk().nlink,
            found: if inode.is_dir() { 2 } else { 1 },
        }
    }

    /// Whether the stored count is not the one that was found.
    pub(super) fn is_wrong(&self) -> bool {
        match self.file_type {
            None => false,
            // 1 means that subdirectories are not counted.
            Some(FileType::Directory) => self.stored != 1 && self.stored != self.found,
            Some(_) => self.stored != self.found,
        }
    }
}

/// All inodes that were found.
#[derive(Default)]
pub(super) struct Seen {
    /// A bit for each slot where an inode starts, in pages.
    pages: HashMap<u64, Box<[u64; WORDS]>>,
    /// The inodes whose links differ from one stored and found name of a file.
    links: HashMap<Nid, Links>,
    pub(super) count: u64,
}

impl Seen {
    #[expect(clippy::indexing_slicing, reason = "`place` returns a number of a word below `WORDS`")]
    pub(super) fn contains(&self, nid: Nid) -> bool {
        let (page, word, bit) = place(nid);
        self.pages.get(&page).is_some_and(|page| page[word] & bit != 0)
            || self.links.get(&nid).is_some_and(|links| links.file_type.is_none())
    }

    /// Adds an inode that cannot be read. It takes no page: a short directory can name any number
    /// of places outside the image.
    pub(super) fn insert_unreadable(&mut self, nid: Nid) {
        self.count = self.count.saturating_add(1);
        self.links.insert(nid, UNREADABLE);
    }

    /// Adds an inode with its first name.
    #[expect(clippy::indexing_slicing, reason = "`place` returns a number of a word below `WORDS`")]
    pub(super) fn insert(&mut self, nid: Nid, links: Links) {
        let (page, word, bit) = place(nid);
        self.pages.entry(page).or_insert_with(|| Box::new([0; WORDS]))[word] |= bit;
        self.count = self.count.saturating_add(1);
        if (links.stored, links.found) != (1, 1) || links.file_type == Some(FileType::Directory) {
            self.links.insert(nid, links);
        }
    }

    /// The links of an inode that was added; `first` reads those with which it was, if they are not
    /// stored.
    pub(super) fn links_mut(&mut self, nid: Nid, first: impl FnOnce() -> Links) -> &mut Links {
        self.links.entry(nid).or_insert_with(first)
    }

    /// The inodes whose stored count of links is wrong.
    pub(super) fn wrong(&self) -> impl Iterator<Item = (Nid, &Links)> {
        self.links.iter().filter(|(_, links)| links.is_wrong()).map(|(nid, links)| (*nid, links))
    }
}

/// The page of an inode, the number of its word in the page, and its bit in the word.
#[expect(clippy::as_conversions, reason = "the number is below `WORDS`")]
const fn place(nid: Nid) -> (u64, usize, u64) {
    let (slot, metabox) = (nid.slot(), if nid.in_metabox() { METABOX } else { 0 });
    ((slot / SLOTS) | metabox, (slot % SLOTS / 64) as usize, 1 << (slot % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_found_again_and_files_with_one_name_need_no_entry() {
        let mut seen = Seen::default();
        let links = |stored, found| Links { file_type: Some(FileType::Regular), stored, found };
        let nids = || (0..100_000).map(|n| Nid::new(n * 3)).chain((0..100).map(Nid::metabox_slot));
        for nid in nids() {
            assert!(!seen.contains(nid));
            seen.insert(nid, links(1, 1));
        }
        assert!(nids().all(|nid| seen.contains(nid)) && !seen.contains(Nid::new(1)));
        assert_eq!((seen.count, seen.links.len(), seen.pages.len()), (100_100, 0, 75));
        seen.insert(Nid::new(1), links(2, 1));
        assert_eq!(seen.wrong().map(|(nid, _)| nid).collect::<Vec<_>>(), [Nid::new(1)]);
        seen.links_mut(Nid::new(1), || links(0, 0)).found += 1;
        assert_eq!(seen.wrong().count(), 0);
        let outside = Nid::new(1 << 40);
        seen.insert_unreadable(outside);
        assert!(seen.contains(outside) && !seen.contains(Nid::new(2 << 40)));
        assert_eq!((seen.count, seen.pages.len(), seen.wrong().count()), (100_102, 75, 0));
        seen.links_mut(Nid::new(3), || links(1, 1)).found += 1;
        assert_eq!(seen.wrong().map(|(nid, _)| nid).collect::<Vec<_>>(), [Nid::new(3)]);
    }
}
