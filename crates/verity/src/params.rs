//! The parameters of a hash tree, and the hash of a block.

use sha2::digest::Update;
use sha2::{Digest as _, Sha256, Sha512};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::sha256;

/// Bytes of the longest salt that a superblock holds.
pub const SALT_MAX: usize = 256;
/// Bytes of the smallest and of the largest block. Linux uses blocks up to its page size; larger
/// ones are for other programs.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 512..=65_536;

/// A hash algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// SHA-256, which all tools know.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl HashAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The name in a superblock, and in Linux.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The algorithm called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Bytes of a digest.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// How a hash tree is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Params {
    /// The hash algorithm.
    pub algorithm: HashAlgorithm,
    /// Bytes of a block of the image: a power of two, 512 to 65,536. Default: 4096.
    pub data_block_size: u32,
    /// Bytes of a block of the tree: a power of two, 512 to 65,536. Default: 4096.
    pub hash_block_size: u32,
    /// Bytes that are hashed before each block, at most [`SALT_MAX`]. Default: none, which also
    /// gives the tree of fs-verity.
    pub salt: Vec<u8>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            algorithm: HashAlgorithm::default(),
            data_block_size: 4096,
            hash_block_size: 4096,
            salt: Vec::new(),
        }
    }
}

impl Params {
    /// Fails if a parameter is out of its range.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn check(&self) -> Result<()> {
        for (parameter, size) in
            [("data block size", self.data_block_size), ("hash block size", self.hash_block_size)]
        {
            if !size.is_power_of_two() || !BLOCK_SIZES.contains(&size) {
                return Err(Error::Parameter {
                    parameter,
                    problem: "must be a power of two from 512 to 65536",
                });
            }
        }
        if self.salt.len() > SALT_MAX {
            return Err(Error::Parameter { parameter: "salt", problem: "has more than 256 bytes" });
        }
        Ok(())
    }

    /// The number of whole blocks in an image of `len` bytes.
    pub(crate) fn blocks_of(&self, len: u64) -> u64 {
        len.checked_div(self.data_block_size.into()).unwrap_or(0)
    }

    /// The digests that a tree with these parameters has of the blocks in `data`. The last block
    /// may be shorter.
    #[must_use]
    pub fn digests(&self, data: &[u8]) -> Vec<Digest> {
        let size = usize::try_from(self.data_block_size).unwrap_or(usize::MAX).max(1);
        self.hasher().hash_blocks(data, size)
    }

    pub(crate) fn hasher(&self) -> BlockHasher {
        match self.algorithm {
            HashAlgorithm::Sha256 => BlockHasher::Sha256 {
                salted: Sha256::new().chain(&self.salt),
                is_salted: !self.salt.is_empty(),
            },
            HashAlgorithm::Sha512 => BlockHasher::Sha512(Sha512::new().chain(&self.salt)),
        }
    }
}

/// Hashes blocks. It has hashed the salt already.
#[derive(Clone, Debug)]
pub(crate) enum BlockHasher {
    Sha256 { salted: Sha256, is_salted: bool },
    Sha512(Sha512),
}

impl BlockHasher {
    /// The digests of the blocks of `block_len` bytes in `data`.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "blocks are not empty, and `sha256::hash_blocks` hashes at most those in `data`"
    )]
    pub(crate) fn hash_blocks(&self, data: &[u8], block_len: usize) -> Vec<Digest> {
        if let Self::Sha256 { is_salted: false, .. } = self
            && data.len().is_multiple_of(block_len)
        {
            let mut hashed = Vec::with_capacity(data.len() / block_len);
            let done = sha256::hash_blocks(data, block_len, &mut hashed);
            let others = data[done * block_len..].chunks(block_len).map(|block| self.hash(block));
            return hashed.iter().map(|digest| Digest::new(digest)).chain(others).collect();
        }
        data.chunks(block_len).map(|block| self.hash(block)).collect()
    }

    pub(crate) fn hash(&self, block: &[u8]) -> Digest {
        match self {
            Self::Sha256 { salted, .. } => Digest::new(&salted.clone().chain(block).finalize()),
            Self::Sha512(salted) => Digest::new(&salted.clone().chain(block).finalize()),
        }
    }
}
