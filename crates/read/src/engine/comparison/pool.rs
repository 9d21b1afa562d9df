//! The pool of buffers of an engine whose policy can be chosen.

use std::io;
use std::ops::{Deref, DerefMut};

use super::super::buffer_pool::{BufferPool, PooledBuffer};
use super::policy::Policy;
use super::vmap::{MappedPages, PagePool, Pages};

/// The pool of buffers.
#[derive(Debug)]
pub(crate) enum Pool {
    /// For the default policy.
    Buffers(BufferPool),
    /// For the other policies.
    Pages(PagePool),
}

/// A borrowed buffer, with any content.
#[derive(Debug)]
pub(crate) enum PoolBuffer<'a> {
    Pooled(PooledBuffer<'a>),
    Pages(Pages<'a>),
    Mapped(MappedPages<'a>),
}

impl Pool {
    /// A pool of at most `len` bytes, as `policy` needs it.
    ///
    /// # Errors
    /// When the system has no memory for pages.
    pub(crate) fn new(len: usize, policy: Policy) -> io::Result<Self> {
        Ok(match policy {
            Policy::Auto => Self::Buffers(BufferPool::new(len)),
            Policy::Paper | Policy::Commercial | Policy::Always(_) => Self::Pages(PagePool::new(len)?),
        })
    }

    /// Bytes of the pool.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Buffers(pool) => pool.len(),
            Self::Pages(pool) => pool.len(),
        }
    }

    /// The most that was in use at once, in bytes.
    pub(crate) fn peak(&self) -> usize {
        match self {
            Self::Buffers(pool) => pool.peak(),
            Self::Pages(pool) => pool.peak(),
        }
    }

    /// A buffer of `len` bytes, if the pool has space for it.
    pub(crate) fn take(&self, len: usize) -> Option<PoolBuffer<'_>> {
        match self {
            Self::Buffers(pool) => pool.take(len).map(PoolBuffer::Pooled),
            Self::Pages(pool) => pool.take(len).map(PoolBuffer::Pages),
        }
    }

    /// Scattered pages as a buffer of `len` bytes, if there are enough.
    pub(crate) fn map(&self, len: usize) -> Option<PoolBuffer<'_>> {
        match self {
            Self::Buffers(_) => None,
            Self::Pages(pool) => pool.map(len).map(PoolBuffer::Mapped),
        }
    }
}

impl Deref for PoolBuffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer,
            Self::Pages(pages) => pages,
            Self::Mapped(mapped) => mapped,
        }
    }
}

impl DerefMut for PoolBuffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pooled(buffer) => buffer,
            Self::Pages(pages) => pages,
            Self::Mapped(mapped) => mapped,
        }
    }
}
