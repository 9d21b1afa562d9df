//! Code that compares ferofs with the EROFS paper (USENIX ATC 2019): the policies, and the page
//! pool for policies other than [`Policy::Auto`]. Only the feature `comparison` compiles it.
//!
//! The engine asks [`Policy`] how to decode a cluster. It takes buffers from [`Pool`]: with another
//! policy than the default one, they are those of [`vmap`], which has the `unsafe` code.

pub(crate) mod vmap;

use std::io;
use std::ops::{Deref, DerefMut};

use self::vmap::{MappedPages, PagePool, Pages};
use super::buffer_pool::{BufferPool, PAGE, PooledBuffer};
use super::strategy::Strategy;

/// Bytes of the buffer of the paper's policies: four pages, as in the phones of its measurements.
/// Longer ranges are decoded with another strategy.
const BUFFER_SIZE: usize = 4 * PAGE;

/// The rule that chooses the strategy for a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The fastest strategy according to measurements: in place; else directly; else into a buffer,
    /// or rolling if the buffer would be large.
    #[default]
    Auto,
    /// The EROFS paper's policy (USENIX ATC 2019, section 4): a buffer if at most a page is wanted;
    /// else in place; else rolling; else vmap.
    Paper,
    /// The policy of the phones in the paper's measurements: a buffer below four pages, else vmap.
    Commercial,
    /// Always this strategy; for clusters that it does not support as [`Policy::Auto`], but not in
    /// place.
    Always(Strategy),
}

impl Policy {
    /// Whether a whole cluster of `len` decoded bytes is decoded in place, if that is possible.
    pub(crate) const fn in_place(self, len: usize) -> bool {
        match self {
            Self::Auto | Self::Always(Strategy::InPlace) => true,
            Self::Paper => len > PAGE,
            Self::Commercial | Self::Always(_) => false,
        }
    }

    /// The strategy for the `len` bytes after the first `skip` bytes of a cluster that is not
    /// decoded in place. `max_buffered`: for LZ4, which supports rolling, the bytes from the
    /// cluster's start up to which a buffer is faster.
    pub(crate) const fn choose(
        self,
        max_buffered: Option<usize>,
        skip: usize,
        len: usize,
    ) -> Strategy {
        let end = skip.saturating_add(len);
        let chosen = match self {
            Self::Auto => Strategy::fastest(max_buffered, skip, end),
            Self::Paper if len <= PAGE && end <= BUFFER_SIZE => Strategy::Buffer,
            Self::Paper if max_buffered.is_some() => Strategy::Rolling,
            Self::Commercial if end < BUFFER_SIZE => Strategy::Buffer,
            Self::Paper | Self::Commercial => Strategy::Vmap,
            Self::Always(strategy) => strategy,
        };
        let is_unsupported = match chosen {
            Strategy::InPlace => true,
            Strategy::Rolling => max_buffered.is_none(),
            Strategy::Direct => skip > 0,
            Strategy::Vmap | Strategy::Buffer => false,
        };
        if is_unsupported { Strategy::fastest(max_buffered, skip, end) } else { chosen }
    }
}

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
            Policy::Paper | Policy::Commercial | Policy::Always(_) => {
                Self::Pages(PagePool::new(len)?)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_chooses_its_strategies() {
        use Strategy::{Buffer, Direct, Rolling, Vmap};
        let page = |n: usize| n * PAGE;
        let lz4 = Some(page(17));
        assert_eq!(Policy::Paper.choose(lz4, page(2), page(1)), Buffer);
        assert_eq!(
            Policy::Paper.choose(lz4, page(4), page(1)),
            Rolling,
            "the buffer has four pages"
        );
        assert_eq!(Policy::Paper.choose(lz4, 0, page(2)), Rolling);
        assert_eq!(Policy::Paper.choose(None, 0, page(2)), Vmap);
        assert_eq!(Policy::Commercial.choose(lz4, page(2), page(1)), Buffer);
        assert_eq!(Policy::Commercial.choose(lz4, page(3), page(1)), Vmap);
        assert_eq!(Policy::Auto.choose(lz4, page(1), page(1)), Buffer);
        assert_eq!(Policy::Always(Rolling).choose(None, 0, page(1)), Direct);
        assert_eq!(Policy::Always(Direct).choose(lz4, 1, page(1)), Buffer);
        assert!(Policy::Paper.in_place(page(2)) && !Policy::Paper.in_place(page(1)));
        assert!(Policy::Auto.in_place(1) && !Policy::Commercial.in_place(page(9)));
    }
}
