//! `ferofs diff`: compares two trees, each an image or a directory.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use ferofs::diff::{Change, ChangeKind, Differences, Event, Options, Selection, Side, Stat, diff};
use ferofs::inspect::type_name;
use ferofs::read::FileType;
use ferofs::verity::Digest;
use serde_json::{Value, json};

use crate::args::IMAGE;
use crate::args::byte_size::human;
use crate::args::image::{ImageArgs, ImageName};
use crate::args::seal::SealArgs;
use crate::exit::{About, Failure, Outcome, warn};
use crate::print::output::{OUTPUT, json_text, message};
use crate::print::progress::Display;
use crate::print::shown;

/// Exit codes of diff(1).
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

/// Compare images and directories
///
/// Prints one line for each file that was added, removed or changed (content, mode, owner, time,
/// extended attributes, hard links). Exit codes are those of diff(1): 0 no differences, 1
/// differences, 2 error.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first tree: an image (also on a server) or a directory
    first: ImageName,

    /// The second tree: an image (also on a server) or a directory
    second: ImageName,

    /// Do not compare these, separated by commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Aspect>,

    /// Leave out what this .gitignore pattern matches
    ///
    /// In both trees; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Multiply the limits on work and memory, which follow from the size of an image, by FACTOR; 0
    /// removes them
    #[arg(help_heading = IMAGE, hide_short_help = true, long, value_name = "FACTOR", default_value_t = 1)]
    work_limit: u32,

    /// Verify each block that is read, against this root hash
    ///
    /// Given twice, the first one is for the first tree, and the second one for the second; given
    /// once, it is for the only image, or the first one.
    #[arg(help_heading = IMAGE, long, value_name = "HEX")]
    roothash: Vec<Digest>,

    /// File with the hash tree, for each --roothash in this order [default: the image itself]
    #[arg(help_heading = IMAGE, hide_short_help = true, long, value_name = "FILE", requires = "roothash")]
    hash_file: Vec<PathBuf>,

    #[cfg(feature = "remote")]
    #[command(flatten)]
    servers: crate::servers::args::ServerArgs,

    /// Print nothing, and stop at the first difference
    ///
    /// The exit code gives the result.
    #[arg(help_heading = OUTPUT, short, long)]
    quiet: bool,

    /// Print a JSON object for each difference
    ///
    /// One per line, and an object with the sums at the end.
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Aspect {
    Content,
    Mode,
    Owner,
    Times,
    Xattrs,
    Links,
}

#[derive(Default)]
struct Sums {
    added: u64,
    added_bytes: u64,
    removed: u64,
    removed_bytes: u64,
    changed: u64,
    failed: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    compare(args).map_err(|failure| failure.with_code(TROUBLE))
}

fn compare(args: &Args) -> Outcome {
    let compares = |aspect| !args.ignore.contains(&aspect);
    let mut options = Options::default();
    options.content = compares(Aspect::Content);
    options.mode = compares(Aspect::Mode);
    options.owner = compares(Aspect::Owner);
    options.times = compares(Aspect::Times);
    options.xattrs = compares(Aspect::Xattrs);
    options.links = compares(Aspect::Links);
    options.select = Selection::new(&[], &args.exclude).without_subject()?;
    let [first_seal, second_seal] = args.seals()?;
    let (first, second) =
        (args.side(&args.first, first_seal)?, args.side(&args.second, second_seal)?);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut sums = Sums::default();
    let mut written: io::Result<()> = Ok(());
    let progress = Arc::clone(&options.compared);
    let display = (!args.quiet).then(|| {
        Display::on_terminal(move |bar| {
            bar.set_message(format!("{} files compared", progress.get()));
        })
    });
    let compared = diff(&first, &second, &options, |event| {
        match event {
            Event::Failed { path, error } => {
                sums.failed += 1;
                message!("{}: {error}", shown(&path));
            }
            Event::Change(change) => {
                sums.add(&change);
                if args.quiet {
                    return ControlFlow::Break(());
                }
                written = if args.json {
                    writeln!(out, "{}", json_text(&json_change(&change)))
                } else {
                    writeln!(out, "{}", line(&change))
                };
            }
        }
        if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(display);
    compared.without_subject()?;
    written?;
    if !args.quiet {
        sums.write(args.json, &mut out)?;
    }
    out.flush()?;
    // With --quiet, the comparison ends at the first difference.
    let unused = if args.quiet { Vec::new() } else { options.select.unused() };
    unused
        .iter()
        .try_for_each(|pattern| warn(format_args!("{pattern}: no name in the trees matches it")))?;
    Ok(match sums {
        Sums { failed: 1.., .. } => TROUBLE,
        Sums { added: 0, removed: 0, changed: 0, .. } => 0,
        _ => DIFFERENT,
    })
}

impl Args {
    /// The seals of both trees.
    fn seals(&self) -> Result<[SealArgs; 2], Failure> {
        let seal = |number: usize| SealArgs {
            root: self.roothash.get(number).copied(),
            root_of_file: None,
            hash_file: self.hash_file.get(number).cloned(),
            hash_offset: None,
        };
        let images = [&self.first, &self.second].into_iter().filter(|path| !path.is_dir()).count();
        if self.roothash.len() > images || self.hash_file.len() > self.roothash.len() {
            return Err(Failure::about(&self.first, "more root hashes or hash files than images"));
        }
        Ok(match self.first.is_dir() {
            true => [SealArgs::default(), seal(0)],
            false => [seal(0), seal(1)],
        })
    }

    fn side(&self, name: &ImageName, seal: SealArgs) -> Result<Side, Failure> {
        if name.is_dir() {
            return Ok(Side::Directory(name.to_path_buf()));
        }
        let image = ImageArgs {
            seal,
            work_limit: self.work_limit,
            #[cfg(feature = "remote")]
            servers: self.servers.clone(),
            ..ImageArgs::of(name.clone())
        };
        Ok(Side::Image(Box::new(image.open()?)))
    }
}

impl Sums {
    fn add(&mut self, change: &Change) {
        match &change.kind {
            ChangeKind::Added(stat) => {
                self.added += 1;
                self.added_bytes = self.added_bytes.saturating_add(stat.size);
            }
            ChangeKind::Removed(stat) => {
                self.removed += 1;
                self.removed_bytes = self.removed_bytes.saturating_add(stat.size);
            }
            ChangeKind::Changed(_) => self.changed += 1,
        }
    }

    fn write(&self, as_json: bool, out: &mut impl Write) -> io::Result<()> {
        let Self { added, added_bytes, removed, removed_bytes, changed, failed } = self;
        if as_json {
            let sums = json!({
                "change": "sums",
                "added": added,
                "added_bytes": added_bytes,
                "removed": removed,
                "removed_bytes": removed_bytes,
                "changed": changed,
                "failed": failed,
            });
            return writeln!(out, "{sums}");
        }
        if added + removed + changed == 0 {
            return Ok(());
        }
        let (more, less) = (human(*added_bytes), human(*removed_bytes));
        writeln!(out, "{added} added ({more}), {removed} removed ({less}), {changed} changed")
    }
}

fn line(change: &Change) -> String {
    let path = shown(&change.path);
    let one = |sign: char, stat: &Stat| match stat.file_type {
        FileType::Regular => format!("{sign} {path} ({})", human(stat.size)),
        other => format!("{sign} {path} ({})", type_name(other)),
    };
    match &change.kind {
        ChangeKind::Added(stat) => one('+', stat),
        ChangeKind::Removed(stat) => one('-', stat),
        ChangeKind::Changed(changed) => format!("~ {path}: {}", details(changed).join(", ")),
    }
}

fn details(changed: &Differences) -> Vec<String> {
    let [a, b] = &changed.stat;
    let mut all = Vec::new();
    if changed.file_type {
        all.push(format!("{} -> {}", type_name(a.file_type), type_name(b.file_type)));
    }
    if changed.content {
        all.push(match a.size == b.size {
            true => "content".to_owned(),
            false => format!("content {} -> {} bytes", a.size, b.size),
        });
    }
    if changed.mode {
        all.push(format!("mode {:04o} -> {:04o}", a.permissions, b.permissions));
    }
    if changed.owner {
        all.push(format!("owner {}:{} -> {}:{}", a.uid, a.gid, b.uid, b.gid));
    }
    if changed.mtime {
        let time = |stat: &Stat| format!("{}.{:09}", stat.mtime.secs, stat.mtime.nanos);
        all.push(format!("time {} -> {}", time(a), time(b)));
    }
    if !changed.xattrs.is_empty() {
        let names: Vec<_> =
            changed.xattrs.iter().map(|name| name.escape_ascii().to_string()).collect();
        all.push(format!("xattrs {}", names.join(" ")));
    }
    if changed.links {
        all.push("links".to_owned());
    }
    all
}

fn json_change(change: &Change) -> Value {
    let stat = |stat: &Stat| {
        json!({
            "type": type_name(stat.file_type),
            "mode": format!("{:04o}", stat.permissions),
            "uid": stat.uid,
            "gid": stat.gid,
            "size": stat.size,
            "mtime": stat.mtime.secs,
            "mtime_nsec": stat.mtime.nanos,
        })
    };
    let path = format!("/{}", change.path.display());
    match &change.kind {
        ChangeKind::Added(added) => json!({ "change": "added", "path": path, "to": stat(added) }),
        ChangeKind::Removed(removed) => {
            json!({ "change": "removed", "path": path, "from": stat(removed) })
        }
        ChangeKind::Changed(changed) => {
            let flags = [
                ("type", changed.file_type),
                ("content", changed.content),
                ("mode", changed.mode),
                ("owner", changed.owner),
                ("mtime", changed.mtime),
                ("xattrs", !changed.xattrs.is_empty()),
                ("links", changed.links),
            ];
            let what: Vec<_> =
                flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
            let xattrs: Vec<_> = changed
                .xattrs
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            let [from, to] = &changed.stat;
            json!({
                "change": "changed",
                "path": path,
                "what": what,
                "from": stat(from),
                "to": stat(to),
                "xattrs": xattrs,
            })
        }
    }
}
