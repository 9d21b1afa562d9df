//! Every file of a tree in directory order: how often the packed inode's clusters are decoded.

use std::path::Path;

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
    // Directories' entries by name, and what is below a directory where it stands among them, as find(1) and tar(1) go.
    let mut open: Vec<Nid> = vec![image.root()?.nid()];
    while let Some(nid) = open.pop() {
        let inode = image.inode(nid)?;
        match inode.file_type() {
            FileType::Directory => {
                let entries: Vec<_> = image.read_dir(&inode)?.collect::<Result<_, _>>()?;
                let named = entries.iter().rev().filter(|entry| entry.name != b"." && entry.name != b"..");
                open.extend(named.map(|entry| entry.nid));
            }
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
    let seconds = counting::cpu_seconds() - start;
    let stats = image.stats();
    let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    let row = |what: &str, measured, goal| row(&format!("{name}: {what}"), measured, goal);
    row("files", files as f64, Goal::None);
    row("MiB of content", bytes as f64 / MIB, Goal::None);
    row("MiB packed", packed_size as f64 / MIB, Goal::None);
    let decoded = stats.packed_decoded_bytes as f64 / (packed_size as f64).max(1.0);
    row("packed content decoded, times", decoded, Goal::AtMost(1.2));
    row("MiB held at the peak", stats.held_peak as f64 / MIB, Goal::None);
    row("MiB/s of processor time", bytes as f64 / MIB / seconds, Goal::None);
    Ok(())
}
