//! Lists the old inode that each new inode resembles, and how it differs, so that `apply` can
//! predict the new metadata.

use std::collections::{HashMap, HashSet};

use crate::tree::{Kind, NodeId};
use ferofs_format::Nid;
use ferofs_read::{Image, Inode};

use crate::error::{Error, Result};
use crate::incremental::create::context::CreateContext;
use crate::incremental::create::decide::{ReuseDecision, ReuseDecisions};
use crate::incremental::create::metadata::root::RootPlace;
use crate::incremental::create::metadata::{NewInode as WrittenInode, WrittenMetadata};
use ferofs_patch::format::header::Header;
use ferofs_patch::format::prediction::{Prediction, Replay, fields_of, old_entries};
use ferofs_patch::format::relocation::{
    Edit, INODES_MAX, Relocated as NewInode, Relocations, SourceCode, Target,
};

/// What the list is made from.
pub(crate) struct Inputs<'a> {
    pub(crate) context: &'a CreateContext<'a>,
    /// The new image.
    pub(crate) image: &'a Image,
    pub(crate) decisions: &'a ReuseDecisions,
    /// Inodes of the old image that stay, by node.
    pub(crate) kept: &'a [Option<Nid>],
    /// The old directory that a new one resembles.
    pub(crate) old_dirs: &'a HashMap<NodeId, Nid>,
    pub(crate) written: &'a WrittenMetadata,
    pub(crate) header: &'a Header,
    pub(crate) first_ino: u32,
    pub(crate) root: RootPlace,
}

/// The list as stored, and what `apply` makes of it.
pub(crate) struct Relocated {
    pub(crate) prediction: Prediction,
    pub(crate) encoded: Vec<u8>,
}

/// Lists all new inodes; none if they are too many, or too large.
pub(crate) fn list(inputs: &Inputs<'_>) -> Result<Relocated> {
    // A patch that carries the encoded metabox needs no prediction of its content.
    let is_carried = inputs.context.options.portable && inputs.written.metabox.is_some();
    if inputs.written.inodes.len() <= INODES_MAX && !is_carried {
        match predict(inputs, &relocate(inputs)?) {
            Ok(Some(relocated)) if is_as_written(inputs, &relocated.prediction) => {
                return Ok(relocated);
            }
            Ok(_) | Err(Error::Patch(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let none = predict(inputs, &Relocations::default())?;
    none.ok_or(Error::Patch(TOO_MANY))
}

/// The list as stored, if it is short enough.
fn predict(inputs: &Inputs<'_>, relocations: &Relocations) -> Result<Option<Relocated>> {
    let Some(encoded) = relocations.encode()? else { return Ok(None) };
    // What `apply` decodes, so that a value that the list cannot hold is noticed here.
    let relocations = Relocations::decode(&encoded)?;
    let (old, base) = (inputs.context.inputs.old, &**inputs.context.base);
    let prediction = Prediction::new(inputs.header, relocations, old, base)?;
    Ok(Some(Relocated { prediction, encoded }))
}

/// Whether all predicted inodes have the places of the written ones.
fn is_as_written(inputs: &Inputs<'_>, prediction: &Prediction) -> bool {
    let is_same = |(number, inode): (u32, &WrittenInode)| {
        prediction.nid(number) == Some(inputs.written.nid(inode.node))
    };
    (0..).zip(&inputs.written.inodes).all(is_same)
}

fn relocate(inputs: &Inputs<'_>) -> Result<Relocations> {
    let Inputs { context, written, .. } = *inputs;
    let old = context.inputs.old;
    let mut sources = Vec::with_capacity(written.inodes.len());
    // The new number of each old inode that has one, as `apply` sees it: the first new inode that
    // resembles an old one has it.
    let mut relocated: HashMap<Nid, Nid> = HashMap::new();
    let mut numbers: HashMap<NodeId, u32> = HashMap::new();
    // A new inode never takes the place of one that stays.
    let kept: HashSet<Nid> = inputs.kept.iter().copied().flatten().collect();
    let mut replay = Replay::new(old, matches!(inputs.root, RootPlace::Free(_)));
    for (number, WrittenInode { node, .. }) in (0..).zip(&written.inodes) {
        context.inputs.options.run.check_cancelled()?;
        numbers.insert(*node, number);
        let source = match source(inputs, *node) {
            Some(nid) if !kept.contains(&nid) => {
                Some(old.inode(nid)?).filter(|inode| replay.is_usable(inode))
            }
            _ => None,
        };
        let code = match &source {
            Some(source) => replay.code(source.nid(), source.is_dir()),
            None => SourceCode::None,
        };
        if let Some(source) = replay.source(code)? {
            relocated.entry(source.nid()).or_insert(written.nid(*node));
        }
        sources.push((code, source));
    }
    let mut inodes = Vec::with_capacity(sources.len());
    for (number, (WrittenInode { node, size }, (code, source))) in
        written.inodes.iter().zip(sources).enumerate()
    {
        context.inputs.options.run.check_cancelled()?;
        let mut new = NewInode {
            source: code,
            fields: Vec::new(),
            in_chunks: false,
            len: 0,
            blocks: 0,
            inline: 0,
            edits: Vec::new(),
        };
        let block = old.superblock().block_size;
        let mut predicted = (0, 0);
        if let Some(source) = &source {
            let inode = inputs.image.inode(written.nid(*node))?;
            let (before, after) = (fields_of(source.on_disk()), fields_of(inode.on_disk()));
            let fields = (0u8..).zip(before.into_iter().zip(after));
            new.fields = fields
                .filter(|(_, (before, after))| before != after)
                .map(|(n, (_, value))| (n, value))
                .collect();
            if inode.is_dir() {
                new.in_chunks = inode.layout() == ferofs_read::DataLayout::ChunkBased;
                new.edits = edits(inputs, *node, source, &relocated, &numbers)?;
            }
            predicted = replay.sizes(source, &new, number == 0, block)?;
        }
        let more = |actual: u64, predicted: u64| actual.wrapping_sub(predicted).cast_signed();
        (new.len, new.blocks) = (more(size.len, predicted.0), more(size.blocks, predicted.1));
        // It decides about the place only of what is longer than a block.
        if size.len > block.bytes64() - ferofs_format::units::SLOT_SIZE {
            new.inline = size.inline as u32;
        }
        inodes.push(new);
    }
    Ok(Relocations {
        start: written.base - context.area.size(),
        first_ino: inputs.first_ino,
        root_is_first: inputs.root == RootPlace::First,
        in_metabox: written.metabox.is_some(),
        inodes,
    })
}

/// The old inode that the new inode of `node` resembles.
fn source(inputs: &Inputs<'_>, node: NodeId) -> Option<Nid> {
    if matches!(inputs.context.inputs.tree.node(node).kind, Kind::Directory(_)) {
        return inputs.old_dirs.get(&node).copied();
    }
    match inputs.decisions.by_node[node.index()] {
        ReuseDecision::SameContent(nid) | ReuseDecision::ChangedContent(nid) => Some(nid),
        ReuseDecision::New | ReuseDecision::KeepInode(_) => None,
    }
}

/// What the directory `node` has that its old one, `source`, has not, and the other way.
fn edits(
    inputs: &Inputs<'_>,
    node: NodeId,
    source: &Inode,
    relocated: &HashMap<Nid, Nid>,
    numbers: &HashMap<NodeId, u32>,
) -> Result<Vec<Edit>> {
    let tree = inputs.context.inputs.tree;
    let Some(old) = old_entries(inputs.context.inputs.old, source)? else { return Ok(Vec::new()) };
    let mut new: HashMap<&[u8], NodeId> = tree.names(node, true).collect();
    let mut edits = Vec::new();
    for (number, entry) in old.iter().enumerate() {
        let predicted = relocated.get(&entry.nid).copied().unwrap_or(entry.nid);
        let stays = new.get(&entry.name[..]).is_some_and(|node| {
            let file_type = Some(tree.node(*node).kind.file_type());
            inputs.written.nid(*node) == predicted && file_type == entry.file_type
        });
        if stays {
            new.remove(&entry.name[..]);
        } else {
            edits.push(Edit::Removed(u32::try_from(number).map_err(|_| Error::Patch(TOO_MANY))?));
        }
    }
    let mut added: Vec<_> = new.into_iter().collect();
    added.sort_unstable();
    edits.extend(added.into_iter().map(|(name, node)| Edit::Added {
        name: name.to_vec(),
        file_type: tree.node(node).kind.file_type(),
        target: match numbers.get(&node) {
            Some(number) => Target::New(*number),
            None => Target::Old(inputs.written.nid(node).get()),
        },
    }));
    Ok(edits)
}

const TOO_MANY: ferofs_patch::PatchFault =
    ferofs_patch::PatchFault::Malformed("a directory has too many names");
