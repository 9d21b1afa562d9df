//! Writes compact indexes as a stream: an lcluster that a compact index cannot store is an error
//! when it is pushed. Source: FORMAT.md 6.5.

use alloc::vec::Vec;

use super::{CompactIndex, MAX_SLOTS, PackPlace, fault};
use crate::error::{Fault, Result};
use crate::map::lcluster::{Delta0, Head, Lcluster, MAX_DISTANCE};

/// Writes a compact index, lcluster by lcluster.
///
/// A HEAD at address 0 has no blocks (its extent is inline, a fragment, or empty at the file's
/// end), and all later HEADs must be at 0, too. The address that a reader computes for them is
/// meaningless.
#[derive(Clone, Debug)]
struct CompactWriter {
    index: CompactIndex,
    next: u64,
    /// The HEAD of the current extent, and the last lcluster to which a `delta1` of the extent
    /// leads.
    extent: Option<(u64, u64)>,
    /// Whether a HEAD at address 0 was pushed.
    in_tail: bool,
    /// The last pack's base plus the blocks that it counts.
    next_base: u32,
    /// Whether the last HEAD's blocks are not yet in [`Self::next_base`]; only with big pclusters.
    head_uncounted: bool,
    place: Option<PackPlace>,
    filling: Filling,
}

/// The pack that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    records: [u16; MAX_SLOTS],
    used: usize,
    /// The base that follows from the first HEAD with an address.
    base: Option<u32>,
    /// The base if no HEAD has an address.
    default_base: u32,
    /// Blocks from the base to the next HEAD, without those of a HEAD that is not counted yet.
    blocks: u32,
    /// Whether the last HEAD is in this pack and its blocks are not yet in [`Self::blocks`].
    head_uncounted: bool,
}

impl CompactWriter {
    fn new(index: CompactIndex) -> Self {
        Self {
            index,
            next: 0,
            extent: None,
            in_tail: false,
            next_base: 0,
            head_uncounted: false,
            place: None,
            filling: Filling::default(),
        }
    }

    /// Adds the next lcluster. If that completes its pack, or is the file's last lcluster, appends
    /// the pack to `out`.
    fn push(&mut self, lcluster: &Lcluster, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.next >= self.index.lclusters {
            return Err(Fault::Map("too many lclusters"));
        }
        let place = match self.place {
            Some(place) => place,
            None => self.begin(lcluster)?,
        };
        let value = match lcluster {
            Lcluster::Head(head) => self.head(head)?,
            Lcluster::NonHead { delta0, delta1 } => {
                let last = self.filling.used.saturating_add(1) == usize::from(place.kind.slots());
                self.non_head(*delta0, *delta1, last)?
            }
        };
        let kind = u16::from(lcluster.type_bits()).wrapping_shl(self.index.value_bits().into());
        if let Some(record) = self.filling.records.get_mut(self.filling.used) {
            *record = kind | value;
        }
        self.filling.used = self.filling.used.saturating_add(1);
        self.next = self.next.saturating_add(1);
        if self.filling.used == usize::from(place.kind.slots()) || self.next == self.index.lclusters
        {
            self.emit(place, out);
        }
        Ok(())
    }

    fn begin(&mut self, first: &Lcluster) -> Result<PackPlace, Fault> {
        let place = self.index.locate(self.next).ok_or(Fault::Overflow("i_size"))?;
        // A block count gives the blocks of the previous pack's last HEAD; without one it has one
        // block.
        let counts = matches!(first, Lcluster::NonHead { delta0: Delta0::BlockCount(_), .. });
        let default_base = self.next_base.wrapping_add(u32::from(self.head_uncounted && !counts));
        self.filling = Filling { default_base, ..Filling::default() };
        self.place = Some(place);
        Ok(place)
    }

    fn head(&mut self, head: &Head) -> Result<u16, Fault> {
        self.check_delta1()?;
        if head.partial_ref || head.hole {
            return Err(Fault::Map(
                "a compact index has no partial references and no marks of holes",
            ));
        }
        let limit = self.index.cluster.bytes64();
        if u64::from(head.clusterofs) >= limit {
            return Err(Fault::OutOfRange {
                field: "clusterofs",
                value: head.clusterofs.into(),
                limit,
            });
        }
        let filling = &mut self.filling;
        if !self.index.big_pclusters || filling.head_uncounted {
            filling.blocks = filling.blocks.wrapping_add(1);
        }
        filling.head_uncounted = self.index.big_pclusters;
        let addr = head.addr.get();
        if addr != 0 {
            let addr = u32::try_from(addr).map_err(|_| Fault::OutOfRange {
                field: "blkaddr",
                value: addr,
                limit: 1 << 32,
            })?;
            let base = addr.wrapping_sub(filling.blocks);
            if self.in_tail || *filling.base.get_or_insert(base) != base {
                return Err(Fault::Map("addresses in a pack do not follow each other"));
            }
        }
        self.in_tail |= addr == 0;
        self.extent = Some((self.next, self.next));
        Ok(head.clusterofs)
    }

    fn non_head(&mut self, delta0: Delta0, delta1: u16, last: bool) -> Result<u16, Fault> {
        let Some((head, furthest)) = &mut self.extent else {
            return Err(Fault::Map("the first lcluster is not a HEAD"));
        };
        let distance = self.next.saturating_sub(*head);
        let fits = match delta0 {
            Delta0::Distance(n) => {
                u64::from(n) == distance.min(MAX_DISTANCE.into())
                    && !(self.index.big_pclusters && n == 1)
            }
            Delta0::BlockCount(n) => {
                self.index.big_pclusters && distance == 1 && (n != 0 || self.in_tail)
            }
        };
        if !fits || delta1 == 0 {
            return Err(Fault::Map("distances do not lead to the HEAD"));
        }
        *furthest = (*furthest).max(self.next.saturating_add(delta1.into()));
        if let Delta0::BlockCount(n) = delta0 {
            self.filling.blocks = self.filling.blocks.wrapping_add(n.into());
            self.filling.head_uncounted = false;
            self.head_uncounted = false;
        } else if last {
            return Ok(delta1.min(MAX_DISTANCE));
        }
        delta0.encode()
    }

    fn check_delta1(&self) -> Result<(), Fault> {
        match self.extent {
            Some((_, furthest)) if furthest > self.next => {
                Err(Fault::Map("delta[1] points past the next HEAD"))
            }
            _ => Ok(()),
        }
    }

    fn emit(&mut self, place: PackPlace, out: &mut Vec<u8>) {
        let Filling { records, base, default_base, blocks, head_uncounted, .. } = self.filling;
        let base = base.unwrap_or(default_base);
        let mut pending: u64 = 0;
        let mut bits: u32 = 0;
        for record in records.iter().take(place.kind.slots().into()) {
            pending |= u64::from(*record).wrapping_shl(bits);
            bits = bits.saturating_add(place.kind.bits().into());
            while let Some(rest) = bits.checked_sub(u8::BITS) {
                let [byte, ..] = pending.to_le_bytes();
                out.push(byte);
                pending >>= u8::BITS;
                bits = rest;
            }
        }
        out.extend_from_slice(&base.to_le_bytes());
        self.next_base = base.wrapping_add(blocks);
        self.head_uncounted = head_uncounted;
        self.place = None;
    }
}

/// Appends the whole index to `out`.
///
/// # Errors
/// [`Fault::Map`] for what compact indexes cannot store: a partial reference, the mark of a hole,
/// addresses within a pack that do not follow each other, one NONHEAD after a HEAD without the
/// block count that big pclusters need; for distances that do not lead to the HEAD, a `delta1` that
/// points past the end, and too many or too few lclusters. [`Fault::OutOfRange`] for an address
/// beyond 32 bits or an offset outside the lcluster. Or the iterator's own.
pub(crate) fn encode(
    index: CompactIndex,
    lclusters: impl IntoIterator<Item = Result<Lcluster>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut writer = CompactWriter::new(index);
    for lcluster in lclusters {
        writer.push(&lcluster?, out).map_err(fault)?;
    }
    if writer.next != index.lclusters {
        return Err(fault(Fault::Map("lclusters are missing")));
    }
    writer.check_delta1().map_err(fault)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::map::header::{IndexFormat, IndexHeader, Tail};
    use crate::map::lcluster::tests::{File, files};
    use crate::map::lcluster::{HeadKind, Pcluster};
    use crate::units::{BlockAddr, BlockSize, BytePos, ClusterSize, FileOffset, Lcn};
    use proptest::prelude::*;

    fn index(file: &File, compacted_2b: bool, header_end: u64) -> Result<CompactIndex> {
        let header = IndexHeader {
            format: IndexFormat::Compact { compacted_2b },
            cluster: file.cluster,
            algorithms: [Algorithm::Lz4; 2],
            big_pclusters: [file.big_pclusters; 2],
            interlaced: false,
            tail: Tail::Blocks,
        };
        CompactIndex::new(BytePos::new(header_end), file.size, file.block, &header)
    }

    fn write(index: CompactIndex, lclusters: &[Lcluster]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        encode(index, lclusters.iter().copied().map(Ok), &mut bytes).map(|()| bytes)
    }

    /// Decodes `lcn` from its pack's bytes alone.
    fn get(index: CompactIndex, bytes: &[u8], lcn: u64) -> Result<Lcluster> {
        let place = index.place(Lcn::new(lcn))?;
        let start = usize::try_from(place.pos().checked_sub(index.start).unwrap()).unwrap();
        index.pack(place, &bytes[start..start + place.size()])?.get(Lcn::new(lcn))
    }

    proptest! {
        #[test]
        fn reads_what_was_written(file in files(), compacted_2b: bool, at in 0u64..64) {
            let Ok(index) = index(&file, compacted_2b, at * 8) else {
                prop_assert!(file.cluster.bits() > 12);
                return Ok(());
            };
            let lclusters = file.lclusters();
            let bytes = write(index, &lclusters).unwrap();
            prop_assert_eq!(index.end().checked_sub(index.start), u64::try_from(bytes.len()).ok());
            let mut next_head = index.lclusters;
            for (lcn, lcluster) in (0..index.lclusters).rev().zip(lclusters.iter().rev()) {
                match (get(index, &bytes, lcn).unwrap(), *lcluster) {
                    (Lcluster::Head(mut read), Lcluster::Head(head)) => {
                        next_head = lcn;
                        if head.addr.get() == 0 {
                            read.addr = head.addr;
                        }
                        prop_assert_eq!(read, head);
                    }
                    (Lcluster::NonHead { delta0, delta1 }, Lcluster::NonHead { delta0: wanted, .. }) => {
                        prop_assert_eq!(delta0, wanted);
                        prop_assert!(delta1 > 0 && lcn + u64::from(delta1) <= next_head);
                        // Only the last record of a pack, as a block count or at the limit, stops
                        // short.
                        let place = index.place(Lcn::new(lcn)).unwrap();
                        let end = place.first().get() + place.slots();
                        let stops = lcn + u64::from(delta1);
                        prop_assert!(stops == next_head || stops == end || stops == end + 2046);
                    }
                    (read, wanted) => prop_assert_eq!(read, wanted),
                }
            }
        }

        #[test]
        fn garbage_never_panics(file in files(), compacted_2b: bool, at: u64, lcn: u64, bytes: [u8; 32], last: bool) {
            if let Ok(index) = index(&file, compacted_2b, at) {
                let lcn = Lcn::new(if last { index.lclusters - 1 } else { lcn });
                let place = index.place(lcn);
                prop_assert_eq!(place.is_ok(), lcn.get() < index.lclusters);
                if let Ok(place) = place {
                    let pack = index.pack(place, &bytes).unwrap();
                    for slot in 0..=place.slots() {
                        let _ = pack.get(Lcn::new(place.first().get() + slot));
                    }
                    prop_assert!(index.pack(place, &bytes[..7]).is_err());
                }
            }
        }

        #[test]
        fn any_lclusters_are_taken_or_refused(file in files(), lclusters in proptest::collection::vec(any_lcluster(), 0..40)) {
            if let Ok(index) = index(&file, true, 8) {
                let _ = write(index, &lclusters);
            }
        }
    }

    fn any_lcluster() -> impl Strategy<Value = Lcluster> {
        let kind = prop_oneof![Just(HeadKind::Plain), Just(HeadKind::Head1), Just(HeadKind::Head2)];
        let head = (kind, any::<u16>(), 0u64..3 << 31).prop_map(|(kind, clusterofs, addr)| {
            Lcluster::Head(Head {
                kind,
                clusterofs,
                addr: BlockAddr::new(addr),
                partial_ref: false,
                hole: false,
            })
        });
        let delta0 = prop_oneof![
            any::<u16>().prop_map(Delta0::Distance),
            any::<u16>().prop_map(Delta0::BlockCount),
            (1u16..4).prop_map(Delta0::Distance)
        ];
        prop_oneof![
            head,
            (delta0, any::<u16>())
                .prop_map(|(delta0, delta1)| Lcluster::NonHead { delta0, delta1 })
        ]
    }

    fn head(addr: u64) -> Lcluster {
        let addr = BlockAddr::new(addr);
        Lcluster::Head(Head {
            kind: HeadKind::Head1,
            clusterofs: 0,
            addr,
            partial_ref: false,
            hole: false,
        })
    }

    fn small(lclusters: &[Lcluster], big_pclusters: bool) -> Result<Vec<u8>> {
        let block = BlockSize::DEFAULT;
        let cluster = ClusterSize::new(block, 0).unwrap();
        let size = u64::try_from(lclusters.len()).unwrap() * 4096;
        let file = File { block, cluster, big_pclusters, size, pclusters: Vec::new() };
        write(index(&file, true, 0)?, lclusters)
    }

    #[test]
    fn packs_without_an_address_continue_after_the_data_before() {
        let (block, cluster) =
            (BlockSize::DEFAULT, ClusterSize::new(BlockSize::DEFAULT, 0).unwrap());
        let bases = |lclusters: u64, pclusters: &[(u64, u64, u16)]| {
            let pclusters = pclusters.iter().map(|&(lcn, addr, blocks)| Pcluster {
                start: FileOffset::new(lcn * 4096),
                kind: HeadKind::Head1,
                addr: BlockAddr::new(addr),
                blocks,
                partial_ref: false,
                hole: false,
            });
            let (size, pclusters) = (lclusters * 4096, pclusters.collect());
            let file = File { block, cluster, big_pclusters: true, size, pclusters };
            let bytes = write(index(&file, false, 8).unwrap(), &file.lclusters()).unwrap();
            let base = |pack: &[u8]| u32::from_le_bytes(pack[4..].try_into().unwrap());
            bytes.chunks(8).map(base).collect::<Vec<_>>()
        };
        // The second pack starts with the block count of the extent before, and with inline data.
        assert_eq!(bases(6, &[(0, 10, 1), (1, 11, 3)]), [10, 11, 14]);
        assert_eq!(bases(4, &[(0, 10, 1), (1, 11, 1), (2, 0, 0)]), [10, 12]);
    }

    #[test]
    fn refuses_what_it_cannot_store() {
        let delta0 = |n, delta1| Lcluster::NonHead { delta0: Delta0::Distance(n), delta1 };
        let blocks = |n, delta1| Lcluster::NonHead { delta0: Delta0::BlockCount(n), delta1 };
        assert!(small(&[head(9), head(10)], false).is_ok());
        assert!(small(&[head(9), head(11)], false).is_err());
        assert!(small(&[head(9), head(10), head(30), head(31)], false).is_ok());
        assert!(small(&[head(9), head(0)], false).is_ok());
        assert!(small(&[head(0), head(9)], false).is_err());
        assert!(small(&[head(1 << 32)], false).is_err());
        assert!(small(&[head(9), delta0(1, 1)], false).is_ok());
        assert!(small(&[head(9), delta0(1, 1)], true).is_err());
        assert!(small(&[head(9), delta0(1, 2)], false).is_err());
        assert!(small(&[head(9), delta0(2, 1)], false).is_err());
        assert!(small(&[delta0(1, 1)], false).is_err());
        assert!(small(&[head(9), blocks(3, 1)], false).is_err());
        assert!(small(&[head(9), blocks(0, 1)], true).is_err());
        assert!(small(&[head(0), blocks(0, 1)], true).is_ok());
        assert!(small(&[head(9), blocks(3, 2), delta0(2, 1), head(12)], true).is_ok());
        assert!(small(&[head(9), blocks(3, 1), head(13), head(14)], true).is_ok());
        assert!(small(&[head(9), blocks(3, 1), head(13), head(15)], true).is_err());
        let Lcluster::Head(plain) = head(9) else { unreachable!("made as a HEAD") };
        assert!(small(&[Lcluster::Head(Head { partial_ref: true, ..plain })], false).is_err());
        assert!(small(&[Lcluster::Head(Head { hole: true, ..plain })], false).is_err());
        assert!(small(&[Lcluster::Head(Head { clusterofs: 4096, ..plain })], false).is_err());
    }

    #[test]
    fn distances_stay_at_their_limit() {
        let block = BlockSize::DEFAULT;
        let cluster = ClusterSize::new(block, 0).unwrap();
        let file =
            File { block, cluster, big_pclusters: false, size: 3000 * 4096, pclusters: Vec::new() };
        let index = index(&file, false, 0).unwrap();
        let rest = (1..3000).map(|lcn: u16| {
            let delta0 = Delta0::Distance(lcn.min(MAX_DISTANCE));
            Lcluster::NonHead { delta0, delta1: 3000 - lcn }
        });
        let bytes =
            write(index, &core::iter::once(head(9)).chain(rest).collect::<Vec<_>>()).unwrap();
        // The last of its pack, whose distance follows from the record before: not one more, which
        // would look like a block count.
        for lcn in [2047, 2049, 2999] {
            let Ok(Lcluster::NonHead { delta0, .. }) = get(index, &bytes, lcn) else {
                panic!("a NONHEAD")
            };
            assert_eq!(delta0, Delta0::Distance(MAX_DISTANCE));
        }
    }

    #[test]
    fn a_block_count_at_a_packs_start_counts() {
        // Packs of two: HEAD 50 ends the first one, its five blocks are said in the second.
        let count = Lcluster::NonHead { delta0: Delta0::BlockCount(5), delta1: 1 };
        let bytes = small(&[head(49), head(50), count, head(55)], true).unwrap();
        assert_eq!(bytes[4..8], 49u32.to_le_bytes());
        assert_eq!(bytes[12..16], 50u32.to_le_bytes());
        let block = BlockSize::DEFAULT;
        let cluster = ClusterSize::new(block, 0).unwrap();
        let file = File { block, cluster, big_pclusters: true, size: 16384, pclusters: Vec::new() };
        assert_eq!(get(index(&file, true, 0).unwrap(), &bytes, 3), Ok(head(55)));
    }
}
