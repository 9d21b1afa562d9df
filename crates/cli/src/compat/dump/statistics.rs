//! `dump.erofs -S`: the number of files by type, size and extension, in the form of erofs-utils.

use std::io::Write;
use std::path::Path;

use ferofs::inspect::{FileInfo, Inspection, Options, inspect};
use ferofs::read::{FileType, Image};

use crate::exit::{About, Failure};

/// Size classes below the last one. Class N ends at 2^N KiB; the last class has all larger files, as with erofs-utils.
const SIZES: u32 = 16;
/// File name extensions that erofs-utils counts separately.
const EXTENSIONS: [&str; 9] = [".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf"];

/// Writes the statistics. Each hard link counts as a file.
pub(super) fn write(image: &Image, subject: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let mut options = Options::default();
    (options.largest, options.files) = (0, true);
    let inspection = inspect(image, &options).about(subject)?;
    let names = |file: &FileInfo| match file.file_type {
        FileType::Directory => 1,
        _ => u64::from(file.links),
    };
    let block_size = image.superblock().block_size.bytes64();
    let on_disk = |file: &FileInfo| match file.compressed_blocks {
        Some(blocks) => blocks.saturating_mul(block_size),
        None => file.size,
    };
    let regular = || inspection.files.iter().filter(|file| file.file_type == FileType::Regular);
    let sum = |value: &dyn Fn(&FileInfo) -> u64| {
        regular().fold(0u64, |sum, file| sum.saturating_add(value(file).saturating_mul(names(file))))
    };
    write_counts(&inspection, &names, out)?;
    // As erofs-utils: the packed inode counts as a compressed file, and its size on disk is included.
    let packed = image.superblock().packed.map(|nid| image.inode(nid)).transpose().about(subject)?;
    let packed = packed.map(|inode| super::on_disk_size(image, &inode));
    let others =
        inspection.files.iter().filter(|file| file.compressed_blocks.is_some()).map(names).sum::<u64>();
    let compressed = others.saturating_add(u64::from(packed.is_some()));
    let (original, stored) = (sum(&|file| file.size), sum(&on_disk).saturating_add(packed.unwrap_or(0)));
    writeln!(out, "Filesystem compressed files:            {compressed}")?;
    writeln!(out, "Filesystem uncompressed files:          {}", inspection.names.saturating_sub(others))?;
    writeln!(out, "Filesystem total original file size:    {original} Bytes")?;
    writeln!(out, "Filesystem total file size:             {stored} Bytes")?;
    writeln!(out, "Filesystem compress rate:               {:.2}%", percent(stored, original))?;
    let all = sum(&|_| 1);
    write_sizes("Original", all, regular().map(|file| (file.size, names(file))), out)?;
    let on_disk = regular().map(|file| (on_disk(file), names(file)));
    write_sizes("On-disk", all, on_disk.chain(packed.map(|size| (size, 1))), out)?;
    write_extensions(all, regular().map(|file| (file.path.as_path(), names(file))), out)
}

fn write_counts(
    inspection: &Inspection,
    names: &impl Fn(&FileInfo) -> u64,
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "Filesystem total file count:\t\t{}", inspection.names)?;
    writeln!(out, "Filesystem unknown type count:\t\t0")?;
    for (file_type, label) in [
        (FileType::Regular, "regular file count:\t\t"),
        (FileType::Directory, "directory count:\t\t"),
        (FileType::CharDevice, "char dev count:\t\t"),
        (FileType::BlockDevice, "block dev count:\t\t"),
        (FileType::Fifo, "FIFO file count:\t\t"),
        (FileType::Socket, "SOCK file count:\t\t"),
        (FileType::Symlink, "symlink file count:\t\t"),
    ] {
        let count: u64 = inspection.files.iter().filter(|file| file.file_type == file_type).map(names).sum();
        writeln!(out, "Filesystem {label}{count}")?;
    }
    Ok(())
}

fn write_sizes(
    what: &str,
    all: u64,
    files: impl Iterator<Item = (u64, u64)>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut counts = [0u64; SIZES as usize + 1];
    for (size, names) in files {
        let kib = size >> 10;
        let bin = if kib == 0 { 0 } else { (kib.ilog2() + 1).min(SIZES) };
        // `bin` is at most `SIZES`.
        if let Some(count) = counts.get_mut(bin as usize) {
            *count += names;
        }
    }
    writeln!(out, "\n{what} file size distribution:")?;
    writeln!(
        out,
        ">=(KB) .. <(KB)        count            ratio |distribution                                      |"
    )?;
    for (bin, count) in (0u32..).zip(counts) {
        let from = if bin == 0 { 0 } else { 1u64 << (bin - 1) };
        let to = if bin == SIZES { String::new() } else { (1u64 << bin).to_string() };
        write!(out, "{from:>6} .. {to:<6}\t")?;
        write_share(count, all, out)?;
    }
    Ok(())
}

fn write_extensions<'a>(
    all: u64,
    files: impl Iterator<Item = (&'a Path, u64)>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut counts = [0u64; EXTENSIONS.len() + 1];
    for (path, names) in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let found = EXTENSIONS.iter().position(|extension| name.ends_with(extension));
        counts[found.unwrap_or(EXTENSIONS.len())] += names;
    }
    writeln!(out, "\nFile type distribution:")?;
    writeln!(
        out,
        "type                   count            ratio |distribution                                      |"
    )?;
    for (name, count) in EXTENSIONS.into_iter().chain(["others"]).zip(counts) {
        write!(out, "{name:<17}\t")?;
        write_share(count, all, out)?;
    }
    Ok(())
}

fn write_share(count: u64, all: u64, out: &mut impl Write) -> Result<(), Failure> {
    let percent = percent(count, all);
    let bar = "#".repeat((percent / 2.0) as usize);
    writeln!(out, "{count:<10} {percent:>9.2}% |{bar:<50}|")?;
    Ok(())
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
