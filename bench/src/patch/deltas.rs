//! What general delta tools make of the two images `image` and `rebuilt` of a directory.

use std::path::Path;

use anyhow::Result;
use ferofs_tests::{Outcome, Run};

use super::{TIMEOUT, size, succeed};

/// Bytes of the largest image that bsdiff gets: it needs 17 times as much memory, and minutes.
const BSDIFF_MAX: u64 = 40 << 20;

/// Deltas from the old image to the new one.
pub(super) struct Deltas {
    /// Bytes of xdelta3's delta at its highest level.
    pub(super) xdelta: u64,
    /// The run that made it.
    pub(super) xdelta_run: Outcome,
    /// Bytes of bsdiff's delta; `-` for images that are too large for it.
    pub(super) bsdiff: String,
}

/// Makes the deltas from `image` to `rebuilt` in `dir`.
pub(super) fn deltas(dir: &Path) -> Result<Deltas> {
    let path = |name: &str| dir.join(name);
    let images = [path("image"), path("rebuilt")];
    let xdelta = Run::limited("xdelta3", None, TIMEOUT).args(["-e", "-9", "-f", "-s"]);
    let xdelta_run = succeed(xdelta.args(&images).arg(path("xdelta")))?;
    let bsdiff = match size(&images[1])? < BSDIFF_MAX {
        false => "-".to_owned(),
        true => {
            succeed(Run::limited("bsdiff", None, TIMEOUT).args(&images).arg(path("bsdelta")))?;
            size(&path("bsdelta"))?.to_string()
        }
    };
    Ok(Deltas { xdelta: size(&path("xdelta"))?, xdelta_run, bsdiff })
}
