//! The allocator of programs: that of the system, but without memory the program ends with one
//! line. Rust would print a line for each thread that finds none, and abort.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// Which limit this process has. A confined process can no longer ask.
static LIMIT: AtomicU8 = AtomicU8::new(0);
const ADDRESS_SPACE: u8 = 1;
const DATA: u8 = 2;

/// The allocator of the system, for a program that ends where it finds no memory.
#[derive(Debug)]
pub struct ReportingAllocator {
    /// The name of the program, for the line on standard error.
    pub program: &'static str,
    /// The exit code.
    pub code: u8,
}

impl ReportingAllocator {
    fn or_end(&self, block: *mut u8, size: usize) -> *mut u8 {
        if block.is_null() { self.end(size) } else { block }
    }

    /// Prints the line and ends the process. Allocates nothing, and takes no lock.
    #[cold]
    fn end(&self, size: usize) -> ! {
        static IS_ENDING: AtomicBool = AtomicBool::new(false);
        while IS_ENDING.swap(true, Ordering::Relaxed) {
            // Another thread ends the process.
            std::thread::sleep(Duration::from_secs(1));
        }
        let mut line = [0; 160];
        let mut rest = &mut line[..];
        let limit = match LIMIT.load(Ordering::Relaxed) {
            ADDRESS_SPACE => "; the limit on address space is too low (ulimit -v)",
            DATA => "; the memory limit of the cgroup is too low, or ulimit -d",
            _ => "",
        };
        let program = self.program;
        let _ =
            writeln!(rest, "{program}: out of memory: the system refused {size} bytes more{limit}");
        let unused = rest.len();
        let len = line.len() - unused;
        // SAFETY: the first `len` bytes of `line` are valid.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), len) };
        // SAFETY: the function has no conditions; it ends the process without running other code.
        unsafe { libc::_exit(self.code.into()) }
    }
}

// SAFETY: each function calls the same one of `System` with its own arguments, and returns the
// result.
unsafe impl GlobalAlloc for ReportingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the same conditions.
        self.or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the same conditions.
        self.or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the same conditions.
        self.or_end(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the same conditions.
        unsafe { System.dealloc(block, layout) }
    }
}

fn is_limited(resource: Resource) -> bool {
    getrlimit(resource).current.is_some()
}

/// Takes note of the limits on address space and data, for the line of [`ReportingAllocator`]. With
/// the first, or a low one of the second, lets glibc reserve none: it would take 64 MiB for each
/// thread, and keep what large buffers leave.
pub fn reserve_less_if_limited() {
    /// Bytes of data from which on threads may have heaps of their own, which are faster.
    #[cfg(target_env = "gnu")]
    const ENOUGH: u64 = 512 << 20;
    let limit = match (is_limited(Resource::As), is_limited(Resource::Data)) {
        (true, _) => ADDRESS_SPACE,
        (_, true) => DATA,
        _ => 0,
    };
    LIMIT.store(limit, Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    if is_limited(Resource::As)
        || getrlimit(Resource::Data).current.is_some_and(|most| most < ENOUGH)
    {
        // SAFETY: the function changes a setting only, and no other thread runs yet.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        return_large_buffers();
    }
}

/// Returns the memory of buffers of 1 MiB and more to the system when they are freed: glibc keeps
/// up to 32 MiB of each. For jobs that make few large buffers of various lengths, before they start
/// threads. Without glibc, it does nothing.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function changes a setting only, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}
