//! Makes a patch: compares the old image with the new tree, encodes what is new, and lays it out
//! after the old image.
//!
//! The modules in the order of the flow:
//!
//! | module | job |
//! |---|---|
//! | [`options`] | the options and the result |
//! | [`encoding`] | finds out how the old image was encoded; updates the superblock's compression
//! algorithms | | [`context`] | lists the inodes of the old image; the inputs of all later steps |
//! | [`sparse`] | finds the holes of files, which no step reads |
//! | [`decide`] | decides for each new inode what it reuses of the old image |
//! | [`content`] | copies extent maps, reuses blocks and extents, encodes the rest |
//! | [`metadata`] | finds a position for the new root, and writes new inodes and directories |
//! | [`region`] | runs these steps and gathers everything that is appended |
//! | [`describe`] | lists the changed files; compresses the appended bytes against the base, and
//! says how to encode content again |

pub(crate) mod content;
pub(crate) mod context;
pub(crate) mod decide;
pub(crate) mod describe;
pub(crate) mod encoding;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod region;
mod sparse;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::options::Options;
use crate::options::compression::Fragments;
use crate::output::{Output, OwnFile};
use ferofs_format::Incompat;
use ferofs_format::inode::Timestamp;
use ferofs_read::{FileSource, Image, OpenOptions, Source};

use self::context::{CreateContext, Inputs};
use self::decide::ReuseDecisions;
use self::decide::growth::Growth;
use self::options::{CreateOptions, Encoding, PatchSummary};
use self::region::Region;
use crate::error::{Error, Result};
use crate::incremental::create::context::Survey;
use ferofs_update::format::header::Header;
use ferofs_update::format::piece::PIECE_LEN;
use ferofs_update::image::digest::PartDigests;
use ferofs_update::image::history::History;
use ferofs_update::image::journal::MaskedSource;
use ferofs_update::image::{SECTOR_POS, SuperblockArea};
use ferofs_update::{PatchFault, format};
use ferofs_verity::{Seal, appended_position};

/// Bytes of the old image's metadata that the reader caches: each inode is read several times.
/// Above this, metadata is read from the file again.
pub(crate) fn metadata_cache() -> usize {
    ferofs_threads::limited_memory().map_or(64 << 20, |free| (free / 8).min(64 << 20) as usize)
}

/// The bytes of content of the longest new extent.
const EXTENT_MAX: u32 = PIECE_LEN as u32;

/// Makes a patch that turns `old`, an image, into one that shows the new tree, and writes it to
/// `patch`.
///
/// # Errors
/// [`PatchFault::Unchanged`], [`PatchFault::NoRootSlot`] and others in [`Error::Patch`], and all
/// errors of building. No patch is left behind then.
pub fn create(
    old: impl AsRef<Path>,
    options: &CreateOptions,
    patch: impl AsRef<Path>,
) -> Result<PatchSummary> {
    let mut file = PatchFile::create(patch.as_ref())?;
    let created = file.append(old.as_ref(), options)?;
    file.finish()?;
    Ok(created)
}

/// A patch file that is being written. It can have several patches, for example for several base
/// images.
#[derive(Debug)]
pub struct PatchFile {
    output: Output,
    /// The directory for temporary files.
    temporary: PathBuf,
}

impl PatchFile {
    /// Creates the file `path`, which gets its name with [`Self::finish`].
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(path: &Path) -> Result<Self> {
        let temporary = path.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."));
        Ok(Self { output: Output::create(path, 0)?, temporary: temporary.to_owned() })
    }

    /// Makes a patch that turns `old`, an image, into one that shows the new tree, and appends it
    /// to the file.
    ///
    /// # Errors
    /// As [`create`]. Drop the file then.
    pub fn append(&mut self, old: &Path, options: &CreateOptions) -> Result<PatchSummary> {
        check_unsealed(old)?;
        let avoid = self.output.own_files(&options.build);
        append_patch(old, options, &avoid, &self.temporary, &mut self.output)
    }

    /// Makes the file durable, and gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        self.output.finish()
    }
}

/// Fails if a seal follows the image: applying a patch to it would fail. The error comes before
/// anything is encoded.
pub(crate) fn check_unsealed(old: &Path) -> Result<()> {
    let file = FileSource::open(old, 0)?;
    match appended_position(&file) {
        Ok(pos) if Seal::read(&file, pos).is_ok() => Err(Error::Patch(PatchFault::Sealed { pos })),
        _ => Ok(()),
    }
}

/// Makes a patch and appends it to `output`. The new tree leaves out the files in `avoid`, the
/// output among them.
pub(crate) fn append_patch(
    old: &Path,
    options: &CreateOptions,
    avoid: &[OwnFile],
    temporary: &Path,
    output: &mut Output,
) -> Result<PatchSummary> {
    let file = FileSource::open(old, 0)?;
    let area = SuperblockArea::read(&file)?;
    let (expected, found) = (area.size(), file.size());
    if found < expected {
        return Err(Error::Patch(PatchFault::Truncated { expected, found }));
    }
    let base: Arc<dyn Source> = Arc::new(MaskedSource::new(file, &area)?);
    if area.superblock().extra_devices > 0 {
        return Err(Error::Patch(PatchFault::Devices));
    }
    let history = History::read(&*base, &area)?;
    let mut opening = OpenOptions::default();
    opening.metadata_cache = metadata_cache();
    let image = Image::open_with(Box::new(Arc::clone(&base)), Vec::new(), &opening)?;
    let build = build_options(options, &image);
    build.run.cancel.check()?;
    let mut warnings = Vec::new();
    let time = build.image.build_time.unwrap_or_else(crate::build::now);
    let stamp = Timestamp { secs: time, nanos: 0 };
    let (mut tree, contents) = match &options.new_image {
        Some(new) => {
            crate::sources::read_opened_image(&build, new, temporary, stamp, &mut warnings)?
        }
        None => crate::sources::read_source(&build, avoid, temporary, stamp, &mut warnings)?,
    };
    build.run.check_warnings(&mut warnings)?;
    let survey = Survey::new(&image, &build)?;
    let ignore = options.ignore;
    let inputs = Inputs {
        options: &build,
        old: &image,
        survey: &survey,
        tree: &tree,
        contents: &contents,
        ignore,
    };
    let decisions = ReuseDecisions::new(inputs)?;
    decide::update_digests(&mut tree, &decisions, &image, &build, &contents)?;
    let inputs = Inputs {
        options: &build,
        old: &image,
        survey: &survey,
        tree: &tree,
        contents: &contents,
        ignore,
    };
    let mut growth = match options.portable && !options.grow {
        // The patch would carry encoded metadata, which is longer than its difference to the old
        // one.
        true => Growth::default(),
        false => Growth::new(inputs, &decisions)?,
    };
    if !options.grow || !matches!(options.encoding, Encoding::AsOld) {
        // A patch describes each file apart; or the caller's settings say how new content is
        // stored.
        growth.packed = None;
    }
    let compression = match &options.encoding {
        Encoding::AsOld => encoding::of_image(
            &image,
            &survey,
            growth.packed.as_ref().map(|packed| packed.algorithm),
        )?,
        Encoding::Stored => None,
        Encoding::With(compression) => Some(compression.clone()),
    };
    // The pclusters of an image without LZ4_0PADDING have their padding after the data. New
    // pclusters have it before the data and need the flag, with which a kernel could not decode the
    // old ones.
    let pads_at_end =
        survey.is_compressed && !image.superblock().incompat.contains(Incompat::LZ4_0PADDING);
    let compression = match (&options.encoding, compression) {
        (Encoding::With(_), Some(_)) if pads_at_end => {
            return Err(Error::Patch(PatchFault::OldPadding));
        }
        (Encoding::With(_), compression) => compression,
        (_, compression) => compression
            .filter(|_| !pads_at_end)
            .and_then(|compression| encoding::with_space(&image, &area, compression)),
    };
    if compression.as_ref().is_none_or(|compression| compression.fragments == Fragments::None) {
        growth.packed = None;
    }
    let compression = compression.map(|mut compression| {
        // A piece of a patch holds each of its extents as a whole.
        compression.max_extent =
            Some(compression.max_extent.map_or(EXTENT_MAX, |most| most.min(EXTENT_MAX)));
        compression
    });
    let allowed = if options.keep_features { area.superblock().incompat } else { Incompat::all() };
    let metabox = growth.metabox.as_ref().map(|metabox| &metabox.compression);
    let methods = match options.portable {
        true => Vec::new(),
        false => context::methods(compression.as_ref(), metabox, build.image.block_size)?,
    };
    let (base, area, history) = (&base, &area, &history);
    let context =
        CreateContext { options, inputs, base, area, history, compression, allowed, methods };
    let region = region::write(&context, decisions, growth, temporary, time, &mut warnings)?;
    contents.check_unchanged()?;
    build.run.check_warnings(&mut warnings)?;
    let created = append_file(&context, region, time, output)?;
    Ok(PatchSummary { warnings, ..created })
}

/// The caller's options, with what must be as in the old image.
fn build_options(options: &CreateOptions, old: &Image) -> Options {
    let mut build = options.build.clone();
    build.image.block_size = old.superblock().block_size;
    build.image.wide_addresses = old.superblock().incompat.contains(ferofs_format::Incompat::BIT48);
    build.source.skip_unreadable = false;
    build.xattrs.prefixes = old.xattr_prefixes().to_vec();
    build.xattrs.digest = None;
    build.xattrs.name_filter = old.superblock().xattr_filter;
    build.xattrs.root_min = 0;
    build.inodes = crate::options::InodeOptions::default();
    build.data.chunks = None;
    build
}

/// Appends the patch file for `region` to `output`.
fn append_file(
    context: &CreateContext<'_>,
    mut region: Region,
    time: i64,
    output: &mut Output,
) -> Result<PatchSummary> {
    let options = context.inputs.options;
    let (start, end) = (context.area.size(), region.end);
    let before = PartDigests::of(&**context.base, start, &options.run.cancel)?;
    let result = region.result(context)?;
    let mut changed = vec![SECTOR_POS..SECTOR_POS + region.sector.len() as u64, start..end];
    changed.extend(region.root.iter().map(|(pos, bytes)| *pos..*pos + bytes.len() as u64));
    let after = before.changed(&result, end, &changed, &options.run.cancel)?;
    let mut header = Header {
        uuid: context.area.superblock().uuid,
        time,
        base_state: context.history.current(),
        base_size: start,
        base_digest: before.digest(),
        base_sector: context.area.sector(),
        result_size: end,
        result_digest: after.digest(),
        sector: region.sector,
        root: region.root.clone(),
        content_len: region.content_len,
        metadata_len: region.metadata_len,
        new_parents: region.new_parents,
        longest_extent: 0,
    };
    let (pieces, relocations) = region.pieces(context, &header)?;
    header.longest_extent = pieces.iter().map(|piece| piece.longest_extent).max().unwrap_or(0);
    let patch_len = format::write(
        &header,
        &context.methods,
        &pieces,
        &region.changes,
        &relocations,
        |bytes| output.append(bytes),
    )?;
    Ok(PatchSummary {
        patch_len,
        growth: end - start,
        growth_parts: region.growth,
        content_len: region.content_len,
        metadata_len: region.metadata_len,
        new_features: region.superblock.incompat - context.area.superblock().incompat,
        warnings: Vec::new(),
    })
}
