//! The paper's page pool: memory that is allocated when the image is opened, and that requests
//! borrow while they decode.
//!
//! A buffer is a range of adjacent pages. If no free range is long enough, free pages from anywhere
//! can be mapped to adjacent addresses (vmap): the pool is a file in memory, whose pages can be
//! mapped a second time. Buffers that do not fit the pool come from the heap, see
//! [`super::super::scratch`].
#![allow(unsafe_code)]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "numbers of pages and bytes are those of the pool, which is in memory"
)]

use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use parking_lot::Mutex;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::super::buffer_pool::PAGE;

#[derive(Debug)]
pub(crate) struct PagePool {
    start: NonNull<u8>,
    page: usize,
    /// The memory file (memfd) of the pages; `None` if the system does not support it, or the pool
    /// is empty.
    file: Option<OwnedFd>,
    state: Mutex<PageStates>,
}

#[derive(Debug)]
struct PageStates {
    /// For each page, whether it is free.
    free: Vec<bool>,
    used: usize,
    peak: usize,
}

// SAFETY: the pool owns its mapping, which any thread may use; `state` records which pages are
// borrowed.
unsafe impl Send for PagePool {}
// SAFETY: as above: a page is borrowed under the lock, by one owner at a time.
unsafe impl Sync for PagePool {}

/// Borrowed adjacent pages.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    pool: &'a PagePool,
    pages: Range<usize>,
    len: usize,
}

/// Borrowed pages from anywhere in the pool, mapped to adjacent addresses.
#[derive(Debug)]
pub(crate) struct MappedPages<'a> {
    pool: &'a PagePool,
    start: NonNull<u8>,
    /// Bytes of address space: `len` rounded up to pages.
    reserved: usize,
    len: usize,
    pages: Vec<Range<usize>>,
}

impl PagePool {
    /// A pool of at most `len` bytes. All its pages are allocated here.
    ///
    /// # Errors
    /// The error of the system when it has no memory.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let page = rustix::param::page_size().max(PAGE);
        let count = len / page;
        let state = Mutex::new(PageStates { free: vec![true; count], used: 0, peak: 0 });
        if count == 0 {
            return Ok(Self { start: NonNull::dangling(), page, file: None, state });
        }
        let len = count * page;
        let file = rustix::fs::memfd_create("ferofs-pool", MemfdFlags::CLOEXEC).ok();
        let (read_write, populate) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE);
        let mapped = match &file {
            Some(file) => {
                rustix::fs::ftruncate(file, u64::try_from(len).unwrap_or(u64::MAX))?;
                let flags = MapFlags::SHARED | populate;
                // SAFETY: the kernel chooses the address of the new mapping, so no memory in use is
                // affected.
                unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, read_write, flags, file, 0) }
            }
            None => {
                let flags = MapFlags::PRIVATE | populate;
                // SAFETY: as above.
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, read_write, flags) }
            }
        }?;
        let start = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, page, file, state })
    }

    /// Bytes of the pool.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().free.len() * self.page
    }

    /// The most that was in use at once, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.state.lock().peak * self.page
    }

    /// A buffer of `len` bytes with any content, if enough adjacent pages are free.
    pub(crate) fn take(&self, len: usize) -> Option<Pages<'_>> {
        let count = len.div_ceil(self.page).max(1);
        let mut state = self.state.lock();
        let mut run = 0..0;
        for (number, free) in state.free.iter().enumerate() {
            run = if *free { run.start..number + 1 } else { number + 1..number + 1 };
            if run.len() == count {
                break;
            }
        }
        if run.len() != count {
            return None;
        }
        state.set(&run, false);
        Some(Pages { pool: self, pages: run, len })
    }

    /// A buffer of `len` bytes, made of free pages from anywhere in the pool.
    pub(crate) fn map(&self, len: usize) -> Option<MappedPages<'_>> {
        let file = self.file.as_ref()?;
        let count = len.div_ceil(self.page);
        let mut state = self.state.lock();
        if count == 0 || state.free.len() - state.used < count {
            return None;
        }
        let mut pages: Vec<Range<usize>> = Vec::new();
        let mut wanted = count;
        while wanted > 0 {
            let first = state.free.iter().position(|free| *free)?;
            let run = state.free[first..].iter().take(wanted).take_while(|free| **free).count();
            state.set(&(first..first + run), false);
            pages.push(first..first + run);
            wanted -= run;
        }
        drop(state);
        let reserved = count * self.page;
        let no_access = ProtFlags::empty();
        // SAFETY: the kernel chooses the address of the new mapping, so no memory in use is
        // affected.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, no_access, MapFlags::PRIVATE)
        };
        let Some(start) = start.ok().and_then(|start| NonNull::new(start.cast::<u8>())) else {
            let mut state = self.state.lock();
            pages.iter().for_each(|run| state.set(run, true));
            return None;
        };
        // From here on, dropping `mapped` returns pages and addresses.
        let mapped = MappedPages { pool: self, start, reserved, len, pages };
        let mut at = 0;
        for run in &mapped.pages {
            let bytes = run.len() * self.page;
            let offset = u64::try_from(run.start * self.page).ok()?;
            let (read_write, flags) = (
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE,
            );
            // The runs have `reserved` bytes in total, so each is within the range reserved above.
            let to = mapped.start.as_ptr().wrapping_add(at).cast::<c_void>();
            // SAFETY: `to` and `bytes` are within the range that was just reserved, which no other
            // code uses.
            unsafe { rustix::mm::mmap(to, bytes, read_write, flags, file, offset) }.ok()?;
            at += bytes;
        }
        Some(mapped)
    }
}

impl PageStates {
    fn set(&mut self, pages: &Range<usize>, free: bool) {
        self.free[pages.clone()].fill(free);
        self.used = if free { self.used - pages.len() } else { self.used + pages.len() };
        self.peak = self.peak.max(self.used);
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        let len = self.len();
        if len > 0 {
            // SAFETY: the pool owns the mapping, and borrows of its pages have ended. If munmap
            // fails, the memory stays mapped.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), len) };
        }
    }
}

impl Pages<'_> {
    fn start(&self) -> *mut u8 {
        // The pages are within the pool.
        self.pool.start.as_ptr().wrapping_add(self.pages.start * self.pool.page)
    }
}

impl Deref for Pages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: these pages are mapped as long as the pool exists, which `self` borrows, and only
        // `self` has them until it is dropped; `len` is at most their size.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Pages<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        self.pool.state.lock().set(&self.pages, true);
    }
}

impl Deref for MappedPages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the whole range is mapped: `PagePool::map` returns it only then. Only `self` has
        // its pages until it is dropped, so nothing accesses them through the pool's own mapping.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for MappedPages<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for MappedPages<'_> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the range, and borrows of it have ended.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.reserved) };
        if unmapped.is_ok() {
            let mut state = self.pool.state.lock();
            self.pages.iter().for_each(|run| state.set(run, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_return_to_the_pool() {
        let pool = PagePool::new(8 * PAGE + 100).unwrap();
        let page = pool.page;
        let count = pool.len() / page;
        let mut all: Vec<_> = (0..count).map(|_| pool.take(page - 1).unwrap()).collect();
        assert!(pool.take(1).is_none());
        for (number, pages) in all.iter_mut().enumerate() {
            pages.fill(u8::try_from(number).unwrap());
        }
        for (number, pages) in all.iter().enumerate() {
            assert!(
                pages.len() == page - 1 && pages.iter().all(|byte| usize::from(*byte) == number)
            );
        }
        drop(all);
        assert_eq!(pool.take(count * page).map(|pages| pages.len()), Some(count * page));
        assert_eq!(pool.peak(), pool.len());
    }

    #[test]
    fn scattered_pages_become_one_range() {
        let pool = PagePool::new(8 * PAGE).unwrap();
        let page = pool.page;
        let count = pool.len() / page;
        if count < 8 {
            return;
        }
        let mut all: Vec<_> = (0..8).map(|_| pool.take(page)).collect();
        for number in [1, 2, 5, 7] {
            all[number] = None;
        }
        assert!(pool.take(4 * page).is_none(), "no four adjacent pages are free");
        let Some(mut mapped) = pool.map(4 * page - 7) else {
            assert!(pool.file.is_none());
            return;
        };
        assert_eq!((mapped.len(), mapped.pages.len()), (4 * page - 7, 3));
        mapped.fill(9);
        assert!(pool.take(1).is_none());
        drop(mapped);
        drop(all);
        assert!(pool.take(8 * page).is_some(), "all pages are free again");
    }

    #[test]
    fn an_empty_pool_has_no_buffers() {
        let pool = PagePool::new(10).unwrap();
        assert!(pool.take(1).is_none() && pool.map(1).is_none() && pool.len() == 0);
    }
}
