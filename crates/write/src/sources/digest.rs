//! Digests of files as attributes, by which newer kernels share page cache between images. An image
//! that is built from one with digests has them, too; they are computed again, because images that
//! a kernel trusts must not take them from a source unseen.
//!
//! This reads all content before the data stage does: inodes get their size with attributes before
//! that stage, and it encodes large files in segments, in parallel, which cannot make one digest.

use std::borrow::Cow;

use ferofs_format::Compat;
use ferofs_format::xattr::{LongPrefix, NamePrefix};
use ferofs_read::Image;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::{NodeId, Origin, Tree};

/// Bytes that are read and hashed at once. More would not be faster, and each worker has a buffer
/// of this size.
const PIECE: usize = 1 << 20;

/// The name of the attribute with digests in `image`, and its number in the image's table of long
/// prefixes; `None` if the image has no digests.
#[must_use]
pub(crate) fn name_in(image: &Image) -> Option<(u8, &LongPrefix)> {
    let superblock = image.superblock();
    let number = superblock.ishare_xattr_prefix_id;
    let has_digests = superblock.compat.contains(Compat::ISHARE_XATTRS);
    image
        .xattr_prefixes()
        .get(usize::from(number))
        .filter(|_| has_digests)
        .map(|name| (number, name))
}

/// `options` with the digests that a source in `contents` has, unless they name others or leave out
/// the sources' attributes.
pub(crate) fn as_in_sources<'a>(options: &'a Options, contents: &Contents) -> Cow<'a, Options> {
    let mut names = contents.images().filter_map(|source| name_in(source.image()));
    // With another name, an image could set labels and capabilities of all files.
    let is_harmless = |prefix: Option<NamePrefix>| {
        matches!(prefix, None | Some(NamePrefix::User | NamePrefix::Trusted))
    };
    let found = names
        .find(|(_, name)| !name.infix.is_empty() && is_harmless(NamePrefix::from_index(name.base)));
    match found.filter(|_| options.xattrs.digest.is_none() && options.xattrs.keep) {
        None => Cow::Borrowed(options),
        Some((_, name)) => {
            let mut options = options.clone();
            options.xattrs.digest = Some(name.clone());
            Cow::Owned(options)
        }
    }
}

/// Gives each of `files`, which are regular, an attribute with the digest of its content. The
/// attribute's name is a long prefix of the image, with its number.
///
/// # Errors
/// As reading the files; [`Error::DoesNotFit`] for a file with too many attributes.
pub(crate) fn add_digests(
    tree: &mut Tree,
    files: Vec<NodeId>,
    (number, name): (u8, &LongPrefix),
    options: &Options,
    contents: &Contents,
) -> Result<()> {
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
                let set = tree.xattrs.add_digest(tree.node(id).xattrs, number, name, &value);
                tree.nodes[id.index()].xattrs = set.map_err(|e| e.of(contents.path(tree, id)))?;
            }
            // A later read may succeed, but the file would have no digest: so the data stage leaves
            // the file out.
            Err(error) => tree.nodes[id.index()].origin = Origin::Unreadable(errno(&error)),
        }
    }
    Ok(())
}

/// The system's error number for `error`, or `EIO` if there is none.
fn errno(error: &Error) -> Errno {
    let number = match error {
        Error::Io(error) => error.source.raw_os_error(),
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
        options.run.cancel.check()?;
        let len = (size - at).min(PIECE as u64) as usize;
        reader.read(id, at, &mut buffer[..len])?;
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    Ok(hasher.finalize().into())
}
