//! Files that cannot be read: a build fails, or leaves them out. Samples of them would say nothing.

use crate::error::{Error, Result};
use crate::options::Options;
use crate::progress::Warning;
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::origin::Origin;
use crate::tree::{Kind, NodeId, Tree};

/// The permissions of a file that anybody can read.
const READABLE: u16 = 0o444;

/// Makes the files empty that cannot be read, if a build leaves them out. Files that anybody may read are not tried.
///
/// # Errors
/// For the first of them, if a build fails there.
pub(super) fn leave_out(
    options: &Options,
    tree: &mut Tree,
    contents: &Contents,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut found: Vec<NodeId> = Vec::new();
    let mut reader = Reader::new(contents, tree);
    for id in tree.ids() {
        let node = tree.node(id);
        let is_file = matches!(node.kind, Kind::Regular { .. }) && node.size > 0;
        // Content of archives and images needs no permissions.
        let is_opened = matches!(node.origin, Origin::File(_) | Origin::LayerFile { .. });
        if !is_file || !is_opened || node.permissions & READABLE == READABLE {
            continue;
        }
        match reader.read(id, 0, &mut [0]) {
            Err(error) if error.is_unreadable() && options.source.skip_unreadable => {
                warnings.push(Warning::Skipped(error));
                found.push(id);
            }
            Err(error) if error.is_unreadable() => return Err(error),
            _ => {}
        }
    }
    found.into_iter().for_each(|id| tree.nodes[id.index()].size = 0);
    Ok(())
}

/// Whether an estimate goes on without a sample: its file cannot be read, or changes.
pub(super) fn is_tolerated(error: &Error) -> bool {
    error.is_unreadable() || matches!(error, Error::SourceChanged(_))
}
