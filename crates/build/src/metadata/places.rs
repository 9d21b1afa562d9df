//! The places of inodes and directory blocks in the metadata, which [`super::write`] plans before it writes anything.

use std::collections::HashMap;

use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, BytePos, Nid};

use crate::data::stored::StoredContent;
use crate::tree::NodeId;

/// An item with a place in the metadata area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    /// Bytes from the start of the area.
    pub(super) pos: u64,
    pub(super) kind: ItemKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ItemKind {
    /// An inode with the bytes that follow it.
    Inode(NodeId),
    /// The content of a directory or symbolic link, without its tail.
    Blocks(NodeId),
    /// The packed inode.
    Packed,
    /// The inode of the metabox.
    Metabox,
}

/// The places of all items.
#[derive(Default)]
pub(super) struct Places {
    /// By node; numbers count from the start of the metadata area, or of the metabox.
    pub(super) nids: Vec<Nid>,
    /// Slots before the metadata area: see [`slots_before`].
    pub(super) slots_before: u64,
    /// All nodes that the image has, in the order of their inodes.
    pub(super) inodes: Vec<NodeId>,
    /// Whether the inodes are in the metabox, not in the metadata area.
    pub(super) in_metabox: bool,
    /// Items in the metadata area that are not inodes of nodes; sorted.
    pub(super) others: Vec<Item>,
    /// For each [`ItemKind::Blocks`], its first block in the area; sorted by node.
    pub(super) content_blocks: Vec<(NodeId, u64)>,
    /// The packed inode, in bytes from the start of the area.
    pub(super) packed: Option<u64>,
    /// The content of directories that are encoded.
    pub(super) encoded_dirs: HashMap<NodeId, StoredContent>,
    pub(super) total_blocks: u64,
}

/// The block that inode numbers count from, if the metadata area begins with block `first`: its address has only 32 bits.
pub(super) fn meta_block(first: BlockAddr) -> BlockAddr {
    BlockAddr::new(first.get().min(u32::MAX.into()))
}

/// Slots between the block that inode numbers count from and a metadata area that begins at the position `start`: 0 unless that is behind
/// 2^32 blocks.
pub(super) fn slots_before(start: u64, block: BlockSize) -> u64 {
    let first = BytePos::new(start).block(block);
    ((first.get() - meta_block(first).get()) << block.bits()) / SLOT_SIZE
}

impl Places {
    /// The number of the inode of `id` in the image.
    pub(super) fn nid(&self, id: NodeId) -> Nid {
        Nid::new(self.nids[id.index()].get() + self.slots_before)
    }

    /// The number of an inode `pos` bytes from the start of the metadata area.
    pub(super) fn nid_in_area(&self, pos: u64) -> Nid {
        Nid::new(self.slots_before + pos / SLOT_SIZE)
    }

    /// Where the inode of `id` is, in bytes from the start of the metadata area or of the metabox.
    pub(super) fn inode_pos(&self, id: NodeId) -> u64 {
        self.nids[id.index()].slot() * SLOT_SIZE
    }

    /// All items in the metadata area, in the order of their places.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        let inodes: &[NodeId] = if self.in_metabox { &[] } else { &self.inodes };
        let mut inodes =
            inodes.iter().map(|id| Item { pos: self.inode_pos(*id), kind: ItemKind::Inode(*id) }).peekable();
        let mut others = self.others.iter().copied().peekable();
        std::iter::from_fn(move || match (inodes.peek(), others.peek()) {
            (Some(inode), Some(other)) if other.pos < inode.pos => others.next(),
            (Some(_), _) => inodes.next(),
            (None, _) => others.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_the_order_of_their_places() {
        let block = |pos| Item { pos, kind: ItemKind::Blocks(NodeId(0)) };
        let places = Places {
            nids: [3, 1, 9].into_iter().map(Nid::new).collect(),
            inodes: [1, 0, 2].into_iter().map(NodeId).collect(),
            others: vec![block(0), block(4096)],
            ..Places::default()
        };
        let at = |places: &Places| places.items().map(|item| item.pos).collect::<Vec<_>>();
        assert_eq!(at(&places), [0, 32, 96, 288, 4096]);
        assert_eq!(at(&Places { in_metabox: true, ..places }), [0, 4096]);
    }
}
