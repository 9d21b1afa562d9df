//! Makes exact deltas, from which the new image comes out byte for byte. docs/PATCH_FORMAT.md
//! describes the format.
//!
//! | module | job |
//! |---|---|
//! | `options` | what the caller chooses, and what it is told |
//! | `content` | lists the extents of an image |
//! | `image` | reads both images |
//! | `copies` | finds bytes of the old image in the new one |
//! | `units` | divides the new image into copies, pclusters and other bytes |
//! | `methods` | finds the parameters of the compressors |
//! | `rebuilt` | finds how the numbers in the new metadata follow from those of the old one |
//! | `context` | what was found so far, for the steps that follow |
//! | `runs` | finds how pclusters are encoded again, within the work that `apply` accepts |
//! | `pieces` | compresses the parts, with similar bytes of the old image as dictionary |

mod content;
mod context;
mod copies;
mod image;
mod methods;
mod options;
mod pieces;
mod rebuilt;
mod runs;
mod units;

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use ferofs_update::format::delta_file::{DeltaHeader, DeltaSeal, TREE_MAX};
use ferofs_verity::{Seal, appended_position, make_tree};

use self::context::DeltaContext;
use self::image::DeltaImage;
use self::methods::Methods;
pub use self::options::{DeltaOptions, DeltaSummary};
use self::pieces::Checked;
use self::units::{Part, divide, is_old};
use crate::build::temporary_dir;
use crate::error::{Error, Result};
use ferofs_host::NewFile;

/// How often runs are divided and tried at most: another division can show further extents that no
/// compressor makes.
const CHECKS_MAX: usize = 4;

/// Makes a delta that turns the image `old` into the image `new`, and writes it to `out`.
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
    let mut file = NewFile::create(out)?;
    let (old, new) = (DeltaImage::open(old)?, DeltaImage::open(new)?);
    options.run.cancel.check()?;
    let seal = computed_seal(&new, options.run.worker_count());
    let equal = new.equal_bytes(&old, &options.run.cancel)?;
    let unchanged = new.unchanged_inline(&old)?;
    let tree = seal.as_ref().map_or(0, |seal| seal.tree);
    let parts_of = |carried: &HashSet<usize>| {
        let part = |range| divide(&new.content, &equal, &unchanged, carried, range);
        match &seal {
            None => part(0..new.len()),
            Some(ComputedSeal { seal, .. }) => {
                let start = seal.tree_start() as usize;
                [part(0..start), part(start + tree as usize..new.len())].concat()
            }
        }
    };
    let parts = parts_of(&HashSet::new());
    options.run.cancel.check()?;
    let runs = parts.iter().filter_map(|part| match part {
        Part::Run(run) => Some(run.clone()),
        _ => None,
    });
    let runs: Vec<_> = runs.collect();
    let methods = match options.portable {
        true => Methods::default(),
        false => Methods::find(&new, &runs)?,
    };
    options.run.cancel.check()?;
    let (mut relocations, prediction) = rebuilt::find(&old, &new)?.unzip();
    let mut context = DeltaContext {
        prediction: prediction.as_ref(),
        old: &old,
        new: &new,
        equal: &equal,
        methods: &methods,
        options,
    };
    // Old bytes of pclusters that no compressor makes are copied, and so are pclusters that were to
    // be encoded only before them.
    let mut carried = methods.carried(&new.content);
    let mut checked = Checked::new(&context, parts_of(&carried), None)?;
    for _ in 1..CHECKS_MAX {
        let known = carried.len();
        carried.extend(checked.carried().filter(|number| is_old(&new.content, &equal, *number)));
        if carried.len() == known {
            break;
        }
        checked = Checked::new(&context, parts_of(&carried), Some(checked))?;
    }
    let tried = match &relocations {
        Some(list) => pieces::try_prediction(&context, &checked, list)?,
        None => None,
    };
    if tried.is_none() && relocations.is_some() {
        (relocations, context.prediction) = (None, None);
        checked = Checked::new(&context, parts_of(&carried), Some(checked))?;
    }
    let known = tried.unwrap_or_default();
    let mut made =
        pieces::make(&context, &checked, relocations.as_ref(), known, temporary_dir(out))?;
    let (old_digest, _) = old.digests(&options.run)?;
    let (new_digest, chunks) = new.digests(&options.run)?;
    for image in [&old, &new] {
        image.check_unchanged()?;
    }
    let mut header = DeltaHeader {
        old_size: old.len() as u64,
        old_digest,
        new_size: new.len() as u64,
        new_digest,
        pieces: u32::try_from(made.pieces.len()).unwrap_or(u32::MAX),
        longest_extent: u32::try_from(old.content.longest_extent()).unwrap_or(u32::MAX),
        memory: 0,
        seal: seal.map(|ComputedSeal { seal, root, .. }| DeltaSeal {
            position: seal.position,
            superblock: seal.superblock,
            root,
        }),
        relocations,
        chunks,
    };
    header.memory = made.memory.total(&header, &methods.params, tree);
    let start = header.encode(&methods.params)?;
    let mut len = start.len() as u64;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::io("write", out, e));
    write(&start)?;
    for piece in &made.pieces {
        let bytes = made.bytes.get(*piece)?;
        write(bytes)?;
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

/// The seal after an image, with the root and the length of its tree.
struct ComputedSeal {
    seal: Seal,
    root: Vec<u8>,
    tree: u64,
}

/// The seal after the image `new`, if its hash tree is what `apply` computes. A tree that is not
/// is carried.
fn computed_seal(new: &DeltaImage, workers: usize) -> Option<ComputedSeal> {
    let source = &*new.source;
    let seal = appended_position(source).and_then(|position| Seal::read(source, position)).ok()?;
    let params = &seal.superblock.params;
    let start = seal.tree_start();
    let len = seal.byte_len().ok()?.checked_sub(params.hash_block_size.into())?;
    let data = seal.superblock.data_blocks.checked_mul(params.data_block_size.into())?;
    if data > start || len == 0 || len > TREE_MAX || start.checked_add(len)? > new.len() as u64 {
        return None;
    }
    let mut tree = vec![0; len as usize];
    let root = make_tree(source, seal.superblock.data_blocks, params, workers, |at, bytes| {
        tree[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    let root = root.ok()?.as_bytes().to_vec();
    let stored = new.read(start as usize..(start + len) as usize).ok()?;
    (tree == stored).then_some(ComputedSeal { seal, root, tree: len })
}
