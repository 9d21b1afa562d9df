//! The places of inodes and directory blocks in the metadata, which are planned before anything is
//! written.

use std::collections::HashMap;

use ferofs_format::area::{MetadataAreas, MetadataSize};
use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{BlockAddr, BlockSize, BytePos, Nid};

use crate::data::stored::StoredContent;
use crate::tree::NodeId;

/// An item with a place in the metadata area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlacedItem {
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
    /// An inode without a name, by its number in a list of them.
    Unnamed(usize),
}

/// The places of all items.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The number of each node's inode in the image.
    pub nids: Vec<Nid>,
    /// The number of the first slot of the area, or of the new content of the metabox.
    first_slot: u64,
    /// All nodes whose inodes are written, in the order of their inodes, but for one that is apart.
    pub inodes: Vec<NodeId>,
    /// Whether the inodes are in the metabox, not in the metadata area.
    in_metabox: bool,
    /// Items in the metadata area that are not inodes of nodes; sorted.
    others: Vec<PlacedItem>,
    /// The first block in the area of each directory or symbolic link that has blocks; sorted by
    /// node.
    blocks: Vec<(NodeId, u64)>,
    /// Where the area begins.
    pub area: BlockAddr,
    /// The content of directories that are encoded.
    pub(super) encoded_dirs: HashMap<NodeId, StoredContent>,
    pub total_blocks: u64,
}

/// Plans [`Places`], inode by inode.
pub(crate) struct Planner {
    areas: MetadataAreas,
    places: Places,
}

/// The block that inode numbers count from, if the metadata area begins with block `first`: its
/// address has only 32 bits.
pub(super) fn meta_block(first: BlockAddr) -> BlockAddr {
    BlockAddr::new(first.get().min(u32::MAX.into()))
}

/// Slots between the block that inode numbers count from and a metadata area that begins at the
/// position `start`: 0 unless that is after 2^32 blocks.
pub(super) fn slots_before(start: u64, block: BlockSize) -> u64 {
    let first = BytePos::new(start).block(block);
    ((first.get() - meta_block(first).get()) << block.bits()) / SLOT_SIZE
}

impl Planner {
    /// Plans inodes in the metabox or in the area, after `reserved` bytes that stay free. These
    /// begin with slot `first_slot`. `nids` are the numbers of the nodes that have an inode
    /// already.
    pub(crate) fn new(
        block: BlockSize,
        in_metabox: bool,
        reserved: u64,
        first_slot: u64,
        nids: Vec<Nid>,
    ) -> Self {
        let areas = MetadataAreas::new(block, in_metabox, reserved);
        Self { areas, places: Places { nids, first_slot, in_metabox, ..Places::default() } }
    }

    /// Adds the inode of `id` and its blocks.
    pub(crate) fn add(&mut self, id: NodeId, size: MetadataSize) {
        let slot = self.places.first_slot + self.areas.allocate_inode(size) / SLOT_SIZE;
        let nid = if self.places.in_metabox { Nid::metabox_slot(slot) } else { Nid::new(slot) };
        self.places.nids[id.index()] = nid;
        self.places.inodes.push(id);
        self.add_blocks(id, size);
    }

    /// Adds only the blocks of `id`, whose inode is apart and has the number `nid`.
    pub(crate) fn add_apart(&mut self, id: NodeId, size: MetadataSize, nid: Nid) {
        self.places.nids[id.index()] = nid;
        self.add_blocks(id, size);
    }

    fn add_blocks(&mut self, id: NodeId, size: MetadataSize) {
        self.places.blocks.extend(self.areas.allocate_blocks(size).map(|first| (id, first)));
    }

    /// The places, and the areas, where more can be allocated.
    pub(crate) fn finish(self, block: BlockSize) -> (MetadataAreas, Places) {
        let Self { areas, mut places } = self;
        places.sort(block);
        places.total_blocks = areas.blocks();
        (areas, places)
    }
}

impl Places {
    /// Sorts all lists, after the last place was added.
    fn sort(&mut self, block: BlockSize) {
        let Self { nids, inodes, others, blocks, .. } = self;
        inodes.sort_unstable_by_key(|id| nids[id.index()]);
        let item = |(id, first): &(NodeId, u64)| PlacedItem {
            pos: first * block.bytes64(),
            kind: ItemKind::Blocks(*id),
        };
        others.extend(blocks.iter().map(item));
        others.sort_unstable();
        blocks.sort_unstable_by_key(|(node, _)| *node);
    }

    /// Places in one area of `total_blocks`: of inodes, in bytes from its start, and of the first
    /// block of those that have blocks.
    pub(super) fn in_area(
        nodes: usize,
        inodes: &[(NodeId, u64)],
        blocks: Vec<(NodeId, u64)>,
        total_blocks: u64,
        block: BlockSize,
    ) -> Self {
        let mut places =
            Self { nids: vec![Nid::default(); nodes], blocks, total_blocks, ..Self::default() };
        for (id, pos) in inodes {
            places.nids[id.index()] = Nid::new(pos / SLOT_SIZE);
            places.inodes.push(*id);
        }
        places.sort(block);
        places
    }

    /// Moves the area `slots` on: after 2^32 blocks, inode numbers do not count from its start.
    pub(super) fn move_by(&mut self, slots: u64) {
        if slots == 0 {
            return;
        }
        self.first_slot += slots;
        for id in &self.inodes {
            let nid = &mut self.nids[id.index()];
            *nid = Nid::new(nid.get() + slots);
        }
    }

    /// The number of the inode of `id` in the image.
    pub(crate) fn nid(&self, id: NodeId) -> Nid {
        self.nids[id.index()]
    }

    /// The address of the first block of `id`; 0 if it has none.
    pub(crate) fn first_block(&self, id: NodeId) -> BlockAddr {
        let index = self.blocks.binary_search_by_key(&id, |(node, _)| *node);
        BlockAddr::new(index.map_or(0, |index| self.area.get() + self.blocks[index].1))
    }

    /// Adds inodes without a name to the area, at these positions in bytes from its start. They
    /// have an area of their own if the other inodes are in the metabox.
    pub(super) fn set_unnamed(&mut self, positions: &[u64]) {
        if self.in_metabox {
            self.others.clear();
        }
        let items = positions.iter().enumerate();
        self.others.extend(
            items.map(|(number, pos)| PlacedItem { pos: *pos, kind: ItemKind::Unnamed(number) }),
        );
        self.others.sort_unstable();
    }

    /// The number of an inode `pos` bytes from the start of the metadata area.
    pub(super) fn nid_in_area(&self, pos: u64) -> Nid {
        Nid::new(self.first_slot + pos / SLOT_SIZE)
    }

    /// Where the inode of `id` is, in bytes from the start of the metadata area, or in the metabox.
    pub(super) fn inode_pos(&self, id: NodeId) -> u64 {
        let before = if self.in_metabox { 0 } else { self.first_slot };
        (self.nid(id).slot() - before) * SLOT_SIZE
    }

    /// All items in the metadata area, in the order of their places.
    pub(super) fn items(&self) -> impl Iterator<Item = PlacedItem> {
        let inodes: &[NodeId] = if self.in_metabox { &[] } else { &self.inodes };
        let mut inodes = inodes
            .iter()
            .map(|id| PlacedItem { pos: self.inode_pos(*id), kind: ItemKind::Inode(*id) })
            .peekable();
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
        let block = |pos| PlacedItem { pos, kind: ItemKind::Blocks(NodeId(0)) };
        let nids = [3, 1, 9].into_iter().map(Nid::new).collect();
        let places = Places {
            inodes: [1, 0, 2].into_iter().map(NodeId).collect(),
            others: vec![block(0), block(4096)],
            nids,
            ..Places::default()
        };
        let at = |places: &Places| places.items().map(|item| item.pos).collect::<Vec<_>>();
        assert_eq!(at(&places), [0, 32, 96, 288, 4096]);
        assert_eq!(at(&Places { in_metabox: true, ..places }), [0, 4096]);
    }
}
