//! Builds an image from entries that a program gives: [`Builder`].

mod content;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ferofs_format::inode::{FileType, Rdev, Timestamp};
use ferofs_format::xattr::NamePrefix;
use ferofs_read::Image;

pub use content::Content;

use crate::build::{build_from, temporary_dir};
use crate::error::faults::EntryFault;
use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::options::source::{SourceData, SourceFormat};
use crate::output::{Output, OwnFile};
use crate::paths::as_path;
use crate::progress::Summary;
use crate::sources::content::Contents;
#[cfg(feature = "tar")]
use crate::sources::tar::{self, tar_stream::TarStream};
use crate::sources::{self, read_layer};
use crate::tree::Tree;
use crate::tree::layered_tree::{Body, LayeredFile, LayeredTree};
use content::Stored;

/// Nanoseconds of a second: a timestamp has fewer.
const NANOS: u32 = 1_000_000_000;

/// Mode, owner, time and extended attributes of an entry.
///
/// The default is owner and group 0, the time of the build, no xattrs, and mode 0644, or 0755 for a
/// directory and 0777 for a symbolic link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    mode: Option<u16>,
    uid: u32,
    gid: u32,
    mtime: Option<Timestamp>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// Sets the permissions, setuid, setgid and sticky bit: the low 12 bits of `mode`.
    #[must_use]
    pub const fn mode(mut self, mode: u16) -> Self {
        self.mode = Some(mode & 0o7777);
        self
    }

    /// Sets the owner and the group.
    #[must_use]
    pub const fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Sets the modification time.
    #[must_use]
    pub const fn mtime(mut self, time: Timestamp) -> Self {
        self.mtime = Some(time);
        self
    }

    /// Sets an extended attribute by its full name, for example `user.comment`.
    #[must_use]
    pub fn xattr(mut self, name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let name = name.into();
        self.xattrs.retain(|(known, _)| *known != name);
        self.xattrs.push((name, value.into()));
        self
    }
}

/// Builds an image from entries and whole sources, without a command line and without a source
/// directory.
///
/// Entries come in any order. Directories on the way to an entry are made if they are not given,
/// and a later entry replaces an earlier one of the same path, except that a directory keeps its
/// entries, and cannot be replaced by something else while it has entries. A path may lead through
/// symbolic links that were added before it. Sources ([`Self::layer`]) are layers above all entries
/// so far.
///
/// ```
/// use ferofs_write::{Attributes, Builder, Content};
///
/// let mut builder = Builder::new();
/// builder.file("bin/hello", Content::bytes("#!/bin/sh\necho hello\n"), Attributes::default().mode(0o755));
/// builder.symlink("bin/hi", "hello", Attributes::default());
/// builder.directory("tmp", Attributes::default().mode(0o1777));
/// let mut image = Vec::new();
/// builder.write_to(&mut image)?;
///
/// let image = ferofs_read::Image::open(image)?;
/// assert_eq!(image.read("bin/hi")?, b"#!/bin/sh\necho hello\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Self::options`] has all settings of the command line: presets, compression, features, block
/// size, number of workers. Without any, nothing is compressed:
/// `builder.options().set_preset(Preset::Default)?` does as `ferofs build`. Its `run` part has a
/// flag that cancels the build, and counters of the progress, both of which other threads may use.
#[derive(Debug)]
pub struct Builder {
    options: Options,
    steps: Vec<Step>,
}

/// The entries to add, in order.
#[derive(Debug)]
enum Step {
    Entry {
        path: PathBuf,
        node: Node,
        attributes: Attributes,
    },
    HardLink {
        path: PathBuf,
        target: PathBuf,
    },
    Layer {
        format: SourceFormat,
        path: PathBuf,
    },
    Image {
        name: PathBuf,
        image: Image,
    },
    #[cfg(feature = "tar")]
    Archive {
        name: PathBuf,
        reader: ArchiveReader,
    },
}

#[cfg(feature = "tar")]
struct ArchiveReader(Box<dyn std::io::Read + Send>);

#[cfg(feature = "tar")]
impl std::fmt::Debug for ArchiveReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a reader")
    }
}

/// The type of an entry, and what belongs to that type.
#[derive(Debug)]
enum Node {
    Directory,
    File(Content),
    Symlink(Vec<u8>),
    Device(FileType, Rdev),
    Fifo,
    Socket,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A builder without entries: its image has an empty root directory.
    #[must_use]
    pub fn new() -> Self {
        let mut options = Options::new("");
        // No directory is walked.
        options.source.format = SourceFormat::Tar;
        Self { options, steps: Vec::new() }
    }

    /// The settings of the build.
    pub const fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Adds a directory. The path of the root is empty or `/`.
    pub fn directory(&mut self, path: impl Into<PathBuf>, attributes: Attributes) -> &mut Self {
        self.entry(path, Node::Directory, attributes)
    }

    /// Adds a regular file.
    pub fn file(
        &mut self,
        path: impl Into<PathBuf>,
        content: Content,
        attributes: Attributes,
    ) -> &mut Self {
        self.entry(path, Node::File(content), attributes)
    }

    /// Adds a symbolic link.
    pub fn symlink(
        &mut self,
        path: impl Into<PathBuf>,
        target: impl AsRef<Path>,
        attributes: Attributes,
    ) -> &mut Self {
        let target = target.as_ref().as_os_str().as_bytes().to_vec();
        self.entry(path, Node::Symlink(target), attributes)
    }

    /// Adds another name of a file, which may be added later. A directory cannot have one.
    pub fn hard_link(&mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> &mut Self {
        self.steps.push(Step::HardLink { path: path.into(), target: target.into() });
        self
    }

    /// Adds a character device.
    pub fn char_device(
        &mut self,
        path: impl Into<PathBuf>,
        device: Rdev,
        attributes: Attributes,
    ) -> &mut Self {
        self.entry(path, Node::Device(FileType::CharDevice, device), attributes)
    }

    /// Adds a block device.
    pub fn block_device(
        &mut self,
        path: impl Into<PathBuf>,
        device: Rdev,
        attributes: Attributes,
    ) -> &mut Self {
        self.entry(path, Node::Device(FileType::BlockDevice, device), attributes)
    }

    /// Adds a fifo.
    pub fn fifo(&mut self, path: impl Into<PathBuf>, attributes: Attributes) -> &mut Self {
        self.entry(path, Node::Fifo, attributes)
    }

    /// Adds a socket.
    pub fn socket(&mut self, path: impl Into<PathBuf>, attributes: Attributes) -> &mut Self {
        self.entry(path, Node::Socket, attributes)
    }

    /// Adds all of a source above the entries so far: a directory, an archive (also compressed), an
    /// OCI image layout, or an EROFS image. Whiteouts in an archive or image remove entries, see
    /// [`crate::SourceOptions::whiteouts`]. Entries that are added later are above it.
    pub fn layer(&mut self, format: SourceFormat, path: impl Into<PathBuf>) -> &mut Self {
        self.steps.push(Step::Layer { format, path: path.into() });
        self
    }

    /// As [`Self::layer`], for an image that is open, from whatever source. Messages call it
    /// `name`. What it is opened from must not change until the new image is built.
    ///
    /// ```
    /// # use ferofs_write::{Attributes, Builder, Content};
    /// # let mut base = Builder::new();
    /// # base.file("etc/hostname", Content::bytes("base\n"), Attributes::default());
    /// # base.file("etc/motd", Content::bytes("Hello\n"), Attributes::default());
    /// # let mut bytes = Vec::new();
    /// # base.write_to(&mut bytes)?;
    /// let base = ferofs_read::Image::open(bytes)?;
    /// let mut builder = Builder::new();
    /// builder.image("base", &base).file("etc/hostname", Content::bytes("mine\n"), Attributes::default());
    /// # let mut image = Vec::new();
    /// builder.write_to(&mut image)?;
    /// # let image = ferofs_read::Image::open(image)?;
    /// # assert_eq!((image.read("etc/hostname")?, image.read("etc/motd")?), (b"mine\n".to_vec(), b"Hello\n".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn image(&mut self, name: impl Into<PathBuf>, image: &Image) -> &mut Self {
        self.steps.push(Step::Image { name: name.into(), image: image.clone() });
        self
    }

    /// As [`Self::layer`], for an archive that is read from `reader`, plain or compressed. Messages
    /// call it `name`.
    #[cfg(feature = "tar")]
    pub fn archive(
        &mut self,
        name: impl Into<PathBuf>,
        reader: impl std::io::Read + Send + 'static,
    ) -> &mut Self {
        let reader = ArchiveReader(Box::new(reader));
        self.steps.push(Step::Archive { name: name.into(), reader });
        self
    }

    fn entry(&mut self, path: impl Into<PathBuf>, node: Node, attributes: Attributes) -> &mut Self {
        self.steps.push(Step::Entry { path: path.into(), node, attributes });
        self
    }

    /// Builds the image at `path`, a file or a block device; `-` is standard output. A file gets
    /// its name when the image is complete.
    ///
    /// # Errors
    /// As [`crate::build`]; [`Error::Entry`] for an entry whose path or content is not possible.
    pub fn build(self, path: impl AsRef<Path>) -> Result<Summary> {
        let path = path.as_ref();
        self.check()?;
        let mut output = Output::create(path, self.options.output.offset)?;
        let summary = self.run(&mut output, temporary_dir(path))?;
        output.finish().map(|()| summary)
    }

    /// Builds the image, and then writes it to `writer` from start to end. Until then it is in a
    /// temporary file, because the superblock, which comes first, is known last.
    ///
    /// # Errors
    /// As [`Self::build`]; [`Error::Io`] when `writer` fails.
    pub fn write_to(self, writer: &mut dyn Write) -> Result<Summary> {
        self.check()?;
        if self.options.output.offset > 0 {
            let problem = "what is written to a writer starts with the image";
            return Err(Error::Option { option: "offset", problem });
        }
        let temporary = std::env::temp_dir();
        let mut output = Output::region(&temporary, 0)?;
        let summary = self.run(&mut output, &temporary)?;
        output.copy_to(writer)?.map_err(|e| Error::io_unnamed("write the image", e))?;
        Ok(summary)
    }

    /// Fails for settings that only sources in the file system have.
    fn check(&self) -> Result<()> {
        let source = &self.options.source;
        if source.lower_image.is_some()
            || !source.upper_layers.is_empty()
            || source.data == SourceData::External
        {
            let problem = "a builder has other layers, and stores the content of its entries";
            return Err(Error::Option { option: "source", problem });
        }
        sources::check(&self.options)
    }

    fn run(self, output: &mut Output, temporary: &Path) -> Result<Summary> {
        let Self { options, steps } = self;
        build_from(&options, output, temporary, |avoid, time, warnings| {
            read(&options, steps, avoid, temporary, time, warnings)
        })
    }
}

/// Turns the steps into a tree.
fn read(
    options: &Options,
    steps: Vec<Step>,
    avoid: &[OwnFile],
    temporary: &Path,
    time: Timestamp,
    warnings: &mut Vec<Warning>,
) -> Result<(Tree, Contents)> {
    options.run.progress.used_excludes.clear();
    let mut contents = Contents::archives(temporary, "");
    let (mut layers, mut stored) = (LayeredTree::new(time), Stored::default());
    // Links to entries that may come later in the same layer.
    let mut links = BTreeMap::new();
    for step in steps {
        options.run.cancel.check()?;
        match step {
            Step::Entry { path, node, attributes } => {
                check_path(&path)?;
                check_attributes(&attributes)
                    .map_err(|fault| Error::Entry { path: path.clone(), fault })?;
                let body = match node {
                    Node::Directory => Body::Directory(Default::default()),
                    Node::File(content) => stored.add(content, &path, options, &mut contents)?,
                    Node::Symlink(target) => Body::Symlink(target.into()),
                    Node::Device(file_type, device) => Body::Device(file_type, device),
                    Node::Fifo => Body::Fifo,
                    Node::Socket => Body::Socket,
                };
                // An earlier link of the same path is replaced.
                links.remove(&clean(&path));
                let is_dir = matches!(body, Body::Directory(_));
                let file = layered_file(body, attributes, time, &mut layers);
                put(&path, |bytes| match !is_dir && layers.has_entries(bytes)? {
                    true => Err(EntryFault::DirectoryNotEmpty),
                    false => layers.put(bytes, file),
                })?;
            }
            Step::HardLink { path, target } => {
                check_path(&path)?;
                check_path(&target)?;
                links.insert(clean(&path), target);
            }
            Step::Layer { format, path } => {
                add_links(&mut links, &mut layers)?;
                layers.next_layer();
                read_layer(
                    options,
                    format,
                    &path,
                    b"",
                    avoid,
                    &mut contents,
                    &mut layers,
                    warnings,
                )?;
                layers.next_layer();
            }
            Step::Image { name, image } => {
                add_links(&mut links, &mut layers)?;
                layers.next_layer();
                let number = contents.add_opened_image(&image, &name)?;
                sources::image::read(
                    options,
                    number,
                    options.source.whiteouts,
                    &contents,
                    &mut layers,
                )?;
                layers.next_layer();
            }
            #[cfg(feature = "tar")]
            Step::Archive { name, reader: ArchiveReader(reader) } => {
                add_links(&mut links, &mut layers)?;
                layers.next_layer();
                let stream = TarStream::from_reader(reader, name, options, &contents)?;
                let whiteouts = options.source.whiteouts;
                let read =
                    tar::read(options, stream, whiteouts, &mut contents, &mut layers, warnings);
                options.run.cancel.check()?;
                read?;
                layers.next_layer();
            }
        }
    }
    add_links(&mut links, &mut layers)?;
    contents.finish_spool()?;
    if options.source.overlay_whiteouts {
        layers.mark_directories_with_whiteouts();
    }
    let tree = layers.finish(options, warnings)?;
    options.warn_of_unused_excludes(warnings);
    Ok((tree, contents))
}

fn layered_file(
    body: Body,
    attributes: Attributes,
    time: Timestamp,
    layers: &mut LayeredTree,
) -> LayeredFile {
    let default_mode = match &body {
        Body::Directory(_) => 0o755,
        Body::Symlink(_) => 0o777,
        _ => 0o644,
    };
    LayeredFile {
        body,
        permissions: attributes.mode.unwrap_or(default_mode),
        uid: attributes.uid,
        gid: attributes.gid,
        mtime: attributes.mtime.unwrap_or(time).into(),
        xattrs: layers.attributes(attributes.xattrs),
        ignores_options: false,
    }
}

/// Adds all links. The target of a link may be another link, which comes later.
fn add_links(links: &mut BTreeMap<PathBuf, PathBuf>, layers: &mut LayeredTree) -> Result<()> {
    while !links.is_empty() {
        let before = links.len();
        let mut missing = BTreeMap::new();
        for (path, target) in std::mem::take(links) {
            let bytes = path.as_os_str().as_bytes();
            let linked = match layers.has_entries(bytes) {
                Ok(true) => Err(EntryFault::DirectoryNotEmpty),
                Ok(false) => layers.link(bytes, target.as_os_str().as_bytes()),
                Err(fault) => Err(fault),
            };
            match linked {
                Ok(()) => {}
                Err(EntryFault::LinkTargetMissing) => drop(missing.insert(path, target)),
                Err(fault) => return Err(Error::Entry { path, fault }),
            }
        }
        if missing.len() == before {
            let path = missing.into_keys().next().unwrap_or_default();
            return Err(Error::Entry { path, fault: EntryFault::LinkTargetMissing });
        }
        *links = missing;
    }
    Ok(())
}

/// The path without `.`, and without slashes at its ends.
fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn put(path: &Path, put: impl FnOnce(&[u8]) -> Result<(), EntryFault>) -> Result<()> {
    put(path.as_os_str().as_bytes()).map_err(|fault| Error::Entry { path: path.to_owned(), fault })
}

/// Fails if `path` has `..` or a NUL: a path in an image leads down from its root.
fn check_path(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let leads_up = bytes.split(|byte| *byte == b'/').any(|part| part == b"..");
    if leads_up || bytes.contains(&0) {
        return Err(Error::Entry { path: as_path(bytes).to_owned(), fault: EntryFault::Path });
    }
    Ok(())
}

/// Fails for values that the format cannot express.
fn check_attributes(attributes: &Attributes) -> Result<(), EntryFault> {
    if attributes.mtime.is_some_and(|time| time.nanos >= NANOS) {
        return Err(EntryFault::Nanoseconds);
    }
    let is_name = |name: &[u8]| NamePrefix::split(name).is_some() && !name.contains(&0);
    match attributes.xattrs.iter().all(|(name, _)| is_name(name)) {
        true => Ok(()),
        false => Err(EntryFault::XattrName),
    }
}

#[cfg(test)]
mod tests;
