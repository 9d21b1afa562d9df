//! `dump.erofs [OPTIONS] IMAGE`: the superblock, files, and their content, in erofs-utils' form.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Parser;
use ferofs::read::{ExtentData, FileOffset, Image, Inode, Location, Nid, Superblock};

use crate::cmd::image::ImageArgs;
use crate::cmd::{cat, ls};
use crate::exit::{About, Failure, Outcome};

/// Look into an EROFS image.
#[derive(Parser, Debug)]
#[command(name = "dump.erofs", version, disable_version_flag = true)]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Show the superblock (default)
    #[arg(short = 's')]
    superblock: bool,

    /// Show the extents of the file of --nid or --path
    #[arg(short = 'e')]
    extents: bool,

    /// The file to look at, by its nid
    #[arg(long, value_name = "NID")]
    nid: Option<u64>,

    /// The file to look at, by its path
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,

    /// List the directory of --path
    #[arg(long)]
    ls: bool,

    /// Write the content of the file of --path
    #[arg(long)]
    cat: bool,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// Runs `dump.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args = Args::try_parse_from(args).unwrap_or_else(|error| error.exit());
    let path = args.path.clone().unwrap_or_else(|| "/".into());
    if args.ls {
        return ls::run(&ls::Args::plain(args.image, path));
    }
    if args.cat {
        return cat::run(&cat::Args { image: args.image, paths: vec![path] });
    }
    let image = args.image.open()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let file = match (args.nid, &args.path) {
        (Some(nid), _) => Some(image.inode(Nid::new(nid)).about(&args.image.path)?),
        (None, Some(path)) => Some(image.resolve(path, false).about(&args.image.path)?),
        (None, None) => None,
    };
    if args.superblock || file.is_none() {
        write_superblock(image.superblock(), &mut out)?;
    }
    if let Some(file) = file {
        write_file(&file, &mut out)?;
        if args.extents {
            write_extents(&args, &image, &file, &mut out)?;
        }
    }
    out.flush()?;
    Ok(0)
}

fn write_superblock(superblock: &Superblock, out: &mut impl Write) -> io::Result<()> {
    let field = |out: &mut dyn Write, name: &str, value: &dyn std::fmt::Display| {
        writeln!(out, "{:<45}{value}", format!("{name}:"))
    };
    let hex: String = superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    field(out, "Filesystem magic number", &"0xE0F5E1E2")?;
    field(out, "Filesystem blocksize", &superblock.block_size)?;
    field(out, "Filesystem blocks", &superblock.blocks)?;
    field(out, "Filesystem inode metadata start block", &superblock.meta.get())?;
    field(out, "Filesystem shared xattr metadata start block", &superblock.xattr.get())?;
    field(out, "Filesystem root nid", &superblock.root.get())?;
    field(out, "Filesystem inode count", &superblock.inodes)?;
    let created = superblock.epoch.saturating_add(superblock.build_time.into());
    field(out, "Filesystem created", &ls::time_string(created))?;
    let compat = superblock.compat.iter_names().map(|(name, _)| name);
    let incompat = superblock.incompat.iter_names().map(|(name, _)| name);
    let features: Vec<_> = compat.chain(incompat).map(str::to_lowercase).collect();
    field(out, "Filesystem features", &features.join(" "))?;
    field(out, "Filesystem UUID", &groups.join("-"))
}

fn write_file(file: &Inode, out: &mut impl Write) -> io::Result<()> {
    let disk = file.on_disk();
    writeln!(out, "NID: {}  Links: {}  Layout: {:?}", file.nid().get(), disk.nlink, disk.layout)?;
    writeln!(
        out,
        "Size: {}  Mode: {:04o}  Uid: {}  Gid: {}",
        disk.size, disk.permissions, disk.uid, disk.gid
    )?;
    writeln!(out, "Timestamp: {}.{:09}", disk.mtime.secs, disk.mtime.nanos)
}

fn write_extents(args: &Args, image: &Image, file: &Inode, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, " Ext:   logical offset   |  length :     physical offset    |  length")?;
    let extents = image.extents(file, FileOffset::new(0)).about(&args.image.path)?;
    for (number, extent) in extents.enumerate() {
        let extent = extent.about(&args.image.path)?;
        let (start, len) = match extent.data {
            ExtentData::Stored { at } | ExtentData::Interlaced { at } => (position(at), extent.len),
            ExtentData::Encoded { at, encoded_len, .. } => (position(at), encoded_len),
            ExtentData::Hole => (0, 0),
            ExtentData::Fragment { offset } => (offset.get(), extent.len),
        };
        writeln!(
            out,
            "{number:>4}: {:>8}..{:>8} | {:>7} : {start:>10}..{:>10} | {len:>7}",
            extent.start.get(),
            extent.end(),
            extent.len,
            start.saturating_add(len),
        )?;
    }
    Ok(())
}

const fn position(at: Location) -> u64 {
    match at {
        Location::Device(_, pos) => pos.get(),
        Location::Metadata(place) => place.pos.get(),
    }
}
