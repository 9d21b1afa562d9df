//! Logical clusters, the content of both full and compact indexes. Source: FORMAT.md 6.3.
//!
//! Builders describe a file by its [`Pcluster`]s. [`Lclusters`] converts them to lclusters, which
//! [`super::full`] and [`super::compact`] write.

use core::iter::Peekable;

use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::{BlockAddr, ClusterSize, FileOffset, Lcn};

/// The bit of a NONHEAD's `delta[0]` that makes it a number of blocks (`CBLKCNT`).
pub const BLOCK_COUNT_BIT: u16 = 0x800;
/// The largest distance that records store, in lclusters: the next bit is [`BLOCK_COUNT_BIT`]. For
/// larger distances readers continue from the record that it leads to.
pub const MAX_DISTANCE: u16 = BLOCK_COUNT_BIT - 1;

const TYPE_NONHEAD: u8 = 2;

/// How the extent of a HEAD lcluster is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadKind {
    /// Not compressed.
    Plain,
    /// With the file's first algorithm.
    Head1,
    /// With the file's second algorithm.
    Head2,
}

impl HeadKind {
    /// From the two bits of an lcluster's type; `None` for NONHEAD.
    #[must_use]
    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::Plain),
            1 => Some(Self::Head1),
            3 => Some(Self::Head2),
            _ => None,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Head1 => 1,
            Self::Head2 => 3,
        }
    }
}

/// An lcluster in which an extent starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How the extent is encoded.
    pub kind: HeadKind,
    /// The extent's start in the lcluster, in bytes.
    pub clusterofs: u16,
    /// First block of the pcluster. Meaningless if the extent is inline, is a fragment or starts at
    /// the file's end; writers then store 0, where no data can be.
    pub addr: BlockAddr,
    /// The extent is only a part of what the pcluster decodes to.
    pub partial_ref: bool,
    /// The extent is a hole (`Z_EROFS_LI_HOLE`, Linux 7.2); full indexes only. Older kernels read
    /// the pcluster, which must decode to zeroes.
    pub hole: bool,
}

/// `delta[0]` of a NONHEAD, which leads to its HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta0 {
    /// The distance to the HEAD in lclusters or, if that exceeds [`MAX_DISTANCE`], to another
    /// NONHEAD of the extent.
    Distance(u16),
    /// The number of blocks of the pcluster; 0 if the extent is a fragment or a hole. The distance
    /// is 1.
    BlockCount(u16),
}

impl Delta0 {
    /// The distance in lclusters to the HEAD or to another NONHEAD of the extent.
    #[must_use]
    pub const fn distance(self) -> u16 {
        match self {
            Self::Distance(distance) => distance,
            Self::BlockCount(_) => 1,
        }
    }

    /// Parses the stored value.
    pub(crate) fn decode(delta: u16, lcn: Lcn, big_pclusters: bool) -> Result<Self, Fault> {
        if delta & BLOCK_COUNT_BIT != 0 {
            return match big_pclusters {
                true if lcn.get() > 0 => Ok(Self::BlockCount(delta & !BLOCK_COUNT_BIT)),
                true => Err(Fault::Map("the first lcluster is not a HEAD")),
                false => Err(Fault::Map("block count in a file without big pclusters")),
            };
        }
        if delta == 0 || u64::from(delta) > lcn.get() {
            return Err(Fault::Field { field: "delta[0]", value: delta.into() });
        }
        Ok(Self::Distance(delta))
    }

    /// The stored value.
    pub(crate) fn encode(self) -> Result<u16, Fault> {
        match self {
            Self::Distance(n) if n != 0 && n & BLOCK_COUNT_BIT == 0 => Ok(n),
            Self::BlockCount(n) if n & BLOCK_COUNT_BIT == 0 => Ok(n | BLOCK_COUNT_BIT),
            Self::Distance(n) | Self::BlockCount(n) => {
                Err(Fault::Field { field: "delta[0]", value: n.into() })
            }
        }
    }
}

/// The record of one logical cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lcluster {
    /// An extent starts here.
    Head(Head),
    /// The whole lcluster belongs to an extent that started earlier.
    NonHead {
        /// Leads to the extent's HEAD.
        delta0: Delta0,
        /// `delta[1]`: the distance in lclusters to the next HEAD or to a NONHEAD before it; at
        /// least 1.
        delta1: u16,
    },
}

impl Lcluster {
    /// The type's two bits.
    #[must_use]
    pub(crate) const fn type_bits(&self) -> u8 {
        match self {
            Self::Head(head) => head.kind.bits(),
            Self::NonHead { .. } => TYPE_NONHEAD,
        }
    }
}

/// One extent and its pcluster, as builders describe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcluster {
    /// The extent's file offset; it ends at the next one or at the file's end.
    pub start: FileOffset,
    /// How it is encoded.
    pub kind: HeadKind,
    /// First block; 0 when the extent is inline or a fragment.
    pub addr: BlockAddr,
    /// Number of blocks; 1 when inline, 0 when a fragment.
    pub blocks: u16,
    /// The extent is only a part of what the pcluster decodes to.
    pub partial_ref: bool,
    /// The extent is a hole: see [`Head::hole`].
    pub hole: bool,
}

/// The lclusters of a file, from its pclusters in order: exactly [`ClusterSize::lclusters_for`] its
/// size.
///
/// A file that ends within an lcluster in which no extent starts gets a last HEAD, PLAIN and at
/// address 0, that marks its end. Ends after the first error, which is one of
/// - [`Fault::Map`]: extents that do not start at 0, do not ascend, start in the same lcluster or
///   past the end;
/// - [`Fault::Map`]: more than one block without `big_pclusters`, or without a NONHEAD to store the
///   number;
/// - [`Fault::OutOfRange`]: more blocks than an index can store.
#[derive(Clone, Debug)]
pub struct Lclusters<I: Iterator<Item = Pcluster>> {
    pclusters: Peekable<I>,
    size: u64,
    cluster: ClusterSize,
    big_pclusters: bool,
    lcn: u64,
    extent: Option<Extent>,
    failed: bool,
}

/// The extent that the next lcluster belongs to.
#[derive(Clone, Copy, Debug)]
struct Extent {
    head: u64,
    /// The lcluster of its end, or of the next extent's start.
    end: u64,
    blocks: u16,
}

impl<I: Iterator<Item = Pcluster>> Lclusters<I> {
    /// The lclusters of a file of `size` bytes. With `big_pclusters`, one-block pclusters have
    /// block counts, too.
    #[must_use]
    pub fn new(
        pclusters: impl IntoIterator<IntoIter = I>,
        size: u64,
        cluster: ClusterSize,
        big_pclusters: bool,
    ) -> Self {
        let pclusters = pclusters.into_iter().peekable();
        Self { pclusters, size, cluster, big_pclusters, lcn: 0, extent: None, failed: false }
    }

    fn lcluster(&mut self) -> Result<Lcluster, Fault> {
        if let Some(extent) = self.extent.filter(|extent| self.lcn < extent.end) {
            return Ok(self.non_head(extent));
        }
        let Some(pcluster) = self.pclusters.next() else {
            // Only the part of the last lcluster after the last extent's end remains.
            let end = self.size & self.cluster.mask();
            return match self.extent {
                Some(_) => Ok(Lcluster::Head(Head {
                    kind: HeadKind::Plain,
                    clusterofs: clusterofs(end)?,
                    addr: BlockAddr::new(0),
                    partial_ref: false,
                    hole: false,
                })),
                None => Err(Fault::Map("no extent starts at 0")),
            };
        };
        self.begin(pcluster)
    }

    fn begin(&mut self, pcluster: Pcluster) -> Result<Lcluster, Fault> {
        let Pcluster { start, kind, addr, blocks, partial_ref, hole } = pcluster;
        if start.get() >= self.size || self.cluster.lcn(start).get() != self.lcn {
            return Err(Fault::Map("extents leave a gap or are out of order"));
        }
        if self.extent.is_none() && start.get() != 0 {
            return Err(Fault::Map("no extent starts at 0"));
        }
        let end = match self.pclusters.peek() {
            Some(next) => self.cluster.lcn(next.start).get(),
            None => self.cluster.lcn(FileOffset::new(self.size)).get(),
        };
        let length = end.checked_sub(self.lcn).ok_or(Fault::Map("extents out of order"))?;
        if length == 0 && self.pclusters.peek().is_some() {
            return Err(Fault::Map("two extents start in one lcluster"));
        }
        if blocks > MAX_DISTANCE {
            let limit = BLOCK_COUNT_BIT.into();
            return Err(Fault::OutOfRange {
                field: "pcluster blocks",
                value: blocks.into(),
                limit,
            });
        }
        if blocks > 1 && !(self.big_pclusters && length > 1) {
            return Err(Fault::Map("no lcluster to store a pcluster's number of blocks"));
        }
        self.extent = Some(Extent { head: self.lcn, end, blocks });
        Ok(Lcluster::Head(Head {
            kind,
            clusterofs: clusterofs(start.get() & self.cluster.mask())?,
            addr,
            partial_ref,
            hole,
        }))
    }

    fn non_head(&self, extent: Extent) -> Lcluster {
        let distance = self.lcn.saturating_sub(extent.head);
        let delta0 = if self.big_pclusters && distance == 1 {
            Delta0::BlockCount(extent.blocks)
        } else {
            Delta0::Distance(u16::try_from(distance).unwrap_or(MAX_DISTANCE).min(MAX_DISTANCE))
        };
        let delta1 = extent.end.saturating_sub(self.lcn);
        Lcluster::NonHead { delta0, delta1: u16::try_from(delta1).unwrap_or(u16::MAX) }
    }
}

impl<I: Iterator<Item = Pcluster>> Iterator for Lclusters<I> {
    type Item = Result<Lcluster>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.lcn >= self.cluster.lclusters_for(self.size) {
            // A remaining extent starts past the end.
            self.pclusters.next()?;
            self.failed = true;
            let fault = Fault::Map("extent starts past the end");
            return Some(Err(FormatError::new(Structure::Extent, fault)));
        }
        let lcluster = self.lcluster();
        self.failed = lcluster.is_err();
        self.lcn = self.lcn.saturating_add(1);
        Some(lcluster.map_err(|fault| FormatError::new(Structure::Extent, fault)))
    }
}

fn clusterofs(offset: u64) -> Result<u16, Fault> {
    let fault = Fault::OutOfRange { field: "clusterofs", value: offset, limit: 1 << 16 };
    u16::try_from(offset).map_err(|_| fault)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]
pub(crate) mod tests {
    use super::*;
    use crate::units::BlockSize;
    use alloc::vec::Vec;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A valid compressed file.
    #[derive(Clone, Debug)]
    pub(crate) struct File {
        pub(crate) block: BlockSize,
        pub(crate) cluster: ClusterSize,
        pub(crate) big_pclusters: bool,
        pub(crate) size: u64,
        pub(crate) pclusters: Vec<Pcluster>,
    }

    impl File {
        pub(crate) fn lclusters(&self) -> Vec<Lcluster> {
            let pclusters = self.pclusters.iter().copied();
            Lclusters::new(pclusters, self.size, self.cluster, self.big_pclusters)
                .collect::<Result<_>>()
                .unwrap()
        }
    }

    /// Files with pclusters at consecutive addresses, as compact indexes need them.
    pub(crate) fn files() -> impl Strategy<Value = File> {
        let span = prop_oneof![8 => 1u64..4, 2 => 1u64..40, 1 => 2000u64..2100];
        let kind = prop_oneof![Just(HeadKind::Plain), Just(HeadKind::Head1), Just(HeadKind::Head2)];
        let extents = vec((span, any::<u64>(), kind, 1u16..40), 1..80);
        (9u8..=16, 0u8..3, any::<bool>(), 0u16..3, 1u64..1 << 31, extents).prop_map(
            |(bits, extra, big_pclusters, tail, first, extents)| {
                let block = BlockSize::from_bits(bits).unwrap();
                let cluster = ClusterSize::new(block, extra).unwrap();
                let max_ofs = cluster.mask().min(u16::MAX.into());
                let (mut lcn, mut ofs, mut addr) = (0, 0, first);
                let mut pclusters: Vec<Pcluster> = Vec::new();
                for (span, next_ofs, kind, blocks) in extents {
                    let blocks = if big_pclusters && span > 1 { blocks } else { 1 };
                    let start = FileOffset::new(cluster.start(Lcn::new(lcn)).unwrap().get() + ofs);
                    let at = BlockAddr::new(addr);
                    pclusters.push(Pcluster {
                        start,
                        kind,
                        addr: at,
                        blocks,
                        partial_ref: false,
                        hole: false,
                    });
                    addr += u64::from(blocks);
                    lcn += span;
                    ofs = next_ofs % (max_ofs + 1);
                }
                if let (0 | 1, Some(last)) = (tail, pclusters.last_mut()) {
                    last.addr = BlockAddr::new(0);
                    last.blocks = tail;
                }
                let size = cluster.start(Lcn::new(lcn)).unwrap().get() + ofs;
                File { block, cluster, big_pclusters, size, pclusters }
            },
        )
    }

    proptest! {
        #[test]
        fn lclusters_link_to_each_other(file in files()) {
            let lclusters = file.lclusters();
            prop_assert_eq!(u64::try_from(lclusters.len()).unwrap(), file.cluster.lclusters_for(file.size));
            let heads: Vec<usize> =
                (0..lclusters.len()).filter(|&i| matches!(lclusters[i], Lcluster::Head(_))).collect();
            for (lcn, lcluster) in lclusters.iter().enumerate() {
                if let Lcluster::NonHead { delta0, delta1 } = lcluster {
                    let head = *heads.iter().rev().find(|&&head| head < lcn).unwrap();
                    let next = *heads.iter().find(|&&head| head > lcn).unwrap_or(&lclusters.len());
                    prop_assert_eq!(usize::from(delta0.distance()), (lcn - head).min(0x7ff));
                    prop_assert_eq!(usize::from(*delta1), next - lcn);
                }
            }
            let starts: Vec<u64> = heads
                .iter()
                .map(|&head| match lclusters[head] {
                    Lcluster::Head(Head { clusterofs, .. }) => {
                        u64::try_from(head).unwrap() * file.cluster.bytes64() + u64::from(clusterofs)
                    }
                    Lcluster::NonHead { .. } => u64::MAX,
                })
                .filter(|&start| start < file.size)
                .collect();
            prop_assert_eq!(starts, file.pclusters.iter().map(|p| p.start.get()).collect::<Vec<_>>());
        }

        #[test]
        fn any_pclusters_end(starts in vec((0u64..20000, 0u16..3000), 0..20), size in 0u64..30000, big_pclusters: bool) {
            let cluster = ClusterSize::new(BlockSize::DEFAULT, 0).unwrap();
            let pclusters = starts.into_iter().map(|(start, blocks)| pcluster(start, blocks));
            let count = Lclusters::new(pclusters, size, cluster, big_pclusters).count();
            prop_assert!(u64::try_from(count).unwrap() <= cluster.lclusters_for(size) + 1);
        }
    }

    fn pcluster(start: u64, blocks: u16) -> Pcluster {
        let (start, addr) = (FileOffset::new(start), BlockAddr::new(9));
        Pcluster { start, kind: HeadKind::Head1, addr, blocks, partial_ref: false, hole: false }
    }

    #[test]
    fn refuses_what_an_index_cannot_store() {
        let cluster = ClusterSize::new(BlockSize::DEFAULT, 0).unwrap();
        let ok = |size, big_pclusters, list: &[(u64, u16)]| {
            let list = list.iter().map(|&(start, blocks)| pcluster(start, blocks));
            Lclusters::new(list, size, cluster, big_pclusters).all(|lcluster| lcluster.is_ok())
        };
        assert!(ok(0, false, &[]));
        assert!(ok(1, false, &[(0, 1)]));
        assert!(ok(9000, true, &[(0, 2), (8200, 1)]));
        assert!(!ok(9000, false, &[(0, 2)]));
        assert!(!ok(9000, true, &[(0, 2), (4096, 1)]));
        assert!(ok(9000, true, &[(0, 2047)]) && !ok(9000, true, &[(0, 2048)]));
        assert!(!ok(9000, true, &[(1, 1)]));
        assert!(!ok(9000, true, &[]));
        assert!(!ok(9000, true, &[(0, 1), (9000, 1)]));
        assert!(!ok(8192, true, &[(0, 1), (8192, 1)]));
        assert!(!ok(9000, true, &[(0, 1), (6000, 1), (5000, 1)]));
        assert!(!ok(9000, true, &[(0, 1), (5000, 1), (6000, 1)]));
    }
}
