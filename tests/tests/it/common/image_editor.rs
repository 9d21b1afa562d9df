//! Changes fields of an image: finds inodes and dirents by path, in images that ferofs built, and
//! overwrites their fields. Source of the offsets: FORMAT.md 1 to 3.

/// Offset of the superblock.
pub(crate) const SUPER: usize = 1024;
/// Offsets in an inode, of either version.
pub(crate) const I_FORMAT: usize = 0;
pub(crate) const I_XATTR_ICOUNT: usize = 2;
pub(crate) const I_MODE: usize = 4;
pub(crate) const I_SIZE: usize = 8;
pub(crate) const I_U: usize = 0x10;
/// Offsets in a dirent.
pub(crate) const D_NAMEOFF: usize = 8;
pub(crate) const D_TYPE: usize = 10;

/// An image to change. Its checksum feature is removed.
#[derive(Clone)]
pub(crate) struct ImageEditor {
    pub(crate) bytes: Vec<u8>,
}

/// A dirent: its offset, the range of its name, and its nid.
#[derive(Clone, Debug)]
pub(crate) struct Dirent {
    pub(crate) at: usize,
    pub(crate) name: std::ops::Range<usize>,
    pub(crate) nid: u64,
}

impl ImageEditor {
    pub(crate) fn new(mut image: Vec<u8>) -> Self {
        image[SUPER + 8] &= !1;
        Self { bytes: image }
    }

    pub(crate) fn number(&self, at: usize, len: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&self.bytes[at..][..len]);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn put(&mut self, at: usize, value: u64, len: usize) {
        self.bytes[at..][..len].copy_from_slice(&value.to_le_bytes()[..len]);
    }

    fn block_size(&self) -> usize {
        1 << self.bytes[SUPER + 0x0C]
    }

    pub(crate) fn root(&self) -> u64 {
        self.number(SUPER + 0x0E, 2)
    }

    /// The offset of the inode.
    pub(crate) fn inode(&self, nid: u64) -> usize {
        self.number(SUPER + 0x28, 4) as usize * self.block_size() + nid as usize * 32
    }

    /// The offset after the inode and its xattrs: inline data, or the compression map after
    /// rounding up to 8.
    pub(crate) fn after(&self, nid: u64) -> usize {
        let inode = self.inode(nid);
        let body = if self.bytes[inode] & 1 == 1 { 64 } else { 32 };
        let xattrs = match self.number(inode + I_XATTR_ICOUNT, 2) as usize {
            0 => 0,
            count => 12 + (count - 1) * 4,
        };
        inode + body + xattrs
    }

    pub(crate) fn layout(&self, nid: u64) -> u8 {
        self.bytes[self.inode(nid)] >> 1 & 7
    }

    fn size(&self, nid: u64) -> usize {
        let inode = self.inode(nid);
        self.number(inode + I_SIZE, if self.bytes[inode] & 1 == 1 { 8 } else { 4 }) as usize
    }

    /// Overwrites an inode's size, truncated to the width of its version.
    pub(crate) fn put_size(&mut self, nid: u64, size: u64) {
        let inode = self.inode(nid);
        let len = if self.bytes[inode] & 1 == 1 { 8 } else { 4 };
        self.put(inode + I_SIZE, size, len);
    }

    /// All dirents of a directory.
    pub(crate) fn dirents(&self, nid: u64) -> Vec<Dirent> {
        let (size, block_size) = (self.size(nid), self.block_size());
        let start = self.number(self.inode(nid) + I_U, 4) as usize * block_size;
        let mut dirents = Vec::new();
        for block in 0..size.div_ceil(block_size) {
            let len = block_size.min(size - block * block_size);
            let inline = self.layout(nid) == 2 && len < block_size;
            let base = if inline { self.after(nid) } else { start + block * block_size };
            let count = self.number(base + D_NAMEOFF, 2) as usize / 12;
            for n in 0..count {
                let at = base + n * 12;
                let from = base + self.number(at + D_NAMEOFF, 2) as usize;
                let to = if n + 1 < count {
                    base + self.number(at + 12 + D_NAMEOFF, 2) as usize
                } else {
                    let end = base + len;
                    self.bytes[from..end]
                        .iter()
                        .position(|byte| *byte == 0)
                        .map_or(end, |nul| from + nul)
                };
                dirents.push(Dirent { at, name: from..to, nid: self.number(at, 8) });
            }
        }
        dirents
    }

    pub(crate) fn find(&self, path: &str) -> Dirent {
        let mut nid = self.root();
        let mut found = None;
        for name in path.split('/') {
            let dirents = self.dirents(nid);
            let dirent =
                dirents.into_iter().find(|d| self.bytes[d.name.clone()] == *name.as_bytes());
            let dirent = dirent.unwrap_or_else(|| panic!("no {name} of {path} in the image"));
            nid = dirent.nid;
            found = Some(dirent);
        }
        found.unwrap()
    }
}
