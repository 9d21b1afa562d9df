//! Finds old content as it is stored, for patches that carry encoded bytes: the bytes are compressed against it.

use std::ops::Range;

use ferofs_format::{FileOffset, Nid};
use ferofs_read::{ExtentData, Location};

use crate::error::Result;
use crate::incremental::create::context::CreateContext;
use crate::incremental::create::decide::files::{ReuseDecision, ReuseDecisions};

/// The positions of the extents of changed files in the old image. `kept` are the old inodes that stay, by node.
pub(crate) fn changed_content(
    context: &CreateContext<'_>,
    decisions: &ReuseDecisions,
    kept: &[Option<Nid>],
) -> Result<Vec<Range<u64>>> {
    let old = context.inputs.old;
    let mut found = Vec::new();
    for id in context.inputs.tree.ids().filter(|id| kept[id.index()].is_none()) {
        let ReuseDecision::ChangedContent(nid) = decisions.by_node[id.index()] else { continue };
        for extent in old.extents(&old.inode(nid)?, FileOffset::new(0))? {
            let extent = extent?;
            let (at, len) = match extent.data {
                ExtentData::Stored { at: Location::Device(_, at) } => (at.get(), extent.len),
                ExtentData::Encoded { at: Location::Device(_, at), encoded_len, .. } => {
                    (at.get(), encoded_len)
                }
                _ => continue,
            };
            found.push(at..at + len);
        }
    }
    Ok(found)
}
