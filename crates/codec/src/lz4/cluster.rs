//! A cluster's input, positions counted from its start, and what is found in it: strings, matches, and spans that match.
#![allow(unsafe_code)]

use super::mem;
use super::sink::MATCH_LIMIT;

/// A match: `len` bytes from `distance` back; none if `len` is 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) len: usize,
    pub(super) distance: usize,
}

/// Where a cluster lies in the input. All other positions count from its start.
#[derive(Clone, Copy)]
pub(super) struct Cluster<'a> {
    /// The input from the cluster's start on.
    src: &'a [u8],
    /// The cluster's end, at most; a match starts at `total - 12` and ends at `total - 5` at most.
    total: usize,
}

impl<'a> Cluster<'a> {
    /// `src[..total]`, behind which more of the input lies.
    pub(super) fn new(src: &'a [u8], total: usize) -> Self {
        assert!(total <= src.len(), "a cluster lies within its input");
        Self { src, total }
    }

    /// The input from the cluster's start on.
    pub(super) const fn src(self) -> &'a [u8] {
        self.src
    }

    /// The cluster's bytes, at most.
    pub(super) const fn total(self) -> usize {
        self.total
    }

    /// The last position at which a match may start; 0 if none may.
    pub(super) const fn last(self) -> usize {
        self.total.saturating_sub(MATCH_LIMIT)
    }

    /// How many bytes before `at` and before `distance` further back are alike, at most `most`.
    pub(super) fn before(self, at: usize, distance: usize, most: usize) -> usize {
        assert!(at <= self.total && distance <= at, "a match within the cluster");
        // SAFETY: `most <= at - distance <= at <= total`.
        unsafe { mem::common_before(self.src, at, at - distance, most.min(at - distance)) }
    }
}

/// A string of a cluster, which candidates are held against; it begins at `at`.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    at: usize,
    string: u32,
}

impl Cluster<'_> {
    /// The string at `at`.
    pub(super) fn probe(self, at: usize) -> Probe {
        assert!(at + 4 <= self.total, "a string within the cluster");
        // SAFETY: `at + 4 <= total`.
        Probe { at, string: unsafe { mem::load32(self.src, at) } }
    }
}

impl Probe {
    /// 0 if the string `distance` further back is the same; of no meaning if that is before the cluster, which is the one
    /// that this is of.
    #[inline(always)]
    pub(super) fn differs(self, cluster: Cluster<'_>, distance: usize) -> u32 {
        debug_assert!(self.at + 4 <= cluster.total, "a probe of this cluster");
        // SAFETY: no further than where the string lies itself, in the cluster.
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
