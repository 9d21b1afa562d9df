//! The superblock before a hash tree, as `veritysetup` writes it: 512 bytes, little-endian, version
//! 1.

use ferofs_format::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::params::{HashAlgorithm, Params, SALT_MAX};

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 512;
const SIGNATURE: [u8; 8] = *b"verity\0\0";
/// The only version.
const VERSION: u32 = 1;
/// The salt is hashed before the block; digests are padded to a power of two. Chrome OS uses type
/// 0.
const NORMAL: u32 = 1;

/// The superblock of the tree that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// How the tree was made.
    pub params: Params,
    /// Blocks of the image.
    pub data_blocks: u64,
    /// The seal's own number. Some programs refuse one of only zeroes.
    pub uuid: Uuid,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    signature: [u8; 8],
    version: U32,
    hash_type: U32,
    uuid: [u8; 16],
    algorithm: [u8; 32],
    data_block_size: U32,
    hash_block_size: U32,
    data_blocks: U64,
    salt_size: U16,
    pad1: [u8; 6],
    salt: [u8; SALT_MAX],
    pad2: [u8; 168],
}

impl Superblock {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Error::Parameter`] for parameters out of range.
    #[expect(
        clippy::indexing_slicing,
        reason = "names have at most 32 bytes, and `check` limits the salt"
    )]
    pub fn to_bytes(&self) -> Result<[u8; SUPERBLOCK_SIZE]> {
        self.params.check()?;
        let name = self.params.algorithm.name().as_bytes();
        let mut raw = Raw {
            signature: SIGNATURE,
            version: VERSION.into(),
            hash_type: NORMAL.into(),
            uuid: self.uuid.0,
            algorithm: [0; 32],
            data_block_size: self.params.data_block_size.into(),
            hash_block_size: self.params.hash_block_size.into(),
            data_blocks: self.data_blocks.into(),
            salt_size: U16::new(u16::try_from(self.params.salt.len()).unwrap_or(0)),
            pad1: [0; 6],
            salt: [0; SALT_MAX],
            pad2: [0; 168],
        };
        raw.algorithm[..name.len()].copy_from_slice(name);
        raw.salt[..self.params.salt.len()].copy_from_slice(&self.params.salt);
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        Ok(bytes)
    }

    /// Parses the first bytes of `bytes`.
    ///
    /// # Errors
    /// [`Error::Superblock`] if it is not valid or not supported; [`Error::Parameter`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if Unfinished::parse(bytes).is_some() {
            return Err(Error::Superblock(
                "is not written yet: `ferofs verity format` was interrupted",
            ));
        }
        let (raw, _) =
            Raw::ref_from_prefix(bytes).map_err(|_| Error::Superblock("is not complete"))?;
        if raw.signature != SIGNATURE {
            return Err(Error::Superblock("is not there"));
        }
        if raw.version != VERSION {
            return Err(Error::Superblock("has an unknown version"));
        }
        if raw.hash_type != NORMAL {
            return Err(Error::Superblock("has an unknown type of hash"));
        }
        let name = raw.algorithm.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or_default();
        let algorithm = HashAlgorithm::from_name(name);
        let algorithm = algorithm
            .ok_or(Error::Superblock("has a hash algorithm other than sha256 and sha512"))?;
        let salt = raw.salt.get(..usize::from(raw.salt_size.get()));
        let params = Params {
            algorithm,
            data_block_size: raw.data_block_size.get(),
            hash_block_size: raw.hash_block_size.get(),
            salt: salt.ok_or(Error::Superblock("has a salt that is too long"))?.to_vec(),
        };
        params.check()?;
        Ok(Self { params, data_blocks: raw.data_blocks.get(), uuid: Uuid(raw.uuid) })
    }
}

/// Takes the place of a superblock while its tree is written to the end of an image, so that the
/// next run knows the remains of an interrupted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Bytes of the superblock and tree that are being written, from here on.
    pub byte_len: u64,
}

/// No other program writes these bytes.
const UNFINISHED: &[u8; 32] = b"ferofs: unfinished hash tree\0\0\0\0";

impl Unfinished {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SUPERBLOCK_SIZE] {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes[..32].copy_from_slice(UNFINISHED);
        bytes[32..40].copy_from_slice(&self.byte_len.to_le_bytes());
        bytes
    }

    /// Parses the first bytes of `bytes`; `None` if it is not there.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (bytes, _) = bytes.split_first_chunk::<SUPERBLOCK_SIZE>()?;
        let (signature, rest) = bytes.split_first_chunk::<32>()?;
        let (byte_len, rest) = rest.split_first_chunk::<8>()?;
        let found = signature == UNFINISHED && rest.iter().all(|byte| *byte == 0);
        found.then(|| Self { byte_len: u64::from_le_bytes(*byte_len) })
    }
}

const _: () = assert!(size_of::<Raw>() == SUPERBLOCK_SIZE, "the format has this size");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parsed_again_and_false_fields_refused() {
        let superblock = Superblock {
            params: Params {
                algorithm: HashAlgorithm::Sha512,
                salt: vec![1, 2, 3],
                ..Params::default()
            },
            data_blocks: 77,
            uuid: Uuid([5; 16]),
        };
        let bytes = superblock.to_bytes().unwrap();
        assert_eq!(Superblock::parse(&bytes).unwrap(), superblock);
        assert!(Superblock::parse(&bytes[..511]).is_err());
        // Signature, version, type, algorithm, block sizes, length of the salt.
        for at in [0, 8, 12, 32, 64, 68, 81] {
            let mut wrong = bytes;
            wrong[at] ^= 0xff;
            assert!(Superblock::parse(&wrong).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_unfinished_superblock_is_recognised() {
        let unfinished = Unfinished { byte_len: 77 << 40 };
        let mut bytes = unfinished.to_bytes();
        assert_eq!(Unfinished::parse(&bytes), Some(unfinished));
        assert!(Superblock::parse(&bytes).unwrap_err().to_string().contains("interrupted"));
        assert_eq!(Unfinished::parse(&bytes[..511]), None);
        bytes[100] = 1;
        assert_eq!(Unfinished::parse(&bytes), None);
    }
}
