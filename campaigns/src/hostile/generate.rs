//! Generates images that no builder makes: each structure has random values, among them sizes much
//! larger than the image, holes, shared and overlapping blocks, loops of directories, chains of
//! records, and inodes in a metabox. Source: FORMAT.md 1 to 7.

use std::sync::Arc;

use ferofs_format::superblock;
use ferofs_tests::rng::Rng;

use super::base_images::TestImage;

const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;
const TYPES: [u16; 7] = [REGULAR, DIRECTORY, 0o120_000, 0o020_000, 0o060_000, 0o010_000, 0o140_000];
/// In a nid: the inode is in the metabox.
const IN_METABOX: u64 = 1 << 63;

/// Generates an image, and returns the names of its parts.
pub(crate) fn generate(rng: &mut Rng) -> (String, TestImage) {
    let mut generator = Generator::new(rng);
    // A large image can take seconds; a small one takes a millisecond.
    let large = generator.rng.below(400) == 0;
    let count = if large { 200 + generator.rng.below(2500) } else { 2 + generator.rng.below(24) };
    generator.place_data();
    generator.place_inodes(count);
    generator.finish()
}

struct Generator<'a> {
    rng: &'a mut Rng,
    bytes: Vec<u8>,
    block_bits: u32,
    /// Address of the block with slot 0.
    meta: usize,
    incompat: u32,
    /// Blocks with data, to which many maps refer.
    data: Vec<u32>,
    nids: Vec<u64>,
    parts: Vec<&'static str>,
    /// The seed of all inodes, if they are equal: so one expensive kind occurs a thousand times.
    repeated_seed: Option<u64>,
}

impl<'a> Generator<'a> {
    fn new(rng: &'a mut Rng) -> Self {
        let block_bits = [12, 12, 12, 12, 12, 9, 10, 11][rng.below(8) as usize];
        // Any set of the features; encoded extents need 48 bits.
        let mut incompat = rng.next_u64() as u32 & 0x1FF;
        if rng.below(3) == 0 {
            incompat |= 0x1BF;
        }
        // No device table: a table of random slots would be refused at once. Changed valid images
        // have them.
        incompat &= !0x8;
        if incompat & 0x20 != 0 {
            incompat |= 0x1;
        }
        let meta = 1usize.max(2048 >> block_bits);
        let bytes = vec![0; meta << block_bits];
        let repeated_seed = (rng.below(4) == 0).then(|| rng.next_u64());
        Self {
            rng,
            bytes,
            block_bits,
            meta,
            incompat,
            data: Vec::new(),
            nids: Vec::new(),
            parts: Vec::new(),
            repeated_seed,
        }
    }

    fn block(&self) -> usize {
        1 << self.block_bits
    }

    fn chance(&mut self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    /// A size of content: small, near a boundary, or far beyond the image.
    fn size(&mut self) -> u64 {
        let block = self.block() as u64;
        match self.rng.below(12) {
            0 => 0,
            1 => 1 + self.rng.below(60),
            2 => self.rng.below(block),
            3 => block * self.rng.below(20) + self.rng.below(3),
            4 => self.rng.below(1 << 20),
            5 => 1 << self.rng.below(31),
            6 => (1 << 32) + self.rng.below(3) - 1,
            7 => 1 << (32 + self.rng.below(31)),
            8 => (1 << (32 + self.rng.below(31))) - 1,
            9 => (1 << (32 + self.rng.below(31))) + self.rng.below(block),
            10 => i64::MAX as u64 - self.rng.below(2) * self.rng.below(block),
            _ => block * self.rng.below(300),
        }
    }

    fn data_block(&mut self) -> u32 {
        match self.rng.below(12) {
            0 => self.rng.next_u64() as u32,
            1 => 0,
            2 => self.meta as u32,
            _ if self.data.is_empty() => 0,
            _ => self.data[self.rng.below(self.data.len() as u64) as usize],
        }
    }

    /// The nid of an existing inode, or one near it.
    fn nid(&mut self) -> u64 {
        let known = match self.nids.len() {
            0 => 1,
            n => self.nids[self.rng.below(n as u64) as usize],
        };
        match self.rng.below(20) {
            0 => known + 1,
            1 => IN_METABOX | self.rng.below(200),
            2 => self.rng.next_u64(),
            _ => known,
        }
    }

    /// Blocks to which maps can refer: clusters that decode to many bytes, dirents, noise, zeroes.
    fn place_data(&mut self) {
        for _ in 0..1 + self.rng.below(6) {
            let block = self.block();
            self.data.push((self.bytes.len() >> self.block_bits) as u32);
            let content = match self.rng.below(5) {
                0 => long_run(block),
                1 => dirents(self.rng, block, &[1, 2, 3, 4]),
                2 => same_dirents(block),
                3 => {
                    let mut noise = vec![0; block];
                    self.rng.fill(&mut noise);
                    noise
                }
                _ => vec![0; block],
            };
            self.bytes.extend_from_slice(&content);
        }
        self.meta = self.bytes.len() >> self.block_bits;
    }

    fn place_inodes(&mut self, count: u64) {
        // No dirent can refer to slot 0.
        self.bytes.resize(self.bytes.len() + 32, 0);
        for n in 0..count {
            let directory = n == 0 || self.chance(5);
            let mut stored = Vec::new();
            let nid = ((self.bytes.len() - (self.meta << self.block_bits)) / 32) as u64;
            self.nids.push(nid);
            let seed = self.repeated_seed.filter(|_| n > 0);
            self.inode(&mut stored, directory, seed);
            let at = self.bytes.len();
            if at % self.block() + stored.len() > self.block()
                && stored.len() < self.block()
                && !self.chance(10)
            {
                let aligned = at.next_multiple_of(self.block());
                self.bytes.resize(aligned, 0);
                if let Some(last) = self.nids.last_mut() {
                    *last = ((aligned - (self.meta << self.block_bits)) / 32) as u64;
                }
            }
            self.bytes.extend_from_slice(&stored);
            let end = self.bytes.len().next_multiple_of(32);
            self.bytes.resize(end, 0);
        }
    }

    /// An inode with what follows it: attributes, and inline data, chunk indexes or a compression
    /// map.
    fn inode(&mut self, out: &mut Vec<u8>, directory: bool, seed: Option<u64>) {
        let own = self.rng.clone();
        if let Some(seed) = seed {
            *self.rng = Rng::new(seed);
        }
        let layout = match self.rng.below(12) {
            0 => 0,
            1 | 2 => 2,
            3..=5 => 4,
            6..=8 => 1,
            9 | 10 => 3,
            _ => self.rng.below(8) as u16,
        };
        let file_type = match (directory, self.chance(8)) {
            (true, _) => DIRECTORY,
            (false, false) => REGULAR,
            (false, true) => TYPES[self.rng.below(7) as usize],
        };
        let size = if layout == 2 { self.rng.below(900) } else { self.size() };
        let xattrs = if self.chance(6) { self.rng.below(80) as u16 } else { 0 };
        let union = match layout {
            0 if self.chance(3) => u32::MAX,
            0 | 2 => self.data_block(),
            4 => self.rng.below(32) as u32 | [0, 0, 0x20, 0x60][self.rng.below(4) as usize],
            _ => self.rng.below(100) as u32,
        };
        out.extend_from_slice(&(1 | layout << 1).to_le_bytes());
        out.extend_from_slice(&xattrs.to_le_bytes());
        out.extend_from_slice(&(file_type | 0o755).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&union.to_le_bytes());
        out.extend_from_slice(&(self.nids.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 8 + 12]);
        let links = 1 + self.rng.below(3) as u32;
        out.extend_from_slice(&links.to_le_bytes());
        out.extend_from_slice(&[0; 16]);
        if xattrs > 0 {
            self.xattrs(out, 12 + (usize::from(xattrs) - 1) * 4);
        }
        match layout {
            2 if directory => {
                let nids: Vec<_> = (0..4).map(|_| self.nid()).collect();
                out.extend(dirents(self.rng, size as usize, &nids));
            }
            2 => out.extend(vec![b'i'; size as usize]),
            4 => self.chunks(out, union),
            1 | 3 => self.compressed(out, layout == 3, size),
            _ => {}
        }
        if seed.is_some() {
            *self.rng = own;
        }
    }

    fn xattrs(&mut self, out: &mut Vec<u8>, len: usize) {
        let start = out.len();
        let shared = self.rng.below(8) as u8;
        out.extend_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, shared, 0, 0, 0, 0, 0, 0, 0]);
        for _ in 0..shared {
            let id = self.rng.next_u64() as u32 >> self.rng.below(32);
            out.extend_from_slice(&id.to_le_bytes());
        }
        while out.len() < start + len {
            let value = self.rng.below(40) as u16;
            out.extend_from_slice(&[3, [1, 4, 6, 0x80, 2][self.rng.below(5) as usize]]);
            out.extend_from_slice(&value.to_le_bytes());
            out.extend_from_slice(b"key");
            out.resize((out.len() + usize::from(value)).next_multiple_of(4), b'v');
        }
        out.truncate(start + len);
    }

    /// Chunk indexes: holes, the same block in all of them, or blocks that overlap.
    fn chunks(&mut self, out: &mut Vec<u8>, format: u32) {
        self.parts.push("chunks");
        let wide = format & 0x20 != 0;
        out.resize(out.len().next_multiple_of(if wide { 8 } else { 4 }), 0);
        let count = if self.chance(30) { self.rng.below(60_000) } else { self.rng.below(60) };
        let (same, step) = (self.data_block(), self.rng.below(3) as u32);
        let kind = self.rng.below(4);
        for n in 0..count as u32 {
            let address = match kind {
                0 => u32::MAX,
                1 => same,
                2 => same.wrapping_add(n * step),
                _ => self.data_block(),
            };
            if wide {
                out.extend_from_slice(&[0; 4]);
            }
            out.extend_from_slice(&address.to_le_bytes());
        }
    }

    fn compressed(&mut self, out: &mut Vec<u8>, compact: bool, size: u64) {
        out.resize(out.len().next_multiple_of(8), 0);
        let extents = !compact && self.incompat & 0x80 != 0 && self.chance(2);
        let mut advise = match (compact, self.rng.below(4)) {
            (true, 0) => 0,
            (true, 1) => 0x1,
            (true, 2) => 0x7,
            (true, _) => 0x6,
            (false, n) => [0, 0x2, 0x6, 0][n as usize],
        };
        if extents {
            advise = 1 | (self.rng.below(4) as u16) << 1;
        }
        advise |= [0, 0, 0, 0x8, 0x10, 0x20][self.rng.below(6) as usize];
        let most = if self.chance(30) { 30_000 } else { 80 };
        let count = self.rng.below(most);
        let field = match (advise & 0x20 != 0, extents) {
            (true, _) => self.size() as u32,
            (false, true) => count as u32,
            (false, false) => (self.rng.below(200) as u32) << 16,
        };
        let algorithm = [0, 0, 0, 0x10, 1, 2, 3, 0x33][self.rng.below(8) as usize];
        let mut cluster_bits = [0, 0, 0, 1, 2, 4, 15][self.rng.below(7) as usize];
        if self.chance(12) {
            cluster_bits |= 0x80;
        }
        out.extend_from_slice(&field.to_le_bytes());
        out.extend_from_slice(&advise.to_le_bytes());
        out.extend_from_slice(&[algorithm, cluster_bits]);
        if extents {
            self.parts.push("encoded extents");
            self.extent_records(out, advise, count, size);
        } else if compact {
            self.parts.push("compact index");
            let mut packs = vec![0; (count as usize * 4).next_multiple_of(32)];
            match self.rng.below(3) {
                0 => self.rng.fill(&mut packs),
                1 => packs.fill([0, 0xFF, 0x55, 0x01][self.rng.below(4) as usize]),
                _ => {
                    let (entry, base) = (self.rng.next_u64() as u32, self.data_block());
                    for pack in packs.chunks_mut(8) {
                        pack[..4].copy_from_slice(&entry.to_le_bytes());
                        pack[4..].copy_from_slice(&base.to_le_bytes());
                    }
                }
            }
            out.extend(packs);
        } else {
            self.parts.push("full index");
            out.extend_from_slice(&[0; 8]);
            self.full_records(out, count);
        }
    }

    fn full_records(&mut self, out: &mut Vec<u8>, count: u64) {
        let kind = self.rng.below(5);
        let delta = [0, 1, 2, 0x7FF, 0x801, 0x810, 0xFFFF, 0xBFFF][self.rng.below(8) as usize];
        let same = self.data_block();
        for n in 0..count as u32 {
            let head = match kind {
                0 => n == 0,
                1 => true,
                2 => n % 16 == 0,
                3 => self.chance(2),
                _ => false,
            };
            if head {
                let partial = if self.chance(20) { 0x8000 } else { 0 };
                let advise = [1, 1, 1, 0, 3][self.rng.below(5) as usize] | partial;
                let offset =
                    if kind == 1 { 0 } else { self.rng.below(self.block() as u64 + 9) as u16 };
                let address = if self.chance(3) { self.data_block() } else { same };
                out.extend_from_slice(&u16::to_le_bytes(advise));
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&address.to_le_bytes());
            } else {
                let back = match kind {
                    0 => (n as u16).min(delta),
                    2 => (n % 16) as u16,
                    _ => delta,
                };
                out.extend_from_slice(&[2, 0, 0, 0]);
                out.extend_from_slice(&back.to_le_bytes());
                out.extend_from_slice(&1u16.to_le_bytes());
            }
        }
    }

    fn extent_records(&mut self, out: &mut Vec<u8>, advise: u16, count: u64, size: u64) {
        let record = 4 << (advise >> 1 & 3);
        out.resize(out.len().next_multiple_of(record), 0);
        let (step, same) = (size / count.max(1), u64::from(self.data_block()) << self.block_bits);
        let hole = self.chance(4);
        for n in 0..count {
            let format = [0, 1, 1, 1, 2, 3, 4, 7][self.rng.below(8) as usize] << 28;
            let len = if hole { 0 } else { 1 + self.rng.below(self.block() as u64 * 2) as u32 };
            let start = if self.chance(10) { self.size() } else { n * step };
            let position = if self.chance(4) { same + n } else { same };
            let mut bytes = Vec::with_capacity(32);
            bytes.extend_from_slice(&(len | format).to_le_bytes());
            bytes.extend_from_slice(&position.to_le_bytes());
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.resize(32, 0);
            out.extend_from_slice(&bytes[..record.min(32)]);
        }
    }

    fn finish(mut self) -> (String, TestImage) {
        let block = self.block();
        let end = self.bytes.len().next_multiple_of(block);
        self.bytes.resize(end, 0);
        let root = self.nids.first().copied().unwrap_or(1);
        let claimed =
            if self.chance(6) { self.size() >> self.block_bits } else { (end / block) as u64 };
        let (packed, metabox) = (self.nid() & !IN_METABOX, self.nid() & !IN_METABOX);
        let root_64 = self.incompat & 0x80 != 0 && self.chance(2);
        let root = if self.incompat & 0x100 != 0 && self.chance(6) {
            IN_METABOX | self.rng.below(9)
        } else {
            root
        };
        let mut sb = vec![0; 256];
        let mut put = |at: usize, bytes: &[u8]| sb[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &0xE0F5_E1E2u32.to_le_bytes());
        put(0x0C, &[self.block_bits as u8, u8::from(self.incompat & 0x100 != 0)]);
        if root_64 {
            put(0x70, &root.to_le_bytes());
        } else {
            put(0x0E, &(root as u16).to_le_bytes());
        }
        put(0x10, &(self.nids.len() as u64).to_le_bytes());
        put(0x24, &(claimed as u32).to_le_bytes());
        put(0x28, &(self.meta as u32).to_le_bytes());
        put(0x2C, &(self.meta as u32).to_le_bytes());
        put(0x50, &self.incompat.to_le_bytes());
        put(0x60, &packed.to_le_bytes());
        put(0x80, &metabox.to_le_bytes());
        if self.incompat & 0x2 != 0 {
            // All four algorithms with their configurations, after a superblock of 128 or 144
            // bytes.
            put(0x54, &0xFu16.to_le_bytes());
            let after = 128 + 16 * usize::from(self.incompat & 0x100 != 0);
            put(after, &[14, 0, 0xFF, 0xFF, 0, 1]);
            put(after + 16, &[14, 0, 0, 0, 1, 0, 0, 0]);
            put(after + 32, &[6, 0, 15]);
            put(after + 40, &[6, 0, 0, 10]);
        }
        self.bytes[superblock::OFFSET..superblock::OFFSET + 256].copy_from_slice(&sb);
        let mut image = TestImage::new(Arc::new(self.bytes));
        if self.rng.below(10) == 0 {
            image.size += 1 << (12 + self.rng.below(30));
            self.parts.push("a long hole at the end");
        }
        self.parts.sort_unstable();
        self.parts.dedup();
        (format!("generated: {}", self.parts.join(", ")), image)
    }
}

/// A block of LZ4 that decodes to about 255 times its size: one literal, and a match of the offset
/// 1.
fn long_run(block: usize) -> Vec<u8> {
    let mut bytes = vec![0x1F, b'a', 1, 0];
    bytes.resize(block - 7, 0xFF);
    // The match's length ends; five literals end the block, as LZ4 demands.
    bytes.extend_from_slice(&[0, 0x50, b'a', b'a', b'a', b'a', b'a']);
    bytes
}

/// A directory's block with names in order, odd names, and duplicates.
fn dirents(rng: &mut Rng, len: usize, nids: &[u64]) -> Vec<u8> {
    let mut names: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
    for n in 0..rng.below(30) {
        names.push(match rng.below(16) {
            0 => b"same".to_vec(),
            1 => b"a/b".to_vec(),
            2 => b"\x1b[2J".to_vec(),
            3 => vec![b'l'; 255],
            4 => Vec::new(),
            _ => format!("name{n:03}").into_bytes(),
        });
    }
    if rng.below(6) > 0 {
        names.sort_unstable();
    }
    let (mut table, mut text) = (Vec::new(), Vec::new());
    let fits = names.iter().scan(0, |used, name| {
        *used += 12 + name.len();
        Some(*used <= len)
    });
    let count = fits.take_while(|fits| *fits).count();
    for name in &names[..count] {
        let nid = nids[rng.below(nids.len() as u64) as usize];
        table.extend_from_slice(&nid.to_le_bytes());
        table.extend_from_slice(&((count * 12 + text.len()) as u16).to_le_bytes());
        table.extend_from_slice(&[rng.below(8) as u8, 0]);
        text.extend_from_slice(name);
    }
    table.extend(text);
    table.resize(len, 0);
    table
}

/// A block with as many one-byte names as fit: if many chunks refer to it, the directory has
/// millions of entries.
fn same_dirents(block: usize) -> Vec<u8> {
    let count = block / 13;
    let mut bytes = Vec::with_capacity(block);
    for n in 0..count {
        bytes.extend_from_slice(&1u64.to_le_bytes());
        bytes.extend_from_slice(&((count * 12 + n) as u16).to_le_bytes());
        bytes.extend_from_slice(&[1, 0]);
    }
    bytes.extend((0..count).map(|n| (n % 255 + 1) as u8));
    bytes.resize(block, 0);
    bytes
}
