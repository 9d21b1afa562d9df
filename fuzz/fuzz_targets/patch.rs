//! A patch that lies: a good one is edited, as the input says, and its digest mended. It is refused, or it leads to an image that can
//! be read.
#![no_main]

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use ferofs::build::{Compression, Options, build};
use ferofs::patch::{CreateOptions, Patch, create, overlay};
use ferofs::read::{FileOffset, Image};
use libfuzzer_sys::fuzz_target;

/// Bytes at a patch's end that tell whether it is whole.
const DIGEST: usize = blake3::OUT_LEN;

/// An image, and a patch for it.
fn pair() -> &'static (Vec<u8>, Vec<u8>) {
    static PAIR: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
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
        fs::rename(new.join("dir/c"), new.join("moved")).expect("a file");
        let mut options = Options::new(&old);
        options.data.compression = Compression::lz4(0).ok();
        options.image.build_time = Some(0);
        options.image.uuid = Some([7; 16]);
        build(&options, &image).expect("an image");
        let mut options = CreateOptions::new(&new);
        options.build.image.build_time = Some(1);
        create(&image, &options, &patch).expect("a patch");
        (fs::read(image).expect("the image"), fs::read(patch).expect("the patch"))
    })
}

fuzz_target!(|data: &[u8]| {
    let (image, good) = pair();
    let mut patch = good.clone();
    let mut edits = data;
    // Each edit: a position, a length, and bytes.
    while let [low, high, len, rest @ ..] = edits {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % patch.len();
        let len = (usize::from(*len) % 16 + 1).min(rest.len()).min(patch.len() - at);
        patch[at..at + len].copy_from_slice(&rest[..len]);
        edits = &rest[len..];
    }
    let end = patch.len() - DIGEST;
    let digest = blake3::hash(&patch[..end]);
    patch[end..].copy_from_slice(digest.as_bytes());
    let Ok(patch) = Patch::new(Box::new(patch)) else { return };
    let _ = (patch.changes(), patch.superblocks());
    let Ok(over) = overlay(Arc::new(image.clone()), &patch, &AtomicBool::new(false)) else { return };
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
