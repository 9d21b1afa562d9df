//! Reads a source directory into a [`Tree`].
//!
//! Workers list directories in parallel. Then one thread numbers the files breadth-first, so that the tree does not depend on the
//! speed of the workers. A directory is open only while a worker lists it.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use ferofs_format::inode::{FileType, Rdev};
use rustix::fs::{OFlags, RawDir, Statx};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::paths::as_path;
use crate::paths::join;
use crate::progress::Warning;
use crate::sources::change_time;
use crate::sources::open::{identity, open_dir, open_file, stat_at, stat_fd};
use crate::tree::origin::{Identity, Origin};
use crate::tree::xattr::{Attributes, encode_set};
use crate::tree::{Dir, Entry, Kind, Node, NodeId, Tree};
use ferofs_threads::{Workers, with_workers};

/// Bytes of the buffer for xattrs: Linux's limit on the list of a file's names (`XATTR_LIST_MAX`), and on one value
/// (`XATTR_SIZE_MAX`).
const XATTR_BYTES: usize = 64 << 10;
/// Bytes of the buffer for the entries of a directory: enough to make system calls rare.
const DIRENT_BYTES: usize = 32 << 10;

/// A file of a listing.
struct ListedFile {
    name: Box<[u8]>,
    stat: Stat,
    xattrs: Box<[u8]>,
    /// The target of a symbolic link.
    target: Box<[u8]>,
    /// The index of a directory's listing.
    listing: usize,
}

/// The fields of `statx` that the tree needs.
struct Stat {
    file_type: FileType,
    permissions: u16,
    uid: u32,
    gid: u32,
    nlink: u32,
    dev: (u32, u32),
    rdev: Rdev,
    size: u64,
    blocks: u64,
    identity: Identity,
}

/// A directory to list.
struct Job {
    listing: usize,
    path: Vec<u8>,
}

/// A directory's content.
struct Listing {
    number: usize,
    path: Vec<u8>,
    found: Result<Vec<ListedFile>>,
    warnings: Vec<Warning>,
}

/// The data that all workers share.
struct Context<'a> {
    options: &'a Options,
    /// The name of the directory, for messages.
    source: &'a Path,
    root: BorrowedFd<'a>,
    /// Files that the tree leaves out, because they are the image itself.
    avoid: &'a [(u32, u32, u64)],
    /// Whether `/proc/self/fd` exists.
    proc: bool,
}

/// Reads the tree of the directory `source`, which is open as `root`.
pub fn walk(
    options: &Options,
    source: &Path,
    root: &OwnedFd,
    avoid: &[(u32, u32, u64)],
    warnings: &mut Vec<Warning>,
) -> Result<Tree> {
    let proc = Path::new("/proc/self/fd").is_dir();
    let context = Context { options, source, root: root.as_fd(), avoid, proc };
    let mut lister = Lister::new(&context);
    let stat = stat_fd(root.as_fd()).map_err(|e| Error::io("stat", source, e))?;
    let stat = Stat::new(&stat, source)?;
    let xattrs = lister.xattrs(root.as_fd(), b".", true, source)?;
    let top = ListedFile { name: [].into(), stat, xattrs, target: [].into(), listing: 0 };
    let listings = list_all(&context, warnings)?;
    number(options, top, listings)
}

/// Lists every directory; the result is in the order of [`ListedFile::listing`].
fn list_all(context: &Context<'_>, warnings: &mut Vec<Warning>) -> Result<Vec<Option<Vec<ListedFile>>>> {
    let workers = context.options.run.worker_count();
    with_workers(workers, || Lister::new(context), serve, |workers| collect(context, &workers, warnings))
}

fn collect(
    context: &Context<'_>,
    workers: &Workers<Job, Listing>,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Option<Vec<ListedFile>>>> {
    let mut done: Vec<Option<Vec<ListedFile>>> = vec![None];
    let mut pending = 1usize;
    workers.send(Job { listing: 0, path: Vec::new() });
    while pending > 0 {
        context.options.run.check_cancelled()?;
        let listing = workers.recv()?;
        pending -= 1;
        warnings.extend(listing.warnings);
        let mut found = match listing.found {
            Ok(found) => found,
            Err(error)
                if context.options.source.skip_unreadable && error.is_unreadable() && listing.number != 0 =>
            {
                warnings.push(Warning::Skipped(error));
                continue;
            }
            Err(error) => return Err(error),
        };
        for dir in found.iter_mut().filter(|found| found.stat.file_type == FileType::Directory) {
            dir.listing = done.len();
            done.push(None);
            pending += 1;
            workers.send(Job { listing: dir.listing, path: join(&listing.path, &dir.name) });
        }
        context.options.run.progress.found.fetch_add(found.len() as u64, Ordering::Relaxed);
        done[listing.number] = Some(found);
    }
    Ok(done)
}

fn serve(lister: &mut Lister<'_>, Job { listing: number, path }: Job) -> Listing {
    let found = lister.list(&path);
    let warnings = std::mem::take(&mut lister.warnings);
    Listing { number, path, found, warnings }
}

/// Lists directories for one worker, and reuses its buffers.
struct Lister<'a> {
    context: &'a Context<'a>,
    dirents: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
    warnings: Vec<Warning>,
}

impl<'a> Lister<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            dirents: Vec::with_capacity(DIRENT_BYTES),
            names: vec![0; XATTR_BYTES],
            value: vec![0; XATTR_BYTES],
            warnings: Vec::new(),
        }
    }

    fn list(&mut self, path: &[u8]) -> Result<Vec<ListedFile>> {
        let source = self.context.source;
        let io = |action, e: Errno| Error::io(action, source.join(as_path(path)), e);
        let dir = open_dir(self.context.root, path, OFlags::RDONLY).map_err(|e| io("open", e))?;
        let before = stat_fd(dir.as_fd()).map_err(|e| io("stat", e))?;
        change_time::wait(identity(&before).ctime);
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut dirents = std::mem::take(&mut self.dirents);
        let mut entries = RawDir::new(&dir, dirents.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| io("read directory", e))?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(name.into()),
            }
        }
        self.dirents = dirents;
        names.sort_unstable();
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let below = join(path, &name);
            if self.context.options.source.is_excluded(&below) {
                continue;
            }
            let full = source.join(as_path(&below));
            match self.file(dir.as_fd(), name, &full) {
                Ok(Some(file)) => found.push(file),
                Ok(None) => {}
                Err(error) if self.context.options.source.skip_unreadable && error.is_unreadable() => {
                    self.warnings.push(Warning::Skipped(error));
                }
                Err(error) => return Err(error),
            }
        }
        let after = stat_fd(dir.as_fd()).map_err(|e| io("stat", e))?;
        if identity(&after) != identity(&before) {
            // The listing may lack a name, or have one twice.
            return Err(Error::SourceChanged(source.join(as_path(path))));
        }
        Ok(found)
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: Box<[u8]>, full: &Path) -> Result<Option<ListedFile>> {
        let stat = stat_at(dir, &name).map_err(|e| Error::io("stat", full, e))?;
        if self.context.avoid.contains(&(stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)) {
            return Ok(None);
        }
        let stat = Stat::new(&stat, full)?;
        let target = match stat.file_type {
            FileType::Symlink => rustix::fs::readlinkat(dir, &*name, Vec::new())
                .map_err(|e| Error::io("read link", full, e))?
                .into_bytes()
                .into(),
            _ => [].into(),
        };
        let readable = matches!(stat.file_type, FileType::Regular | FileType::Directory);
        let xattrs = self.xattrs(dir, &name, readable, full)?;
        Ok(Some(ListedFile { name, stat, xattrs, target, listing: 0 }))
    }

    /// The encoded set of attributes of `name`.
    fn xattrs(&mut self, dir: BorrowedFd<'_>, name: &[u8], readable: bool, full: &Path) -> Result<Box<[u8]>> {
        if !self.context.options.xattrs.keep {
            return Ok([].into());
        }
        let result = if self.context.proc {
            self.xattrs_by_path(dir, name)
        } else if readable {
            self.xattrs_by_fd(dir, name)
        } else {
            // Without /proc, only files and directories can be opened to read attributes.
            Ok(Vec::new())
        };
        match result {
            Ok(attributes) if attributes.is_empty() => Ok([].into()),
            Ok(attributes) => {
                self.note_foreign(&attributes, full);
                encode_set(attributes).map(Into::into).map_err(|too_large| too_large.of(full))
            }
            Err(Errno::NOTSUP) => Ok([].into()),
            Err(e) => Err(Error::io("read extended attributes", full, e)),
        }
    }

    fn note_foreign(&mut self, attributes: &[(Vec<u8>, Vec<u8>)], full: &Path) {
        use ferofs_format::xattr::NamePrefix;
        for (name, _) in attributes.iter().filter(|(name, _)| NamePrefix::split(name).is_none()) {
            let name = ferofs_read::escape::Escaped(name).to_string();
            self.warnings.push(Warning::UnsupportedXattr { path: full.to_owned(), name });
        }
    }

    /// Reads attributes through `/proc`: before Linux 6.13 no system call takes a directory and a name.
    fn xattrs_by_path(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Attributes, Errno> {
        let mut path = Vec::with_capacity(40 + name.len());
        let _ = write!(path, "/proc/self/fd/{}/", dir.as_raw_fd());
        path.extend_from_slice(name);
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        let len = rustix::fs::llistxattr(&*path, &mut self.names[..])?;
        let value = &mut self.value;
        read_values(&self.names[..len], |name| {
            let len = rustix::fs::lgetxattr(&*path, name, &mut value[..])?;
            Ok(value[..len].to_vec())
        })
    }

    fn xattrs_by_fd(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Attributes, Errno> {
        let file = open_file(dir, name)?;
        let len = rustix::fs::flistxattr(&file, &mut self.names[..])?;
        let value = &mut self.value;
        read_values(&self.names[..len], |name| {
            let len = rustix::fs::fgetxattr(&file, name, &mut value[..])?;
            Ok(value[..len].to_vec())
        })
    }
}

/// Reads the values of NUL-terminated `names`. Attributes that were removed after the names were read are left out.
fn read_values(
    names: &[u8],
    mut get: impl FnMut(&[u8]) -> Result<Vec<u8>, Errno>,
) -> Result<Attributes, Errno> {
    let mut attributes = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        match get(name) {
            Ok(value) => attributes.push((name.to_vec(), value)),
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(attributes)
}

impl Stat {
    fn new(stat: &Statx, path: &Path) -> Result<Self> {
        let unknown = || Error::io("stat", path, Errno::INVAL);
        Ok(Self {
            file_type: FileType::from_mode(stat.stx_mode).ok_or_else(unknown)?,
            permissions: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: stat.stx_nlink,
            dev: (stat.stx_dev_major, stat.stx_dev_minor),
            rdev: Rdev { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            identity: identity(stat),
        })
    }
}

/// Numbers the files breadth-first as nodes, and counts their links.
fn number(options: &Options, top: ListedFile, mut listings: Vec<Option<Vec<ListedFile>>>) -> Result<Tree> {
    let mut tree = Tree::default();
    let mut links: HashMap<((u32, u32), u64), NodeId> = HashMap::new();
    let mut queue = VecDeque::new();
    let root = add(options, &mut tree, &top, NodeId::ROOT)?;
    queue.push_back((root, top.listing));
    while let Some((dir, listing)) = queue.pop_front() {
        let Some(found) = listings[listing].take() else { continue };
        let first = tree.entries.len();
        for file in &found {
            let is_dir = file.stat.file_type == FileType::Directory;
            let key = (file.stat.dev, file.stat.identity.ino);
            let seen = if is_dir || file.stat.nlink < 2 || options.source.hard_dereference {
                None
            } else {
                links.get(&key).copied()
            };
            let node = match seen {
                Some(node) => {
                    tree.nodes[node.index()].nlink += 1;
                    let name = tree.intern(&file.name);
                    tree.entries.push(Entry { name, node });
                    continue;
                }
                None => add(options, &mut tree, file, dir)?,
            };
            if is_dir {
                tree.nodes[dir.index()].nlink += 1;
                queue.push_back((node, file.listing));
            } else if file.stat.nlink > 1 {
                links.insert(key, node);
            }
            let name = tree.node(node).name;
            tree.entries.push(Entry { name, node });
        }
        if let Kind::Directory(index) = tree.node(dir).kind {
            tree.dirs[index as usize] = Dir { first, count: tree.entries.len() - first };
        }
    }
    Ok(tree)
}

fn add(options: &Options, tree: &mut Tree, file: &ListedFile, parent: NodeId) -> Result<NodeId> {
    let stat = &file.stat;
    let number = u32::try_from(tree.nodes.len()).ok().filter(|n| *n < u32::MAX);
    let id = NodeId(number.ok_or_else(|| Error::DoesNotFit {
        path: PathBuf::from(as_path(&file.name)),
        what: "the number of files",
        value: tree.nodes.len() as u64,
        limit: u32::MAX.into(),
    })?);
    let kind = match stat.file_type {
        FileType::Regular => Kind::Regular { sparse: stat.blocks.saturating_mul(512) < stat.size },
        FileType::Directory => {
            tree.dirs.push(Dir::default());
            Kind::Directory(tree.dirs.len() as u32 - 1)
        }
        FileType::Symlink => Kind::Symlink(tree.intern(&file.target)),
        FileType::CharDevice | FileType::BlockDevice => Kind::Device(stat.file_type, stat.rdev),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    };
    let is_regular = matches!(kind, Kind::Regular { .. });
    let name = tree.intern(&file.name);
    let xattrs = tree.xattrs.intern(&file.xattrs);
    tree.nodes.push(Node {
        kind,
        permissions: stat.permissions,
        uid: options.attributes.uid(stat.uid),
        gid: options.attributes.gid(stat.gid),
        nlink: if matches!(kind, Kind::Directory(_)) { 2 } else { 1 },
        mtime: options.attributes.all_time.unwrap_or(stat.identity.mtime),
        xattrs,
        size: if is_regular { stat.size } else { 0 },
        origin: if is_regular { Origin::File(stat.identity) } else { Origin::None },
        parent,
        name,
    });
    Ok(id)
}
