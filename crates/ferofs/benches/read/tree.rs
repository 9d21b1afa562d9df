//! Every file of a tree in directory order: how often the packed inode's clusters are decoded.

use ferofs::read::{FileOffset, FileSource, FileType, Image, Nid};

use crate::{Goal, MIB, Outcome, counting, row};

/// Reads every file of an image.
pub(crate) fn read_all(path: &str) -> Outcome {
    let image = Image::open(FileSource::open(path, 0)?)?;
    let packed = image.superblock().packed.map(|nid| image.inode(nid)).transpose()?;
    let packed_size = packed.map_or(0, |inode| inode.size());
    let start = counting::cpu_seconds();
    let (mut files, mut bytes) = (0u64, 0u64);
    let mut buf = vec![0; 1 << 20];
    let mut dirs: Vec<Nid> = vec![image.root()?.nid()];
    // A directory's own files, then each directory in it: as find(1) and tar(1) go, but for their order of names.
    while let Some(nid) = dirs.pop() {
        let dir = image.inode(nid)?;
        let mut below = Vec::new();
        for entry in image.read_dir(&dir)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let inode = image.inode(entry.nid)?;
            match inode.file_type() {
                FileType::Directory => below.push(entry.nid),
                FileType::Regular => {
                    files += 1;
                    bytes += inode.size();
                    let mut offset = 0;
                    while offset < inode.size() {
                        offset += image.read_at(&inode, FileOffset::new(offset), &mut buf)? as u64;
                    }
                }
                _ => {}
            }
        }
        dirs.extend(below.into_iter().rev());
    }
    let seconds = counting::cpu_seconds() - start;
    let stats = image.stats();
    row("tree of fragments: files", files as f64, Goal::None);
    row("tree of fragments: MiB of content", bytes as f64 / MIB, Goal::None);
    row("tree of fragments: MiB packed", packed_size as f64 / MIB, Goal::None);
    let decoded = stats.packed_decoded_bytes as f64 / (packed_size as f64).max(1.0);
    row("tree of fragments: packed content decoded, times", decoded, Goal::AtMost(1.2));
    row("tree of fragments: MiB held at the peak", stats.held_peak as f64 / MIB, Goal::None);
    row("tree of fragments: MiB/s of processor time", bytes as f64 / MIB / seconds, Goal::None);
    Ok(())
}
