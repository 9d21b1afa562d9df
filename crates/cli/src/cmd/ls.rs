//! `ferofs ls`: lists the files of an image and their attributes.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use ferofs::inspect::type_name;
use ferofs::read::names::bytes_of;
use ferofs::read::walk::{DirectoryWalk, Step};
use ferofs::read::{Error, FileType, Hex, Image, Inode, Place};
use serde_json::json;

use super::paths;
use crate::args::HelpArgs;
use crate::args::byte_size::human;
use crate::args::image::ImageArgs;
use crate::exit::{About, FAILURE, Failure, Outcome};
use crate::print::output::{OUTPUT, json_text, name as shown};

/// List the files of an image
///
/// On a terminal, control characters in names are printed as `\xNN`. If standard output is not a
/// terminal, names are printed unchanged.
#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Files, directories or patterns ('/usr/*.so')
    ///
    /// In patterns, `*`, `?` and `[...]` match within a name, as in a shell. Quote them: the shell
    /// does not see the files of the image.
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,

    /// Show mode, links, owner, group, size, and time
    ///
    /// The time is in UTC.
    #[arg(short, long)]
    long: bool,

    /// Show sizes with a unit, with -l
    ///
    /// As in `ferofs ls -lh IMAGE`. `ferofs ls -h` without an image prints a short help.
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Accepted: names that begin with a dot are always shown
    #[arg(short, long)]
    all: bool,

    /// Accepted: each name has a line of its own
    #[arg(short = '1', hide_short_help = true)]
    one_per_line: bool,

    /// Show directories themselves, not what they have
    #[arg(short, long)]
    directory: bool,

    /// List all subdirectories too, with paths
    #[arg(short = 'R', long)]
    recursive: bool,

    #[command(flatten)]
    help: HelpArgs,

    /// Print a JSON object for each file, one per line
    ///
    /// For names that are not UTF-8, `name_hex` has the bytes.
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let image = args.image.open()?;
    let listing = Listing { image: &image, args, terminal: io::stdout().is_terminal() };
    let mut out = BufWriter::new(io::stdout().lock());
    let paths = paths::expand(&image, &args.image.path, &args.paths)?;
    let mut directories = Vec::new();
    for path in &paths {
        let inode = image.resolve(path, false).about(&args.image.path)?;
        if inode.is_dir() && !args.directory {
            directories.push((path, inode));
            continue;
        }
        // Of several files, the names alone would not tell which is which.
        let name = if paths.len() == 1 {
            path.file_name().unwrap_or(path.as_os_str())
        } else {
            path.as_os_str()
        };
        let target = listing.target(&inode).about(&args.image.path)?;
        listing.entry(Path::new(name), &inode, target.as_deref(), &mut out)?;
    }
    let mut is_damaged = false;
    for (number, (path, inode)) in directories.iter().enumerate() {
        let mut above = Path::new("");
        if paths.len() > 1 {
            above = path;
            listing.heading(path, number == 0 && directories.len() == paths.len(), &mut out)?;
        }
        is_damaged |= listing.directory(inode, path, above, &mut out)?;
    }
    out.flush()?;
    Ok(if is_damaged { FAILURE } else { 0 })
}

struct Listing<'a> {
    image: &'a Image,
    args: &'a Args,
    /// Standard output is a terminal: control characters in names are escaped.
    terminal: bool,
}

impl Listing<'_> {
    /// Writes the name of a directory above its entries, as ls(1) does for several directories.
    /// JSON has the paths in its objects.
    fn heading(&self, path: &Path, is_first: bool, out: &mut impl Write) -> Result<(), Failure> {
        if self.args.json {
            return Ok(());
        }
        if !is_first {
            writeln!(out)?;
        }
        out.write_all(&shown(&bytes_of(path.as_os_str()), self.terminal))?;
        writeln!(out, ":")?;
        Ok(())
    }

    /// Writes the entries of `dir`, which is at `start`; in JSON, with the path `above` before
    /// their names. Returns whether some are damaged.
    fn directory(
        &self,
        dir: &Inode,
        start: &Path,
        above: &Path,
        out: &mut impl Write,
    ) -> Result<bool, Failure> {
        let start = start.strip_prefix("/").unwrap_or(start);
        let mut is_damaged = false;
        let needs_inode = self.args.long || self.args.json || self.args.recursive;
        let mut walk = DirectoryWalk::new(self.image, dir.nid());
        while let Some(step) = walk.next() {
            let entry = match step {
                Step::Entry(entry) => entry,
                Step::Failed(below, error) => {
                    let path = start.join(walk.path(below));
                    paths::unless_damaged::<()>(
                        Err(error),
                        self.subject(),
                        &path,
                        &mut is_damaged,
                    )?;
                    continue;
                }
                Step::Enter(_) | Step::Leave(_) => continue,
            };
            let path = walk.entry_path(&entry.name);
            self.image.charge_path(path.as_os_str().len()).about(self.subject())?;
            if !needs_inode {
                self.write_name(&path, out)?;
                continue;
            }
            let inode = self.image.inode(entry.nid);
            let file = inode.and_then(|inode| Ok((self.target(&inode)?, inode)));
            let file =
                paths::unless_damaged(file, self.subject(), &start.join(&path), &mut is_damaged)?;
            let Some((target, inode)) = file else { continue };
            let is_apart = self.args.json && !above.as_os_str().is_empty();
            self.entry(
                &if is_apart { above.join(&path) } else { path },
                &inode,
                target.as_deref(),
                out,
            )?;
            if self.args.recursive && inode.is_dir() {
                // A directory that a hostile image links in a loop is listed once.
                walk.enter(&entry.name, entry.nid);
            }
        }
        Ok(is_damaged)
    }

    fn subject(&self) -> &Path {
        &self.args.image.path
    }

    /// The target of a symbolic link.
    fn target(&self, inode: &Inode) -> Result<Option<Vec<u8>>, Error> {
        (inode.file_type() == FileType::Symlink).then(|| self.image.read_link(inode)).transpose()
    }

    fn entry(
        &self,
        name: &Path,
        inode: &Inode,
        target: Option<&[u8]>,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        if self.args.json {
            writeln!(out, "{}", json_text(&json_entry(name, inode, target)))?;
        } else if self.args.long {
            self.long_entry(name, inode, target, out)?;
        } else {
            self.write_name(name, out)?;
        }
        Ok(())
    }

    fn long_entry(
        &self,
        name: &Path,
        inode: &Inode,
        target: Option<&[u8]>,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let disk = inode.on_disk();
        let size = match disk.place {
            Place::Device(rdev) => format!("{}, {}", rdev.major, rdev.minor),
            _ if self.args.human_readable => human(disk.size),
            _ => disk.size.to_string(),
        };
        let (mode, time) =
            (mode_string(disk.file_type, disk.permissions), time_string(disk.mtime.secs));
        write!(out, "{mode} {:>3} {:>5} {:>5} {size:>10} {time} ", disk.nlink, disk.uid, disk.gid)?;
        out.write_all(&shown(&bytes_of(name.as_os_str()), self.terminal))?;
        if let Some(target) = target {
            out.write_all(b" -> ")?;
            out.write_all(&shown(target, self.terminal))?;
        }
        writeln!(out)?;
        Ok(())
    }

    fn write_name(&self, name: &Path, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&shown(&bytes_of(name.as_os_str()), self.terminal))?;
        out.write_all(b"\n")
    }
}

/// File type and permissions as the ten characters that `ls -l` prints.
pub(crate) fn mode_string(file_type: FileType, permissions: u16) -> String {
    let kind = match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Symlink => 'l',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, permissions & special != 0) {
            (false, false) => '-',
            (true, false) => 'x',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// Prints a time in UTC. A time that no date can express is printed as `@SECONDS`.
pub(crate) fn time_string(secs: i64) -> String {
    match jiff::Timestamp::from_second(secs) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => format!("@{secs}"),
    }
}

fn json_entry(name: &Path, inode: &Inode, target: Option<&[u8]>) -> serde_json::Value {
    let (disk, bytes) = (inode.on_disk(), bytes_of(name.as_os_str()));
    let mut entry = json!({
        "name": String::from_utf8_lossy(&bytes),
        "nid": inode.nid().get(),
        "type": type_name(disk.file_type),
        "mode": format!("{:04o}", disk.permissions),
        "nlink": disk.nlink,
        "uid": disk.uid,
        "gid": disk.gid,
        "size": disk.size,
        "mtime": disk.mtime.secs,
        "mtime_nsec": disk.mtime.nanos,
    });
    if std::str::from_utf8(&bytes).is_err() {
        entry["name_hex"] = Hex(&bytes).to_string().into();
    }
    if let Some(target) = target {
        entry["target"] = String::from_utf8_lossy(target).into();
    }
    if let Place::Device(rdev) = disk.place {
        entry["rdev"] = json!([rdev.major, rdev.minor]);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_times_are_printed_as_by_ls() {
        assert_eq!(mode_string(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(mode_string(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_string(FileType::Regular, 0o6711), "-rws--s--x");
        assert_eq!(mode_string(FileType::Regular, 0o4600), "-rwS------");
        assert_eq!(time_string(0), "1970-01-01 00:00");
        assert_eq!(time_string(i64::MAX), format!("@{}", i64::MAX));
    }
}
