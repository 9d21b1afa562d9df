//! Builds an image like an earlier one: content that both have keeps its place and its encoding.
//! Programs that transfer only changed blocks or chunks of an image, and hash trees, then find most
//! of it unchanged: docs/decisions/0028.
//!
//! [`reuse`] decides before the data stage which bytes of the earlier image stay. The stage here
//! copies these bytes, and then the builder's data stage adds the rest, after them or in the free
//! space between them.

mod packed;
mod places;
mod reuse;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferofs_format::Incompat;
use ferofs_read::{FileSource, Image, OpenOptions};

use crate::build::build_with;
use crate::data;
use crate::data::encode::dedupe::ExtentIndex;
use crate::data::identical::IdenticalFiles;
use crate::data::stored::StoredData;
use crate::data::worker::context::WorkerContext;
use crate::error::{Error, Result, Warning};
use crate::incremental::create::context::{Inputs, Survey};
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::incremental::create::metadata_cache;
use crate::incremental::create::options::IgnoredAttributes;
use crate::incremental::like::reuse::{Reuse, waste_max};
use crate::options::Options;
use crate::options::source::SourceData;
use crate::output::Output;
use crate::output::free_space::FreeSpace;
use crate::output::spill::Spill;
use crate::progress::Summary;
use crate::tree::Kind;

/// How often the data stage runs with content of the earlier image, each time with less of it,
/// before it runs without.
const REUSES_MAX: usize = 3;

/// At first, content goes only into ranges of free space that are at most this many times longer.
const RANGE_TIMES: u64 = 16;

/// The earlier image, and what it may cost to be like it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LikeOptions {
    /// The earlier image, a file or a block device.
    pub image: PathBuf,
    /// The most bytes of the new image that nothing uses, and that are there only because the
    /// earlier image has them, in percent of all others. If there would be more, less of the
    /// earlier image is kept, or nothing. Of small images, up to a fifth may be unused, at most 64
    /// KiB.
    pub waste: u8,
}

impl LikeOptions {
    /// Like `image`, with up to 3 percent of waste.
    #[must_use]
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self { image: image.into(), waste: 3 }
    }
}

/// Builds an image like an earlier one at `image`, which is another file or device. The same
/// earlier image, source and options give the same bytes.
///
/// # Errors
/// [`Error::Option`] if the earlier image has another block size, or content that an image with
/// these `options` cannot have, and for options that do not go together with this; [`Error::Read`]
/// for an earlier image that cannot be read; as [`build`](crate::build()).
pub fn build_like(options: &Options, like: &LikeOptions, image: &Path) -> Result<Summary> {
    let source = FileSource::open(&like.image, 0)?;
    let file = File::open(&like.image).map_err(|e| Error::io("open", &like.image, e))?;
    let mut opening = OpenOptions::default();
    opening.metadata_cache = metadata_cache();
    let opened = Image::open_with(Box::new(source), Vec::new(), &opening);
    let old = opened.map_err(|error| in_old(&like.image, error.into()))?;
    check(&old, options)?;
    let stage = LikeStage { old: &old, file: &file, path: &like.image, waste: like.waste.into() };
    build_with(options, image, &|context, output, spill, warnings| {
        stage.run(context, output, spill, warnings)
    })
}

/// Says which image could not be read.
fn in_old(path: &Path, error: Error) -> Error {
    match error {
        Error::Read(_) => Error::InSource { path: path.to_owned(), source: Box::new(error) },
        error => error,
    }
}

/// Fails if an image with these options cannot have the content of `old` as it is stored there.
fn check(old: &Image, options: &Options) -> Result<()> {
    let superblock = old.superblock();
    let has = |feature| superblock.incompat.contains(feature);
    let compression = options.data.compression.as_ref();
    let refuse = |problem| Err(Error::Option { option: "the earlier image", problem });
    if superblock.block_size != options.image.block_size {
        return refuse("has another block size (-b)");
    }
    if superblock.extra_devices > 0
        || options.data.chunks.is_some()
        || options.source.data == SourceData::External
    {
        return refuse(
            "does not go together with extra devices, with chunks of one size, and with data that stays in its sources",
        );
    }
    if options.source.skip_unreadable {
        return refuse("does not go together with leaving out what cannot be read");
    }
    if has(Incompat::BIT48) != options.has_wide_addresses() {
        return refuse("differs in its addresses of 48 bits (-E 48bit, -m)");
    }
    if has(Incompat::LZ4_0PADDING) {
        let Some(compression) = compression else { return refuse("is compressed (-z)") };
        let new = compression.configs(superblock.block_size);
        if old.configs().union(&new) != new {
            return refuse("has other algorithms, larger pclusters or longer windows (-z, -C)");
        }
    }
    Ok(())
}

/// The data stage of such a build.
struct LikeStage<'a> {
    old: &'a Image,
    file: &'a File,
    path: &'a Path,
    /// In percent.
    waste: u64,
}

impl LikeStage<'_> {
    fn run(
        &self,
        context: WorkerContext<'_>,
        output: &mut Output,
        spill: &mut Spill,
        warnings: &mut Vec<Warning>,
    ) -> Result<StoredData> {
        if !context.contents.is_all_readable() {
            let problem = "needs sources that can be read twice, and a stream cannot be read again";
            return Err(Error::Option { option: "the earlier image", problem });
        }
        let (start, warned) = (output.position(), warnings.len());
        let options = context.options;
        let in_old = |error| in_old(self.path, error);
        let decisions = self.decide(context).map_err(in_old)?;
        // Content of the earlier image after this position does not stay.
        let mut end = u64::MAX;
        let mut attempt = 0;
        loop {
            // What failed attempts remember is not in the image.
            let (identical_files, extent_index) = match attempt {
                0 => (None, None),
                _ if options.data.share_identical => {
                    (Some(IdenticalFiles::new(context.tree)?), Some(spill.dir()))
                }
                _ => (Some(IdenticalFiles::none(context.tree)), Some(spill.dir())),
            };
            let extent_index = extent_index.map(ExtentIndex::new);
            let context = WorkerContext {
                identical_files: identical_files.as_ref().unwrap_or(context.identical_files),
                extent_index: context
                    .extent_index
                    .map(|first| extent_index.as_ref().unwrap_or(first)),
                ..context
            };
            let reuse = match attempt {
                REUSES_MAX => None,
                _ => Reuse::plan(self.old, context, &decisions, start..end, self.waste, spill)
                    .map_err(in_old)?,
            };
            let Some(mut reuse) = reuse else {
                let why = self.why_nothing_stays(context, &decisions, start, attempt, spill);
                let image = self.path.to_owned();
                warnings.push(Warning::NothingKept { image, why: why.map_err(in_old)? });
                return data::run(context, output, spill, warnings);
            };
            let mut excess = reuse.excess();
            if excess == 0 {
                self.append_old(&mut reuse, context, start, output)?;
                let times = if attempt == 0 { RANGE_TIMES } else { u64::MAX };
                output.set_free_space(FreeSpace::new(reuse.free(), reuse.allowed(), times));
                let reusing = WorkerContext { base_image: Some(&reuse), ..context };
                let mut data = data::run(reusing, output, spill, warnings)?;
                let unused = output.set_free_space(FreeSpace::default()) + reuse.unused(&data);
                let used = (output.position() - start).saturating_sub(unused);
                // The last sixth is for pclusters that end early because nothing follows them in
                // the earlier image.
                let allowed = waste_max(used, self.waste) / 6 * 5;
                if unused <= allowed {
                    reuse.complete(&mut data, allowed - unused);
                    return Ok(data);
                }
                excess = unused - allowed;
                output.rewind(start)?;
                options.run.progress.bytes_done.set(0);
                options.run.progress.files_done.set(0);
                warnings.truncate(warned);
            }
            // Content from there moves into the free space, which does not fit everywhere.
            end = reuse.end().saturating_sub(excess.saturating_mul(2));
            attempt += 1;
        }
    }

    /// Why the image has no bytes of the earlier one.
    fn why_nothing_stays(
        &self,
        context: WorkerContext<'_>,
        decisions: &ReuseDecisions,
        start: u64,
        attempt: usize,
        spill: &mut Spill,
    ) -> Result<&'static str> {
        let is_same = |found: &_| {
            matches!(found, ReuseDecision::KeepInode(_) | ReuseDecision::SameContent(_))
        };
        let mut files = context.tree.ids().filter(|id| {
            let node = context.tree.node(*id);
            matches!(node.kind, Kind::Regular { .. }) && node.size > 0
        });
        Ok(if !files.any(|id| is_same(&decisions.by_node[id.index()])) {
            "no file of the source has the same content there"
        } else if attempt > 0
            || Reuse::plan(self.old, context, decisions, start..u64::MAX, 100, spill)?.is_some()
        {
            "too many of its bytes would be unused; a larger --like-waste keeps more"
        } else {
            "it has the unchanged content in inodes, or in a packed inode that these options cannot continue"
        })
    }

    /// Compares the new tree with the earlier image.
    fn decide(&self, context: WorkerContext<'_>) -> Result<ReuseDecisions> {
        let WorkerContext { options, tree, contents, .. } = context;
        let survey = Survey::new(self.old, options)?;
        let ignore = IgnoredAttributes::default();
        ReuseDecisions::new(Inputs {
            options,
            old: self.old,
            survey: &survey,
            tree,
            contents,
            ignore,
        })
    }

    /// Appends the bytes of the earlier image that stay.
    fn append_old(
        &self,
        reuse: &mut Reuse<'_>,
        context: WorkerContext<'_>,
        start: u64,
        output: &mut Output,
    ) -> Result<()> {
        let read = |bytes: &mut [u8], at| {
            self.file.read_exact_at(bytes, at).map_err(|e| Error::io("read", self.path, e))
        };
        output.copy(self.file.as_fd(), start, reuse.end() - start, &read)?;
        reuse.append_zeroes(context, output)?;
        context.options.run.progress.bytes_done.add(reuse.content_len());
        Ok(())
    }
}
