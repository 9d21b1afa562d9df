//! The methods of an image for programs that look at its structures, as a checker does, or that
//! limit its work, as a server does. They are in a file of their own so that the documentation of
//! [`Image`] has them last.

use std::sync::Arc;

use ferofs_format::algorithm::CompressionConfigs;
use ferofs_format::device::DeviceSlot;
use ferofs_format::units::to_u64;
use ferofs_format::xattr::{Entry, LongPrefix, NameFilter};
use ferofs_format::{BytePos, DeviceId, FileOffset, Structure};

use crate::accounting::budget::Budget;
use crate::content::InodeReader;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::metadata::ReadMetadata;
use crate::metadata::inode::Inode;
use crate::metadata::xattr;
use crate::volume::MetadataPlace;

/// For programs that look at the structures of an image, or limit the work that it causes.
#[doc(hidden)]
impl Image {
    /// Reads like [`Self::read_at`], but ends before a pcluster that does not fit `buf`, unless the
    /// range starts in that pcluster. A caller that continues there decodes no pcluster twice.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_whole_at(
        &self,
        inode: &Inode,
        offset: FileOffset,
        buf: &mut [u8],
    ) -> Result<usize> {
        self.content.read_whole_at(inode, offset, buf)
    }

    /// `inode` for several reads during one request, which share its map.
    #[must_use]
    pub fn reader<'a>(&'a self, inode: &'a Inode) -> InodeReader<'a> {
        InodeReader::new(&self.content, inode)
    }

    /// The algorithms' configurations.
    #[must_use]
    pub fn configs(&self) -> &CompressionConfigs {
        &self.content.volume.configs
    }

    /// The table of extra devices.
    #[must_use]
    pub fn device_slots(&self) -> &[DeviceSlot] {
        &self.content.volume.device_slots
    }

    /// The long xattr name prefixes.
    #[must_use]
    pub fn xattr_prefixes(&self) -> &[LongPrefix] {
        &self.prefixes
    }

    /// Size in bytes of a device, or `None` when there is no such device.
    #[must_use]
    pub fn device_size(&self, device: DeviceId) -> Option<u64> {
        self.content.volume.devices.size(device)
    }

    /// Fills `buf` with metadata, which belongs to a `structure`.
    pub fn read_metadata(
        &self,
        place: MetadataPlace,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        self.content.read_metadata(place, structure, buf)
    }

    /// The position of the next stored byte of the primary device, at or after `pos`, if its source
    /// knows its holes.
    pub fn next_stored(&self, pos: BytePos) -> BytePos {
        BytePos::new(self.content.volume.devices.primary().next_stored(pos.get()))
    }

    /// Fills `buf` from a device without any caching; `device` 0 is the unified address space.
    pub fn read_device(
        &self,
        device: DeviceId,
        pos: BytePos,
        structure: Structure,
        buf: &mut [u8],
    ) -> Result<()> {
        self.content.volume.budget.charge_bytes(to_u64(buf.len()))?;
        let (source, pos) = self.content.volume.source_of(device, pos, structure, buf.len())?;
        source.read_exact_at(pos.get(), buf).map_err(Error::unreadable)
    }

    /// Calls `each` with each entry, and with its place if it is shared; returns the name filter.
    pub fn walk_xattrs(
        &self,
        inode: &Inode,
        each: impl FnMut(&Entry<'_>, Option<MetadataPlace>),
    ) -> Result<NameFilter> {
        xattr::walk(&*self.content, inode, each)
    }

    /// The limit on the work that this image may cause. Code whose work depends on the contents of
    /// the image charges it here.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.content.volume.budget
    }

    /// Charges the work of making a path of `len` bytes: in a deep tree, paths are far longer than
    /// the names in the image.
    ///
    /// # Errors
    /// As [`Budget::charge`].
    pub fn charge_path(&self, len: usize) -> Result<()> {
        self.budget().charge_bytes(to_u64(len))
    }

    /// Whether both are opened from the same files.
    #[must_use]
    pub fn is_same_image(&self, other: &Self) -> bool {
        self.content.volume.devices.are_same(&other.content.volume.devices)
    }

    /// Whether both are handles of one opened image.
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.content.engine, &other.content.engine)
    }

    /// The device that holds `pos`, and the position in it; device 0 is the unified address space.
    pub fn physical(&self, device: DeviceId, pos: BytePos) -> Option<(DeviceId, BytePos)> {
        self.content.volume.devices.physical(device, pos)
    }

    /// Whether `len` bytes at `pos` lie within a device.
    #[must_use]
    pub fn has_range(&self, device: DeviceId, pos: BytePos, len: u64) -> bool {
        self.content.volume.has_range(device, pos, len)
    }

    /// Runs one request of a server. It fails after about half a second of work, so that no image
    /// can block the server's threads.
    pub fn request<T>(request: impl FnOnce() -> T) -> T {
        Budget::request(request)
    }
}
