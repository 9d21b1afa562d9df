//! Makes exact deltas, from which the new image comes out byte for byte. docs/PATCH_FORMAT.md
//! describes the format.
//!
//! | module | job |
//! |---|---|
//! | `options` | what the caller chooses, and what it is told |
//! | `content` | lists the extents of both images |
//! | `copies` | finds bytes of the old image in the new one |
//! | `units` | divides the new image into copies, pclusters and other bytes |
//! | `methods` | finds the parameters of the compressors |
//! | `rebuilt` | finds how the numbers in the new metadata follow from those of the old one |
//! | `context` | both images, for the steps that follow |
//! | `runs` | finds how pclusters are encoded again, within the work that `apply` accepts |
//! | `pieces` | compresses the parts, with similar bytes of the old image as dictionary |

mod content;
mod context;
mod copies;
mod methods;
mod options;
mod pieces;
mod rebuilt;
mod runs;
mod units;

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ferofs_patch::format::delta_file::{CHUNK, DeltaHeader, DeltaSeal, TREE_MAX, digest};
use ferofs_read::{FileSource, Image, Source};
use ferofs_threads::{free_memory, too_little_memory};
use ferofs_verity::{Seal, appended_position, make_tree};
use sha2::{Digest as _, Sha256};

use self::content::ImageContent;
use self::context::DeltaContext;
use self::methods::Methods;
pub use self::options::{DeltaOptions, DeltaSummary};
use self::pieces::Checked;
use self::rebuilt::ImageParts;
use self::units::{Part, divide, is_old};
use crate::error::{Error, Result};
use ferofs_host::NewFile;

/// How often runs are divided and tried at most: another division can show further extents that no
/// compressor makes.
const CHECKS_MAX: usize = 4;

/// Makes a delta that turns the image `old` into the image `new`, and writes it to `out`. Both
/// images are held in memory.
///
/// # Errors
/// [`Error::InSource`] if one is not an image; [`Error::Io`].
pub fn create_delta(
    old: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: &DeltaOptions,
    out: impl AsRef<Path>,
) -> Result<DeltaSummary> {
    create_delta_of(old.as_ref(), new.as_ref(), options, out.as_ref())
}

fn create_delta_of(
    old: &Path,
    new: &Path,
    options: &DeltaOptions,
    out: &Path,
) -> Result<DeltaSummary> {
    let sources = [FileSource::open(old, 0)?, FileSource::open(new, 0)?];
    let needed = sources.iter().map(Source::size).fold(0, u64::saturating_add);
    if let Some(free) = free_memory().filter(|(free, _)| *free < needed) {
        let error = too_little_memory(needed, free, "");
        return Err(Error::io_unnamed("hold both images in memory", error));
    }
    let [old_source, new_source] = sources;
    let (old, old_image, old_content) = open(old, &old_source)?;
    let (new, new_image, new_content) = open(new, &new_source)?;
    options.run.check_cancelled()?;
    let seal = computed_seal(&new, options.run.worker_count());
    let equal = copies::find(&old, &new);
    let unchanged = old_content.unchanged_inline(&new_content, [&old, &new]);
    let tree = seal.as_ref().map_or(0, |seal| seal.tree);
    let parts_of = |carried: &HashSet<usize>| {
        let part = |range| divide(&new_content, &equal, &unchanged, carried, range);
        match &seal {
            None => part(0..new.len()),
            Some(ComputedSeal { seal, .. }) => {
                let start = seal.tree_start() as usize;
                [part(0..start), part(start + tree as usize..new.len())].concat()
            }
        }
    };
    let parts = parts_of(&HashSet::new());
    options.run.check_cancelled()?;
    let runs = parts.iter().filter_map(|part| match part {
        Part::Run(run) => Some(run.clone()),
        _ => None,
    });
    let runs: Vec<_> = runs.collect();
    let methods = match options.portable {
        true => Methods::default(),
        false => Methods::find(&new_image, &new, &new_content, &runs)?,
    };
    let parts_old = ImageParts { bytes: &old, image: &old_image, content: &old_content };
    let parts_new = ImageParts { bytes: &new, image: &new_image, content: &new_content };
    let (relocations, prediction) = rebuilt::find(parts_old, parts_new)?.unzip();
    let context = DeltaContext {
        prediction: prediction.as_ref(),
        old: &old,
        new: &new,
        old_image: &old_image,
        new_image: &new_image,
        old_content: &old_content,
        new_content: &new_content,
        equal: &equal,
        methods: &methods,
        options,
    };
    // Old bytes of pclusters that no compressor makes are copied, and so are pclusters that were to
    // be encoded only before them.
    let mut carried = methods.carried(&new_content);
    let mut checked = Checked::new(&context, parts_of(&carried), None)?;
    for _ in 1..CHECKS_MAX {
        let known = carried.len();
        carried.extend(checked.carried().filter(|number| is_old(&new_content, &equal, *number)));
        if carried.len() == known {
            break;
        }
        checked = Checked::new(&context, parts_of(&carried), Some(checked))?;
    }
    let made = pieces::make(&context, &checked, relocations.as_ref())?;
    let mut header = DeltaHeader {
        old_size: old.len() as u64,
        old_digest: Sha256::digest(&old).into(),
        new_size: new.len() as u64,
        new_digest: Sha256::digest(&new).into(),
        pieces: u32::try_from(made.pieces.len()).unwrap_or(u32::MAX),
        longest_extent: u32::try_from(old_content.longest_extent()).unwrap_or(u32::MAX),
        memory: 0,
        seal: seal.map(|ComputedSeal { seal, root, .. }| DeltaSeal {
            position: seal.position,
            superblock: seal.superblock,
            root,
        }),
        relocations,
        chunks: new.chunks(CHUNK).map(digest).collect(),
    };
    header.memory = made.memory.total(&header, &methods.params, tree);
    let mut len = 0;
    let mut file = NewFile::create(out)?;
    let start = header.encode(&methods.params)?;
    for bytes in std::iter::once(&start).chain(&made.pieces) {
        file.write_all(bytes).map_err(|e| Error::io("write", out, e))?;
        len += bytes.len() as u64;
    }
    file.finish()?;
    Ok(DeltaSummary {
        len,
        new_size: new.len() as u64,
        copied: made.copied,
        encoded: made.encoded,
        carried: made.carried,
        tree,
        memory: header.memory,
    })
}

/// Reads an image from `source`. Errors name it.
fn open(path: &Path, source: &FileSource) -> Result<(Arc<[u8]>, Image, ImageContent)> {
    // Not as a vector, which would be copied.
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, source.size() as usize).collect();
    let own = Arc::get_mut(&mut bytes).unwrap_or_default();
    source.read_exact_at(0, own).map_err(|e| Error::io("read", path, e))?;
    let image = Image::open(Arc::clone(&bytes)).map_err(Error::from);
    let read = image.and_then(|image| ImageContent::of(&image).map(|content| (image, content)));
    match read {
        Ok((image, content)) => Ok((bytes, image, content)),
        Err(error) => Err(Error::InSource { path: path.to_owned(), source: Box::new(error) }),
    }
}

/// The seal after an image, with the root and the length of its tree.
struct ComputedSeal {
    seal: Seal,
    root: Vec<u8>,
    tree: u64,
}

/// The seal after the image `new`, if its hash tree is what `apply` computes. A tree that is not
/// is carried.
fn computed_seal(new: &Arc<[u8]>, workers: usize) -> Option<ComputedSeal> {
    let seal = appended_position(new).and_then(|position| Seal::read(new, position)).ok()?;
    let params = &seal.superblock.params;
    let start = seal.tree_start();
    let len = seal.byte_len().ok()?.checked_sub(params.hash_block_size.into())?;
    let data = seal.superblock.data_blocks.checked_mul(params.data_block_size.into())?;
    if data > start || len == 0 || len > TREE_MAX || start.checked_add(len)? > new.len() as u64 {
        return None;
    }
    let mut tree = vec![0; len as usize];
    let root = make_tree(new, seal.superblock.data_blocks, params, workers, |at, bytes| {
        tree[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    let root = root.ok()?.as_bytes().to_vec();
    (tree == new[start as usize..(start + len) as usize]).then_some(ComputedSeal {
        seal,
        root,
        tree: len,
    })
}
