//! Digests of files as attributes, by which newer kernels share page cache between images.
//!
//! This reads all content before the data stage does: inodes get their size with attributes before that stage, and it encodes
//! large files in segments, in parallel, which cannot make one digest.

use ferofs_format::xattr::LongPrefix;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::origin::Origin;
use crate::tree::{Kind, NodeId, Tree};

/// Bytes that are read and hashed at once. More would not be faster, and each worker has a buffer of this size.
const PIECE: usize = 1 << 20;

/// Gives each regular file an attribute `name` with the digest of its content.
pub(crate) fn add_digests(
    tree: &mut Tree,
    name: &LongPrefix,
    options: &Options,
    contents: &Contents,
) -> Result<()> {
    let files: Vec<NodeId> =
        tree.ids().filter(|id| matches!(tree.node(*id).kind, Kind::Regular { .. })).collect();
    let shown = &*tree;
    let digests = options.run.parallel(
        files.len(),
        || Reader::new(contents, shown),
        |reader, number| match hash(reader, shown, files[number], options) {
            Err(error) if options.source.skip_unreadable && error.is_unreadable() => Ok(Err(error)),
            result => result.map(Ok),
        },
    )?;
    for (id, digest) in files.into_iter().zip(digests) {
        match digest {
            Ok(digest) => {
                let value = [b"sha256:".as_slice(), &digest].concat();
                let set = tree.xattrs.add_digest(tree.node(id).xattrs, name, &value);
                tree.nodes[id.index()].xattrs = set.map_err(|e| e.of(contents.path(tree, id)))?;
            }
            // A later read may succeed, but the file would have no digest: so the data stage leaves the file out.
            Err(error) => tree.nodes[id.index()].origin = Origin::Unreadable(errno(&error)),
        }
    }
    Ok(())
}

/// The system's error number for `error`, or `EIO` if there is none.
fn errno(error: &Error) -> Errno {
    let number = match error {
        Error::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    number.map_or(Errno::IO, Errno::from_raw_os_error)
}

fn hash(reader: &mut Reader<'_>, tree: &Tree, id: NodeId, options: &Options) -> Result<[u8; 32]> {
    let size = tree.node(id).size;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; size.min(PIECE as u64) as usize];
    let mut at = 0;
    while at < size {
        options.run.check_cancelled()?;
        let len = (size - at).min(PIECE as u64) as usize;
        reader.read(id, at, &mut buffer[..len])?;
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    Ok(hasher.finalize().into())
}
