//! The inputs of all steps of [`create`](super::create), which no step changes, and the list of the
//! old image's inodes, each once, and of its shared attributes.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ferofs_codec::Params;
use ferofs_format::inode::FileType;
use ferofs_format::xattr::UNIT;
use ferofs_format::{BlockSize, Compat, Incompat, Nid};
use ferofs_read::walk::Walk;
use ferofs_read::{Image, Source};
use ferofs_update::image::SuperblockArea;
use ferofs_update::image::history::History;

use crate::error::Result;
use crate::incremental::create::options::{CreateOptions, IgnoredAttributes};
use crate::options::Options;
use crate::options::compression::Compression;
use crate::sources::content::Contents;
use crate::tree::Tree;

/// The old image and the new tree.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) options: &'a Options,
    pub(crate) old: &'a Image,
    pub(crate) survey: &'a Survey,
    pub(crate) tree: &'a Tree,
    pub(crate) contents: &'a Contents,
    pub(crate) ignore: IgnoredAttributes,
}

/// All that a patch is made from.
pub(crate) struct CreateContext<'a> {
    pub(crate) options: &'a CreateOptions,
    pub(crate) inputs: Inputs<'a>,
    /// The old image's bytes.
    pub(crate) base: &'a Arc<dyn Source>,
    pub(crate) area: &'a SuperblockArea,
    pub(crate) history: &'a History,
    /// How new content is encoded; `None`: it is stored.
    pub(crate) compression: Option<Compression>,
    /// Features that the new image may use.
    pub(crate) allowed: Incompat,
    /// The compressors that a program must have to apply the patch: none if it carries all encoded
    /// bytes.
    pub(crate) methods: Vec<Params>,
}

/// The compressors of content and of the metabox, each once, with the parameters that the builder
/// gives them.
pub(crate) fn methods(
    content: Option<&Compression>,
    metabox: Option<&Compression>,
    block: BlockSize,
) -> Result<Vec<Params>> {
    let mut methods: Vec<Params> = Vec::new();
    for compression in content.into_iter().chain(metabox) {
        for method in 0..compression.methods.len() {
            let params = compression.compressor_params(method, block)?;
            if !methods.contains(&params) {
                methods.push(params);
            }
        }
    }
    Ok(methods)
}

/// An inode of the old image, with its first path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldFile {
    pub(crate) nid: Nid,
    pub(crate) file_type: FileType,
    pub(crate) size: u64,
    /// The [hashes](name_hash) of its [names](names_like).
    pub(crate) names: [u64; 3],
}

/// The old image's inodes.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) files: Vec<OldFile>,
    /// The entries of the shared attribute area as stored, with their ids.
    pub(crate) shared: HashMap<Vec<u8>, u32>,
    /// The largest inode number that `stat` shows.
    pub(crate) ino: u32,
    /// Whether any file is compressed.
    pub(crate) is_compressed: bool,
}

impl Survey {
    /// Walks the whole tree of `image`.
    pub(crate) fn new(image: &Image, options: &Options) -> Result<Self> {
        let mut survey = Self::default();
        let in_metabox = image.superblock().compat.contains(Compat::SHARED_EA_IN_METABOX);
        let area = image.superblock().xattr.to_pos(image.superblock().block_size);
        for walked in Walk::new(image) {
            options.run.cancel.check()?;
            let walked = walked?;
            let inode = walked.inode?;
            if !walked.first {
                continue;
            }
            survey.ino = survey.ino.max(inode.on_disk().ino);
            survey.is_compressed |= inode.layout().is_compressed();
            survey.files.push(OldFile {
                nid: inode.nid(),
                file_type: inode.file_type(),
                size: inode.size(),
                names: names_like(walked.path.as_os_str().as_bytes()).map(|name| name_hash(&name)),
            });
            if inode.xattr_size() > 0
                && !in_metabox
                && let Some(area) = area
            {
                let shared = &mut survey.shared;
                image.walk_xattrs(&inode, |entry, place| {
                    let Some(pos) = place.and_then(|place| place.pos.checked_sub(area)) else {
                        return;
                    };
                    let (Ok(id), mut bytes) = (u32::try_from(pos / UNIT as u64), Vec::new()) else {
                        return;
                    };
                    if entry.write(&mut bytes).is_ok() {
                        shared.entry(bytes).or_insert(id);
                    }
                })?;
            }
        }
        Ok(survey)
    }
}

/// Files of one of the [names](names_like) that are compared: numbered files can be very many.
pub(crate) const NAMED_MAX: usize = 256;

/// The names under which other versions of the file at `path`, without a first slash, are found,
/// the most similar first: a slash and the path with `0` for each number, which is often a version;
/// the name; and the name with `0` for each number.
pub(crate) fn names_like(path: &[u8]) -> [Vec<u8>; 3] {
    let without_numbers = |name: &[u8]| {
        let mut like: Vec<u8> =
            name.iter().map(|byte| if byte.is_ascii_digit() { b'0' } else { *byte }).collect();
        like.dedup_by(|a, b| (*a, *b) == (b'0', b'0'));
        like
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    [[b"/", &*without_numbers(path)].concat(), name.to_vec(), without_numbers(name)]
}

/// A 64-bit hash of a name, to compare names without keeping them.
pub(crate) fn name_hash(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let (first, _) = hash.as_bytes().split_at(8);
    first.iter().fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_versions_are_alike() {
        let names =
            |path: &str| names_like(path.as_bytes()).map(|name| String::from_utf8(name).unwrap());
        assert_eq!(
            names("boot/vmlinuz-6.1-55"),
            ["/boot/vmlinuz-0.0-0", "vmlinuz-6.1-55", "vmlinuz-0.0-0"]
        );
        assert_eq!(names("lib/6.10/a/Kconfig")[0], names("lib/6.9/a/Kconfig")[0]);
        assert_ne!(names("lib/6.10/a/Kconfig")[0], names("lib/6.9/b/Kconfig")[0]);
        assert_eq!(names(""), ["/", "", ""]);
    }
}
