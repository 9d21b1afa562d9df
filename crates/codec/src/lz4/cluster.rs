//! The input of one cluster, and the types for strings and matches in it. Positions count from the
//! cluster's start.
#![allow(unsafe_code)]

use super::mem;
use super::sequence_writer::MATCH_LIMIT;

/// A match: `len` bytes that also occur `distance` bytes earlier; no match if `len` is 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) len: usize,
    pub(super) distance: usize,
}

/// The input of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Cluster<'a> {
    /// The input from the cluster's start on.
    src: &'a [u8],
    /// The most bytes that the cluster may take; matches start at or before `total - 12` and end at
    /// or before `total - 5`.
    total: usize,
}

impl<'a> Cluster<'a> {
    /// A cluster that takes `src[..total]` at most; more input may follow.
    pub(super) fn new(src: &'a [u8], total: usize) -> Self {
        assert!(total <= src.len(), "a cluster lies within its input");
        Self { src, total }
    }

    /// The input from the cluster's start on.
    pub(super) const fn src(self) -> &'a [u8] {
        self.src
    }

    /// The most bytes that the cluster may take.
    pub(super) const fn total(self) -> usize {
        self.total
    }

    /// The last position at which a match may start; 0 if the cluster is too short for matches.
    pub(super) const fn last(self) -> usize {
        self.total.saturating_sub(MATCH_LIMIT)
    }

    /// How many bytes, at most `most`, before `at` and before `at - distance` are equal.
    pub(super) fn before(self, at: usize, distance: usize, most: usize) -> usize {
        assert!(at <= self.total && distance <= at, "a match within the cluster");
        // SAFETY: `most <= at - distance <= at <= total`.
        unsafe { mem::common_before(self.src, at, at - distance, most.min(at - distance)) }
    }
}

/// Four bytes of a cluster, which start at `at`, to compare with the same bytes of candidates.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    at: usize,
    string: u32,
}

impl Cluster<'_> {
    /// The four bytes at `at`.
    pub(super) fn probe(self, at: usize) -> Probe {
        assert!(at + 4 <= self.total, "a string within the cluster");
        // SAFETY: `at + 4 <= total`.
        Probe { at, string: unsafe { mem::load32(self.src, at) } }
    }
}

impl Probe {
    /// 0 if the four bytes at `at - distance` are equal; meaningless if that is before the
    /// cluster's start. `cluster` must be the cluster of this probe.
    #[inline(always)]
    pub(super) fn differs(self, cluster: Cluster<'_>, distance: usize) -> u32 {
        debug_assert!(self.at + 4 <= cluster.total, "a probe of this cluster");
        // SAFETY: the position is at most `self.at`, and `self.at + 4 <= total` was checked when
        // the probe was made.
        self.string ^ unsafe { mem::load32(cluster.src, self.at.saturating_sub(distance)) }
    }
}

/// A match from `first` to `end`.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) distance: usize,
}
