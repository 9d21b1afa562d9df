//! Feature bits of the superblock. Source: FORMAT.md 1.

use bitflags::bitflags;

bitflags! {
    /// Features that a reader may ignore.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// The checksum field is valid.
        const SB_CHKSUM = 0x1;
        /// Times are modification times.
        const MTIME = 0x2;
        /// Inodes have xattr name filters.
        const XATTR_FILTER = 0x4;
        /// Shared xattrs are in the metabox.
        const SHARED_EA_IN_METABOX = 0x8;
        /// Long xattr prefixes are on disk at their position, not in the packed inode or the
        /// metabox.
        const PLAIN_XATTR_PFX = 0x10;
        /// Inodes have digests for page-cache sharing.
        const ISHARE_XATTRS = 0x20;
        const _ = !0;
    }
}

bitflags! {
    /// Features that a reader must support. Some bits announce two features, which came to Linux
    /// with different versions.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Encoded data is right-aligned in its pcluster (Linux 5.4).
        const LZ4_0PADDING = 0x1;
        /// Per-algorithm configurations follow the superblock (5.13).
        const COMPR_CFGS = 0x2;
        /// Pclusters of more than one block (5.13).
        const BIG_PCLUSTER = 0x2;
        /// Chunk-based files (5.15).
        const CHUNKED_FILE = 0x4;
        /// Extra devices (5.16).
        const DEVICE_TABLE = 0x8;
        /// A second algorithm in one file (5.16).
        const COMPR_HEAD2 = 0x8;
        /// The last pcluster may follow the index (5.17).
        const ZTAILPACKING = 0x10;
        /// Tails and small files in the packed inode (6.1).
        const FRAGMENTS = 0x20;
        /// Extents that share pclusters (6.1).
        const DEDUPE = 0x20;
        /// Long xattr name prefixes (6.4).
        const XATTR_PREFIXES = 0x40;
        /// 48-bit block addresses and encoded extents (6.15).
        const BIT48 = 0x80;
        /// Metadata in a compressed inode (6.17).
        const METABOX = 0x100;
    }
}
