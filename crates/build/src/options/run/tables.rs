//! Tables with an item for each name or inode. Beyond the memory limit of a build they move to temporary files, and the build goes on.
//!
//! A table is used like a slice. It starts in memory. If it must grow while the process has half of the limit, it moves to a temporary file that
//! is mapped into memory. While the build runs, a thread looks at the memory of the process, and removes the mapped pages when it comes near the
//! limit: the pages stay in the file, and the system reads them again where they are used. So images do not depend on the limit.

mod limit;
mod mapped;
mod mappings;

use std::ops::{Deref, DerefMut};

pub use limit::MemoryLimit;
use mapped::Mapped;

/// The most bytes by which a file grows beyond what is needed.
const MOST_SPARE: usize = 64 << 20;

/// A table of items that are copied like bytes.
pub struct Table<T: Copy> {
    limit: Option<MemoryLimit>,
    items: Items<T>,
}

enum Items<T: Copy> {
    Memory(Vec<T>),
    File(Mapped<T>),
}

impl<T: Copy> Default for Table<T> {
    /// A table that stays in memory.
    fn default() -> Self {
        Self::new(None)
    }
}

impl<T: Copy> Table<T> {
    /// An empty table, which moves to a file beyond `limit`.
    pub fn new(limit: Option<&MemoryLimit>) -> Self {
        Self { limit: limit.cloned(), items: Items::Memory(Vec::new()) }
    }

    /// A table of `count` times `item`.
    pub fn filled(limit: Option<&MemoryLimit>, item: T, count: usize) -> Self {
        let mut table = Self::new(limit);
        table.reserve_exact(count);
        for _ in 0..count {
            table.push(item);
        }
        table
    }

    /// The limit beyond which the table moves to a file.
    pub const fn limit(&self) -> Option<&MemoryLimit> {
        self.limit.as_ref()
    }

    pub fn push(&mut self, item: T) {
        self.reserve(1);
        match &mut self.items {
            Items::Memory(items) => items.push(item),
            Items::File(mapped) => mapped.push(item),
        }
    }

    pub fn extend_from_slice(&mut self, items: &[T]) {
        self.reserve(items.len());
        match &mut self.items {
            Items::Memory(table) => table.extend_from_slice(items),
            Items::File(mapped) => items.iter().for_each(|item| mapped.push(*item)),
        }
    }

    /// Makes space for `count` more items, and usually for more.
    fn reserve(&mut self, count: usize) {
        if self.capacity() - self.len() < count {
            // Twice the space, so that copying stays rare. A file is not copied, and unused space in it would occupy the disk.
            let spare = match &self.items {
                Items::Memory(items) => items.len().max(64),
                Items::File(mapped) => mapped.len().min(MOST_SPARE / size_of::<T>().max(1)),
            };
            self.grow(spare.max(count));
        }
    }

    /// Makes space for exactly `count` more items.
    pub fn reserve_exact(&mut self, count: usize) {
        if self.capacity() - self.len() < count {
            self.grow(count);
        }
    }

    fn grow(&mut self, more: usize) {
        let wanted = self.len().saturating_add(more);
        let bytes = wanted.saturating_mul(size_of::<T>()) as u64;
        let result = match &mut self.items {
            Items::Memory(items) => {
                let beyond = self.limit.as_ref().filter(|limit| limit.is_near(bytes));
                match beyond.map(|limit| Mapped::new(limit, items, wanted)) {
                    Some(Ok(mapped)) => return self.items = Items::File(mapped),
                    Some(Err(error)) => Err(error),
                    None => Ok(()),
                }
            }
            Items::File(mapped) => match mapped.grow(wanted) {
                Ok(()) => return,
                Err(error) => {
                    self.items = Items::Memory(mapped.to_vec());
                    Err(error)
                }
            },
        };
        if let (Err(error), Some(limit)) = (result, &self.limit) {
            // The build goes on in memory.
            limit.note_failure(error);
        }
        if let Items::Memory(items) = &mut self.items {
            items.reserve_exact(more);
        }
    }

    fn capacity(&self) -> usize {
        match &self.items {
            Items::Memory(items) => items.capacity(),
            Items::File(mapped) => mapped.capacity(),
        }
    }

    #[cfg(test)]
    fn is_in_file(&self) -> bool {
        matches!(self.items, Items::File(_))
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.items {
            Items::Memory(items) => items,
            Items::File(mapped) => mapped,
        }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.items {
            Items::Memory(items) => items,
            Items::File(mapped) => mapped,
        }
    }
}

impl<T: Copy + std::fmt::Debug> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Copy> FromIterator<T> for Table<T> {
    /// A table that stays in memory.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { limit: None, items: Items::Memory(items.into_iter().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_beyond_the_limit_keeps_its_items() {
        let dir = tempfile::tempdir().unwrap();
        let limit = MemoryLimit::new(0, dir.path());
        let mut table = Table::new(Some(&limit));
        for n in 0..300_000u64 {
            table.push((n, n as u8));
            if n % 50_000 == 0 {
                limit.relieve();
            }
        }
        assert!(table.is_in_file() && limit.failure().is_none());
        table[7].1 = 99;
        limit.relieve();
        assert_eq!((table[7], table.len()), ((7, 99), 300_000));
        assert!(table.iter().enumerate().skip(8).all(|(n, item)| *item == (n as u64, n as u8)));
        let mut filled = Table::filled(Some(&limit), 5u8, 10_000);
        filled.extend_from_slice(&[6; 5000]);
        assert!(filled.is_in_file() && filled[..10_000].iter().all(|n| *n == 5) && filled[14_999] == 6);
        // The temporary files have no names.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_table_below_the_limit_stays_in_memory() {
        let limit = MemoryLimit::new(1 << 40, std::path::Path::new("/nowhere"));
        assert!(!Table::filled(Some(&limit), 1u64, 100_000).is_in_file());
    }
}
