//! Seals: a superblock and its hash tree, at the end of an image or in a file of their own.

#[cfg(test)]
mod tests;

#[cfg(unix)]
use std::{fs::File, os::unix::fs::FileExt};

use ferofs_format::Uuid;
use ferofs_format::superblock::{self as erofs, Superblock as ErofsSuperblock};
use ferofs_read::Source;
use ferofs_threads::parallel;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::layout::TreeLayout;
#[cfg(unix)]
use crate::params::Params;
use crate::superblock::{SUPERBLOCK_SIZE, Superblock};
#[cfg(unix)]
use crate::tree::make_tree;
use crate::verify::{BlockVerifier, VerifiedSource};
use ferofs_format::units::{to_u64, to_usize};

/// A superblock, and its position in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The parameters of the tree. Do not trust it before blocks were verified against a root.
    pub superblock: Superblock,
    /// The position of the superblock in its file. The tree starts one hash block later.
    pub position: u64,
}

impl Seal {
    /// Reads the superblock at `position` of `file`.
    ///
    /// # Errors
    /// [`Error::NoTree`] and [`Error::Short`] when the file ends before it, [`Error::Superblock`]
    /// when it is missing or not valid, [`Error::Io`].
    pub fn read(file: &dyn Source, position: u64) -> Result<Self> {
        let need = position.saturating_add(to_u64(SUPERBLOCK_SIZE));
        if need > file.size() {
            if position > 0 && file.size().checked_next_multiple_of(4096) == Some(position) {
                return Err(Error::NoTree);
            }
            return Err(Error::Short { what: "the hash tree", need, have: file.size() });
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        file.read_exact_at(position, &mut bytes).map_err(Error::io("read verity superblock"))?;
        Ok(Self { superblock: Superblock::parse(&bytes)?, position })
    }

    /// The position of the tree in its file.
    #[must_use]
    pub fn tree_start(&self) -> u64 {
        self.position.saturating_add(self.superblock.params.hash_block_size.into())
    }

    /// Bytes of superblock and tree.
    ///
    /// # Errors
    /// As [`TreeLayout::new`].
    pub fn byte_len(&self) -> Result<u64> {
        let tree = TreeLayout::new(self.superblock.data_blocks, &self.superblock.params)?.len();
        Ok(tree.saturating_add(self.superblock.params.hash_block_size.into()))
    }

    /// Makes the tree of the first `len` bytes of `image` on up to `threads` threads, and writes
    /// superblock and tree to `file` from `position` on, which is a multiple of the size of a hash
    /// block. Without `uuid`, the seal gets one that follows from its root, so that equal images
    /// have equal seals. Returns the seal and its root.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the image does not consist of whole blocks; [`Error::Io`].
    #[cfg(unix)]
    pub fn write(
        image: &dyn Source,
        len: u64,
        params: Params,
        uuid: Option<Uuid>,
        threads: usize,
        file: &File,
        position: u64,
    ) -> Result<(Self, Digest)> {
        params.check()?;
        if !len.is_multiple_of(params.data_block_size.into()) {
            let problem = "does not divide the size of the image: choose a smaller one";
            return Err(Error::Parameter { parameter: "data block size", problem });
        }
        if !position.is_multiple_of(params.hash_block_size.into()) {
            let problem = "does not divide the position of the hash tree";
            return Err(Error::Parameter { parameter: "hash block size", problem });
        }
        let data_blocks = params.blocks_of(len);
        let superblock = Superblock { data_blocks, params, uuid: Uuid([0; 16]) };
        let mut seal = Self { superblock, position };
        let start = seal.tree_start();
        let root = make_tree(
            image,
            seal.superblock.data_blocks,
            &seal.superblock.params,
            threads,
            |pos, bytes| file.write_all_at(bytes, start.saturating_add(pos)),
        )?;
        seal.superblock.uuid = uuid.unwrap_or_else(|| uuid_of(root));
        let mut first = seal.superblock.to_bytes()?.to_vec();
        first.resize(to_usize(seal.superblock.params.hash_block_size), 0);
        file.write_all_at(&first, position).map_err(Error::io("write verity superblock"))?;
        Ok((seal, root))
    }

    /// Gives `image` the checks of this seal, whose tree is in `file`.
    ///
    /// # Errors
    /// As [`VerifiedSource::new`].
    pub fn verified<S: Source, T: Source>(
        &self,
        image: S,
        file: T,
        root: Digest,
    ) -> Result<VerifiedSource<S, T>> {
        let Superblock { params, data_blocks, .. } = &self.superblock;
        VerifiedSource::with_tree_at(image, file, self.tree_start(), *data_blocks, params, root)
    }

    /// A verifier for blocks of the image of this seal, whose tree is in `file`.
    ///
    /// # Errors
    /// As [`BlockVerifier::new`].
    pub fn verifier<T: Source>(&self, file: T, root: Digest) -> Result<BlockVerifier<T>> {
        let Superblock { params, data_blocks, .. } = &self.superblock;
        BlockVerifier::new(file, self.tree_start(), *data_blocks, params, root)
    }
}

/// A UUID of version 8, whose other bits are those of `root`.
pub(crate) fn uuid_of(root: Digest) -> Uuid {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(root.as_bytes()) {
        *to = *from;
    }
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Uuid(bytes)
}

/// Checks all blocks of `image` on up to `threads` threads.
///
/// # Errors
/// [`Error::Integrity`] for the first block with a wrong digest; [`Error::Io`].
pub fn verify_all<S: Source, T: Source>(
    image: &VerifiedSource<S, T>,
    threads: usize,
) -> Result<()> {
    /// Bytes that are read at a time.
    const PIECE: u64 = 1 << 20;
    let pieces = usize::try_from(image.size().div_ceil(PIECE)).unwrap_or(usize::MAX);
    let check = |buffer: &mut Vec<u8>, piece: usize| {
        let start = to_u64(piece).saturating_mul(PIECE);
        buffer.resize(to_usize(PIECE.min(image.size().saturating_sub(start))), 0);
        image.read_exact_at(start, buffer).map_err(|error| Error::of_read("read image", error))
    };
    parallel(threads.max(1), pieces, Vec::new, check).map(drop)
}

/// The position of the seal that follows an image: after its last block. The image's superblock is
/// not verified, so the result is only a place to look at.
///
/// # Errors
/// [`Error::Io`]; [`Error::NoImage`] when `file` has no superblock of EROFS.
pub fn appended_position(file: &dyn Source) -> Result<u64> {
    let start = to_u64(erofs::OFFSET);
    let max_len = erofs::SIZE + 255 * erofs::EXT_SLOT_SIZE;
    let len = to_usize(file.size().saturating_sub(start)).min(max_len);
    let mut bytes = vec![0; len];
    file.read_exact_at(start, &mut bytes).map_err(Error::io("read superblock"))?;
    let superblock = ErofsSuperblock::parse(&bytes).map_err(|_| Error::NoImage)?;
    let len = superblock.blocks.checked_mul(superblock.block_size.bytes64());
    // Seals start at a multiple of the usual block size, also after images with smaller blocks.
    len.and_then(|len| len.checked_next_multiple_of(4096)).ok_or(Error::NoImage)
}

/// Fails if the verified bytes are not a complete image. The number of blocks is in the superblock
/// of the seal, which nothing verifies: with a smaller number, the image would end early, or hashes
/// would take the place of the image.
///
/// # Errors
/// [`Error::Superblock`]; as [`appended_position`].
pub fn check_end(verified: &dyn Source) -> Result<()> {
    // At most one block of zeroes more than the image has.
    let end = appended_position(verified)?;
    if verified.size().next_multiple_of(4096) < end {
        return Err(Error::Superblock("covers only a part of the image"));
    }
    Ok(())
}
