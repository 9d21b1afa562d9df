//! Writes small images field by field, with errors that no builder makes. Source of the offsets:
//! docs/FORMAT.md. All inodes are extended; the inline data or the map follows the inode, within a
//! block.

const BLOCK: usize = 4096;
const SUPER: usize = 1024;
/// Metadata starts with this block.
const META: usize = 1;
const INODE: usize = 64;

pub(crate) const REGULAR: u16 = 0o100_644;
pub(crate) const DIRECTORY: u16 = 0o040_755;
pub(crate) const SYMLINK: u16 = 0o120_777;
/// Data layouts.
pub(crate) const FLAT_PLAIN: u16 = 0;
pub(crate) const FULL: u16 = 1;
pub(crate) const FLAT_INLINE: u16 = 2;
pub(crate) const COMPACT: u16 = 3;
pub(crate) const CHUNKED: u16 = 4;
/// Incompatible features.
pub(crate) const LZ4_0PADDING: u32 = 0x1;
pub(crate) const BIG_PCLUSTER: u32 = 0x2;
pub(crate) const CHUNKED_FILE: u32 = 0x4;
pub(crate) const FRAGMENTS: u32 = 0x20;
pub(crate) const BIT48: u32 = 0x80;
pub(crate) const METABOX: u32 = 0x100;

/// An image that is being written.
pub(crate) struct ImageWriter {
    bytes: Vec<u8>,
    inodes: u64,
    /// The nid of the root, the first inode.
    pub(crate) root: u64,
}

/// The fields of an inode.
pub(crate) struct InodeSpec<'a> {
    pub(crate) mode: u16,
    pub(crate) layout: u16,
    pub(crate) size: u64,
    pub(crate) union: u32,
    pub(crate) links: u32,
    /// The bytes after the inode: inline data or a map.
    pub(crate) after: &'a [u8],
}

impl InodeSpec<'_> {
    /// The inode, and what follows it.
    pub(crate) fn bytes(&self, nid: u64) -> Vec<u8> {
        let mut inode = [0; INODE];
        inode[..2].copy_from_slice(&(1 | self.layout << 1).to_le_bytes());
        inode[4..6].copy_from_slice(&self.mode.to_le_bytes());
        inode[8..16].copy_from_slice(&self.size.to_le_bytes());
        inode[0x10..0x14].copy_from_slice(&self.union.to_le_bytes());
        inode[0x14..0x18].copy_from_slice(&(nid as u32).to_le_bytes());
        inode[0x2C..0x30].copy_from_slice(&self.links.to_le_bytes());
        [&inode[..], self.after].concat()
    }
}

impl ImageWriter {
    /// An image whose root has space for some entries.
    pub(crate) fn new(incompat: u32) -> Self {
        Self::with_root(incompat, 100)
    }

    /// An image whose root has space for `after` bytes of entries.
    pub(crate) fn with_root(incompat: u32, after: usize) -> Self {
        let mut image = Self { bytes: vec![0; (META + 1) * BLOCK], inodes: 0, root: 0 };
        image.put(SUPER, &0xE0F5_E1E2u32.to_le_bytes());
        image.put(SUPER + 0x0C, &[12]);
        image.put(SUPER + 0x28, &(META as u32).to_le_bytes());
        image.put(SUPER + 0x50, &incompat.to_le_bytes());
        // Slot 0 stays empty, because a directory may not name nid 0.
        image.bytes.truncate(META * BLOCK + 32);
        image.root = image.reserve(after);
        image
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Declares these algorithms, with their configurations.
    pub(crate) fn configure(&mut self, available: u16, records: &[u8]) {
        self.put(SUPER + 0x54, &available.to_le_bytes());
        self.put(SUPER + 128, records);
    }

    pub(crate) fn set_packed(&mut self, nid: u64) {
        self.put(SUPER + 0x60, &nid.to_le_bytes());
    }

    pub(crate) fn set_metabox(&mut self, nid: u64) {
        self.put(SUPER + 0x0D, &[1]);
        self.put(SUPER + 0x80, &nid.to_le_bytes());
    }

    /// A metabox of `size` bytes. Its first `len` bytes are `encoded`, as LZ4 data with `lz4` and
    /// else uncompressed; the rest is a hole.
    pub(crate) fn metabox(&mut self, size: u64, encoded: &[u8], len: u64, lz4: bool) {
        let block = self.data(encoded);
        let record = |plen: u32, pstart: u64, lstart: u64| {
            [&plen.to_le_bytes()[..], &pstart.to_le_bytes(), &lstart.to_le_bytes(), &[0; 12]]
                .concat()
        };
        let plen = encoded.len() as u32 | if lz4 { 1 << 28 } else { 0 };
        let mut records = record(plen, u64::from(block) * BLOCK as u64, 0);
        if size > len {
            records.extend(record(0, 0, len));
        }
        // Layout EXTENTS with records of 32 bytes, aligned to 32 bytes.
        let header = [(records.len() / 32) as u8, 0, 0, 0, 7, 0, 0, 0];
        let map = [&header[..], &[0; 24], &records].concat();
        let nid = self.inode(&InodeSpec {
            mode: REGULAR,
            layout: FULL,
            size,
            union: 1,
            links: 1,
            after: &map,
        });
        self.set_metabox(nid);
    }

    /// Reserves space for an inode and `after` bytes, and returns its nid.
    pub(crate) fn reserve(&mut self, after: usize) -> u64 {
        let mut at = self.bytes.len().next_multiple_of(32);
        let len = INODE + after;
        assert!(len <= BLOCK || after == 0 || after > BLOCK, "fits a block, or is a long map");
        if len <= BLOCK && at % BLOCK + len > BLOCK {
            at = at.next_multiple_of(BLOCK);
        }
        self.bytes.resize(at + len, 0);
        self.inodes += 1;
        ((at - META * BLOCK) / 32) as u64
    }

    pub(crate) fn fill(&mut self, nid: u64, spec: &InodeSpec<'_>) {
        self.put(META * BLOCK + nid as usize * 32, &spec.bytes(nid));
    }

    pub(crate) fn inode(&mut self, spec: &InodeSpec<'_>) -> u64 {
        let nid = self.reserve(spec.after.len());
        self.fill(nid, spec);
        nid
    }

    /// A small file, inline.
    pub(crate) fn file(&mut self, content: &[u8]) -> u64 {
        let size = content.len() as u64;
        self.inode(&InodeSpec {
            mode: REGULAR,
            layout: FLAT_INLINE,
            size,
            union: 0,
            links: 1,
            after: content,
        })
    }

    /// A file with a full index, whose records follow the map's header and an unused slot.
    pub(crate) fn full(&mut self, size: u64, header: [u8; 8], records: &[[u8; 8]]) -> u64 {
        let map = [&header[..], &[0; 8], &records.concat()].concat();
        let union = records.len() as u32;
        self.inode(&InodeSpec { mode: REGULAR, layout: FULL, size, union, links: 1, after: &map })
    }

    /// A directory with exactly these entries; `.` and `..` must be among them.
    pub(crate) fn directory(&mut self, nid: u64, links: u32, entries: &[(&[u8], u64, u8)]) {
        let after = dirents(entries);
        let size = after.len() as u64;
        self.fill(
            nid,
            &InodeSpec {
                mode: DIRECTORY,
                layout: FLAT_INLINE,
                size,
                union: 0,
                links,
                after: &after,
            },
        );
    }

    /// Writes data to new blocks and returns the address of the first one. Metadata can follow.
    pub(crate) fn data(&mut self, data: &[u8]) -> u32 {
        let at = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        (at / BLOCK) as u32
    }

    /// Writes data to the end of a new block, which LZ4 and the algorithms after it need, and
    /// returns the block's address.
    pub(crate) fn data_at_end(&mut self, data: &[u8]) -> u32 {
        self.data(&[&vec![0; BLOCK - data.len()], data].concat())
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(len, 0);
        self.put(SUPER + 0x0E, &(self.root as u16).to_le_bytes());
        self.put(SUPER + 0x10, &self.inodes.to_le_bytes());
        self.put(SUPER + 0x24, &((len / BLOCK) as u32).to_le_bytes());
        self.bytes
    }

    /// The image whose root has this regular file.
    pub(crate) fn finish_with_file(self, file: u64) -> Vec<u8> {
        self.finish_with(&[(b"file", file, 1)])
    }

    /// The image whose root has these entries.
    pub(crate) fn finish_with(mut self, entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
        let root = self.root;
        let subdirs = entries.iter().filter(|(.., kind)| *kind == 2).count() as u32;
        let all = [&[(&b"."[..], root, 2), (b"..", root, 2)][..], entries].concat();
        self.directory(root, 2 + subdirs, &all);
        self.finish()
    }
}

/// The blocks of a directory with these entries, in this order.
pub(crate) fn dir_blocks(entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
    let mut blocks: Vec<u8> = Vec::new();
    for part in entries.chunks(BLOCK / (12 + 16)) {
        blocks.extend(dirents(part));
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    }
    blocks
}

/// The bytes of a directory with a single block.
pub(crate) fn dirents(entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut nameoff = entries.len() * 12;
    for (name, nid, kind) in entries {
        block.extend_from_slice(&nid.to_le_bytes());
        block.extend_from_slice(&(nameoff as u16).to_le_bytes());
        block.extend_from_slice(&[*kind, 0]);
        nameoff += name.len();
    }
    entries.iter().for_each(|(name, ..)| block.extend_from_slice(name));
    block
}

/// The record of a HEAD in a full index; type 0 is PLAIN, type 1 is HEAD1.
pub(crate) fn head(kind: u16, clusterofs: u16, block: u32) -> [u8; 8] {
    let [a, b] = kind.to_le_bytes();
    let [c, d] = clusterofs.to_le_bytes();
    let [e, f, g, h] = block.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The record of a NONHEAD in a full index.
pub(crate) fn non_head(back: u16, forward: u16) -> [u8; 8] {
    let [e, f] = back.to_le_bytes();
    let [g, h] = forward.to_le_bytes();
    [2, 0, 0, 0, e, f, g, h]
}
