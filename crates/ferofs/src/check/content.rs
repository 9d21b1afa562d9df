//! The workers' part: what an inode says by itself, its attributes, its map, and, when that is asked for, its content.
//!
//! Large files are taken in pieces, so that one file keeps all processors busy.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use ferofs_format::inode::DataLayout;
use ferofs_format::{Fault, FileOffset, Incompat, Nid, Structure};

use super::Checker;
use super::linux::{Chunks, Linux, confuses_attributes};
use super::paths::Name;
use super::queue::Queue;
use ferofs_read::claim::Claim;
use ferofs_read::error::{Corruption, Error, Result};
use ferofs_read::{Extent, ExtentData, Extents, FileType, Inode};

/// Decoded bytes of a piece, more or less: an extent is never cut, unless it is stored.
const PIECE_BYTES: u64 = 4 << 20;
/// Extents of a piece.
const PIECE_EXTENTS: usize = 4096;
/// Bytes decoded at once.
pub(super) const BUFFER_SIZE: usize = 1 << 20;
const NANOS: u32 = 1_000_000_000;

/// An inode to look at, or the rest of its content.
#[derive(Clone, Debug)]
pub(super) struct Work {
    name: Name,
    inode: Inode,
    from: FileOffset,
    chunks: Chunks,
}

impl Work {
    pub(super) fn new(name: Name, inode: Inode) -> Self {
        Self { name, inode, from: FileOffset::new(0), chunks: Chunks::default() }
    }
}

impl Checker<'_> {
    /// Looks at an inode, or at a piece of its content.
    pub(super) fn examine(&self, work: Work, works: &Queue<Work>, buffer: &mut [u8]) {
        if self.found.has_failed() {
            return;
        }
        let Work { name, inode, from, chunks } = &work;
        let mut chunks = *chunks;
        let extents = self.note(name, self.image.extents(inode, *from));
        if from.get() == 0 {
            self.attributes(name, inode);
            self.metadata(name, inode, extents.as_ref());
        }
        let Some(extents) = extents else { return };
        let piece = self.plan(name, inode, *from, extents, &mut chunks);
        if let Some(from) = piece.rest {
            works.push_rest(Work { name: name.clone(), inode: inode.clone(), from, chunks });
        }
        if self.decodes(inode) {
            self.decode(name, inode, &piece, buffer);
        } else if self.content {
            self.judge(name, inode, &piece, buffer);
        }
    }

    /// Whether all content of `inode` is decoded here. Directories and symbolic links were read in any case.
    fn decodes(&self, inode: &Inode) -> bool {
        self.content && inode.file_type() == FileType::Regular
    }

    /// What an inode says beside its map.
    fn attributes(&self, name: &Name, inode: &Inode) {
        let nid = inode.nid();
        let disk = inode.on_disk();
        if disk.mtime.nanos >= NANOS {
            let fault = Fault::Field { field: "i_mtime_nsec", value: disk.mtime.nanos.into() };
            self.find(name, Corruption::new(Structure::Inode, fault).of(nid));
        }
        if inode.file_type() == FileType::Symlink {
            self.note(name, self.image.read_link(inode));
        }
        // A region without attributes: Linux refuses to list it.
        if disk.xattr_icount == 1 {
            let fault = Fault::Field { field: "i_xattr_icount", value: 1 };
            self.find(name, Corruption::new(Structure::Xattr, fault).of(nid));
        }
        if disk.xattr_icount > 0 {
            self.xattrs(name, inode);
        }
    }

    fn xattrs(&self, name: &Name, inode: &Inode) {
        let mut names = Vec::new();
        let mut shared = Vec::new();
        let mut faults = HashSet::new();
        let table = self.image.xattr_prefixes();
        let mut has_inline = false;
        let walked = self.image.walk_xattrs(inode, |entry, place| {
            has_inline |= place.is_none();
            // Room for attributes to come, as `--root-xattr-isize` leaves it: readers pass over it.
            if entry.index.raw() == 0 && entry.name.is_empty() && entry.value.is_empty() {
                return;
            }
            if let Some(place) = place {
                shared.push((place, entry.size()));
            }
            match entry.index.resolve(table) {
                Some((prefix, infix)) => names.push((prefix, [infix, entry.name].concat())),
                // A long prefix without a short one: nobody lists it, as it is with digests.
                None if entry.index.long_number().is_some_and(|number| number < table.len()) => {}
                None => drop(faults.insert(("e_name_index", u64::from(entry.index.raw())))),
            }
        });
        for (field, value) in faults {
            let corruption = Corruption::new(Structure::Xattr, Fault::Field { field, value });
            self.find(name, corruption.of(inode.nid()));
        }
        let Some(filter) = self.note(name, walked) else { return };
        if let (true, Some((first, _)), Ok(end)) = (has_inline, shared.first(), inode.end())
            && confuses_attributes(end, *first)
        {
            const WHAT: &str = "shared attributes that Linux looks for among those of the inode";
            self.find(name, Corruption::new(Structure::Xattr, Fault::LinuxReads(WHAT)).of(inode.nid()));
        }
        let filtered = self.image.superblock().xattr_filter;
        if filtered && names.iter().any(|(prefix, rest)| !filter.may_contain(*prefix, rest)) {
            self.find(name, Corruption::new(Structure::Xattr, Fault::NameFilter).of(inode.nid()));
        }
        let count = names.len();
        let mut sorted: Vec<_> = names.into_iter().map(|(prefix, rest)| (prefix.index(), rest)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < count {
            self.find(name, Corruption::new(Structure::Xattr, Fault::DuplicateName).of(inode.nid()));
        }
        let mut claims = self.claims();
        for (place, size) in shared {
            claims.shared_xattr(place, u64::try_from(size).unwrap_or(u64::MAX));
        }
    }

    /// Claims the inode with its map, and compares the map with the features.
    fn metadata(&self, name: &Name, inode: &Inode, extents: Option<&Extents<'_>>) {
        let end = match extents {
            Some(extents) => extents.metadata_end(),
            None => inode.end(),
        };
        let Some(end) = self.note(name, end) else { return };
        let superblock = self.image.superblock();
        let limit = self.image.device_size(ferofs_format::DeviceId::new(0)).unwrap_or(0);
        if !end.in_metabox && end.pos.get() > limit {
            let fault = Fault::OutOfRange { field: "map", value: end.pos.get(), limit };
            self.find(name, Corruption::new(Structure::Inode, fault).at(inode.place().pos).of(inode.nid()));
            return;
        }
        // Of a metabox no more than was decoded.
        if !end.in_metabox || end.pos.get().saturating_sub(inode.place().pos.get()) <= 1 << 24 {
            self.claims().inode(inode.place(), end.pos);
        }
        // Linux reads chunks without this feature, and tar indexes of erofs-utils 1.9.4 do not announce it.
        let announced = superblock.incompat | Incompat::CHUNKED_FILE;
        let missing = extents.map(|extents| extents.features() - announced);
        if let Some((feature, _)) = missing.and_then(|missing| missing.iter_names().next()) {
            let fault = Fault::FeatureNotSet(feature);
            self.find(name, Corruption::new(Structure::Inode, fault).of(inode.nid()));
        }
    }

    /// Looks at the extents of a piece.
    fn plan(
        &self,
        name: &Name,
        inode: &Inode,
        from: FileOffset,
        mut extents: Extents<'_>,
        chunks: &mut Chunks,
    ) -> Piece {
        let mut piece = Piece { extents: Vec::new(), rest: None };
        let decoded = self.decodes(inode);
        // Bytes that are to be decoded: holes are passed over, however long they are.
        let mut bytes = 0u64;
        let mut claims = Vec::new();
        while let Some(extent) = extents.next() {
            let Some(mut extent) = self.note(name, extent) else { break };
            self.note(name, extents.check_steps(&extent));
            if inode.layout() == DataLayout::ChunkBased
                && let Err(Error::Corrupt(corruption)) = chunks.judge(&extent)
            {
                self.find(name, corruption.of(inode.nid()));
            }
            match self.place(inode.nid(), &extent) {
                Ok(claim) => claims.extend(claim),
                Err(error) => {
                    self.found.note::<()>(|| self.paths.path(name), Some(&extent), Err(error));
                    continue;
                }
            }
            let in_device = matches!(extent.data, ExtentData::Stored { .. } | ExtentData::Interlaced { .. });
            if in_device && decoded {
                // Stored data is read in parts.
                let start = extent.start.get().max(from.get());
                let end = extent.end().min(start.saturating_add(PIECE_BYTES.saturating_sub(bytes)));
                extent = Extent { start: FileOffset::new(start), len: end.saturating_sub(start), ..extent };
            }
            let next = extent.end();
            if !matches!(extent.data, ExtentData::Hole | ExtentData::Fragment { .. }) {
                if decoded {
                    bytes = bytes.saturating_add(extent.len);
                }
                piece.extents.push(extent);
            }
            if next < inode.size() && (bytes >= PIECE_BYTES || piece.extents.len() >= PIECE_EXTENTS) {
                piece.rest = Some(FileOffset::new(next));
                break;
            }
        }
        let mut all = self.claims();
        for claim in claims {
            all.data(&claim);
        }
        piece
    }

    /// What an extent claims; an error when it is nowhere.
    fn place(&self, nid: Nid, extent: &Extent) -> Result<Option<Claim>> {
        let ExtentData::Fragment { offset } = extent.data else {
            return Claim::of(self.image, extent).map_err(|error| match error {
                Error::Corrupt(corruption) => Error::Corrupt(corruption.of(nid)),
                other => other,
            });
        };
        let bad = |fault| Err(Corruption::new(Structure::PackedInode, fault).of(nid).into());
        if self.image.superblock().packed == Some(nid) {
            return bad(Fault::Recursion);
        }
        match self.packed_size {
            None => bad(Fault::FeatureNotSet("FRAGMENTS")),
            Some(limit) if offset.get().checked_add(extent.len).is_none_or(|end| end > limit) => {
                bad(Fault::OutOfRange { field: "h_fragmentoff", value: offset.get(), limit })
            }
            Some(_) => Ok(None),
        }
    }

    /// Decodes a piece. Fragments are left out, as the packed inode is decoded by itself.
    fn decode(&self, name: &Name, inode: &Inode, piece: &Piece, buffer: &mut [u8]) {
        let mut linux = Linux::new(self.image);
        let mut rest = &piece.extents[..];
        while let [first, ..] = rest {
            // As many as fit, so that the engine reads them with one call.
            let start = first.start.get();
            let room = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
            let mut end = first.end();
            let mut count = 1;
            for next in rest.get(1..).unwrap_or_default() {
                if next.start.get() != end || next.end() - start > room {
                    break;
                }
                end = next.end();
                count += 1;
            }
            let (run, later) = rest.split_at(count);
            rest = later;
            let all_read = count > 1 && self.read(inode, start, end, buffer).is_ok();
            for extent in run {
                // One by one, to tell the damaged ones from the others.
                let result = match all_read {
                    true => Ok(()),
                    false => self.read(inode, extent.start.get(), extent.end(), buffer),
                };
                let result = result.and_then(|()| linux.judge(extent));
                self.found.note(|| self.paths.path(name), Some(extent), result);
            }
        }
    }

    /// Judges the clusters of a compressed directory or symbolic link as Linux's decoders do. The walk and
    /// [`Self::attributes`] read their content, and report what our decoders refuse.
    fn judge(&self, name: &Name, inode: &Inode, piece: &Piece, buffer: &mut [u8]) {
        let mut linux = Linux::new(self.image);
        for extent in piece.extents.iter().filter(|extent| matches!(extent.data, ExtentData::Encoded { .. }))
        {
            match self.read_extent(inode, extent.start.get(), extent.end(), buffer) {
                Ok(()) => self.found.note(|| self.paths.path(name), Some(extent), linux.judge(extent)),
                Err(error) => self.unless_ended::<()>(Err(error)),
            };
        }
    }

    fn read(&self, inode: &Inode, start: u64, end: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_extent(inode, start, end, buffer)?;
        self.content_bytes.fetch_add(end - start, Ordering::Relaxed);
        Ok(())
    }

    fn read_extent(&self, inode: &Inode, start: u64, end: u64, buffer: &mut [u8]) -> Result<()> {
        let mut at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let read = self.image.read_at(inode, FileOffset::new(at), &mut buffer[..want])?;
            at += u64::try_from(read.max(1)).unwrap_or(1);
        }
        Ok(())
    }
}

/// A piece of a file.
struct Piece {
    /// Extents with data of their own.
    extents: Vec<Extent>,
    /// Where the next piece starts.
    rest: Option<FileOffset>,
}
