//! `ferofs cat`: writes the data of files to standard output, or their SHA-256 digests.

use std::collections::HashMap;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Component, Path, PathBuf};

use ferofs::escape::Escaped;
use ferofs::read::names::bytes_of;
use ferofs::read::walk::{DirectoryWalk, Step};
use ferofs::read::{Error, FileOffset, FileType, Hex, Image, Inode, Nid};
use sha2::{Digest, Sha256};

use super::paths;
use crate::args::image::ImageArgs;
use crate::exit::{About, FAILURE, Failure, Outcome};
use crate::print::output::name as shown;

/// Bytes per read. With 1 MiB, the cost of a call is negligible; more only needs more memory.
const BUFFER_SIZE: usize = 1 << 20;

/// Write the content of files to standard output
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// Files or patterns ('/etc/*.conf') in the image
    ///
    /// Symbolic links are followed. In patterns, `*`, `?` and `[...]` match within a name, as in a
    /// shell. Quote them: the shell does not see the files of the image.
    #[arg(value_name = "PATH", required_unless_present = "sums")]
    pub(crate) paths: Vec<PathBuf>,

    /// Print SHA-256 digests, for `sha256sum -c`
    ///
    /// Of each PATH, and of all regular files below it if it is a directory [default: /]. The names
    /// are relative to the root, so that `sha256sum -c` finds the files in a directory to which the
    /// image was extracted.
    #[arg(long)]
    pub(crate) sums: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let image = args.image.open()?;
    let mut reader =
        Reader { image: &image, subject: &args.image.path, buffer: vec![0; BUFFER_SIZE] };
    if args.sums {
        return print_sums(args, &image, reader);
    }
    let mut out = io::stdout().lock();
    for path in paths::expand(&image, &args.image.path, &args.paths)? {
        let file = image.resolve(&path, true).about(&args.image.path)?;
        if file.file_type() != FileType::Regular {
            return Err(Failure::about(&args.image.path, ferofs::read::Error::NotAFile(path)));
        }
        reader.read(&file, &path, |bytes| out.write_all(bytes))?;
    }
    out.flush()?;
    Ok(0)
}

/// Reads files from start to end.
struct Reader<'a> {
    image: &'a Image,
    /// The image, for messages.
    subject: &'a Path,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// Gives all bytes of `file` to `take`, in order.
    fn read(
        &mut self,
        file: &Inode,
        path: &Path,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut offset = FileOffset::new(0);
        loop {
            let read = self.image.read_at(file, offset, &mut self.buffer);
            let len = read.map_err(|error| match error {
                Error::Io(error) if error.path.is_none() => {
                    Failure::about(self.subject, error.about(path))
                }
                error => Failure::about(self.subject, format!("{}: {error}", Escaped::path(path))),
            })?;
            if len == 0 {
                return Ok(());
            }
            take(&self.buffer[..len])?;
            offset = FileOffset::new(offset.get() + len as u64);
        }
    }
}

/// Prints the digests of files, in the form of sha256sum(1).
struct Sums<'a, W> {
    reader: Reader<'a>,
    /// Digests of files with several names.
    known: HashMap<Nid, [u8; 32]>,
    /// Standard output is a terminal: control characters in names are escaped.
    terminal: bool,
    /// A directory or an inode could not be read.
    is_damaged: bool,
    out: W,
}

fn print_sums(args: &Args, image: &Image, reader: Reader<'_>) -> Outcome {
    let out = BufWriter::new(io::stdout().lock());
    let terminal = io::stdout().is_terminal();
    let mut sums = Sums { reader, known: HashMap::new(), terminal, is_damaged: false, out };
    let root = [PathBuf::from("/")];
    let paths = if args.paths.is_empty() { &root[..] } else { args.paths.as_slice() };
    for path in paths::expand(image, &args.image.path, paths)? {
        let inode = image.resolve(&path, true).about(&args.image.path)?;
        let is_name =
            |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
        let name: PathBuf = path.components().filter(is_name).collect();
        match inode.file_type() {
            FileType::Regular => sums.print(&inode, &name)?,
            FileType::Directory => sums.print_below(&inode, &name)?,
            _ => return Err(Failure::about(&args.image.path, ferofs::read::Error::NotAFile(path))),
        }
    }
    sums.out.flush()?;
    Ok(if sums.is_damaged { FAILURE } else { 0 })
}

impl<W: Write> Sums<'_, W> {
    fn print_below(&mut self, dir: &Inode, name: &Path) -> Result<(), Failure> {
        let (image, subject) = (self.reader.image, self.reader.subject);
        let mut walk = DirectoryWalk::new(image, dir.nid());
        while let Some(step) = walk.next() {
            let entry = match step {
                Step::Entry(entry) => entry,
                Step::Failed(below, error) => {
                    let path = name.join(walk.path(below));
                    paths::unless_damaged::<()>(Err(error), subject, &path, &mut self.is_damaged)?;
                    continue;
                }
                Step::Enter(_) | Step::Leave(_) => continue,
            };
            let path = name.join(walk.entry_path(&entry.name));
            image.charge_path(path.as_os_str().len()).about(subject)?;
            let inode = image.inode(entry.nid);
            let inode = paths::unless_damaged(inode, subject, &path, &mut self.is_damaged)?;
            let Some(inode) = inode else { continue };
            if inode.is_dir() {
                walk.enter(&entry.name, entry.nid);
            } else if inode.file_type() == FileType::Regular {
                self.print(&inode, &path)?;
            }
        }
        Ok(())
    }

    fn print(&mut self, file: &Inode, name: &Path) -> Result<(), Failure> {
        let known = self.known.get(&file.nid()).copied();
        let digest = known.map_or_else(|| self.digest(file, name), Ok)?;
        write_sum(&mut self.out, &digest, &bytes_of(name.as_os_str()), self.terminal)?;
        Ok(())
    }

    fn digest(&mut self, file: &Inode, name: &Path) -> Result<[u8; 32], Failure> {
        let mut digest = Sha256::new();
        self.reader.read(file, name, |bytes| {
            digest.update(bytes);
            Ok(())
        })?;
        let digest = digest.finalize().into();
        if file.nlink() > 1 {
            self.known.insert(file.nid(), digest);
        }
        Ok(digest)
    }
}

/// Writes a line as sha256sum(1) does: a backslash before the digest means that the name has
/// escapes.
fn write_sum(out: &mut impl Write, digest: &[u8], name: &[u8], terminal: bool) -> io::Result<()> {
    let is_escaped = !terminal && name.iter().any(|byte| b"\\\n\r".contains(byte));
    write!(out, "{}{}  ", if is_escaped { "\\" } else { "" }, Hex(digest))?;
    if !is_escaped {
        out.write_all(&shown(name, terminal))?;
        return out.write_all(b"\n");
    }
    for byte in name {
        match byte {
            b'\\' => out.write_all(b"\\\\")?,
            b'\n' => out.write_all(b"\\n")?,
            b'\r' => out.write_all(b"\\r")?,
            byte => out.write_all(&[*byte])?,
        }
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_the_form_of_sha256sum() {
        let line = |name: &[u8]| {
            let mut line = Vec::new();
            write_sum(&mut line, &[0xab; 2], name, false).unwrap();
            line
        };
        assert_eq!(line(b"a b"), b"abab  a b\n");
        assert_eq!(line(b"a\n\\b\r"), b"\\abab  a\\n\\\\b\\r\n");
    }
}
