//! Compressed files with full or compact indexes. Source: FORMAT.md 6.2 to 6.6.
//!
//! An extent starts in a HEAD lcluster and ends where the next one starts, so a look-up goes back
//! to the head and on to the next.

use ferofs_format::map::{
    Delta0, Head, HeadKind, Index, IndexHeader, Lcluster, MapHeader, PackPlace, Tail,
};
use ferofs_format::{BytePos, DeviceId, Fault, FileOffset, Incompat, Lcn, Structure};

use crate::error::{Corruption, Error, Locate, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::extent::{Extent, ExtentData, Location, MAX_DECODED, MAX_ENCODED};
use crate::metadata::inode::Inode;
use crate::metadata::slow_lookups::MANY_STEPS;
use crate::volume::MetadataPlace;

/// Steps at most to an extent's head or to the next one; a look-up with more is an error. No sound
/// index needs as many: 12 MiB of 512-byte lclusters are 24,576, and fragments, which may be
/// longer, take 2,047 lclusters at a step.
const MAX_STEPS: u32 = 1 << 16;

#[derive(Debug)]
pub(crate) struct IndexMap<'a> {
    metadata: &'a dyn ReadMetadata,
    inode: &'a Inode,
    header: IndexHeader,
    index: Index,
    /// The pack that was read last.
    pack: Option<(PackPlace, [u8; PackPlace::MAX])>,
    in_metabox: bool,
    /// Reads a marked hole as Linux before 7.2 does: from its pcluster.
    ignores_hole_marks: bool,
    /// Steps of the current look-up.
    steps: u32,
}

/// A HEAD lcluster, and its number.
#[derive(Clone, Copy, Debug)]
struct Found {
    lcn: Lcn,
    head: Head,
}

impl<'a> IndexMap<'a> {
    /// The index whose header ends at `header_end`.
    pub(crate) fn open(
        metadata: &'a dyn ReadMetadata,
        inode: &'a Inode,
        header: IndexHeader,
        header_end: MetadataPlace,
    ) -> Result<Self> {
        let pos = header_end.pos;
        let block_size = metadata.volume().superblock.block_size;
        let index = Index::open(pos, inode.size(), block_size, &header).located_at(pos)?;
        Ok(Self {
            metadata,
            inode,
            header,
            index,
            pack: None,
            in_metabox: header_end.in_metabox,
            ignores_hole_marks: false,
            steps: 0,
        })
    }

    pub(crate) const fn ignore_hole_marks(&mut self) {
        self.ignores_hole_marks = true;
    }

    pub(crate) fn extent_at(&mut self, offset: FileOffset) -> Result<Extent> {
        if self.ignores_hole_marks {
            self.steps = 0;
            return self.look_up(offset);
        }
        let lookups = self.metadata.slow_lookups();
        if let Some(extent) = lookups.extent(self.inode.nid(), offset) {
            return Ok(extent);
        }
        self.steps = 0;
        let extent = self.look_up(offset)?;
        if self.steps > MANY_STEPS {
            lookups.remember_extent(self.inode.nid(), extent);
        }
        Ok(extent)
    }

    fn look_up(&mut self, offset: FileOffset) -> Result<Extent> {
        let cluster = self.header.cluster;
        let lcn = cluster.lcn(offset);
        let within = offset.get() & cluster.mask();
        let (found, end) = match self.lcluster(lcn)? {
            Lcluster::Head(head) if u64::from(head.clusterofs) <= within => {
                let found = Found { lcn, head };
                (found, self.next_start(lcn, 1)?)
            }
            Lcluster::Head(head) => {
                let end = self.start(Found { lcn, head })?;
                (self.look_back(lcn, 1)?, end.get())
            }
            Lcluster::NonHead { delta0, delta1 } => {
                (self.look_back(lcn, delta0.distance())?, self.next_start(lcn, delta1)?)
            }
        };
        let start = self.start(found)?;
        // Linux decodes up to the next head, even if that lies after the end.
        if end > self.inode.size() {
            return Err(self.bad(Fault::Map("a head lies after the end of the file")));
        }
        let Some(len) = end.checked_sub(start.get()).filter(|&len| len > 0) else {
            return Err(self.bad(Fault::Map("extents out of order")));
        };
        let data = self.data(found, start, len, end == self.inode.size())?;
        Ok(Extent { start, len, data })
    }

    /// Fails unless a look-up from any lcluster of `extent`, which was found from its start, finds
    /// the same.
    pub(crate) fn check_steps(&mut self, extent: &Extent) -> Result<()> {
        self.check_records(extent)?;
        // The last check, because it gives only a warning.
        let head = self.header.cluster.lcn(extent.start);
        if extent.data == ExtentData::Hole
            && !matches!(self.lcluster(head)?, Lcluster::Head(Head { hole: true, .. }))
        {
            return Err(self.bad(Fault::OlderLinux(
                "a hole is marked by a block count of 0: Linux before 7.2 reads other bytes, or an error",
            )));
        }
        Ok(())
    }

    fn check_records(&mut self, extent: &Extent) -> Result<()> {
        let cluster = self.header.cluster;
        let head = cluster.lcn(extent.start).get();
        // After the last extent there may be a head without data.
        let is_last = extent.end() >= self.inode.size();
        let next = cluster.lcn(FileOffset::new(extent.end())).get();
        for lcn in head.saturating_add(1)..self.index.lclusters().min(next.saturating_add(1)) {
            let (delta0, delta1) = match self.lcluster(Lcn::new(lcn))? {
                Lcluster::NonHead { delta0, delta1 } => (delta0, delta1),
                // The mark stays in force if Linux 7.2 reads this record before that of the
                // extent's head, or instead of a block count.
                Lcluster::Head(after)
                    if lcn == next
                        && after.hole
                        && extent.data != ExtentData::Hole
                        && (after.clusterofs > 0
                            || self.needs_block_count(Lcn::new(head), lcn)?) =>
                {
                    return Err(self.bad(Fault::LinuxReads(
                        "a hole follows in or right after the lcluster of this extent's head: Linux reads zeroes in both",
                    )));
                }
                Lcluster::Head(_) if lcn == next => break,
                Lcluster::Head(_) => {
                    return Err(
                        self.bad(Fault::Map("an extent continues past the next one's head"))
                    );
                }
            };
            // On its way back, Linux takes it for the size of this extent's pcluster.
            if lcn.saturating_sub(head) > 1 && matches!(delta0, Delta0::BlockCount(_)) {
                return Err(self.bad(Fault::Map("a block count is not right after its head")));
            }
            if lcn.saturating_sub(head) < delta0.distance().into() {
                return Err(self.bad(Fault::Map("the distance back is too large")));
            }
            if !is_last && next.saturating_sub(lcn) < delta1.into() {
                return Err(self.bad(Fault::Map("the distance to the next head is too large")));
            }
        }
        Ok(())
    }

    /// Whether Linux searches the record `next` for the number of blocks of the pcluster of `head`.
    fn needs_block_count(&mut self, head: Lcn, next: u64) -> Result<bool> {
        let [first, second] = self.header.big_pclusters;
        let is_big = match self.lcluster(head)? {
            Lcluster::Head(Head { kind: HeadKind::Head1, .. }) => first,
            _ => second,
        };
        Ok(is_big && next.saturating_sub(head.get()) == 1)
    }

    /// The HEAD that is `distance` lclusters before `lcn`, or further where records say so.
    fn look_back(&mut self, mut lcn: Lcn, mut distance: u16) -> Result<Found> {
        for _ in 0..MAX_STEPS {
            self.steps = self.steps.saturating_add(1);
            let before = lcn.get().checked_sub(distance.into());
            lcn = Lcn::new(
                before.ok_or_else(|| self.bad(Fault::Map("extent starts before the file")))?,
            );
            match self.lcluster(lcn)? {
                Lcluster::Head(head) => return Ok(Found { lcn, head }),
                Lcluster::NonHead { delta0, .. } => distance = delta0.distance(),
            }
        }
        Err(self.bad(Fault::Map("too many lclusters back to the head")))
    }

    /// The start of the next extent: the first HEAD at least `distance` lclusters after `lcn`.
    fn next_start(&mut self, lcn: Lcn, distance: u16) -> Result<u64> {
        let mut next = lcn.get().saturating_add(distance.into());
        for _ in 0..MAX_STEPS {
            self.steps = self.steps.saturating_add(1);
            if next >= self.index.lclusters() {
                return Ok(self.inode.size());
            }
            let lcn = Lcn::new(next);
            match self.lcluster(lcn)? {
                Lcluster::Head(head) => return Ok(self.start(Found { lcn, head })?.get()),
                Lcluster::NonHead { delta1, .. } => next = next.saturating_add(delta1.into()),
            }
        }
        Err(self.bad(Fault::Map("too many lclusters to the next head")))
    }

    fn start(&self, found: Found) -> Result<FileOffset> {
        let start = self.header.cluster.start(found.lcn);
        start
            .and_then(|start| start.checked_add(found.head.clusterofs.into()))
            .ok_or_else(|| self.bad(Fault::Overflow("clusterofs")))
    }

    fn data(
        &mut self,
        found: Found,
        start: FileOffset,
        len: u64,
        at_end: bool,
    ) -> Result<ExtentData> {
        let Found { head, .. } = found;
        match self.header.tail {
            Tail::Fragment { .. } if at_end && head.hole => {
                return Err(self.bad(Fault::Map("a fragment is marked as a hole")));
            }
            Tail::Fragment { offset } if at_end => {
                let offset = FileOffset::new(self.index.fragment_offset(&head, offset));
                return Ok(ExtentData::Fragment { offset });
            }
            Tail::Inline { size } if at_end => {
                let at = self.inline_tail(size)?;
                return self.encoding(head, at, size.into(), start, len, false);
            }
            _ => {}
        }
        if head.hole && !self.ignores_hole_marks {
            return Ok(ExtentData::Hole);
        }
        let block_size = self.metadata.volume().superblock.block_size;
        let pos =
            head.addr.to_pos(block_size).ok_or_else(|| self.bad(Fault::Overflow("blkaddr")))?;
        let encoded_len = self.encoded_len(found)?;
        if encoded_len == 0 {
            return Ok(ExtentData::Hole);
        }
        let at = Location::Device(DeviceId::new(0), pos);
        self.encoding(head, at, encoded_len, start, len, self.header.interlaced)
    }

    fn encoding(
        &self,
        head: Head,
        at: Location,
        encoded_len: u64,
        start: FileOffset,
        len: u64,
        interlaced: bool,
    ) -> Result<ExtentData> {
        // Without a block count, a pcluster is as large as an lcluster, which can have 128 MiB.
        if encoded_len > MAX_ENCODED {
            return Err(self.bad(Fault::Map("pcluster is longer than 1 MiB")));
        }
        let [first, second] = self.header.algorithms;
        let algorithm = match head.kind {
            HeadKind::Plain => {
                if len > encoded_len {
                    return Err(self.bad(Fault::Map("stored extent is longer than its pcluster")));
                }
                let in_block = start.get() & self.metadata.volume().superblock.block_size.mask();
                // Rotation moves nothing when the extent starts with a block of the file.
                return Ok(match interlaced && in_block != 0 {
                    true if len > self.metadata.volume().superblock.block_size.bytes64() => {
                        return Err(self.bad(Fault::Map("rotated extent is longer than a block")));
                    }
                    true => ExtentData::Interlaced { at },
                    false => ExtentData::Stored { at },
                });
            }
            HeadKind::Head1 => first,
            HeadKind::Head2 => second,
        };
        if !self.metadata.volume().configs.contains(algorithm) {
            return Err(self.bad(Fault::FeatureNotSet(algorithm.name())));
        }
        if len > MAX_DECODED {
            return Err(self.bad(Fault::Map("extent is longer than 12 MiB")));
        }
        Ok(ExtentData::Encoded { algorithm, at, encoded_len, partial: head.partial_ref })
    }

    /// Bytes of a pcluster on blocks of its own: an lcluster's, unless the record after its HEAD
    /// has a block count; 0 for a hole.
    fn encoded_len(&mut self, found: Found) -> Result<u64> {
        let [first, second] = self.header.big_pclusters;
        let big = if found.head.kind == HeadKind::Head2 { second } else { first };
        let next = Lcn::new(found.lcn.get().saturating_add(1));
        if !big || next.get() >= self.index.lclusters() {
            return Ok(self.header.cluster.bytes64());
        }
        match self.lcluster(next)? {
            Lcluster::Head(_) => Ok(self.header.cluster.bytes64()),
            Lcluster::NonHead { delta0: Delta0::BlockCount(blocks), .. } => {
                let len = u64::from(blocks) << self.metadata.volume().superblock.block_size.bits();
                if len > MAX_ENCODED {
                    return Err(self.bad(Fault::Map("pcluster is longer than 1 MiB")));
                }
                Ok(len)
            }
            Lcluster::NonHead { .. } => Err(self.bad(Fault::Map("block count is missing"))),
        }
    }

    /// The place of the inline tail: right after the index, within a block.
    fn inline_tail(&self, size: u16) -> Result<Location> {
        let pos = self.index.end();
        let block_size = self.metadata.volume().superblock.block_size;
        if pos.in_block(block_size).saturating_add(size.into()) > block_size.bytes64() {
            let fault = Fault::Map("inline data crosses a block's end");
            return Err(Corruption::new(Structure::InlineData, fault).at(pos).into());
        }
        Ok(Location::Metadata(self.place(pos)))
    }

    #[expect(clippy::indexing_slicing, reason = "a pack has at most `PackPlace::MAX` bytes")]
    fn lcluster(&mut self, lcn: Lcn) -> Result<Lcluster> {
        let place = self.index.place(lcn).located_at(self.index.start())?;
        let at = self.place(place.pos());
        let bytes = match &mut self.pack {
            Some((read, bytes)) if *read == place => bytes,
            pack => {
                let mut bytes = [0; PackPlace::MAX];
                let read = &mut bytes[..place.size()];
                self.metadata.read_metadata(at, self.index.structure(), read)?;
                &mut pack.insert((place, bytes)).1
            }
        };
        self.index.decode(lcn, place, bytes).located_at(place.pos())
    }

    fn place(&self, pos: BytePos) -> MetadataPlace {
        MetadataPlace { in_metabox: self.in_metabox, pos }
    }

    fn bad(&self, fault: Fault) -> Error {
        Corruption::new(self.index.structure(), fault).at(self.index.start()).into()
    }

    pub(crate) fn metadata_end(&self) -> Result<MetadataPlace> {
        let end = self.index.end();
        match self.header.tail {
            Tail::Inline { size } => self.place(end).offset(size.into()),
            _ => Ok(self.place(end)),
        }
    }

    pub(crate) fn features(&self) -> Incompat {
        MapHeader::Index(self.header).features()
    }
}
