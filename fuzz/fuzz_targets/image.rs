//! A whole image: it is opened, walked, checked, and everything in it is read. The checksum is not
//! looked at.
#![no_main]

use std::num::NonZeroUsize;

use ferofs::check;
use ferofs::read::{ExtentData, Image, Inode, OpenOptions};
use ferofs_format::FileOffset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut options = OpenOptions::default();
    (options.verify_checksum, options.metadata_cache) = (false, 1 << 20);
    let Ok(image) = Image::open_with(Box::new(data.to_vec()), Vec::new(), &options) else { return };
    let mut options = check::Options::default();
    options.workers = NonZeroUsize::new(1);
    let _ = check::check(&image, &options);
    let mut pending: Vec<Inode> = image.root().into_iter().collect();
    let (mut seen, mut buffer) = (std::collections::HashSet::new(), vec![0; 64 << 10]);
    while let Some(inode) = pending.pop() {
        if !seen.insert(inode.nid()) {
            continue;
        }
        let _ = (image.xattrs(&inode), image.read_link(&inode));
        for extent in image.extents(&inode, FileOffset::new(0)).into_iter().flatten().flatten() {
            let mut at = extent.start.get();
            while extent.data != ExtentData::Hole && at < extent.end() {
                let len = buffer.len().min((extent.end() - at) as usize);
                match image.read_at(&inode, FileOffset::new(at), &mut buffer[..len]) {
                    Ok(got) if got > 0 => at += got as u64,
                    _ => break,
                }
            }
        }
        for entry in image.read_dir(&inode).into_iter().flatten().flatten() {
            let _ = image.lookup(&inode, &entry.name);
            pending.extend(image.inode(entry.nid));
        }
    }
});
