//! A table in a temporary file that is mapped into memory.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mremap, munmap};

use super::limit::MemoryLimit;

/// The fewest bytes of a file: a smaller one would soon grow again.
const LEAST: usize = 64 << 10;

/// Items in a temporary file without a name, which no other process has open.
pub(super) struct Mapped<T: Copy> {
    limit: MemoryLimit,
    file: File,
    /// The mapping of all of the file.
    start: NonNull<T>,
    bytes: usize,
    /// The first items, which were written.
    len: usize,
    item: PhantomData<T>,
}

// SAFETY: the items are reached only through this value, like those of a `Vec<T>`.
unsafe impl<T: Copy + Send> Send for Mapped<T> {}
// SAFETY: as above; `&Mapped<T>` gives only `&[T]`.
unsafe impl<T: Copy + Sync> Sync for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// A table of `items` with space for at least `capacity` items.
    pub(super) fn new(limit: &MemoryLimit, items: &[T], capacity: usize) -> io::Result<Self> {
        let file = tempfile::tempfile_in(limit.dir()).or_else(|_| tempfile::tempfile())?;
        let bytes = bytes_for::<T>(capacity.max(items.len()))?;
        allocate(&file, 0, bytes)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let mut mappings = limit.mappings().lock();
        // SAFETY: a new mapping at an address that the system chooses changes no memory of the process.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0) }?;
        mappings.insert(start.expose_provenance(), bytes);
        drop(mappings);
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mut mapped = Self { limit: limit.clone(), file, start, bytes, len: 0, item: PhantomData };
        items.iter().for_each(|item| mapped.push(*item));
        Ok(mapped)
    }

    pub(super) const fn capacity(&self) -> usize {
        // An item of no bytes would need no table.
        if size_of::<T>() == 0 { usize::MAX } else { self.bytes / size_of::<T>() }
    }

    /// Makes space for at least `capacity` items.
    pub(super) fn grow(&mut self, capacity: usize) -> io::Result<()> {
        let bytes = bytes_for::<T>(capacity)?;
        if bytes <= self.bytes {
            return Ok(());
        }
        allocate(&self.file, self.bytes, bytes)?;
        let mut mappings = self.limit.mappings().lock();
        let old = self.start.as_ptr();
        // SAFETY: `old` and `self.bytes` are this table's mapping, of which no borrow exists: `self` is borrowed exclusively. The file has the new
        // length.
        let start = unsafe { mremap(old.cast(), self.bytes, bytes, MremapFlags::MAYMOVE) }?;
        mappings.remove(&old.expose_provenance());
        mappings.insert(start.expose_provenance(), bytes);
        self.start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Adds an item. There must be space for it.
    pub(super) fn push(&mut self, item: T) {
        assert!(self.len < self.capacity(), "space was made before");
        // SAFETY: the item is within the mapping, as just checked.
        let place = unsafe { self.start.add(self.len) };
        // SAFETY: `place` is writable memory of this table, and aligned, because mappings start at pages.
        unsafe { place.write(item) };
        self.len += 1;
    }
}

impl<T: Copy> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items were written by `push`, and are changed only through `&mut self`: no other process has the file. They are
        // aligned, because mappings start at pages.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for Mapped<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for Mapped<T> {
    fn drop(&mut self) {
        let mut mappings = self.limit.mappings().lock();
        let start = self.start.as_ptr();
        mappings.remove(&start.expose_provenance());
        // SAFETY: this is the table's mapping, and nothing uses it after this.
        let _ = unsafe { munmap(start.cast(), self.bytes) };
    }
}

/// The length of a file for `capacity` items.
fn bytes_for<T>(capacity: usize) -> io::Result<usize> {
    const { assert!(align_of::<T>() <= 4096, "mappings are aligned to pages") };
    let needed = capacity.checked_mul(size_of::<T>()).filter(|needed| isize::try_from(*needed).is_ok());
    let needed = needed.ok_or(Errno::OVERFLOW)?;
    Ok(needed.max(LEAST).next_multiple_of(LEAST))
}

/// Reserves space on the disk from byte `old` to `new` of the file: a full disk must be an error here, and not a signal when a page is written.
fn allocate(file: &File, old: usize, new: usize) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), old as u64, (new - old) as u64) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        result => return Ok(result?),
    }
    static ZEROES: [u8; LEAST] = [0; LEAST];
    (old..new).step_by(LEAST).try_for_each(|at| file.write_all_at(&ZEROES, at as u64))
}
