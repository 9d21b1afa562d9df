//! A patch that lies: a good one is edited, as the input says, and its digest mended. It is
//! refused, or it leads to an image that can be read.
#![no_main]

use std::fs;
use std::sync::{Arc, OnceLock};

use ferofs::build::{Compression, Options, build};
use ferofs::patch::{CreateOptions, Patch, create, overlay};
use ferofs::read::{FileOffset, Image, Cancel};
use libfuzzer_sys::fuzz_target;

/// Bytes at a patch's end that tell whether it is whole.
const DIGEST: usize = blake3::OUT_LEN;
/// Bytes before the header.
const START: usize = 24;
/// Offsets in the header: the lengths of the list of changes, stored and decoded, and of the list
/// of relocated inodes.
const LENGTHS: [usize; 3] = [1172, 1180, 1188];

/// A patch file, with the parts decoded that are stored as frames.
#[derive(Clone)]
struct Parts {
    start: Vec<u8>,
    /// The header, the list of changes, the list of relocated inodes; then the pieces, as stored.
    parts: [Vec<u8>; 4],
}

impl Parts {
    fn new(file: &[u8]) -> Self {
        let u64_at = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
        };
        let header_len = u32::from_le_bytes(file[12..16].try_into().expect("four bytes")) as usize;
        let (header, rest) = file[START..file.len() - DIGEST].split_at(header_len);
        let decode = |bytes| zstd::decode_all(bytes).expect("a frame");
        let header = decode(header);
        let (changes, rest) = rest.split_at(u64_at(&header, LENGTHS[0]));
        let (relocations, pieces) = rest.split_at(u64_at(&header, LENGTHS[2]));
        let parts = [header, decode(changes), decode(relocations), pieces.to_vec()];
        Self { start: file[..START].to_vec(), parts }
    }

    /// The file, with the right lengths of lists and the right digest.
    fn file(mut self) -> Vec<u8> {
        let encode = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).expect("a frame");
        let (changes, relocations) = (encode(&self.parts[1]), encode(&self.parts[2]));
        let lengths = [changes.len(), self.parts[1].len(), relocations.len()];
        for (at, len) in LENGTHS.into_iter().zip(lengths) {
            self.parts[0][at..at + 8].copy_from_slice(&(len as u64).to_le_bytes());
        }
        let header = encode(&self.parts[0]);
        self.start[12..16].copy_from_slice(&(header.len() as u32).to_le_bytes());
        let mut file = [&self.start[..], &header, &changes, &relocations, &self.parts[3]].concat();
        let len = (file.len() + DIGEST) as u64;
        file[16..24].copy_from_slice(&len.to_le_bytes());
        let digest = blake3::hash(&file);
        file.extend_from_slice(digest.as_bytes());
        file
    }
}

/// An image, and a patch for it.
fn pair() -> &'static (Vec<u8>, Parts) {
    static PAIR: OnceLock<(Vec<u8>, Parts)> = OnceLock::new();
    PAIR.get_or_init(|| {
        let room = tempfile::tempdir().expect("a temporary directory");
        let [old, new, image, patch] = ["old", "new", "image", "patch"].map(|name| room.path().join(name));
        let text = |seed: u32| {
            (0..30_000u32).map(|n| (n / 7 * seed).to_be_bytes()[n as usize % 4]).collect::<Vec<u8>>()
        };
        for (dir, seeds) in [(&old, [3, 5, 7]), (&new, [3, 11, 7])] {
            fs::create_dir_all(dir.join("dir")).expect("a directory");
            for (name, seed) in ["a", "dir/b", "dir/c"].into_iter().zip(seeds) {
                fs::write(dir.join(name), text(seed)).expect("a file");
            }
        }
        for dir in [&old, &new] {
            for name in ["x", "y", "z"] {
                fs::create_dir_all(dir.join("more").join(name)).expect("a directory");
                fs::write(dir.join("more").join(name).join("f"), name).expect("a file");
            }
        }
        fs::rename(new.join("dir/c"), new.join("moved")).expect("a file");
        let mut options = Options::new(&old);
        options.data.compression = Compression::lz4(0).ok();
        options.image.build_time = Some(0);
        options.image.uuid = Some([7; 16]);
        build(&options, &image).expect("an image");
        let mut options = CreateOptions::new(&new);
        options.build.image.build_time = Some(1);
        create(&image, &options, &patch).expect("a patch");
        let patch = fs::read(patch).expect("the patch");
        let parts = Parts::new(&patch);
        // What the edits change is what a reader sees.
        assert!(Patch::new(Box::new(parts.clone().file())).is_ok());
        (fs::read(image).expect("the image"), parts)
    })
}

fuzz_target!(|data: &[u8]| {
    let (image, good) = pair();
    let mut patch = good.clone();
    let mut edits = data;
    // Each edit: a part, a position, a length and whether bytes are put in or overwritten, and
    // bytes.
    while let [part, low, high, len, rest @ ..] = edits {
        let part = &mut patch.parts[usize::from(*part) % 4];
        let at = usize::from(u16::from_le_bytes([*low, *high])) % part.len();
        let own = (usize::from(*len) % 16 + 1).min(rest.len());
        let replaced = if *len < 128 || part.len() > 60_000 { own.min(part.len() - at) } else { 0 };
        let _ = part.splice(at..at + replaced, rest[..own].iter().copied());
        edits = &rest[own..];
    }
    let Ok(patch) = Patch::new(Box::new(patch.file())) else { return };
    let _ = (patch.changes(), patch.superblocks(), patch.new_parents());
    let Ok(over) = overlay(Arc::new(image.clone()), &patch, &Cancel::default()) else { return };
    let Ok(image) = Image::open(over) else { return };
    let mut pending: Vec<_> = image.root().into_iter().collect();
    let mut buffer = vec![0; 64 << 10];
    // As many as the new tree has, and more.
    for _ in 0..20 {
        let Some(inode) = pending.pop() else { return };
        let _ = image.read_at(&inode, FileOffset::new(0), &mut buffer);
        for entry in image.read_dir(&inode).into_iter().flatten().flatten() {
            pending.extend(image.inode(entry.nid));
        }
    }
});
