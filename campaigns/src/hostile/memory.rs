//! Counts allocated bytes: now, and the maximum since the last reset.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grown(by: usize) {
    let live = LIVE.fetch_add(by, Relaxed) + by;
    PEAK.fetch_max(live, Relaxed);
}

// SAFETY: every call goes unchanged to `System`, which fulfils the contract; the counters do not
// access the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller fulfils the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller fulfils the contract of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller fulfils the contract of `System`.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller fulfils the contract of `System`.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Resets the maximum; returns the bytes that are allocated now.
pub(crate) fn reset() -> usize {
    let live = LIVE.load(Relaxed);
    PEAK.store(live, Relaxed);
    live
}

/// The maximum of allocated bytes since the last reset.
pub(crate) fn peak() -> usize {
    PEAK.load(Relaxed)
}
