//! Adds files to an image in place: makes a patch to the old tree with the new sources on top, and applies it.

use std::path::Path;

use super::create::append_patch;
use super::create::options::{CreateOptions, PatchSummary};
use crate::error::{Error, Result};
use crate::output::{Output, OwnFile};
use ferofs_patch::PatchFault;
use ferofs_patch::{FileMedium, Patch, TrailingData, apply};

/// Adds the sources of `options` to the tree of `image`: files replace files of the same path, directories are merged. Returns
/// `None` if that changes nothing. The image shows the old tree or the new one at any moment, and
/// [`rollback`](ferofs_patch::rollback) goes back. `trailing` says whether bytes after the image may be overwritten.
///
/// # Errors
/// As [`create`](crate::incremental::create()) and [`apply`].
pub fn add(image: &Path, options: &CreateOptions, trailing: TrailingData) -> Result<Option<PatchSummary>> {
    let mut options = options.clone();
    options.build.source.lower_image = Some(image.to_owned());
    // The patch is applied at once and never sent, so its size does not count.
    (options.portable, options.level, options.grow) = (true, Some(1), true);
    // This locks the image against other changes until the end.
    let medium = FileMedium::open(image)?;
    let own_files: Vec<OwnFile> = OwnFile::with_name(image).into_iter().collect();
    let temporary = image.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let mut output = Output::region(temporary, 0)?;
    let created = match append_patch(image, &options, &own_files, temporary, &mut output) {
        Err(Error::Patch(PatchFault::Unchanged)) => return Ok(None),
        created => created?,
    };
    let patch = Patch::new(Box::new(output.appended(0)?))?;
    apply(&medium, &patch, trailing, &options.build.run.cancel)?;
    Ok(Some(created))
}
