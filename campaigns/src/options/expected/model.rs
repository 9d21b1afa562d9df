//! The tree that an image must show, in memory. It can be written to a directory, as a source or to compare with.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ferofs_tests::acl;
use ferofs_tests::compare::Field;
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::tree::DirWriter;
use rustix::fs::FileType;
use sha2::{Digest, Sha256};

/// A path below the root, without a leading slash; the root itself is empty.
pub(crate) type Name = Vec<u8>;

/// A tree: names and files. Names with the same file number are hard links.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) names: BTreeMap<Name, usize>,
    pub(crate) files: Vec<File>,
}

/// One file, of any type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct File {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since 1970 and nanoseconds.
    pub(crate) time: (i64, u32),
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The type of a file, with its content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Directory,
    Regular(Vec<Piece>),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Character(u32, u32),
    Block(u32, u32),
}

/// A part of a file's content: `len` bytes at `start` of the infinite sequence that `seed` generates. Two files can share such parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    /// `None` is a hole.
    pub(crate) content: Option<Content>,
    pub(crate) seed: u64,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Piece {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Some(content) = self.content else { return vec![0; self.len] };
        let mut bytes = content.bytes(self.start + self.len, &mut Rng::new(self.seed));
        bytes.drain(..self.start);
        bytes
    }
}

impl Kind {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Kind::Directory)
    }
}

impl Model {
    /// The file of this name.
    pub(crate) fn at(&self, name: &[u8]) -> Option<&File> {
        self.names.get(name).map(|number| &self.files[*number])
    }

    /// Adds a file; its name must not exist.
    pub(crate) fn add(&mut self, name: Name, file: File) -> usize {
        self.files.push(file);
        self.names.insert(name, self.files.len() - 1);
        self.files.len() - 1
    }

    /// Removes a name and all names below it.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.names.retain(|other, _| !is_below(other, name));
    }

    /// All files that have names, mutable.
    pub(crate) fn used(&mut self) -> impl Iterator<Item = &mut File> {
        let used: BTreeSet<usize> = self.names.values().copied().collect();
        self.files
            .iter_mut()
            .enumerate()
            .filter(move |(number, _)| used.contains(number))
            .map(|(_, file)| file)
    }

    /// The names of all files of one type.
    pub(crate) fn list(&self, wanted: impl Fn(&Kind) -> bool) -> Vec<Name> {
        let named = self.names.iter().filter(|(_, number)| wanted(&self.files[**number].kind));
        named.map(|(name, _)| name.clone()).collect()
    }

    /// Overlays `upper` on this tree: directories are merged, everything else is replaced.
    pub(crate) fn overlaid(&self, upper: &Model) -> Model {
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
    pub(crate) fn drop_overlay(&mut self) {
        let Model { names, files } = self;
        names.retain(|_, number| files[*number].kind != Kind::Character(0, 0));
        for file in files {
            file.xattrs.retain(|key, _| !key.starts_with(b"trusted.overlay."));
        }
    }

    /// Sets the attribute that overlayfs requires on directories with whiteouts.
    pub(crate) fn mark_origins(&mut self) {
        let whiteouts = self.list(|kind| *kind == Kind::Character(0, 0));
        for name in whiteouts {
            if let Some(number) = self.names.get(parent(&name)) {
                self.files[*number].xattrs.entry(b"trusted.overlay.origin".to_vec()).or_default();
            }
        }
    }

    /// Writes the tree into the directory `dir`, which must exist and be empty.
    ///
    /// # Errors
    /// When the file system refuses something.
    pub(crate) fn write_to(&self, dir: &Path) -> io::Result<()> {
        let writer = DirWriter::open(dir, Rng::new(0), true)?;
        let mut first: BTreeMap<usize, &Name> = BTreeMap::new();
        for (name, number) in &self.names {
            if name.is_empty() {
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

/// Whether `name` is `top` or below it.
pub(crate) fn is_below(name: &[u8], top: &[u8]) -> bool {
    top.is_empty() || name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The parent directory of a name.
pub(crate) fn parent(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'/').map_or(b"", |at| &name[..at])
}

/// The name `last` in the directory `dir`.
pub(crate) fn join(dir: &[u8], last: &[u8]) -> Name {
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

    /// Sets everything except the content. The order matters: changing the owner removes capabilities.
    fn describe(&self, writer: &DirWriter, name: &[u8]) -> io::Result<()> {
        writer.owner(name, self.uid, self.gid)?;
        if !matches!(self.kind, Kind::Symlink(_)) {
            writer.mode(name, self.mode)?;
        }
        for (key, value) in &self.xattrs {
            writer.xattr(name, key, value)?;
        }
        writer.time(name, self.time.0, self.time.1)
    }
}

/// Prints a tree for reports.
impl Model {
    /// A line for each name.
    pub(crate) fn listing(&self) -> Vec<String> {
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

/// The change that one setting makes to the tree.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// No change.
    None,
    /// Every file gets this time.
    AllTime(i64),
    /// Replaces later times by this one.
    Clamp(i64),
    /// Compact inodes, of 32 bytes, lose their times.
    TimesMayDiffer,
    Uid(u32),
    Gid(u32),
    AddUid(u32),
    AddGid(u32),
    NoXattrs,
    /// Every file gets this attribute, with this value.
    Label(&'static [u8], &'static [u8]),
    /// Regular files get the SHA-256 of their content under this name.
    FileDigest(&'static [u8]),
    /// Leaves out this name and all names below it.
    Exclude(Name),
    /// Leaves out names whose path contains this text, and all names below them.
    ExcludeText(&'static str),
    /// Hard links become separate files.
    Dereference,
    /// Leaves out names whose last component starts with this text, and all names below them.
    ExcludeStart(&'static str),
}

impl Effect {
    /// Changes the tree, and returns the fields that must not be compared.
    pub(crate) fn apply(&self, model: &mut Model) -> Option<Field> {
        match self {
            Effect::None => {}
            Effect::AllTime(seconds) => model.used().for_each(|file| file.time = (*seconds, 0)),
            Effect::Clamp(seconds) => {
                for file in model.used().filter(|file| file.time > (*seconds, 0)) {
                    file.time = (*seconds, 0);
                }
            }
            Effect::TimesMayDiffer => return Some(Field::Mtime),
            Effect::Uid(uid) => model.used().for_each(|file| file.uid = *uid),
            Effect::Gid(gid) => model.used().for_each(|file| file.gid = *gid),
            Effect::AddUid(offset) => model.used().for_each(|file| {
                file.uid = file.uid.wrapping_add(*offset);
                add_to_acls(&mut file.xattrs, acl::USER, *offset);
            }),
            Effect::AddGid(offset) => model.used().for_each(|file| {
                file.gid = file.gid.wrapping_add(*offset);
                add_to_acls(&mut file.xattrs, acl::GROUP, *offset);
            }),
            Effect::NoXattrs => model.used().for_each(|file| file.xattrs.clear()),
            Effect::Label(key, value) => model.used().for_each(|file| {
                file.xattrs.insert(key.to_vec(), value.to_vec());
            }),
            Effect::FileDigest(key) => {
                for file in model.used() {
                    if let Kind::Regular(pieces) = &file.kind {
                        let mut digest = Sha256::new();
                        pieces.iter().for_each(|piece| digest.update(piece.bytes()));
                        let value = [b"sha256:".as_slice(), &digest.finalize()].concat();
                        file.xattrs.insert(key.to_vec(), value);
                    }
                }
            }
            Effect::Exclude(name) => model.remove(name),
            Effect::ExcludeText(text) => {
                let found =
                    |name: &Name| name.windows(text.len()).any(|part| part == text.as_bytes());
                let names: Vec<Name> =
                    model.names.keys().filter(|name| found(name)).cloned().collect();
                names.iter().for_each(|name| model.remove(name));
            }
            Effect::Dereference => {
                let Model { names, files } = model;
                for number in names.values_mut() {
                    files.push(files[*number].clone());
                    *number = files.len() - 1;
                }
            }
            Effect::ExcludeStart(text) => {
                let last = |name: &Name| {
                    name[if parent(name).is_empty() { 0 } else { parent(name).len() + 1 }..]
                        .starts_with(text.as_bytes())
                };
                let names: Vec<Name> =
                    model.names.keys().filter(|name| last(name)).cloned().collect();
                names.iter().for_each(|name| model.remove(name));
            }
        }
        None
    }
}

/// Adds `offset` to the IDs of the entries with this tag.
fn add_to_acls(xattrs: &mut BTreeMap<Vec<u8>, Vec<u8>>, tag: u16, offset: u32) {
    for (_, value) in
        xattrs.iter_mut().filter(|(name, _)| [acl::ACCESS, acl::DEFAULT].contains(&name.as_slice()))
    {
        for entry in value[4..].chunks_exact_mut(8).filter(|entry| entry[..2] == tag.to_le_bytes())
        {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            entry[4..].copy_from_slice(&id.wrapping_add(offset).to_le_bytes());
        }
    }
}
