//! Full indexes: a record of eight bytes for each lcluster. Source: FORMAT.md 6.4.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::compact::{PackKind, PackPlace};
use super::header::IndexHeader;
use super::lcluster::{Delta0, Head, HeadKind, Lcluster};
use crate::error::{Fault, FormatError, Result, Structure};
use crate::units::{BlockAddr, BytePos, ClusterSize, Lcn, to_u64};
use crate::view::View;

/// Bytes of a record.
pub const RECORD_SIZE: usize = 8;
/// Bytes between the map header's end and the first record.
pub(super) const GAP: usize = 8;
const PARTIAL_REF: u16 = 1 << 15;
/// `Z_EROFS_LI_HOLE`. Linux before 7.2 ignores it, and reads the pcluster.
const HOLE: u16 = 1 << 14;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLclusterIndex {
    di_advise: U16,
    di_clusterofs: U16,
    /// `blkaddr`, or `delta[0]` and `delta[1]` of a NONHEAD.
    di_u: [u8; 4],
}

const _: () = assert!(core::mem::size_of::<RawLclusterIndex>() == RECORD_SIZE);

/// The position and the parameters of a file's full index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullIndex {
    pub(super) start: BytePos,
    pub(super) end: BytePos,
    pub(super) lclusters: u64,
    cluster: ClusterSize,
    big_pclusters: bool,
}

impl FullIndex {
    /// The index of a file of `size` bytes whose map header ends at `header_end`.
    ///
    /// # Errors
    /// [`Fault::Overflow`] if its end exceeds 64 bits.
    pub fn new(header_end: BytePos, size: u64, header: &IndexHeader) -> Result<Self> {
        let lclusters = header.cluster.lclusters_for(size);
        let start = header_end.checked_add(to_u64(GAP));
        let len = lclusters.checked_mul(to_u64(RECORD_SIZE));
        let end = start.zip(len).and_then(|(start, len)| start.checked_add(len));
        let Some((start, end)) = start.zip(end) else {
            return Err(FormatError::new(Structure::FullIndex, Fault::Overflow("i_size")));
        };
        Ok(Self {
            start,
            end,
            lclusters,
            cluster: header.cluster,
            big_pclusters: header.has_big_pclusters(),
        })
    }

    /// The record of `lcn` as a pack of one.
    ///
    /// # Errors
    /// [`Fault::OutOfRange`] past the last lcluster.
    pub fn place(&self, lcn: Lcn) -> Result<PackPlace> {
        let offset = Some(lcn.get()).filter(|lcn| *lcn < self.lclusters);
        let offset = offset.and_then(|lcn| lcn.checked_mul(to_u64(RECORD_SIZE)));
        let pos = offset.and_then(|offset| self.start.checked_add(offset)).ok_or_else(|| {
            let fault = Fault::OutOfRange { field: "lcn", value: lcn.get(), limit: self.lclusters };
            FormatError::new(Structure::FullIndex, fault)
        })?;
        Ok(PackPlace { pos, first: lcn, kind: PackKind::Full })
    }

    /// Reads the record of `lcn` at the start of `bytes`; more bytes may follow.
    ///
    /// # Errors
    /// [`Fault::Truncated`], an offset outside the lcluster, or a distance that leads before the
    /// file's start.
    pub fn decode(&self, lcn: Lcn, bytes: &[u8]) -> Result<Lcluster> {
        let raw = View::new(bytes, Structure::FullIndex).read::<RawLclusterIndex>()?;
        let advise = raw.di_advise.get();
        let [type_bits, _] = (advise & 3).to_le_bytes();
        let fault = |fault| FormatError::new(Structure::FullIndex, fault);
        let Some(kind) = HeadKind::from_bits(type_bits) else {
            let [a, b, c, d] = raw.di_u;
            let delta0 = Delta0::decode(u16::from_le_bytes([a, b]), lcn, self.big_pclusters)
                .map_err(fault)?;
            // Early versions of mkfs stored 0.
            return Ok(Lcluster::NonHead { delta0, delta1: u16::from_le_bytes([c, d]).max(1) });
        };
        let clusterofs = raw.di_clusterofs.get();
        if u64::from(clusterofs) >= self.cluster.bytes64() {
            return Err(fault(Fault::Field { field: "di_clusterofs", value: clusterofs.into() }));
        }
        Ok(Lcluster::Head(Head {
            kind,
            clusterofs,
            addr: BlockAddr::new(u32::from_le_bytes(raw.di_u).into()),
            partial_ref: advise & PARTIAL_REF != 0,
            hole: advise & HOLE != 0,
        }))
    }
}

/// The record of `lcluster`.
///
/// # Errors
/// [`Fault::OutOfRange`] for an address beyond 32 bits, [`Fault::Field`] for a distance or a number
/// of blocks that cannot be stored.
pub fn encode(lcluster: &Lcluster) -> Result<[u8; RECORD_SIZE]> {
    let fault = |fault| FormatError::new(Structure::FullIndex, fault);
    let (flags, clusterofs, di_u) = match *lcluster {
        Lcluster::Head(head) => {
            let addr = u32::try_from(head.addr.get()).map_err(|_| {
                fault(Fault::OutOfRange {
                    field: "blkaddr",
                    value: head.addr.get(),
                    limit: 1 << 32,
                })
            })?;
            let partial_ref = if head.partial_ref { PARTIAL_REF } else { 0 };
            let hole = if head.hole { HOLE } else { 0 };
            (partial_ref | hole, head.clusterofs, addr.to_le_bytes())
        }
        Lcluster::NonHead { delta0, delta1 } => {
            let [a, b] = delta0.encode().map_err(fault)?.to_le_bytes();
            let [c, d] = delta1.to_le_bytes();
            (0, 0, [a, b, c, d])
        }
    };
    let di_advise = u16::from(lcluster.type_bits()) | flags;
    let raw =
        RawLclusterIndex { di_advise: di_advise.into(), di_clusterofs: clusterofs.into(), di_u };
    Ok(zerocopy::transmute!(raw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::map::header::{IndexFormat, Tail};
    use crate::map::lcluster::tests::{File, files};
    use crate::units::BlockSize;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn index(file: &File) -> FullIndex {
        let header = IndexHeader {
            format: IndexFormat::Full,
            cluster: file.cluster,
            algorithms: [Algorithm::Lz4; 2],
            big_pclusters: [file.big_pclusters, false],
            interlaced: false,
            tail: Tail::Blocks,
        };
        FullIndex::new(BytePos::new(1000), file.size, &header).unwrap()
    }

    proptest! {
        #[test]
        fn round_trips(file in files(), partial: bool, hole: bool) {
            let index = index(&file);
            let mut bytes = Vec::new();
            let mut lclusters = file.lclusters();
            for lcluster in &mut lclusters {
                if let Lcluster::Head(head) = lcluster {
                    head.partial_ref = partial;
                    head.hole = hole;
                }
                bytes.extend_from_slice(&encode(lcluster).unwrap());
            }
            prop_assert_eq!(index.end.checked_sub(index.start), Some(to_u64(bytes.len())));
            for (lcn, lcluster) in (0..).map(Lcn::new).zip(&lclusters) {
                let at = index.place(lcn).unwrap().pos().checked_sub(index.start).unwrap();
                let record = &bytes[usize::try_from(at).unwrap()..];
                prop_assert_eq!(index.decode(lcn, record).unwrap(), *lcluster);
            }
            prop_assert!(index.place(Lcn::new(index.lclusters)).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, lcn: u64, size: u64, extra in 0u8..=15, big_pclusters: bool, end: u64) {
            let cluster = ClusterSize::new(BlockSize::DEFAULT, extra).unwrap();
            let file = File { block: BlockSize::DEFAULT, cluster, big_pclusters, size: 1, pclusters: Vec::new() };
            if let Ok(lcluster) = index(&file).decode(Lcn::new(lcn), &bytes) {
                prop_assert!(encode(&lcluster).is_ok());
            }
            let header = IndexHeader {
                format: IndexFormat::Full,
                cluster,
                algorithms: [Algorithm::Lz4; 2],
                big_pclusters: [big_pclusters; 2],
                interlaced: false,
                tail: Tail::Blocks,
            };
            if let Ok(index) = FullIndex::new(BytePos::new(end), size, &header) {
                prop_assert_eq!(index.place(Lcn::new(lcn)).is_ok(), lcn < index.lclusters);
            }
        }
    }

    #[test]
    fn refuses_invalid_records() {
        let cluster = ClusterSize::new(BlockSize::DEFAULT, 0).unwrap();
        let file = File {
            block: BlockSize::DEFAULT,
            cluster,
            big_pclusters: false,
            size: 9000,
            pclusters: Vec::new(),
        };
        let decode = |lcn, bytes: [u8; 8]| index(&file).decode(Lcn::new(lcn), &bytes);
        assert!(decode(2, [2, 0, 0, 0, 2, 0, 1, 0]).is_ok());
        assert!(decode(1, [2, 0, 0, 0, 2, 0, 1, 0]).is_err());
        assert!(decode(1, [2, 0, 0, 0, 0, 0, 1, 0]).is_err());
        assert!(decode(1, [2, 0, 0, 0, 1, 8, 1, 0]).is_err());
        assert!(decode(1, [1, 0, 0, 16, 0, 0, 0, 0]).is_err());
        let far = Head {
            kind: HeadKind::Plain,
            clusterofs: 0,
            addr: BlockAddr::new(1 << 32),
            partial_ref: false,
            hole: false,
        };
        assert!(encode(&Lcluster::Head(far)).is_err());
        assert!(
            encode(&Lcluster::NonHead { delta0: Delta0::BlockCount(0x800), delta1: 1 }).is_err()
        );
        assert!(encode(&Lcluster::NonHead { delta0: Delta0::Distance(0), delta1: 1 }).is_err());
    }
}
