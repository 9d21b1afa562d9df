//! The workers: check an inode's fields, attributes and map, and decode its content if the options
//! ask for that.
//!
//! Large files are divided into pieces, so that all processors work on one file.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use ferofs_format::inode::DataLayout;
use ferofs_format::xattr::{self, NamePrefix, acl};
use ferofs_format::{Fault, FileOffset, Incompat, Nid, Structure};

use super::checker::Checker;
use super::linux::{ChunkOrder, LinuxDecoders, confuses_attributes};
use super::paths::Name;
use super::queue::Queue;
use ferofs_format::units::to_u64;
use ferofs_read::device_range::DeviceRange;
use ferofs_read::error::{Corruption, Error, Result};
use ferofs_read::{Extent, ExtentData, Extents, FileType, Inode};

/// Decoded bytes of a piece, from which on it ends. Only stored extents are divided, so a piece can
/// be longer.
const PIECE_BYTES: u64 = 4 << 20;
const OTHER_THAN_ZEROES: &str =
    "the cluster of a hole is not one of zeroes: Linux before 7.2 reads other bytes, or an error";
/// Extents of a piece at most.
const PIECE_EXTENTS: usize = 4096;
/// Bytes that are decoded at once.
pub(super) const BUFFER_SIZE: usize = 1 << 20;
const NANOS: u32 = 1_000_000_000;

/// An inode to check, or the remainder of its content.
#[derive(Clone, Debug)]
pub(super) struct Task {
    name: Name,
    inode: Inode,
    from: FileOffset,
    chunks: ChunkOrder,
}

impl Task {
    pub(super) fn new(name: Name, inode: Inode) -> Self {
        Self { name, inode, from: FileOffset::new(0), chunks: ChunkOrder::default() }
    }
}

impl Checker<'_> {
    /// Checks an inode and the first piece of its content, or another piece.
    pub(super) fn check_inode(&self, task: Task, tasks: &Queue<Task>, buffer: &mut [u8]) {
        if self.findings.has_failed() {
            return;
        }
        let Task { name, inode, from, chunks } = &task;
        let mut chunks = *chunks;
        let extents = self.value_of(name, self.image.extents(inode, *from));
        if from.get() == 0 {
            self.check_fields(name, inode);
            self.check_metadata(name, inode, extents.as_ref());
        }
        let Some(extents) = extents else { return };
        let piece = self.plan(name, inode, *from, extents, &mut chunks);
        if let Some(from) = piece.next {
            tasks.push_remainder(Task { name: name.clone(), inode: inode.clone(), from, chunks });
        }
        if self.decodes(inode) {
            self.decode(name, inode, &piece, buffer);
            for hole in &piece.holes {
                let result = self.check_hole(inode, hole, buffer);
                self.findings.value_of(|| self.paths.path(name), Some(hole), result);
            }
        } else if self.content {
            self.check_linux(name, inode, &piece, buffer);
        }
    }

    /// Whether all content of `inode` is decoded here. Directories and symbolic links were read in
    /// any case.
    fn decodes(&self, inode: &Inode) -> bool {
        self.content && inode.file_type() == FileType::Regular
    }

    /// Checks the inode's fields, link target and extended attributes.
    fn check_fields(&self, name: &Name, inode: &Inode) {
        let nid = inode.nid();
        let disk = inode.on_disk();
        if disk.mtime.nanos >= NANOS {
            let fault = Fault::Field { field: "i_mtime_nsec", value: disk.mtime.nanos.into() };
            self.report(name, Corruption::new(Structure::Inode, fault).of(nid));
        }
        if inode.file_type() == FileType::Symlink {
            self.value_of(name, self.image.read_link(inode));
        }
        // A count of 1 means a region without attributes: Linux refuses to list it.
        if disk.xattr_icount == 1 {
            let fault = Fault::Field { field: "i_xattr_icount", value: 1 };
            self.report(name, Corruption::new(Structure::Xattr, fault).of(nid));
        }
        if disk.xattr_icount > 0 {
            self.check_xattrs(name, inode);
        }
    }

    fn check_xattrs(&self, name: &Name, inode: &Inode) {
        let mut names = Vec::new();
        let mut shared = Vec::new();
        let mut faults = HashSet::new();
        let table = self.image.xattr_prefixes();
        let mut has_inline = false;
        let walked = self.image.walk_xattrs(inode, |entry, place| {
            has_inline |= place.is_none();
            // Readers skip an empty entry: `--root-xattr-isize` writes it to reserve space.
            if entry.index.raw() == 0 && entry.name.is_empty() && entry.value.is_empty() {
                return;
            }
            if let Some(place) = place {
                shared.push((place, entry.size()));
            }
            match entry.index.resolve(table) {
                Some((prefix, infix)) => {
                    if prefix.is_whole_name() && !acl::is_valid(entry.value) {
                        faults.insert((
                            "ACL size",
                            u64::try_from(entry.value.len()).unwrap_or(u64::MAX),
                        ));
                    }
                    names.push((prefix, [infix, entry.name].concat()));
                }
                // Linux does not list a long prefix without a short one, like that of digests.
                None if entry.index.long_number().is_some_and(|number| number < table.len()) => {}
                None => drop(faults.insert(("e_name_index", u64::from(entry.index.raw())))),
            }
        });
        if names.iter().any(|(prefix, rest)| !is_valid_name(*prefix, rest)) {
            self.report(name, Corruption::new(Structure::Xattr, Fault::Name).of(inode.nid()));
        }
        for (field, value) in faults {
            let corruption = Corruption::new(Structure::Xattr, Fault::Field { field, value });
            self.report(name, corruption.of(inode.nid()));
        }
        let Some(filter) = self.value_of(name, walked) else { return };
        if let (true, Some((first, _)), Ok(end)) = (has_inline, shared.first(), inode.end())
            && confuses_attributes(end, *first)
        {
            const WHAT: &str = "shared attributes that Linux looks for among those of the inode";
            self.report(
                name,
                Corruption::new(Structure::Xattr, Fault::LinuxReads(WHAT)).of(inode.nid()),
            );
        }
        let filtered = self.image.superblock().xattr_filter;
        if filtered && names.iter().any(|(prefix, rest)| !filter.may_contain(*prefix, rest)) {
            self.report(name, Corruption::new(Structure::Xattr, Fault::NameFilter).of(inode.nid()));
        }
        let count = names.len();
        let mut sorted: Vec<_> =
            names.into_iter().map(|(prefix, rest)| (prefix.index(), rest)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < count {
            self.report(
                name,
                Corruption::new(Structure::Xattr, Fault::DuplicateName).of(inode.nid()),
            );
        }
        let mut used = self.used_space();
        for (place, size) in shared {
            used.add_shared_xattr(place, u64::try_from(size).unwrap_or(u64::MAX));
        }
    }

    /// Adds the inode and its map to the used space, and compares the map with the feature flags.
    fn check_metadata(&self, name: &Name, inode: &Inode, extents: Option<&Extents<'_>>) {
        let end = match extents {
            Some(extents) => extents.metadata_end(),
            None => inode.end(),
        };
        let Some(end) = self.value_of(name, end) else { return };
        let superblock = self.image.superblock();
        let limit = self.image.device_size(ferofs_format::DeviceId::new(0)).unwrap_or(0);
        if !end.in_metabox && end.pos.get() > limit {
            let fault = Fault::OutOfRange { field: "map", value: end.pos.get(), limit };
            self.report(
                name,
                Corruption::new(Structure::Inode, fault).at(inode.place().pos).of(inode.nid()),
            );
            return;
        }
        // In the metabox, the end cannot be compared with a device's size: ranges of more than 16
        // MiB are not added.
        if !end.in_metabox || end.pos.get().saturating_sub(inode.place().pos.get()) <= 1 << 24 {
            self.used_space().add_inode(inode.place(), end.pos);
        }
        // Linux reads chunk-based files without this flag, and erofs-utils 1.9.4 does not set it
        // for tar indexes.
        let announced = superblock.incompat | Incompat::CHUNKED_FILE;
        let padded =
            if inode.layout().is_compressed() { Incompat::LZ4_0PADDING } else { Incompat::empty() };
        let missing = extents.map(|extents| (extents.features() | padded).difference(announced));
        if let Some((feature, _)) = missing.and_then(|missing| missing.iter_names().next()) {
            let fault = Fault::FeatureNotSet(feature);
            self.report(name, Corruption::new(Structure::Inode, fault).of(inode.nid()));
        }
    }

    /// Checks the extents of a piece, and collects those to be decoded.
    fn plan(
        &self,
        name: &Name,
        inode: &Inode,
        from: FileOffset,
        mut extents: Extents<'_>,
        chunks: &mut ChunkOrder,
    ) -> FilePiece {
        let mut piece = FilePiece { extents: Vec::new(), holes: Vec::new(), next: None };
        let decoded = self.decodes(inode);
        // Bytes to be decoded. Holes do not count.
        let mut bytes = 0u64;
        let mut ranges = Vec::new();
        let in_index = inode.layout().is_compressed() && !extents.are_records();
        while let Some(extent) = extents.next() {
            let Some(mut extent) = self.value_of(name, extent) else { break };
            self.value_of(name, extents.check_steps(&extent));
            if inode.layout() == DataLayout::ChunkBased
                && let Err(Error::Corrupt(corruption)) = chunks.check(&extent)
            {
                self.report(name, corruption.of(inode.nid()));
            }
            match self.location(inode.nid(), &extent) {
                Ok(range) => ranges.extend(range),
                Err(error) => {
                    self.findings.value_of::<()>(
                        || self.paths.path(name),
                        Some(&extent),
                        Err(error),
                    );
                    continue;
                }
            }
            let in_device =
                matches!(extent.data, ExtentData::Stored { .. } | ExtentData::Interlaced { .. });
            if in_device && decoded {
                // A stored extent can be divided.
                let start = extent.start.get().max(from.get());
                let end = extent.end().min(start.saturating_add(PIECE_BYTES.saturating_sub(bytes)));
                extent = Extent {
                    start: FileOffset::new(start),
                    len: end.saturating_sub(start),
                    ..extent
                };
            }
            let next = extent.end();
            if !matches!(extent.data, ExtentData::Hole | ExtentData::Fragment { .. }) {
                if decoded {
                    bytes = bytes.saturating_add(extent.len);
                }
                piece.extents.push(extent);
            } else if extent.data == ExtentData::Hole && in_index {
                // `check_hole` reports a damaged cluster.
                if let Ok(Some(range)) = self.cluster_of_hole(inode, &extent) {
                    ranges.push(range);
                }
                piece.holes.push(extent);
            }
            if next < inode.size()
                && (bytes >= PIECE_BYTES
                    || piece.extents.len().max(piece.holes.len()) >= PIECE_EXTENTS)
            {
                piece.next = Some(FileOffset::new(next));
                break;
            }
        }
        let mut used = self.used_space();
        for range in ranges {
            used.add_data(&range);
        }
        piece
    }

    /// The bytes that an extent uses; an error if they are outside of the image.
    fn location(&self, nid: Nid, extent: &Extent) -> Result<Option<DeviceRange>> {
        let ExtentData::Fragment { offset } = extent.data else {
            return DeviceRange::of(self.image, extent).map_err(|error| match error {
                Error::Corrupt(corruption) => Error::Corrupt(corruption.of(nid)),
                other => other,
            });
        };
        let bad = |fault| Err(Corruption::new(Structure::PackedInode, fault).of(nid).into());
        if self.image.superblock().packed == Some(nid) {
            return bad(Fault::Recursion);
        }
        match self.packed_size {
            None => {
                // The packed inode exists, but cannot be read.
                self.image
                    .superblock()
                    .packed
                    .map_or(Ok(()), |nid| self.image.inode(nid).map(drop))?;
                bad(Fault::FeatureNotSet("FRAGMENTS"))
            }
            Some(limit) if offset.get().checked_add(extent.len).is_none_or(|end| end > limit) => {
                bad(Fault::OutOfRange { field: "h_fragmentoff", value: offset.get(), limit })
            }
            Some(_) => Ok(None),
        }
    }

    /// Decodes a piece. Fragments are not in it: the packed inode is decoded as a file of its own.
    fn decode(&self, name: &Name, inode: &Inode, piece: &FilePiece, buffer: &mut [u8]) {
        let mut linux = LinuxDecoders::new(self.image);
        let mut unread = &piece.extents[..];
        while let [first, ..] = unread {
            // Consecutive extents that fit into the buffer are read with one call.
            let start = first.start.get();
            let capacity = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
            let mut end = first.end();
            let mut count = 1usize;
            for next in unread.get(1..).unwrap_or_default() {
                if next.start.get() != end || next.end().saturating_sub(start) > capacity {
                    break;
                }
                end = next.end();
                count = count.saturating_add(1);
            }
            let (run, later) = unread.split_at(count);
            unread = later;
            let all_read = count > 1 && self.read(inode, start, end, buffer).is_ok();
            for extent in run {
                // If reading all at once failed, each is read alone, to find the damaged ones.
                let result = match all_read {
                    true => Ok(()),
                    false => self.read(inode, extent.start.get(), extent.end(), buffer),
                };
                let result = result.and_then(|()| linux.check(extent));
                self.findings.value_of(|| self.paths.path(name), Some(extent), result);
            }
        }
    }

    /// The bytes of the pcluster of a marked hole.
    fn cluster_of_hole(&self, inode: &Inode, hole: &Extent) -> Result<Option<DeviceRange>> {
        let extent = self.image.reader(inode).without_hole_marks()?.extent_at(hole.start)?;
        extent.map_or(Ok(None), |extent| DeviceRange::of(self.image, &extent))
    }

    /// Checks that the pcluster of a marked hole decodes to zeroes, which Linux before 7.2 reads.
    fn check_hole(&self, inode: &Inode, hole: &Extent, buffer: &mut [u8]) -> Result<()> {
        let mut reader = self.image.reader(inode).without_hole_marks()?;
        let other = || {
            Corruption::new(Structure::Extent, Fault::OlderLinux(OTHER_THAN_ZEROES)).of(inode.nid())
        };
        let mut at = hole.start.get();
        while at < hole.end() {
            let wanted = usize::try_from(hole.end().saturating_sub(at)).unwrap_or(usize::MAX);
            let (part, _) = buffer.split_at_mut(wanted.min(buffer.len()));
            match reader.read_at(FileOffset::new(at), part) {
                Ok(read) if part.iter().all(|byte| *byte == 0) => {
                    at = at.saturating_add(to_u64(read.max(1)))
                }
                Ok(_) | Err(Error::Corrupt(_)) => return Err(other().into()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Checks whether Linux accepts the clusters of a compressed directory or symbolic link. The
    /// walk and [`Self::check_fields`] read their content, and report clusters that ferofs cannot
    /// decode.
    fn check_linux(&self, name: &Name, inode: &Inode, piece: &FilePiece, buffer: &mut [u8]) {
        let mut linux = LinuxDecoders::new(self.image);
        for extent in
            piece.extents.iter().filter(|extent| matches!(extent.data, ExtentData::Encoded { .. }))
        {
            match self.read_extent(inode, extent.start.get(), extent.end(), buffer) {
                Ok(()) => self.findings.value_of(
                    || self.paths.path(name),
                    Some(extent),
                    linux.check(extent),
                ),
                Err(error) => self.unless_ended::<()>(Err(error)),
            };
        }
    }

    fn read(&self, inode: &Inode, start: u64, end: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_extent(inode, start, end, buffer)?;
        self.content_bytes.fetch_add(end.saturating_sub(start), Ordering::Relaxed);
        Ok(())
    }

    fn read_extent(&self, inode: &Inode, start: u64, end: u64, buffer: &mut [u8]) -> Result<()> {
        let mut at = start;
        while at < end {
            let wanted = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let (part, _) = buffer.split_at_mut(wanted.min(buffer.len()));
            let read = self.image.read_at(inode, FileOffset::new(at), part)?;
            at = at.saturating_add(to_u64(read.max(1)));
        }
        Ok(())
    }
}

/// Whether programs can ask Linux for the attribute: its lists separate names by NUL, and it
/// refuses an empty name after a prefix, a name after that of an ACL, and long names.
fn is_valid_name(prefix: NamePrefix, rest: &[u8]) -> bool {
    prefix.is_whole_name() == rest.is_empty()
        && !rest.contains(&0)
        && prefix.text().len().saturating_add(rest.len()) <= xattr::NAME_MAX
}

struct FilePiece {
    /// Extents to be decoded.
    extents: Vec<Extent>,
    /// Holes for which older versions of Linux decode pclusters.
    holes: Vec<Extent>,
    /// The start of the next piece.
    next: Option<FileOffset>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_linux_refuses() {
        let long = [b'n'; 250];
        for (prefix, rest, valid) in [
            (NamePrefix::User, &b"note"[..], true),
            (NamePrefix::User, b"with/slash", true),
            (NamePrefix::User, &long, true),
            (NamePrefix::Trusted, &long, false),
            (NamePrefix::User, b"", false),
            (NamePrefix::User, b"a\0b", false),
            (NamePrefix::PosixAclAccess, b"", true),
            (NamePrefix::PosixAclAccess, b"x", false),
        ] {
            assert_eq!(is_valid_name(prefix, rest), valid, "{prefix:?} {rest:?}");
        }
    }
}
