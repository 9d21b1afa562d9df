//! Extended attributes of an inode, inline and shared. Source: FORMAT.md 4.

use ferofs_format::xattr::{
    ENTRY_HEADER_SIZE, Entry, LongPrefix, NameFilter, NamePrefix, Region, shared_pos,
};
use ferofs_format::{BytePos, Compat, Fault, Structure};

use super::image::{Image, MetadataPlace};
use super::inode::Inode;
use crate::error::{Corruption, Locate, OfInode, Result};

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The full name, such as `user.note`.
    pub name: Vec<u8>,
    /// The value, at most 65,535 bytes.
    pub value: Vec<u8>,
}

impl Image {
    /// All extended attributes of `inode`, in stored order.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`].
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut all = Vec::new();
        self.each_xattr(inode, |entry| {
            // A prefix that this program does not know makes one name unreadable, but not the inode.
            if let Some(name) = entry.full_name(self.xattr_prefixes()) {
                all.push(Xattr { name, value: entry.value.to_vec() });
            }
        })?;
        Ok(all)
    }

    /// The value of the extended attribute called `name`, if `inode` has it.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`].
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((prefix, rest)) = NamePrefix::split(name) else { return Ok(None) };
        let mut found = None;
        self.each_xattr(inode, |entry| {
            if found.is_none() && entry.is_named(prefix, rest, self.xattr_prefixes()) {
                found = Some(entry.value.to_vec());
            }
        })?;
        Ok(found)
    }

    fn each_xattr(&self, inode: &Inode, mut each: impl FnMut(&Entry<'_>)) -> Result<()> {
        self.walk_xattrs(inode, |entry, _| each(entry)).map(drop)
    }

    /// Shows each entry, and where it stands if it is shared; gives the name filter.
    pub fn walk_xattrs(
        &self,
        inode: &Inode,
        mut each: impl FnMut(&Entry<'_>, Option<MetadataPlace>),
    ) -> Result<NameFilter> {
        let (place, len) = inode.xattr_region()?;
        let mut walk = || {
            let mut bytes = vec![0; len];
            if len > 0 {
                self.read_metadata(place, Structure::Xattr, &mut bytes)?;
            }
            let region = Region::parse(&bytes).located_at(place.pos)?;
            for id in region.shared() {
                let (place, bytes) = self.shared_xattr(id)?;
                each(&Entry::parse(&bytes).located_at(place.pos)?, Some(place));
            }
            for entry in region.entries() {
                each(&entry.located_at(place.pos)?, None);
            }
            Ok(region.filter)
        };
        walk().of_inode(inode.nid)
    }

    /// The bytes of shared entry `id`, and where they are.
    fn shared_xattr(&self, id: u32) -> Result<(MetadataPlace, Vec<u8>)> {
        let in_metabox = self.superblock().compat.contains(Compat::SHARED_EA_IN_METABOX);
        let overflow = || Corruption::new(Structure::Xattr, Fault::Overflow("xattr_blkaddr"));
        let area = self.superblock().xattr.to_pos(self.superblock().block_size).ok_or_else(overflow)?;
        let pos = shared_pos(area, id).ok_or_else(overflow)?;
        let place = MetadataPlace { in_metabox, pos };
        let mut header = [0; ENTRY_HEADER_SIZE];
        self.read_metadata(place, Structure::Xattr, &mut header)?;
        let mut bytes = vec![0; Entry::size_from_header(&header).located_at(pos)?];
        self.read_metadata(place, Structure::Xattr, &mut bytes)?;
        Ok((place, bytes))
    }

    /// Reads the table of long name prefixes.
    pub(super) fn read_prefixes(&self) -> Result<Vec<LongPrefix>> {
        let Some(table) = self.superblock().xattr_prefixes else { return Ok(Vec::new()) };
        let plain = self.superblock().compat.contains(Compat::PLAIN_XATTR_PFX);
        let holder = if plain { None } else { self.superblock().packed.or(self.superblock().metabox) };
        let holder = holder.map(|nid| self.inode(nid)).transpose()?;
        let read = |at: BytePos, buf: &mut [u8]| match &holder {
            Some(inode) => self.read_exact(inode, at, Structure::XattrPrefix, buf),
            None => self.read_metadata(MetadataPlace::on_device(at), Structure::XattrPrefix, buf),
        };
        let mut bytes = Vec::new();
        let mut at = table.start;
        for _ in 0..table.count {
            let mut size = [0; 2];
            read(at, &mut size)?;
            let record_len = size.len() + usize::from(u16::from_le_bytes(size));
            let start = bytes.len();
            bytes.resize(start + record_len, 0);
            read(at, &mut bytes[start..])?;
            bytes.resize((start + record_len).next_multiple_of(4), 0);
            let overflow = || Corruption::new(Structure::XattrPrefix, Fault::Overflow("xattr_prefix_start"));
            let next = at.checked_add(super::image::to_u64(bytes.len() - start)).ok_or_else(overflow)?;
            at = next;
        }
        LongPrefix::parse_table(&bytes, table.count).located_at(table.start)
    }
}
