//! Files that are written beside the finished image: lists of its parts for other programs.
//!
//! `--block-list-file`: Android's list of the blocks of each file. One line for each file: its path
//! on the target, then its ranges of blocks, `FIRST-LAST` or `BLOCK`. Inline data is left out: it
//! has no blocks of its own.
//!
//! `--vmdk-desc`: a descriptor with which VMware, and other virtual machine monitors, use the image
//! and its extra devices, in this order, as one disk (VMware's "Virtual Disk Format",
//! twoGbMaxExtentFlat).

use std::io::{self, Write};
use std::path::Path;

use ferofs::Result;
use ferofs::read::{ExtentData, FileOffset, FileType, Image, Inode, Location};

use crate::args::image::ImageArgs;

/// Writes the list to `out`. `mount_point` has no leading and no trailing slash.
pub(super) fn write_block_list(
    image: &Image,
    mount_point: &[u8],
    out: &mut impl Write,
) -> Result<()> {
    let io = |e| ferofs::Error::io("write", Path::new("the block list"), e);
    // Directories that are not listed yet. The image was just built, so its directories contain no
    // cycle.
    let mut pending = vec![(image.root()?, mount_point.to_vec())];
    while let Some((dir, path)) = pending.pop() {
        for entry in image.read_dir(&dir)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let mut entry_path = path.clone();
            if !entry_path.is_empty() {
                entry_path.push(b'/');
            }
            entry_path.extend_from_slice(&entry.name);
            let inode = image.inode(entry.nid)?;
            match inode.file_type() {
                FileType::Directory => pending.push((inode, entry_path)),
                FileType::Regular => {
                    let ranges = ranges(image, &inode)?;
                    if ranges.is_empty() {
                        continue;
                    }
                    let mut line = [b"/".as_slice(), &entry_path].concat();
                    for (first, last) in ranges {
                        let range = if first == last {
                            format!(" {first}")
                        } else {
                            format!(" {first}-{last}")
                        };
                        line.extend_from_slice(range.as_bytes());
                    }
                    line.push(b'\n');
                    out.write_all(&line).map_err(io)?;
                }
                _ => {}
            }
        }
    }
    out.flush().map_err(io)
}

/// The ranges of blocks of a file (first and last block), in the order of its data.
fn ranges(image: &Image, inode: &Inode) -> Result<Vec<(u64, u64)>> {
    let bits = image.superblock().block_size.bits();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for extent in image.extents(inode, FileOffset::new(0))? {
        let extent = extent?;
        let (at, len) = match extent.data {
            ExtentData::Stored { at } => (at, extent.len),
            ExtentData::Interlaced { at } => (at, 1),
            ExtentData::Encoded { at, encoded_len, .. } => (at, encoded_len),
            ExtentData::Hole | ExtentData::Fragment { .. } => continue,
        };
        let Location::Device(_, pos) = at else { continue };
        let (first, last) = (pos.get() >> bits, (pos.get() + len.max(1) - 1) >> bits);
        match ranges.last_mut() {
            Some(before) if first <= before.1 + 1 && first >= before.0 => {
                before.1 = before.1.max(last)
            }
            _ => ranges.push((first, last)),
        }
    }
    Ok(ranges)
}

/// Bytes of a sector of the disk.
const SECTOR: u64 = 512;
/// The largest extent of this disk type, 2 GiB, in sectors. A larger file becomes several extents.
const MAX_EXTENT: u64 = (2 << 30) / SECTOR;
/// The nominal geometry of the disk. Addresses do not depend on it, but it must cover all sectors.
const HEADS: u64 = 16;
const SECTORS_PER_TRACK: u64 = 63;

/// Writes the descriptor of `image`; `files` has the path of the image and the paths of its extra
/// devices.
pub(super) fn write_descriptor(
    image: &Image,
    files: &ImageArgs,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sb = image.superblock();
    let sectors = |blocks: u64| blocks.saturating_mul(sb.block_size.bytes64()) / SECTOR;
    let mut extents = vec![(&*files.path, files.offset / SECTOR, sectors(sb.blocks))];
    for (device, path) in image.device_slots().iter().zip(&files.devices) {
        extents.push((path.as_path(), 0, sectors(device.blocks)));
    }
    // As erofs-utils: the content ID of the disk is the XOR of the words of the UUID.
    let words = sb.uuid.chunks_exact(4).map(|word| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(word);
        u32::from_le_bytes(bytes)
    });
    let id = words.fold(0, std::ops::BitXor::bitxor);
    write!(out, "# Disk DescriptorFile\nversion=1\nCID={id:x}\nparentCID=ffffffff\n")?;
    write!(out, "createType=\"twoGbMaxExtentFlat\"\n\n# Extent description\n")?;
    let mut total = 0u64;
    for (path, mut start, sectors) in extents {
        let mut rest = sectors;
        while rest > 0 {
            let count = rest.min(MAX_EXTENT);
            writeln!(out, "RW {count} FLAT \"{}\" {start}", path.display())?;
            start = start.saturating_add(count);
            rest -= count;
        }
        total = total.saturating_add(sectors);
    }
    let cylinders = total.div_ceil(HEADS * SECTORS_PER_TRACK);
    write!(
        out,
        "\n# The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\nddb.geometry.cylinders = \"{cylinders}\"\n\
         ddb.geometry.heads = \"{HEADS}\"\nddb.geometry.sectors = \"{SECTORS_PER_TRACK}\"\nddb.adapterType = \"ide\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected text is what mkfs.erofs 1.9.4 writes, except the length of the first extent:
    /// the image of ferofs has another size.
    #[test]
    fn large_devices_become_extents_of_two_gigabytes() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("a.tar");
        let mut header = [0u8; 512];
        header[..1].copy_from_slice(b"f");
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(b"50000000000"); // 5 GiB, octal
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        std::fs::write(&archive, header).unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&archive)
            .unwrap()
            .set_len(512 + (5 << 30) + 1024)
            .unwrap();
        let mut options = ferofs::build::Options::new(&archive);
        options.source.format = ferofs::build::SourceFormat::Tar;
        options.source.data = ferofs::build::SourceData::External;
        options.image.block_size = ferofs::build::BlockSize::from_bytes(512).unwrap();
        options.image.uuid =
            Some(*b"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x0f");
        let path = dir.path().join("a.erofs");
        ferofs::build::build(&options, &path).unwrap();
        let files = ImageArgs { devices: vec![archive], ..ImageArgs::of(path) };
        let image = files.open().unwrap();
        let mut text = Vec::new();
        write_descriptor(&image, &files, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap().replace(dir.path().to_str().unwrap(), "");
        let first = image.superblock().blocks;
        let wanted = format!(
            "# Disk DescriptorFile\nversion=1\nCID=f000000\nparentCID=ffffffff\ncreateType=\"twoGbMaxExtentFlat\"\n\n\
             # Extent description\nRW {first} FLAT \"/a.erofs\" 0\nRW 4194304 FLAT \"/a.tar\" 0\n\
             RW 4194304 FLAT \"/a.tar\" 4194304\nRW 2097155 FLAT \"/a.tar\" 8388608\n\n\
             # The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\nddb.geometry.cylinders = \"10403\"\n\
             ddb.geometry.heads = \"16\"\nddb.geometry.sectors = \"63\"\nddb.adapterType = \"ide\"\n"
        );
        assert_eq!(text, wanted);
    }
}
