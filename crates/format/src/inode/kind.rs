//! The file types, data layouts and device numbers of inodes. Source: FORMAT.md 2.

/// The type of a file. An enum, as the bits of `S_IFMT` are a number, not flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FileType {
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

impl FileType {
    /// From the `S_IFMT` bits of a mode.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Option<Self> {
        match mode >> 12 {
            0o01 => Some(Self::Fifo),
            0o02 => Some(Self::CharDevice),
            0o04 => Some(Self::Directory),
            0o06 => Some(Self::BlockDevice),
            0o10 => Some(Self::Regular),
            0o12 => Some(Self::Symlink),
            0o14 => Some(Self::Socket),
            _ => None,
        }
    }

    /// The `S_IFMT` bits of a mode.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o01 << 12,
            Self::CharDevice => 0o02 << 12,
            Self::Directory => 0o04 << 12,
            Self::BlockDevice => 0o06 << 12,
            Self::Regular => 0o10 << 12,
            Self::Symlink => 0o12 << 12,
            Self::Socket => 0o14 << 12,
        }
    }

    /// Whether inodes of this type have content.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Regular | Self::Directory | Self::Symlink)
    }
}

/// The layout of an inode's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataLayout {
    /// Consecutive blocks.
    FlatPlain,
    /// Compressed, with full indexes or encoded extents.
    CompressedFull,
    /// Consecutive blocks; the tail, less than a block, right after the inode.
    FlatInline,
    /// Compressed, with compact indexes.
    CompressedCompact,
    /// Chunks of equal size, each with its own address.
    ChunkBased,
}

impl DataLayout {
    pub(super) const fn from_bits(bits: u16) -> Option<Self> {
        match bits {
            0 => Some(Self::FlatPlain),
            1 => Some(Self::CompressedFull),
            2 => Some(Self::FlatInline),
            3 => Some(Self::CompressedCompact),
            4 => Some(Self::ChunkBased),
            _ => None,
        }
    }

    pub(super) const fn bits(self) -> u16 {
        match self {
            Self::FlatPlain => 0,
            Self::CompressedFull => 1,
            Self::FlatInline => 2,
            Self::CompressedCompact => 3,
            Self::ChunkBased => 4,
        }
    }

    /// A name for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlatPlain => "flat",
            Self::FlatInline => "flat-inline",
            Self::CompressedFull => "compressed-full",
            Self::CompressedCompact => "compressed-compact",
            Self::ChunkBased => "chunk-based",
        }
    }

    /// Whether the content is compressed.
    #[must_use]
    pub const fn is_compressed(self) -> bool {
        matches!(self, Self::CompressedFull | Self::CompressedCompact)
    }
}

/// A device number, as for `mknod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rdev {
    /// The major number; the format stores 12 bits.
    pub major: u32,
    /// The minor number; the format stores 20 bits.
    pub minor: u32,
}

impl Rdev {
    /// From the stored form: minor's low 8 bits, 12 bits of major, minor's high bits.
    #[must_use]
    pub const fn decode(raw: u32) -> Self {
        Self { major: (raw >> 8) & 0xfff, minor: (raw & 0xff) | ((raw >> 12) & 0xf_ff00) }
    }

    /// The stored form.
    #[must_use]
    pub const fn encode(self) -> u32 {
        (self.minor & 0xff) | ((self.major & 0xfff) << 8) | ((self.minor & 0xf_ff00) << 12)
    }
}
