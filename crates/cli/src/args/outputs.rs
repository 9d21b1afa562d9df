//! Refuses to write a file that is also read, or written for another purpose.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferofs::host::follow_links;

use crate::exit::Failure;

/// Whether two names are of one file, also if it does not exist yet, or of one device.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    FileIdentity::of(one).is_some_and(|identity| FileIdentity::of(other) == Some(identity))
}

/// Fails if `output` is one of the input files, which writing it would destroy.
pub(crate) fn refuse_as_output(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    // As an input, this is standard input.
    refuse_as_any(output, inputs.iter().filter(|input| **input != Path::new("-")))
}

fn refuse_as_any<'p>(
    output: &Path,
    mut others: impl Iterator<Item = &'p &'p Path>,
) -> Result<(), Failure> {
    match others.any(|other| is_same_file(output, other)) {
        true => Err(Failure::about(output, "the output file is also an input or another output")),
        false => Ok(()),
    }
}

/// Fails if one of the outputs is one of the inputs, or two outputs are the same file.
pub(crate) fn refuse_as_outputs(outputs: &[&Path], inputs: &[&Path]) -> Result<(), Failure> {
    outputs.iter().enumerate().try_for_each(|(number, output)| {
        refuse_as_output(output, inputs)?;
        refuse_as_any(output, outputs[..number].iter())
    })
}

/// Whether writing `output` makes or changes a file below the directory `dir`, which has no
/// symbolic links.
pub(crate) fn writes_below(output: &Path, dir: &Path) -> bool {
    real_parent(&follow_links(output)).is_some_and(|parent| parent.starts_with(dir))
}

/// The directory of `path`, without symbolic links.
fn real_parent(path: &Path) -> Option<PathBuf> {
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::canonicalize(parent).ok()
}

/// Tells regular files apart, also those that do not exist yet, and block devices.
#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    Inode(u64, u64),
    Device(u64),
    /// The directory, without symbolic links, and the name.
    Name(PathBuf),
}

impl FileIdentity {
    /// `None` for what is not a file, or cannot become one.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(metadata) = std::fs::metadata(path) {
            return match metadata.file_type() {
                kind if kind.is_file() => Some(Self::Inode(metadata.dev(), metadata.ino())),
                kind if kind.is_block_device() => Some(Self::Device(metadata.rdev())),
                _ => None,
            };
        }
        let path = follow_links(path);
        Some(Self::Name(real_parent(&path)?.join(path.file_name()?)))
    }
}
