//! `dump.erofs -S`: the number of files by type, size and extension, in the form of erofs-utils.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ferofs::read::walk::Walk;
use ferofs::read::{FileType, Image, Inode};

use super::percent;
use crate::exit::{About, Failure};

/// Size classes below the last one. Class N ends at 2^N KiB; the last class has all larger files,
/// as with erofs-utils.
const SIZES: usize = 16;
/// File name extensions that erofs-utils counts separately.
const EXTENSIONS: [&str; 9] =
    [".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf"];
/// File types in the order of erofs-utils, with their names.
const TYPES: [(FileType, &str); 7] = [
    (FileType::Regular, "regular file"),
    (FileType::Directory, "directory"),
    (FileType::CharDevice, "char dev"),
    (FileType::BlockDevice, "block dev"),
    (FileType::Fifo, "FIFO file"),
    (FileType::Socket, "SOCK file"),
    (FileType::Symlink, "symlink file"),
];

/// The counters of erofs-utils. Each name counts, so a file with two hard links counts twice.
#[derive(Default)]
struct Statistics {
    types: [u64; TYPES.len()],
    compressed: u64,
    uncompressed: u64,
    /// Bytes of the content of all regular files.
    original: u64,
    /// Bytes that they take on the disk, and those of the packed inode.
    stored: u64,
    /// Regular files by size, and by size on the disk.
    original_sizes: [u64; SIZES + 1],
    stored_sizes: [u64; SIZES + 1],
    extensions: [u64; EXTENSIONS.len() + 1],
}

impl Statistics {
    fn of(image: &Image) -> ferofs::Result<Self> {
        let mut statistics = Self::default();
        for entry in Walk::new(image) {
            let entry = entry?;
            statistics.add(image, &entry.inode?, entry.path.file_name().unwrap_or_default());
        }
        if let Some(packed) = image.superblock().packed {
            let stored = statistics.count_stored(image, &image.inode(packed)?);
            statistics.add_stored(stored);
        }
        Ok(statistics)
    }

    fn add(&mut self, image: &Image, inode: &Inode, name: &OsStr) {
        let stored = self.count_stored(image, inode);
        let file_type = inode.file_type();
        for (count, _) in
            self.types.iter_mut().zip(TYPES).filter(|(_, (known, _))| *known == file_type)
        {
            *count += 1;
        }
        if file_type == FileType::Regular {
            self.original = self.original.saturating_add(inode.size());
            self.original_sizes[size_class(inode.size())] += 1;
            self.extensions[extension(name.as_bytes())] += 1;
            self.add_stored(stored);
        }
    }

    fn count_stored(&mut self, image: &Image, inode: &Inode) -> u64 {
        match inode.layout().is_compressed() {
            true => self.compressed += 1,
            false => self.uncompressed += 1,
        }
        super::on_disk_size(image, inode)
    }

    fn add_stored(&mut self, stored: u64) {
        self.stored = self.stored.saturating_add(stored);
        self.stored_sizes[size_class(stored)] += 1;
    }
}

fn size_class(size: u64) -> usize {
    let kib = size >> 10;
    if kib == 0 { 0 } else { (kib.ilog2() as usize + 1).min(SIZES) }
}

/// As erofs-utils: the last part of the name with its dot counts as the first extension that starts
/// with it, so `a.tx` and `a.` count as `.txt`.
fn extension(name: &[u8]) -> usize {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let found = dot.and_then(|dot| {
        EXTENSIONS.iter().position(|known| known.as_bytes().starts_with(&name[dot..]))
    });
    found.unwrap_or(EXTENSIONS.len())
}

/// Writes the statistics.
pub(super) fn write(image: &Image, subject: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let statistics = Statistics::of(image).about(subject)?;
    writeln!(out, "Filesystem total file count:\t\t{}", statistics.types.iter().sum::<u64>())?;
    writeln!(out, "Filesystem unknown type count:\t\t0")?;
    for ((_, label), count) in TYPES.into_iter().zip(statistics.types) {
        writeln!(out, "Filesystem {label} count:\t\t{count}")?;
    }
    writeln!(out, "Filesystem compressed files:            {}", statistics.compressed)?;
    writeln!(out, "Filesystem uncompressed files:          {}", statistics.uncompressed)?;
    writeln!(out, "Filesystem total original file size:    {} Bytes", statistics.original)?;
    writeln!(out, "Filesystem total file size:             {} Bytes", statistics.stored)?;
    let rate = percent(statistics.stored, statistics.original);
    writeln!(out, "Filesystem compress rate:               {rate}%")?;
    let [files, ..] = statistics.types;
    write_sizes("Original", files, statistics.original_sizes, out)?;
    write_sizes("On-disk", files, statistics.stored_sizes, out)?;
    write_extensions(files, statistics.extensions, out)
}

fn write_sizes(
    what: &str,
    files: u64,
    counts: [u64; SIZES + 1],
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "\n{what} file size distribution:")?;
    writeln!(
        out,
        ">=(KB) .. <(KB)        count            ratio |distribution                                      |"
    )?;
    for (class, count) in counts.into_iter().enumerate() {
        let from = if class == 0 { 0 } else { 1u64 << (class - 1) };
        let range = match class {
            SIZES => format!("{from:>6} .."),
            _ => format!("{from:>6} .. {:<6}", 1u64 << class),
        };
        write!(out, "{range:<16}\t")?;
        write_share(count, files, out)?;
    }
    Ok(())
}

fn write_extensions(
    files: u64,
    counts: [u64; EXTENSIONS.len() + 1],
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "\nFile type distribution:")?;
    writeln!(
        out,
        "type                   count            ratio |distribution                                      |"
    )?;
    for (name, count) in EXTENSIONS.into_iter().chain(["others"]).zip(counts) {
        write!(out, "{name:<17}\t")?;
        write_share(count, files, out)?;
    }
    Ok(())
}

fn write_share(count: u64, files: u64, out: &mut impl Write) -> Result<(), Failure> {
    let percent = if files == 0 { 0.0 } else { count as f64 * 100.0 / files as f64 };
    let bar = "#".repeat((percent / 2.0) as usize);
    writeln!(out, "{count:<11} {percent:>8.2}% |{bar:<50}|")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_by_the_start_of_an_extension() {
        let of = |name: &str| *EXTENSIONS.get(extension(name.as_bytes())).unwrap_or(&"others");
        for (name, counted) in [
            ("a.txt", ".txt"),
            ("a.tx", ".txt"),
            ("a.", ".txt"),
            ("lib.so", ".so"),
            (".rc", ".rc"),
            ("a.o", ".odex"),
            ("a.xml2", "others"),
            ("so", "others"),
            ("", "others"),
        ] {
            assert_eq!(of(name), counted, "{name}");
        }
    }

    #[test]
    fn size_classes_end_at_powers_of_two() {
        assert_eq!([0, 1023, 1024, 2047, 2048].map(size_class), [0, 0, 1, 1, 2]);
        assert_eq!([(16 << 20) - 1, 16 << 20, u64::MAX].map(size_class), [14, 15, SIZES]);
    }
}
