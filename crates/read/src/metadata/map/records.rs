//! Compressed files with encoded extents. Source: FORMAT.md 6.7.

use ferofs_format::map::{
    Encoding, ExtentIndex, ExtentRecord, ExtentsHeader, MapHeader, RecordSize, Records, extents,
};
use ferofs_format::{BytePos, DeviceId, Fault, FileOffset, Incompat, Structure};

use crate::error::{Corruption, Error, Locate, Result};
use crate::metadata::ReadMetadata;
use crate::metadata::extent::{Extent, ExtentData, Location, MAX_DECODED, MAX_ENCODED};
use crate::metadata::inode::Inode;
use crate::metadata::slow_lookups::MANY_STEPS;
use crate::volume::MetadataPlace;

/// Bytes of records that are summed up at once.
const SUM_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct RecordMap<'a> {
    metadata: &'a dyn ReadMetadata,
    inode: &'a Inode,
    header: ExtentsHeader,
    index: ExtentIndex,
    in_metabox: bool,
    /// A record whose data's start is known. Only for records of 4 bytes, whose data is
    /// consecutive.
    known: Option<(u64, BytePos)>,
}

impl<'a> RecordMap<'a> {
    /// The records whose header ends at `header_end`.
    pub(crate) fn open(
        metadata: &'a dyn ReadMetadata,
        inode: &'a Inode,
        header: ExtentsHeader,
        header_end: MetadataPlace,
    ) -> Result<Self> {
        let pos = header_end.pos;
        let index = ExtentIndex::new(pos, inode.size(), &header).located_at(pos)?;
        let in_metabox = header_end.in_metabox;
        let map = Self { metadata, inode, header, index, in_metabox, known: None };
        if index.count() == 0 {
            return Err(map.bad(Fault::Map("no extents")));
        }
        Ok(map)
    }

    pub(crate) fn extent_at(&mut self, offset: FileOffset) -> Result<Extent> {
        let size = self.inode.size();
        let (number, record, end) = match self.header.records {
            Records::Regular { unit, with_start } => {
                let number = unit.lcn(offset);
                let start =
                    unit.start(number).ok_or_else(|| self.bad(Fault::Overflow("lstart")))?;
                let number = number.get();
                let record =
                    if with_start { self.record(number)? } else { self.consecutive(number)? };
                (
                    number,
                    ExtentRecord { lstart: start, ..record },
                    start.get().saturating_add(unit.bytes64()),
                )
            }
            Records::Sorted { .. } => {
                let found = extents::search(self.index.count(), offset, |number| {
                    self.record(number).map(|record| record.lstart)
                })?;
                let number =
                    found.ok_or_else(|| self.bad(Fault::Map("does not start with the file")))?;
                let next = number.saturating_add(1);
                let end =
                    if next < self.index.count() { self.record(next)?.lstart.get() } else { size };
                (number, self.record(number)?, end)
            }
        };
        let start = record.lstart;
        let Some(len) = end.min(size).checked_sub(start.get()).filter(|&len| len > 0) else {
            return Err(self.bad(Fault::Map("extents out of order")));
        };
        let last = number.checked_add(1) == Some(self.index.count());
        if last && self.header.fragment_tail {
            let fragment = FileOffset::new(record.fragment_offset(self.size()));
            return Ok(Extent { start, len, data: ExtentData::Fragment { offset: fragment } });
        }
        Ok(Extent { start, len, data: self.data(&record, len)? })
    }

    /// Fails unless the records are in order, and start in the file: which one a search finds
    /// depends on the records that it looks at.
    pub(crate) fn check_order(&self) -> Result<()> {
        if matches!(self.header.records, Records::Regular { .. }) {
            return Ok(());
        }
        let mut last = None;
        for number in 0..self.index.count() {
            let start = self.record(number)?.lstart;
            if last.is_some_and(|last| start <= last) || start.get() > self.inode.size() {
                return Err(self.bad(Fault::Map("extents out of order")));
            }
            last = Some(start);
        }
        Ok(())
    }

    fn data(&self, record: &ExtentRecord, len: u64) -> Result<ExtentData> {
        let Encoding::Data { len: encoded_len, algorithm, partial_ref } =
            record.encoding().located_at(self.index.start())?
        else {
            return Ok(ExtentData::Hole);
        };
        let encoded_len = u64::from(encoded_len);
        let at = Location::Device(DeviceId::new(0), record.pstart);
        if encoded_len > MAX_ENCODED || len > MAX_DECODED {
            return Err(self.bad(Fault::Map("extent is longer than the format allows")));
        }
        // Linux reads all of it, even if the extent uses only a part.
        if !self.metadata.volume().has_range(DeviceId::new(0), record.pstart, encoded_len) {
            let limit = self.metadata.volume().devices.primary().size();
            let fault = Fault::OutOfRange { field: "pstart", value: record.pstart.get(), limit };
            return Err(self.bad(fault));
        }
        let Some(algorithm) = algorithm else {
            if len > encoded_len {
                return Err(self.bad(Fault::Map("stored extent is longer than its data")));
            }
            let block_size = self.metadata.volume().superblock.block_size;
            let in_block = record.lstart.get() & block_size.mask();
            // Only whole blocks are rotated.
            let rotated = self.header.interlaced
                && in_block != 0
                && record.pstart.in_block(block_size) == 0
                && encoded_len == block_size.bytes64();
            return Ok(if rotated {
                ExtentData::Interlaced { at }
            } else {
                ExtentData::Stored { at }
            });
        };
        if !self.metadata.volume().configs.contains(algorithm) {
            return Err(self.bad(Fault::FeatureNotSet(algorithm.name())));
        }
        Ok(ExtentData::Encoded { algorithm, at, encoded_len, partial: partial_ref })
    }

    #[expect(clippy::indexing_slicing, reason = "the largest record has 32 bytes")]
    fn record(&self, number: u64) -> Result<ExtentRecord> {
        let pos = self.index.pos(number).located_at(self.index.start())?;
        let mut bytes = [0; 32];
        let bytes = &mut bytes[..self.size().bytes()];
        let place = MetadataPlace { in_metabox: self.in_metabox, pos };
        self.metadata.read_metadata(place, Structure::EncodedExtent, bytes)?;
        ExtentRecord::parse(bytes, self.size()).located_at(pos)
    }

    /// Record `number` of a map whose data is consecutive: sums up the lengths before it.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`at` goes up to `number`, and `count` records fit `bytes`"
    )]
    fn consecutive(&mut self, number: u64) -> Result<ExtentRecord> {
        let remembered = || self.metadata.slow_lookups().sum(self.inode.nid(), number);
        let known = self.known.filter(|(known, _)| *known <= number).or_else(remembered);
        let (mut at, mut pstart) = match known {
            Some(known) => known,
            None => (0, self.leading_start()?),
        };
        let is_far = number - at > MANY_STEPS.into();
        let mut bytes = [0; SUM_BYTES];
        while at < number {
            let count = usize::try_from(number - at).unwrap_or(usize::MAX).min(SUM_BYTES / 4);
            let pos = self.index.pos(at).located_at(self.index.start())?;
            let place = MetadataPlace { in_metabox: self.in_metabox, pos };
            self.metadata.read_metadata(
                place,
                Structure::EncodedExtent,
                &mut bytes[..count * 4],
            )?;
            for record in bytes[..count * 4].chunks_exact(4) {
                let record = ExtentRecord::parse(record, self.size()).located_at(pos)?;
                if let Encoding::Data { len, .. } =
                    record.encoding().located_at(self.index.start())?
                {
                    let next = pstart.checked_add(len.into());
                    pstart = next.ok_or_else(|| self.bad(Fault::Overflow("pstart")))?;
                }
                at += 1;
            }
        }
        self.known = Some((number, pstart));
        if is_far {
            self.metadata.slow_lookups().remember_sum(self.inode.nid(), number, pstart);
        }
        Ok(ExtentRecord { pstart, ..self.record(number)? })
    }

    fn leading_start(&self) -> Result<BytePos> {
        let mut bytes = [0; 8];
        let place = MetadataPlace { in_metabox: self.in_metabox, pos: self.index.start() };
        self.metadata.read_metadata(place, Structure::EncodedExtent, &mut bytes)?;
        Ok(BytePos::new(u64::from_le_bytes(bytes)))
    }

    const fn size(&self) -> RecordSize {
        self.header.records.size()
    }

    fn bad(&self, fault: Fault) -> Error {
        Corruption::new(Structure::EncodedExtent, fault).at(self.index.start()).into()
    }

    pub(crate) fn metadata_end(&self) -> Result<MetadataPlace> {
        let start = MetadataPlace { in_metabox: self.in_metabox, pos: self.index.start() };
        start.offset(self.index.size())
    }

    pub(crate) fn features(&self) -> Incompat {
        MapHeader::Extents(self.header).features()
    }
}
