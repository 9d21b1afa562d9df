//! `dump.erofs [OPTIONS] IMAGE`: prints the superblock, statistics and files, in the form of
//! erofs-utils, because scripts parse the output.

mod statistics;

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use ferofs::inspect::path_of;
use ferofs::read::{
    Algorithm, Compat, DataLayout, DeviceId, Extent, ExtentData, Extents, FileOffset, FileType,
    Image, Inode, Location, Nid, OpenOptions, Place, Superblock, Uuid,
};

use super::number::number;
use crate::args::image::{ImageArgs, work_limit};
use crate::cmd::linux::{FEATURES, LinuxVersion, of_algorithm};
use crate::cmd::ls::mode_string;
use crate::exit::{About, Failure, Outcome};

/// Show the contents of an EROFS image.
#[derive(Parser, Debug)]
#[command(name = "dump.erofs", version = super::version::PLAIN, disable_version_flag = true, args_override_self = true)]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Show the superblock (default)
    #[arg(short = 's')]
    superblock: bool,

    /// Show statistics of the image
    #[arg(short = 'S')]
    statistics: bool,

    /// Show the extents of the file of --nid or --path
    #[arg(short = 'e')]
    extents: bool,

    /// Select a file by its inode number, decimal, octal with 0 or hexadecimal with 0x
    #[arg(long, value_name = "NID", value_parser = number::<u64>)]
    nid: Option<u64>,

    /// Select a file by its path; --nid is ignored then
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,

    /// List the directory of --nid or --path
    #[arg(long)]
    ls: bool,

    /// Write the content of the file of --nid or --path, and nothing else
    #[arg(long)]
    cat: bool,

    /// Print the properties of the file system for udev, such as its label and UUID
    #[arg(long)]
    blkid_udev: bool,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

impl Args {
    /// Whether --nid or --path is given.
    const fn selects(&self) -> bool {
        self.nid.is_some() || self.path.is_some()
    }

    /// The file of --path or --nid.
    fn find(&self, image: &Image) -> Result<Inode, Failure> {
        let found = match (&self.path, self.nid) {
            (Some(path), _) => image.resolve(path, false),
            (None, Some(nid)) => image.inode(Nid::new(nid)),
            (None, None) => {
                return Err(Failure::about(
                    &self.image.path,
                    "-e, --ls and --cat need --nid or --path",
                ));
            }
        };
        found.about(&self.image.path)
    }

    /// As erofs-utils, does not verify the superblock's checksum, and needs extra devices only for
    /// their data.
    fn open(&self) -> Result<Image, Failure> {
        let mut options = OpenOptions::default();
        options.work_limit = work_limit(self.image.work_limit);
        (options.verify_checksum, options.missing_devices) = (false, true);
        self.image.open_with(&options)
    }
}

/// Runs `dump.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args: Args = super::parse(args);
    let subject = &args.image.path;
    let image = args.open()?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.blkid_udev {
        write_udev(image.superblock(), &mut out)?;
        out.flush()?;
        return Ok(0);
    }
    if args.cat {
        if args.superblock || args.statistics || args.ls {
            return Err(Failure::about(
                subject,
                "--cat writes nothing else: remove -s, -S and --ls",
            ));
        }
        write_content(subject, &image, &args.find(&image)?, &mut out)?;
        out.flush()?;
        return Ok(0);
    }
    if args.superblock || !(args.statistics || args.extents || args.selects()) {
        write_superblock(&image, &mut out)?;
    }
    if args.statistics {
        statistics::write(&image, subject, &mut out)?;
    }
    if args.selects() || args.extents || args.ls {
        let file = args.find(&image)?;
        let path = path(&image, file.nid());
        write_file(&image, &file, &path, &mut out)?;
        if args.ls {
            write_directory(subject, &image, &file, &mut out)?;
        }
        if args.extents {
            write_extents(subject, &image, &file, &path, &mut out)?;
        }
    }
    out.flush()?;
    Ok(0)
}

/// The path to show for a file: its first name in the image.
fn path(image: &Image, nid: Nid) -> PathBuf {
    if image.superblock().packed == Some(nid) {
        return "(packed file)".into();
    }
    path_of(image, nid).map_or_else(|| "(not found)".into(), |path| Path::new("/").join(path))
}

/// A time in the time zone of the system, as erofs-utils. A time that no date can express is
/// printed as `@SECONDS`.
fn local_time(secs: i64, format: &str) -> String {
    match jiff::Timestamp::from_second(secs) {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("@{secs}"),
    }
}

/// A name, escaped if standard output is a terminal.
fn shown(name: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    crate::print::output::name(name, io::stdout().is_terminal())
}

fn write_udev(superblock: &Superblock, out: &mut impl Write) -> io::Result<()> {
    let uuid = Uuid(superblock.uuid);
    let label: String =
        String::from_utf8_lossy(&superblock.volume_name).trim_end_matches('\0').to_owned();
    // udev reads one property per line: a label must not add a line.
    let label: String = label.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    if !label.is_empty() {
        writeln!(out, "ID_FS_LABEL={label}\nID_FS_LABEL_ENC={label}")?;
    }
    writeln!(
        out,
        "ID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\nID_FS_TYPE=erofs\nID_FS_USAGE=filesystem"
    )
}

fn write_superblock(image: &Image, out: &mut impl Write) -> io::Result<()> {
    let superblock = image.superblock();
    let field = |out: &mut dyn Write, name: &str, value: &dyn std::fmt::Display| {
        writeln!(out, "{:<45} {value}", format!("{name}:"))
    };
    field(out, "Filesystem magic number", &"0xE0F5E1E2")?;
    field(out, "Filesystem blocksize", &superblock.block_size)?;
    // As erofs-utils: of all devices.
    let extra = image.device_slots().iter().map(|slot| slot.blocks);
    field(out, "Filesystem blocks", &extra.fold(superblock.blocks, u64::saturating_add))?;
    field(out, "Filesystem inode metadata start block", &superblock.meta.get())?;
    field(out, "Filesystem shared xattr metadata start block", &superblock.xattr.get())?;
    field(out, "Filesystem root nid", &superblock.root.get())?;
    if let Some(packed) = superblock.packed {
        field(out, "Filesystem packed nid", &packed.get())?;
    }
    if let Some(metabox) = superblock.metabox {
        field(out, "Filesystem metabox nid", &metabox.get())?;
    }
    match superblock.compression {
        ferofs::read::Compression::Configured { .. } => {
            let used = Algorithm::ALL.into_iter().filter(|a| image.configs().contains(*a));
            field(
                out,
                "Filesystem compr_algs",
                &used.map(Algorithm::name).collect::<Vec<_>>().join(", "),
            )?;
        }
        ferofs::read::Compression::Lz4Only { max_distance } => {
            field(out, "Filesystem lz4_max_distance", &max_distance)?;
        }
    }
    field(out, "Filesystem sb_size", &superblock.size())?;
    field(out, "Filesystem inode count", &superblock.inodes)?;
    let created = superblock.epoch.saturating_add(superblock.build_time.into());
    field(out, "Filesystem created", &local_time(created, "%a %b %e %H:%M:%S %Y"))?;
    field(
        out,
        "Filesystem compatible features",
        &names(COMPAT.iter().map(|(bit, name)| (superblock.compat.contains(*bit), *name))),
    )?;
    field(
        out,
        "Filesystem incompatible features",
        &names(FEATURES.iter().map(|(bit, name, _)| (superblock.incompat.contains(*bit), *name))),
    )?;
    field(out, "Filesystem UUID", &Uuid(superblock.uuid).to_string())?;
    if let Some(version) = required_kernel(image) {
        writeln!(out, "{:<45} {version}", "Required upstream Linux kernel version:")?;
    }
    Ok(())
}

/// Compatible features, with their names in erofs-utils.
const COMPAT: [(Compat, &str); 6] = [
    (Compat::SB_CHKSUM, "sb_csum"),
    (Compat::MTIME, "mtime"),
    (Compat::XATTR_FILTER, "xattr_filter"),
    (Compat::SHARED_EA_IN_METABOX, "shared_ea_in_metabox"),
    (Compat::PLAIN_XATTR_PFX, "plain_xattr_pfx"),
    (Compat::ISHARE_XATTRS, "ishare_xattrs"),
];

/// The names of the features that are set, each followed by a space, as erofs-utils prints them.
fn names<'a>(all: impl Iterator<Item = (bool, &'a str)>) -> String {
    all.filter(|(set, _)| *set).map(|(_, name)| format!("{name} ")).collect()
}

fn required_kernel(image: &Image) -> Option<LinuxVersion> {
    let (incompat, configs) = (image.superblock().incompat, image.configs());
    let features = FEATURES.iter().filter(|(bit, ..)| incompat.contains(*bit));
    let algorithms =
        Algorithm::ALL.into_iter().filter(|a| *a != Algorithm::Lz4 && configs.contains(*a));
    features.map(|(.., version)| *version).chain(algorithms.map(of_algorithm)).max()
}

fn write_file(image: &Image, file: &Inode, path: &Path, out: &mut impl Write) -> io::Result<()> {
    let disk = file.on_disk();
    let on_disk = on_disk_size(image, file);
    let layout = match disk.layout {
        DataLayout::FlatPlain => 0,
        DataLayout::CompressedFull => 1,
        DataLayout::FlatInline => 2,
        DataLayout::CompressedCompact => 3,
        DataLayout::ChunkBased => 4,
    };
    let kind = match disk.file_type {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::CharDevice => "char dev",
        FileType::BlockDevice => "block dev",
        FileType::Fifo => "FIFO file",
        FileType::Socket => "SOCK file",
        FileType::Symlink => "symlink file",
    };
    out.write_all(b"Path : ")?;
    out.write_all(&shown(path.as_os_str().as_bytes()))?;
    writeln!(out, "\nSize: {}  On-disk size: {on_disk}  {kind}", disk.size)?;
    write!(out, "NID: {}   Links: {}   ", file.nid().get(), disk.nlink)?;
    writeln!(out, "Layout: {layout}   Compression ratio: {}%", percent(on_disk, disk.size))?;
    writeln!(out, "Inode size: {}   Xattr size: {}", disk.version.size(), file.xattr_size())?;
    // As erofs-utils: without set-user-ID, set-group-ID and the sticky bit.
    let permissions = disk.permissions & 0o777;
    let mode = mode_string(disk.file_type, permissions);
    let (uid, gid) = (disk.uid, disk.gid);
    writeln!(out, "Uid: {uid}   Gid: {gid}  Access: {permissions:04o}/{}", &mode[1..])?;
    let time = local_time(disk.mtime.secs, "%Y-%m-%d %H:%M:%S");
    writeln!(out, "Timestamp: {time}.{:09}", disk.mtime.nanos)
}

/// The percentage with two digits; of nothing, what C prints for it on x86.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, 0) => "-nan".to_owned(),
        _ => format!("{:.2}", part as f64 * 100.0 / whole as f64),
    }
}

/// A file's size on disk as erofs-utils defines it: the size of its compressed blocks, or the file
/// size if it is not compressed.
fn on_disk_size(image: &Image, file: &Inode) -> u64 {
    match file.on_disk().place {
        Place::Compressed { blocks } => {
            blocks.saturating_mul(image.superblock().block_size.bytes64())
        }
        _ => file.size(),
    }
}

fn write_directory(
    subject: &Path,
    image: &Image,
    file: &Inode,
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "\n       NID TYPE  FILENAME")?;
    for entry in image.read_dir(file).about(subject)? {
        let entry = entry.about(subject)?;
        let kind = entry.file_type.map_or(0, FileType::number);
        write!(out, "{:>10}    {kind}  ", entry.nid.get())?;
        out.write_all(&shown(&entry.name))?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_content(
    subject: &Path,
    image: &Image,
    file: &Inode,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut buffer = vec![0; 1 << 20];
    let mut offset = FileOffset::new(0);
    loop {
        let len = image.read_at(file, offset, &mut buffer).about(subject)?;
        if len == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..len])?;
        offset = FileOffset::new(offset.get().saturating_add(len as u64));
    }
}

fn write_extents(
    subject: &Path,
    image: &Image,
    file: &Inode,
    path: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "\n Ext:   logical offset   |  length :     physical offset    |  length")?;
    let mut count = 0u64;
    let extents = image.extents(file, FileOffset::new(0)).about(subject)?;
    let form = ExtentForm::of(file, &extents);
    for extent in extents {
        let mut extent = extent.about(subject)?;
        let (device, start, len) = placed(image, form, &extent);
        // erofs-utils rounds uncompressed extents up to whole blocks, too.
        if len > extent.len && !file.layout().is_compressed() {
            extent.len = len;
        }
        let device = if device == DeviceId::new(0) {
            String::new()
        } else {
            format!("  # device {}", device.get())
        };
        writeln!(
            out,
            "{count:>4}: {:>8}..{:>8} | {:>7} : {start:>10}..{:>10} | {len:>7}{device}",
            extent.start.get(),
            extent.end(),
            extent.len,
            start.saturating_add(len),
        )?;
        count += 1;
    }
    out.write_all(&shown(path.as_os_str().as_bytes()))?;
    writeln!(out, ": {count} extents found")?;
    Ok(())
}

/// The properties of a file on which the sizes of its extents depend.
#[derive(Clone, Copy)]
pub(super) struct ExtentForm {
    are_compressed: bool,
    /// Extents start and end at any byte.
    are_records: bool,
}

impl ExtentForm {
    pub(super) const fn of(file: &Inode, extents: &Extents<'_>) -> Self {
        Self { are_compressed: file.layout().is_compressed(), are_records: extents.are_records() }
    }
}

/// Where an extent's bytes are, and how many they are, as erofs-utils counts them: none for a
/// fragment and a hole of a compressed file, and whole blocks for uncompressed data and other
/// holes.
pub(super) fn placed(image: &Image, extents: ExtentForm, extent: &Extent) -> (DeviceId, u64, u64) {
    let block = image.superblock().block_size.bytes64();
    let blocks = extent.len.checked_next_multiple_of(block).unwrap_or(extent.len);
    match extent.data {
        ExtentData::Stored { at: Location::Device(device, pos) } if extents.are_records => {
            (device, pos.get(), extent.len)
        }
        ExtentData::Stored { at: Location::Device(device, pos) }
        | ExtentData::Interlaced { at: Location::Device(device, pos) } => {
            (device, pos.get(), blocks)
        }
        ExtentData::Encoded { at: Location::Device(device, pos), encoded_len, .. } => {
            (device, pos.get(), encoded_len)
        }
        ExtentData::Stored { at: Location::Metadata(place) }
        | ExtentData::Interlaced { at: Location::Metadata(place) } => {
            (DeviceId::new(0), place.pos.get(), extent.len)
        }
        ExtentData::Encoded { at: Location::Metadata(place), encoded_len, .. } => {
            (DeviceId::new(0), place.pos.get(), encoded_len)
        }
        ExtentData::Hole if !extents.are_compressed => (DeviceId::new(0), 0, blocks),
        ExtentData::Hole | ExtentData::Fragment { .. } => (DeviceId::new(0), 0, 0),
    }
}
