//! `fsck.erofs --xattr-inode-digest`: compares the content of files with the digests that
//! `mkfs.erofs --xattr-inode-digest` stored in an extended attribute of each file.

use ferofs::escape::Escaped;
use ferofs::read::walk::Walk;
use ferofs::read::{Compat, FileOffset, FileType, Image, Inode, Nid};
use sha2::{Digest, Sha256};

/// The value of the attribute is this, then the bytes of the digest.
const ALGORITHM: &[u8] = b"sha256:";
/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;

/// Why the digests of an image are not verified.
#[derive(Debug, thiserror::Error)]
pub(super) enum DigestError {
    #[error(transparent)]
    Image(#[from] ferofs::Error),
    #[error(transparent)]
    Read(#[from] ferofs::read::Error),
    #[error("has no digests of its files: build it with mkfs.erofs --xattr-inode-digest")]
    None,
    #[error(
        "{path}: the content has another digest than the file's extended attribute (nid {nid})"
    )]
    Different { path: String, nid: u64 },
    #[error("{path}: the extended attribute is not a digest of SHA-256 (nid {nid})")]
    Unknown { path: String, nid: u64 },
}

/// Verifies the digests of all regular files that are not empty; returns the files without a
/// digest. With `inform`, prints the name of the attribute, as erofs-utils.
pub(super) fn verify(image: &Image, inform: bool) -> Result<Vec<Nid>, DigestError> {
    let superblock = image.superblock();
    let number = usize::from(superblock.ishare_xattr_prefix_id);
    let prefix = image.xattr_prefixes().get(number);
    let Some(prefix) = prefix.filter(|_| superblock.compat.contains(Compat::ISHARE_XATTRS)) else {
        return Err(DigestError::None);
    };
    if inform {
        // The prefixes of the format that names of digests can have.
        let base = match prefix.base {
            1 => "user.",
            4 => "trusted.",
            6 => "security.",
            _ => "",
        };
        super::inform(&format!(
            "erofs: verifying digests using xattr \"{base}{}\"",
            Escaped(&prefix.infix)
        ));
    }
    let mut buffer = vec![0; BUFFER];
    let mut unsigned = Vec::new();
    for entry in Walk::new(image) {
        let entry = entry?;
        let inode = entry.inode?;
        if !entry.first || inode.file_type() != FileType::Regular || inode.size() == 0 {
            continue;
        }
        let mut stored = None;
        image.walk_xattrs(&inode, |entry, _| {
            if entry.index.long_number() == Some(number) && entry.name.is_empty() {
                stored = Some(entry.value.to_vec());
            }
        })?;
        let Some(stored) = stored else {
            unsigned.push(inode.nid());
            continue;
        };
        let (path, nid) = (crate::print::shown(&entry.path), inode.nid().get());
        let Some(stored) = stored.strip_prefix(ALGORITHM).filter(|digest| digest.len() == 32)
        else {
            return Err(DigestError::Unknown { path, nid });
        };
        if digest(image, &inode, &mut buffer)? != stored {
            return Err(DigestError::Different { path, nid });
        }
    }
    Ok(unsigned)
}

fn digest(image: &Image, inode: &Inode, buffer: &mut [u8]) -> Result<Vec<u8>, DigestError> {
    let mut digest = Sha256::new();
    let mut offset = FileOffset::new(0);
    loop {
        let len = image.read_at(inode, offset, buffer)?;
        if len == 0 {
            return Ok(digest.finalize().to_vec());
        }
        digest.update(&buffer[..len]);
        offset = FileOffset::new(offset.get().saturating_add(len as u64));
    }
}
