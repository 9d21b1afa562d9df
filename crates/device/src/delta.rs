//! `delta` and `delta-show`: exact new images.

use std::path::Path;

use ferofs::patch::DeltaFile;
use ferofs::read::Hex;

use crate::args::DeltaArgs;
use crate::change::cancel_on_signals;
use crate::failure::{Failure, Outcome, print, summary};

/// Opens a delta, or standard input for `-`, and reads its header.
fn open(path: &Path) -> Result<DeltaFile, Failure> {
    DeltaFile::open(path).map_err(Failure::without_subject)
}

/// Makes `new` from `old`.
pub(crate) fn apply(args: &DeltaArgs) -> Outcome {
    let DeltaArgs { old, delta, new, resume, force, signature } = args;
    let delta = open(delta)?;
    signature.as_ref().map_or(Ok(()), |signature| signature.check(&delta.delta().digest()))?;
    let cancel = cancel_on_signals()?;
    let applied = delta
        .apply(old, new, *resume, *force, |_| {}, &cancel)
        .map_err(Failure::without_subject)?;
    // Standard output has the image.
    if new.as_os_str() == "-" {
        return Ok(0);
    }
    summary(&format!(
        "{} bytes written and compared, {} of them before",
        applied.len, applied.resumed
    ))
}

/// Prints what a delta says about itself.
pub(crate) fn show(delta: &Path) -> Outcome {
    let mut delta = open(delta)?;
    delta.check_length().map_err(Failure::without_subject)?;
    let header = delta.delta().header();
    let root = header.seal.as_ref().map(|seal| format!("root hash   {}\n", Hex(&seal.root)));
    print(&format!(
        "old image   {} bytes, SHA-256 {}\nnew image   {} bytes, SHA-256 {}\n{}memory      at most {} bytes to apply\ndigest      {}",
        header.old_size,
        Hex(&header.old_digest),
        header.new_size,
        Hex(&header.new_digest),
        root.unwrap_or_default(),
        header.memory,
        Hex(&delta.delta().digest())
    ))
}
