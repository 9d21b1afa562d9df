//! Finds the positions of the fields of an image's structures, so that one can be changed at a
//! time. Source: FORMAT.md 1 to 6.

use std::collections::HashSet;

use ferofs::read::{ExtentData, FileOffset, FileType, Image, Inode, Location};
use ferofs_format::inode::DataLayout;
use ferofs_format::superblock;

/// A number in the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

const SUPERBLOCK: [(&str, usize, usize); 22] = [
    ("magic", 0, 4),
    ("feature_compat", 8, 4),
    ("blkszbits", 0xC, 1),
    ("sb_extslots", 0xD, 1),
    ("rootnid_2b", 0xE, 2),
    ("inos", 0x10, 8),
    ("epoch", 0x18, 8),
    ("fixed_nsec", 0x20, 4),
    ("blocks_lo", 0x24, 4),
    ("meta_blkaddr", 0x28, 4),
    ("xattr_blkaddr", 0x2C, 4),
    ("feature_incompat", 0x50, 4),
    ("available_compr_algs", 0x54, 2),
    ("extra_devices", 0x56, 2),
    ("devt_slotoff", 0x58, 2),
    ("dirblkbits", 0x5A, 1),
    ("xattr_prefix_count", 0x5B, 1),
    ("xattr_prefix_start", 0x5C, 4),
    ("packed_nid", 0x60, 8),
    ("build_time", 0x6C, 4),
    ("rootnid_8b", 0x70, 8),
    ("metabox_nid", 0x80, 8),
];

const COMPACT: [(&str, usize, usize); 8] = [
    ("i_format", 0, 2),
    ("i_xattr_icount", 2, 2),
    ("i_mode", 4, 2),
    ("i_nb", 6, 2),
    ("i_size", 8, 4),
    ("i_mtime", 0xC, 4),
    ("i_u", 0x10, 4),
    ("i_uid", 0x18, 2),
];

const EXTENDED: [(&str, usize, usize); 9] = [
    ("i_format", 0, 2),
    ("i_xattr_icount", 2, 2),
    ("i_mode", 4, 2),
    ("i_nb", 6, 2),
    ("i_size", 8, 8),
    ("i_u", 0x10, 4),
    ("i_uid", 0x18, 4),
    ("i_mtime", 0x20, 8),
    ("i_nlink", 0x2C, 4),
];

/// All fields outside of the metabox. Random bytes change those in the metabox.
pub(crate) fn fields(image: &Image, bytes: &[u8]) -> Vec<Field> {
    let mut found = Found { bytes, fields: Vec::new() };
    found.all(superblock::OFFSET, &SUPERBLOCK);
    // The bytes after the superblock in its block: configurations, device slots, prefix tables.
    let sb = image.superblock();
    let after = superblock::OFFSET + sb.size();
    found.words("after the superblock", after, 256);
    if let Some(table) = sb.xattr_prefixes {
        found.words("xattr prefixes", table.start.get() as usize, 64);
    }
    let mut pending: Vec<Inode> = [Some(sb.root), sb.packed, sb.metabox]
        .into_iter()
        .flatten()
        .filter_map(|nid| image.inode(nid).ok())
        .collect();
    let mut seen = HashSet::new();
    while let Some(inode) = pending.pop() {
        if !seen.insert(inode.nid()) {
            continue;
        }
        found.inode(image, &inode);
        if inode.is_dir() {
            let entries = image.read_dir(&inode).into_iter().flatten().flatten();
            let below = entries.filter(|entry| !matches!(&entry.name[..], b"." | b".."));
            pending.extend(below.filter_map(|entry| image.inode(entry.nid).ok()));
        }
    }
    found.fields
}

struct Found<'a> {
    bytes: &'a [u8],
    fields: Vec<Field>,
}

impl Found<'_> {
    fn one(&mut self, name: &'static str, at: usize, len: usize) {
        if at + len <= self.bytes.len() {
            self.fields.push(Field { name, at, len });
        }
    }

    fn all(&mut self, base: usize, table: &[(&'static str, usize, usize)]) {
        for &(name, at, len) in table {
            self.one(name, base + at, len);
        }
    }

    fn words(&mut self, name: &'static str, at: usize, bytes: usize) {
        for at in (at..at + bytes).step_by(4) {
            self.one(name, at, 4);
        }
    }

    fn inode(&mut self, image: &Image, inode: &Inode) {
        let sb = image.superblock();
        let nid = inode.nid().get();
        let Some(base) = sb.inode_base().filter(|_| nid < 1 << 48) else { return };
        let at = base.get() as usize + nid as usize * 32;
        let disk = inode.on_disk();
        let compact = disk.version.size() == 32;
        self.all(at, if compact { &COMPACT } else { &EXTENDED });
        let mut after = at + disk.version.size();
        if disk.xattr_icount > 0 {
            let len = 12 + (usize::from(disk.xattr_icount) - 1) * 4;
            self.words("xattrs", after, len.min(400));
            after += len;
        }
        let blocks = disk.size.div_ceil(sb.block_size.bytes64()).min(40) as usize;
        match disk.layout {
            DataLayout::ChunkBased => {
                self.words("chunk index", after.next_multiple_of(8), blocks * 8)
            }
            layout if layout.is_compressed() => {
                let header = after.next_multiple_of(8);
                for (name, at, len) in
                    [("h_fragmentoff", 0, 4), ("h_advise", 4, 2), ("h_algorithmtype", 6, 1)]
                {
                    self.one(name, header + at, len);
                }
                self.one("h_clusterbits", header + 7, 1);
                for at in (header + 8..header + 16 + blocks * 8).step_by(2) {
                    self.one("index", at, 2);
                }
            }
            _ => {}
        }
        if disk.layout.is_compressed() {
            self.encoded(image, inode);
        }
        if disk.file_type == FileType::Directory && !disk.layout.is_compressed() {
            self.directory(inode, after, sb.block_size.bytes64() as usize, disk.layout);
        }
    }

    /// The first and the last bytes of the encoded data: headers, and the ends that decoders treat
    /// in their own ways.
    fn encoded(&mut self, image: &Image, inode: &Inode) {
        let Ok(extents) = image.extents(inode, FileOffset::new(0)) else { return };
        for extent in extents.take(20).flatten() {
            let ExtentData::Encoded { at, encoded_len, .. } = extent.data else { continue };
            let start = match at {
                Location::Device(_, pos) => pos.get() as usize,
                Location::Metadata(place) if !place.in_metabox => place.pos.get() as usize,
                Location::Metadata(_) => continue,
            };
            let Some(bytes) = self.bytes.get(start..start + encoded_len as usize) else { continue };
            let padding = bytes.iter().take_while(|byte| **byte == 0).count();
            let stream = start + padding..start + bytes.len();
            for at in stream.clone().take(24).chain(stream.rev().take(24)) {
                self.one("encoded data", at, 1);
            }
            for at in (start..start + bytes.len()).step_by(61) {
                self.one("more encoded data", at, 2);
            }
        }
    }

    /// The dirents of the blocks, or of the tail after the inode at `tail`.
    fn directory(&mut self, inode: &Inode, tail: usize, block: usize, layout: DataLayout) {
        let (size, start) = (inode.size() as usize, inode.on_disk().place);
        let ferofs_format::inode::Place::Blocks(start) = start else { return };
        for n in 0..size.div_ceil(block) {
            let inline = layout == DataLayout::FlatInline && n == size / block;
            let base = if inline { tail } else { start.get() as usize * block + n * block };
            let Some(first) = self.bytes.get(base + 8..base + 10) else { return };
            let count = usize::from(u16::from_le_bytes([first[0], first[1]])) / 12;
            for at in (0..count).map(|n| base + 12 * n) {
                self.one("dirent nid", at, 8);
                self.one("dirent nameoff", at + 8, 2);
                self.one("dirent file_type", at + 10, 1);
            }
            self.words("names", base + 12 * count, 64);
        }
    }
}
