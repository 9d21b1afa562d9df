//! The tree that an image must show, in memory: random, changed like by an update, laid over
//! another one, and written to a directory, as a source or to compare with.

mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FileType;

use crate::content::Content;
use crate::need;
use crate::rng::Rng;
use crate::tree::DirWriter;

/// A path below the root, without a leading slash; the root itself is empty.
pub type Name = Vec<u8>;

/// A tree: names and files. Names with the same file number are hard links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The number of the file that each name has.
    pub names: BTreeMap<Name, usize>,
    /// Files, also those that lost their names.
    pub files: Vec<File>,
}

/// One file, of any type.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its type, with its content.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Seconds since 1970 and nanoseconds.
    pub time: (i64, u32),
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The type of a file, with its content.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file of these pieces.
    Regular(Vec<Piece>),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with these numbers.
    Character(u32, u32),
    /// A block device with these numbers.
    Block(u32, u32),
}

/// A part of a file's content: `len` bytes at `start` of the infinite sequence that `seed`
/// generates. Two files can share such parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// `None` is a hole.
    pub content: Option<Content>,
    /// The seed of the sequence.
    pub seed: u64,
    /// Where the piece starts in the sequence.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl Piece {
    /// The bytes of the piece; a hole reads as zeroes.
    pub fn bytes(&self) -> Vec<u8> {
        let Some(content) = self.content else { return vec![0; self.len] };
        let mut bytes = content.bytes(self.start + self.len, &mut Rng::new(self.seed));
        bytes.drain(..self.start);
        bytes
    }
}

impl Kind {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Kind::Directory)
    }
}

impl Model {
    /// The file that has this name.
    pub fn at(&self, name: &[u8]) -> Option<&File> {
        self.names.get(name).map(|number| &self.files[*number])
    }

    /// Adds a file; its name must not exist.
    pub fn add(&mut self, name: Name, file: File) -> usize {
        self.files.push(file);
        self.names.insert(name, self.files.len() - 1);
        self.files.len() - 1
    }

    /// Removes a name and all names below it.
    pub fn remove(&mut self, name: &[u8]) {
        self.names.retain(|other, _| !is_below(other, name));
    }

    /// All files that have names, mutable.
    pub fn used(&mut self) -> impl Iterator<Item = &mut File> {
        let used: BTreeSet<usize> = self.names.values().copied().collect();
        self.files
            .iter_mut()
            .enumerate()
            .filter(move |(number, _)| used.contains(number))
            .map(|(_, file)| file)
    }

    /// The names of all files of one type.
    pub fn list(&self, wanted: impl Fn(&Kind) -> bool) -> Vec<Name> {
        let named = self.names.iter().filter(|(_, number)| wanted(&self.files[**number].kind));
        named.map(|(name, _)| name.clone()).collect()
    }

    /// Overlays `upper` on this tree: directories are merged, everything else is replaced.
    pub fn overlaid(&self, upper: &Model) -> Model {
        let mut merged = self.clone();
        let offset = merged.files.len();
        merged.files.extend(upper.files.iter().cloned());
        for (name, number) in &upper.names {
            let is_directory = upper.files[*number].kind.is_directory();
            let was_directory = merged.at(name).is_some_and(|file| file.kind.is_directory());
            if !(is_directory && was_directory) {
                merged.remove(name);
            }
            merged.names.insert(name.clone(), offset + number);
        }
        merged
    }

    /// Removes the whiteouts and attributes of overlayfs, as the merge of layered images does.
    pub fn drop_overlay(&mut self) {
        let Model { names, files } = self;
        names.retain(|_, number| files[*number].kind != Kind::Character(0, 0));
        for file in files {
            file.xattrs.retain(|key, _| !key.starts_with(b"trusted.overlay."));
        }
    }

    /// Removes sockets, which a tar archive cannot contain.
    pub fn drop_sockets(&mut self) {
        self.list(|kind| *kind == Kind::Socket).iter().for_each(|name| self.remove(name));
    }

    /// Sets the attribute that overlayfs requires on directories with whiteouts.
    pub fn mark_origins(&mut self) {
        let whiteouts = self.list(|kind| *kind == Kind::Character(0, 0));
        for name in whiteouts {
            if let Some(number) = self.names.get(parent(&name)) {
                self.files[*number].xattrs.entry(b"trusted.overlay.origin".to_vec()).or_default();
            }
        }
    }

    /// Writes the tree into the directory `dir`, which must exist and be empty; without devices and
    /// owners if this process is not root.
    ///
    /// # Errors
    /// When the file system refuses something.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        let writer = DirWriter::open(dir, Rng::new(0), need::is_root())?;
        let mut first: BTreeMap<usize, &Name> = BTreeMap::new();
        for (name, number) in &self.names {
            let is_device =
                matches!(self.files[*number].kind, Kind::Character(..) | Kind::Block(..));
            if name.is_empty() || is_device && !writer.root() {
                continue;
            }
            if let Some(other) = first.get(number) {
                writer.link(other, &writer, name)?;
                continue;
            }
            first.insert(*number, name);
            self.files[*number].create(&writer, name)?;
        }
        // Directories after their entries: creating a name changes the directory's time.
        for (name, number) in self.names.iter().rev() {
            if name.is_empty() || first.get(number) == Some(&name) {
                let name: &[u8] = if name.is_empty() { b"." } else { name };
                self.files[*number].describe(&writer, name)?;
            }
        }
        Ok(())
    }
}

/// Whether `name` is `top`, or below it.
pub fn is_below(name: &[u8], top: &[u8]) -> bool {
    top.is_empty() || name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The parent directory of a name.
pub fn parent(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'/').map_or(b"", |at| &name[..at])
}

/// The name `last` in the directory `dir`.
pub fn join(dir: &[u8], last: &[u8]) -> Name {
    if dir.is_empty() { last.to_vec() } else { [dir, b"/", last].concat() }
}

impl File {
    fn create(&self, writer: &DirWriter, name: &[u8]) -> io::Result<()> {
        match &self.kind {
            Kind::Directory => writer.enter(name).map(drop),
            Kind::Regular(pieces) => {
                let file = writer.create(name)?;
                let mut offset = 0;
                for piece in pieces {
                    if piece.content.is_some() {
                        file.write_all_at(&piece.bytes(), offset)?;
                    }
                    offset += piece.len as u64;
                }
                file.set_len(offset)
            }
            Kind::Symlink(target) => writer.symlink(name, target),
            Kind::Fifo => writer.node(name, FileType::Fifo, (0, 0)),
            Kind::Socket => writer.node(name, FileType::Socket, (0, 0)),
            Kind::Character(major, minor) => {
                writer.node(name, FileType::CharacterDevice, (*major, *minor))
            }
            Kind::Block(major, minor) => writer.node(name, FileType::BlockDevice, (*major, *minor)),
        }
    }

    /// Sets everything except the content. The order matters: changing the owner removes
    /// capabilities.
    fn describe(&self, writer: &DirWriter, name: &[u8]) -> io::Result<()> {
        if writer.root() {
            writer.owner(name, self.uid, self.gid)?;
        }
        if !matches!(self.kind, Kind::Symlink(_)) {
            writer.mode(name, self.mode)?;
        }
        for (key, value) in &self.xattrs {
            writer.xattr(name, key, value)?;
        }
        writer.time(name, self.time.0, self.time.1)
    }
}

impl Model {
    /// A line for each name, for reports.
    pub fn listing(&self) -> Vec<String> {
        let lines = self.names.iter().map(|(name, number)| {
            let file = &self.files[*number];
            let kind = match &file.kind {
                Kind::Regular(pieces) => {
                    let size: usize = pieces.iter().map(|piece| piece.len).sum();
                    let parts = pieces.iter().map(|piece| {
                        let content =
                            piece.content.map_or("Hole".into(), |content| format!("{content:?}"));
                        format!("{content} {:x}@{}+{}", piece.seed & 0xffff, piece.start, piece.len)
                    });
                    format!("file of {size}: {}", parts.collect::<Vec<_>>().join(", "))
                }
                Kind::Symlink(target) => format!("symlink of {}", target.len()),
                other => format!("{other:?}"),
            };
            let xattrs = file
                .xattrs
                .iter()
                .map(|(key, value)| format!(" {}={}", key.escape_ascii(), value.len()));
            format!(
                "/{} (#{number}) {kind}; {:o} {}:{} {}.{:09}{}",
                shorten(name),
                file.mode,
                file.uid,
                file.gid,
                file.time.0,
                file.time.1,
                xattrs.collect::<String>()
            )
        });
        lines.collect()
    }
}

fn shorten(name: &[u8]) -> String {
    let shown = name.escape_ascii().to_string();
    if shown.len() <= 60 { shown } else { format!("{}... ({} bytes)", &shown[..50], name.len()) }
}
