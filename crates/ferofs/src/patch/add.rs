//! Adding to an image in place: its sources are laid over what it shows. A patch says what that changes, and is applied at
//! once.

use std::path::Path;

use super::apply::apply;
use super::commit::Beyond;
use super::create::{CreateOptions, Created, make};
use super::medium::FileMedium;
use super::{Patch, PatchFault};
use crate::{Error, Result};
use ferofs_build::output::{Output, file_id};

/// Makes `image` show its tree with the sources of `options` laid over it: files replace those of the same name, directories
/// keep what they have. `None` if it shows just that already. The image is the old one or the new one at any time, and can go
/// back, see [`super::rollback`]. `beyond` says what becomes of bytes that stand behind the image.
///
/// # Errors
/// As [`super::create`] and [`apply`].
pub fn add(image: &Path, options: &CreateOptions, beyond: Beyond) -> Result<Option<Created>> {
    let mut options = options.clone();
    options.build.source.lower_image = Some(image.to_owned());
    // From here on nobody else changes it.
    let medium = FileMedium::open(image)?;
    let itself = std::fs::metadata(image).map_err(|e| Error::io("stat", image, e))?;
    let temporary = image.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let mut output = Output::region(temporary, 0)?;
    let created = match make(image, &options, &[file_id(&itself)], temporary, &mut output) {
        Err(Error::Patch(PatchFault::Unchanged)) => return Ok(None),
        created => created?,
    };
    let patch = Patch::new(Box::new(output.appended(0)?))?;
    apply(&medium, &patch, beyond, &options.build.run.cancel)?;
    Ok(Some(created))
}
