//! `ferofs du`: shows how much of an image files and directories take.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ferofs::escape::Escaped;
use ferofs::inspect::{FileInfo, Options, inspect};
use ferofs::read::FileType;
use serde_json::json;

use super::paths;
use crate::args::HelpArgs;
use crate::args::byte_size::human;
use crate::args::image::ImageArgs;
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, json_text, message, name as shown};

/// Show how much space directories take in an image
///
/// Prints for each directory the bytes that its content takes in the image, the bytes of the
/// content itself, and the number of files. Data that several files share counts for each of them,
/// a file with several names once, and metadata does not count. Exit code 1 means that a part could
/// not be read.
#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Files, directories or patterns ('/usr/*') in the image
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,

    /// Levels of directories to show below each PATH [default: 1; with -a, all]
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,

    /// Show only the sum of each PATH, as -d 0
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,

    /// Show files, too
    #[arg(short, long)]
    all: bool,

    /// Show numbers of bytes, without units
    #[arg(short, long)]
    bytes: bool,

    /// Accepted: sizes have units without it
    ///
    /// `ferofs du -h` without an image prints a short help.
    #[arg(short = 'h', long, conflicts_with = "bytes")]
    human_readable: bool,

    #[command(flatten)]
    help: HelpArgs,

    /// Print a JSON object for each line
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

/// What the files below a directory have.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    stored: u64,
    size: u64,
    /// Files that are not directories.
    files: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let image = args.image.open()?;
    let subject = &args.image.path;
    let mut options = Options::default();
    (options.files, options.largest) = (true, 0);
    let mut wanted = Vec::new();
    for path in paths::expand(&image, subject, &args.paths)? {
        wanted.push(image.resolve(&path, false).about(subject)?.nid());
    }
    let inspection = inspect(&image, &options).about(subject)?;
    for (path, corruption) in &inspection.damage {
        message!("{}: {}: {corruption}", Escaped::path(subject), crate::print::shown(path));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if !args.json {
        writeln!(out, "{:>12} {:>12} {:>9}  path", "stored", "size", "files")?;
    }
    for nid in wanted {
        // A file can have several names, and a path can lead through symbolic links: the inspection
        // has one name of each file.
        let Some(file) = inspection.files.iter().find(|file| file.nid == nid) else { continue };
        for (path, sum) in args.sums(&inspection.files, &file.path) {
            args.print(path, sum, &mut out)?;
        }
    }
    out.flush()?;
    Ok(u8::from(!inspection.damage.is_empty()))
}

impl Args {
    /// The sums to show for `start`, by path: a directory comes before what is in it.
    fn sums<'a>(&self, files: &'a [FileInfo], start: &Path) -> BTreeMap<&'a Path, Sum> {
        let levels = match (self.summarize, self.max_depth) {
            (true, _) => 0,
            (false, Some(levels)) => levels,
            (false, None) if self.all => usize::MAX,
            (false, None) => 1,
        };
        let most = start.components().count().saturating_add(levels);
        let mut sums: BTreeMap<&Path, Sum> = BTreeMap::new();
        for file in files.iter().filter(|file| file.path.starts_with(start)) {
            let is_dir = file.file_type == FileType::Directory;
            let above = file.path.ancestors().take_while(|path| path.starts_with(start));
            for path in above.filter(|path| path.components().count() <= most) {
                if !is_dir && path == file.path && !self.all && path != start {
                    continue;
                }
                let sum = sums.entry(path).or_default();
                sum.stored = sum.stored.saturating_add(file.stored);
                sum.size = sum.size.saturating_add(file.size);
                sum.files += u64::from(!is_dir);
            }
        }
        sums
    }

    fn print(&self, path: &Path, sum: Sum, out: &mut impl Write) -> Result<(), Failure> {
        let Sum { stored, size, files } = sum;
        if self.json {
            let object = json!({ "path": format!("/{}", path.display()), "stored": stored, "size": size, "files": files });
            writeln!(out, "{}", json_text(&object))?;
            return Ok(());
        }
        let text = |bytes: u64| if self.bytes { bytes.to_string() } else { human(bytes) };
        write!(out, "{:>12} {:>12} {files:>9}  /", text(stored), text(size))?;
        out.write_all(&shown(path.as_os_str().as_bytes(), io::stdout().is_terminal()))?;
        writeln!(out)?;
        Ok(())
    }
}
