//! `ferofs inspect`: shows the contents and the layout of an image as text, HTML or JSON.

#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod html;
mod report;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use ferofs::NewFile;
use ferofs::inspect::{Inspection, Options, block_owners, inspect};
use ferofs::read::{DeviceId, Extent, ExtentData, FileOffset, Image, Inode, Location};
use serde_json::{Value, json};

use crate::args::image::ImageArgs;
#[cfg(target_os = "linux")]
use crate::args::image::ImageName;
#[cfg(target_os = "linux")]
use crate::args::outputs::refuse_as_output;
#[cfg(target_os = "linux")]
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::exit::{About, Concerning, Failure, Outcome};
use crate::print::output::{OUTPUT, json_text, message};
use crate::print::{json_path, shown};
use ferofs::escape::Escaped;

/// Inodes and files that `--block` lists at most. More are left out: with deduplication, a block
/// can have as many owners as the image has files.
const MAX_OWNERS: usize = 1000;

/// Show the contents and the layout of an image
///
/// Prints the superblock, features and totals, the compression by file type and extension, the
/// largest files, the bytes that deduplication and fragments save, and a map of the blocks. Exit
/// code 1 means that a part could not be read.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Show only the extents of this file
    #[arg(long, value_name = "PATH", conflicts_with = "block")]
    path: Option<PathBuf>,

    /// Show only what uses block N; the first is 0
    #[arg(long, value_name = "N")]
    block: Option<u64>,

    /// Write the report to FILE as one HTML page; `-` is standard output
    ///
    /// It loads no other file.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "path", "block"])]
    html: Option<PathBuf>,

    /// Show instead what grew and what shrank since image OLD; with --html, add it to the page
    ///
    /// The contents of both images are compared.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "OLD", conflicts_with_all = ["json", "path", "block"])]
    compare: Option<ImageName>,

    /// Number of the largest files to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,

    #[cfg(target_os = "linux")]
    #[command(flatten)]
    overwrite: OverwriteArgs,

    /// Print the report as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    #[cfg(target_os = "linux")]
    if let Some(page) = &args.html {
        let images = std::iter::once(&args.image.path).chain(&args.compare);
        refuse_as_output(page, &images.map(|name| &**name).collect::<Vec<_>>())?;
        args.overwrite.check(page, OutputKind::Html)?;
    }
    let image = args.image.open()?;
    let subject = &args.image.path;
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(path) = &args.path {
        show_file(args, &image, path, &mut out)?;
    } else if let Some(block) = args.block {
        show_owners(args, &image, block, &mut out)?;
    } else {
        let mut options = Options::default();
        options.largest = args.top;
        #[cfg(target_os = "linux")]
        {
            options.files = args.html.is_some() || args.compare.is_some();
        }
        let inspection = inspect(&image, &options).about(subject)?;
        let code = report_damage(subject, &inspection);
        #[cfg(target_os = "linux")]
        let (code, comparison) = match &args.compare {
            Some(name) => compared(args, name, (&image, &inspection), &options, code)?,
            None => (code, Value::Null),
        };
        #[cfg(target_os = "linux")]
        if let Some(target) = &args.html {
            let page = html::page(subject, &image, &inspection, comparison);
            if target == Path::new("-") {
                out.write_all(page.as_ref())?;
                out.flush()?;
                return Ok(code);
            }
            let mut file = NewFile::create(target).without_subject()?;
            file.write_all(page.as_ref()).concerning(target)?;
            file.finish().without_subject()?;
            return Ok(code);
        } else if args.compare.is_some() {
            compare::write(report::size(image.superblock()), &comparison, &mut out)?;
            out.flush()?;
            return Ok(code);
        }
        match args.json {
            true => writeln!(out, "{}", json_text(&report::to_json(&image, &inspection)))?,
            false => report::write(&image, &inspection, &mut out)?,
        }
        out.flush()?;
        return Ok(code);
    }
    out.flush()?;
    Ok(0)
}

/// The comparison of image `new` with the image called `name`, and the exit code, which is at least
/// `code`.
#[cfg(target_os = "linux")]
fn compared(
    args: &Args,
    name: &ImageName,
    new: (&Image, &Inspection),
    options: &Options,
    code: u8,
) -> Result<(u8, Value), Failure> {
    let old = ImageArgs {
        work_limit: args.image.work_limit,
        #[cfg(feature = "remote")]
        servers: args.image.servers.clone(),
        ..ImageArgs::of(name.clone())
    };
    let old = old.open()?;
    let inspection = inspect(&old, options).about(name)?;
    let code = code.max(report_damage(name, &inspection));
    let (changed, has_failed) = compare::changed_files(&old, new.0)?;
    Ok((code.max(has_failed.into()), compare::data(name, (&old, &inspection), new, &changed)))
}

/// Prints the parts that could not be read, and returns the exit code.
fn report_damage(subject: &Path, inspection: &Inspection) -> u8 {
    for (path, corruption) in &inspection.damage {
        message!("{}: {}: {corruption}", Escaped::path(subject), shown(path));
    }
    u8::from(!inspection.damage.is_empty())
}

fn show_file(args: &Args, image: &Image, path: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let subject = &args.image.path;
    let inode = image.resolve(path, false).about(subject)?;
    let disk = inode.on_disk();
    if args.json {
        let mut extents = Vec::new();
        for extent in image.extents(&inode, FileOffset::new(0)).about(subject)? {
            extents.push(json_extent(&extent.about(subject)?));
        }
        let object = json!({
            "path": json_path(path.strip_prefix("/").unwrap_or(path)),
            "nid": inode.nid().get(),
            "position": inode.place().pos.get(),
            "layout": disk.layout.name(),
            "size": disk.size,
            "extents": extents,
        });
        writeln!(out, "{}", json_text(&object))?;
        return Ok(());
    }
    writeln!(out, "{}", shown(path.strip_prefix("/").unwrap_or(path)))?;
    let place = if inode.place().in_metabox { "metabox byte" } else { "byte" };
    let pos = inode.place().pos.get();
    let layout = disk.layout.name();
    writeln!(out, "nid {}, {place} {pos}, {layout}, {} bytes", inode.nid().get(), disk.size)?;
    write_extents(image, &inode, subject, out)
}

fn write_extents(
    image: &Image,
    inode: &Inode,
    subject: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(
        out,
        "{:>20} {:>12}  {:>20} {:>10}  stored as",
        "offset", "bytes", "in the image", "bytes"
    )?;
    let mut sum = (0u64, 0u64);
    let mut count = 0u64;
    for extent in image.extents(inode, FileOffset::new(0)).about(subject)? {
        let extent = extent.about(subject)?;
        let (kind, at, len) = describe(&extent);
        let at = at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        writeln!(out, "{:>20} {:>12}  {at:>20} {len:>10}  {kind}", extent.start.get(), extent.len)?;
        sum = (sum.0.saturating_add(extent.len), sum.1.saturating_add(len));
        count += 1;
    }
    writeln!(out, "{count} extents, {} bytes in {}", sum.0, sum.1)?;
    Ok(())
}

/// How an extent is stored, its position, and its length on disk.
fn describe(extent: &Extent) -> (String, Option<u64>, u64) {
    let at = |at: Location| match at {
        Location::Device(device, pos) if device == DeviceId::new(0) => (String::new(), pos.get()),
        Location::Device(device, pos) => (format!(", device {}", device.get()), pos.get()),
        Location::Metadata(place) => (", inline".to_owned(), place.pos.get()),
    };
    match extent.data {
        ExtentData::Hole => ("hole".to_owned(), None, 0),
        ExtentData::Stored { at: place } => {
            let (note, pos) = at(place);
            (format!("stored{note}"), Some(pos), extent.len)
        }
        ExtentData::Interlaced { at: place } => {
            let (note, pos) = at(place);
            (format!("stored, rotated{note}"), Some(pos), extent.len)
        }
        ExtentData::Encoded { algorithm, at: place, encoded_len, partial } => {
            let (note, pos) = at(place);
            let shared = if partial { ", in part" } else { "" };
            (format!("{}{shared}{note}", algorithm.name()), Some(pos), encoded_len)
        }
        ExtentData::Fragment { offset } => ("fragment".to_owned(), Some(offset.get()), extent.len),
    }
}

fn json_extent(extent: &Extent) -> Value {
    let (kind, at, len) = describe(extent);
    json!({ "offset": extent.start.get(), "bytes": extent.len, "kind": kind, "position": at, "stored": len })
}

fn show_owners(
    args: &Args,
    image: &Image,
    block: u64,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let owners =
        block_owners(image, DeviceId::new(0), block, MAX_OWNERS).about(&args.image.path)?;
    let is_superblock = {
        let superblock = image.superblock();
        let end = 1024 + superblock.size() as u64;
        block.saturating_mul(superblock.block_size.bytes64()) < end
    };
    if args.json {
        let owners: Vec<_> = owners
            .iter()
            .map(|owner| {
                json!({
                    "path": json_path(&owner.path),
                    "nid": owner.nid.get(),
                    "content": owner.content.as_ref().map(|content| [content.start, content.end]),
                })
            })
            .collect();
        writeln!(
            out,
            "{}",
            json_text(&json!({ "block": block, "superblock": is_superblock, "owners": owners }))
        )?;
        return Ok(());
    }
    if is_superblock {
        writeln!(out, "superblock")?;
    }
    for owner in &owners {
        match &owner.content {
            Some(content) => {
                writeln!(out, "{} bytes {}..{}", shown(&owner.path), content.start, content.end)?
            }
            None => writeln!(out, "{} inode {}", shown(&owner.path), owner.nid.get())?,
        }
    }
    if owners.is_empty() && !is_superblock {
        let blocks = image.superblock().blocks;
        let end =
            if block < blocks { String::new() } else { format!(": the image has {blocks} blocks") };
        writeln!(out, "no file uses block {block}{end}")?;
    }
    Ok(())
}
