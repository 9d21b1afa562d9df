//! `delta` and `delta-show`: exact new images.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use ferofs::patch::{Delta, DeltaOutput};
use ferofs::read::{FileSource, Hex, Source};

use crate::args::SignatureArgs;
use crate::change::cancel_on_signals;
use crate::failure::{About, Failure, Outcome, print, summary};

/// A delta from a file or standard input, whose header was read.
type OpenDelta = Delta<Box<dyn Read>>;

/// Opens a delta, or standard input for `-`, and reads its header. The name is for messages.
fn open(path: &Path) -> Result<(&Path, OpenDelta), Failure> {
    let (name, stream): (_, Box<dyn Read>) = if path.as_os_str() == "-" {
        (Path::new("standard input"), Box::new(std::io::stdin().lock()))
    } else {
        let file = File::open(path).map_err(|error| Failure::about(path, format!("open: {error}")))?;
        (path, Box::new(BufReader::new(file)))
    };
    Ok((name, Delta::read(stream).about(name)?))
}

/// Makes `new` from `old`.
pub(crate) fn apply(
    old: &Path,
    delta: &Path,
    new: &Path,
    resume: bool,
    signature: Option<&SignatureArgs>,
) -> Outcome {
    let (name, delta) = open(delta)?;
    signature.map_or(Ok(()), |signature| signature.check(&delta.digest()))?;
    let source: Arc<dyn Source> = Arc::new(FileSource::open(old, 0).map_err(Failure::without_subject)?);
    let cancel = cancel_on_signals()?;
    let applied = if new.as_os_str() == "-" {
        let mut stdout = std::io::stdout().lock();
        delta.apply(&source, DeltaOutput::Stream(&mut stdout), |_| {}, &cancel)
    } else {
        let mut options = OpenOptions::new();
        // Bytes of a longer file are cut off at the end only: an old image that is another one changes nothing.
        let file = options.read(true).write(true).create(true).truncate(false).open(new);
        let file = file.map_err(|error| Failure::about(new, format!("open: {error}")))?;
        delta.apply_to_file(&source, &file, resume, |_| {}, &cancel)
    };
    match applied {
        Err(error) if error.is_about_patch() => Err(Failure::about(name, error)),
        applied => {
            let applied = applied.about(old)?;
            // Standard output has the image.
            if new.as_os_str() == "-" {
                return Ok(0);
            }
            summary(&format!(
                "{} bytes written and compared, {} of them before",
                applied.len, applied.resumed
            ))
        }
    }
}

/// Prints what a delta says about itself.
pub(crate) fn show(delta: &Path) -> Outcome {
    let (_, delta) = open(delta)?;
    let header = delta.header();
    print(&format!(
        "old image   {} bytes, SHA-256 {}\nnew image   {} bytes, SHA-256 {}\nmemory      at most {} bytes to apply",
        header.old_size,
        Hex(&header.old_digest),
        header.new_size,
        Hex(&header.new_digest),
        header.memory
    ))
}
