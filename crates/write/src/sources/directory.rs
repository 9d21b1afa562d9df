//! Reads a source directory into a [`Tree`].
//!
//! Workers list directories in parallel ([`lister`]), and one thread numbers the files
//! breadth-first, so that the tree does not depend on the speed of the workers. A directory is open
//! only while a worker lists it. It gets its numbers, and its listing is freed, as soon as all
//! directories before it have theirs.

mod lister;
mod unmapped;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ferofs_threads::{Workers, with_workers};

use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::output::OwnFile;
use crate::paths::{as_path, join};
use crate::sources::directory::lister::{Context, ListedBody, ListedFile, Lister, Listing};
use crate::sources::directory::unmapped::UnmappedIds;
use crate::tree::compact::Arena;
use crate::tree::{Entry, Kind, Node, NodeId, Origin, Tree};
use ferofs_host::check_preload;

/// The least threads that list directories: on a disk, each of them waits for one inode or
/// directory at a time.
const LISTERS: usize = 8;

/// A directory to list.
struct Job {
    /// The number of its listing.
    number: u32,
    path: Vec<u8>,
}

/// The result of a worker for a directory.
struct Listed {
    job: Job,
    found: Result<Listing>,
    warnings: Vec<Warning>,
}

/// Reads the tree of the directory `source`, which is open as `root`. It leaves out the files in
/// `avoid`, by device and inode number.
pub(crate) fn walk(
    options: &Options,
    source: &Path,
    root: &OwnedFd,
    avoid: &[OwnFile],
    warnings: &mut Vec<Warning>,
) -> Result<Tree> {
    check_preload()?;
    let proc = Path::new("/proc/self/fd").is_dir();
    let context = Context {
        options,
        source,
        root: root.as_fd(),
        avoid,
        proc,
        unmapped: UnmappedIds::of_this_process(options),
        size_less: Default::default(),
    };
    let mut lister = Lister::new(&context);
    let top = lister.root()?;
    warnings.append(&mut lister.warnings);
    let mut numbering = Numbering::new(options, source, &top)?;
    let workers = options.run.worker_count().max(LISTERS);
    with_workers(
        workers,
        || Lister::new(&context),
        serve,
        |workers| collect(options, &workers, &mut numbering, warnings),
    )?;
    Ok(numbering.tree)
}

/// Has every directory listed and numbered.
fn collect(
    options: &Options,
    workers: &Workers<Job, Listed>,
    numbering: &mut Numbering<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let mut pending = 1usize;
    workers.send(Job { number: 0, path: Vec::new() });
    while pending > 0 {
        options.run.cancel.check()?;
        let listed = workers.recv()?;
        pending -= 1;
        warnings.extend(listed.warnings);
        let Job { number, path } = listed.job;
        let mut listing = match listed.found {
            Ok(listing) => listing,
            Err(error)
                if options.source.skip_unreadable && error.is_unreadable() && number != 0 =>
            {
                warnings.push(Warning::Skipped(error));
                Listing::default()
            }
            Err(error) => return Err(error),
        };
        for file in &mut listing.files {
            if let ListedBody::Directory(number) = &mut file.body {
                *number = numbering.expect_listing()?;
                pending += 1;
                workers
                    .send(Job { number: *number, path: join(&path, listing.texts.get(file.name)) });
            }
        }
        options.run.progress.found.add(listing.files.len() as u64);
        numbering.take(number, listing)?;
    }
    Ok(())
}

fn serve(lister: &mut Lister<'_>, job: Job) -> Listed {
    let found = lister.list(&job.path);
    let warnings = std::mem::take(&mut lister.warnings);
    Listed { job, found, warnings }
}

/// The tree so far.
struct Numbering<'a> {
    options: &'a Options,
    /// The source, for messages.
    source: &'a Path,
    tree: Tree,
    /// The first name of each file with several names, by device and inode number.
    links: HashMap<(u64, u64), NodeId>,
    /// Directories whose entries have no numbers yet, with the numbers of their listings.
    queue: VecDeque<(NodeId, u32)>,
    /// The listings that wait for those before them. That of the root is number 0.
    listings: Vec<Option<Listing>>,
}

impl<'a> Numbering<'a> {
    /// Starts with the root, which is the only file of `top`.
    fn new(options: &'a Options, source: &'a Path, top: &Listing) -> Result<Self> {
        let mut numbering = Self {
            options,
            source,
            tree: Tree::default(),
            links: HashMap::new(),
            queue: VecDeque::new(),
            listings: vec![None],
        };
        for root in &top.files {
            let root = numbering.add(root, &top.texts, NodeId::ROOT)?;
            numbering.queue.push_back((root, 0));
        }
        Ok(numbering)
    }

    /// The number of a listing that comes later.
    fn expect_listing(&mut self) -> Result<u32> {
        let number = self.listings.len();
        self.listings.push(None);
        u32::try_from(number).map_err(|_| too_many(number, PathBuf::new()))
    }

    fn take(&mut self, number: u32, listing: Listing) -> Result<()> {
        self.listings[number as usize] = Some(listing);
        while let Some((dir, number)) = self.queue.front().copied()
            && let Some(listing) = self.listings[number as usize].take()
        {
            self.queue.pop_front();
            self.number(dir, &listing)?;
        }
        Ok(())
    }

    /// Numbers the files of directory `dir`, and counts their links.
    fn number(&mut self, dir: NodeId, listing: &Listing) -> Result<()> {
        let first = self.tree.entries.len();
        for file in &listing.files {
            let is_dir = matches!(file.body, ListedBody::Directory(_));
            let has_links = !is_dir && file.nlink > 1 && !self.options.source.hard_dereference;
            let key = (file.dev, file.ino);
            if has_links && let Some(node) = self.links.get(&key).copied() {
                self.tree.nodes[node.index()].nlink += 1;
                let name = self.tree.intern(listing.texts.get(file.name));
                self.tree.entries.push(Entry { name, node });
                continue;
            }
            let node = self.add(file, &listing.texts, dir)?;
            if let ListedBody::Directory(number) = file.body {
                self.tree.nodes[dir.index()].nlink += 1;
                self.queue.push_back((node, number));
            } else if has_links {
                self.links.insert(key, node);
            }
            let name = self.tree.node(node).name;
            self.tree.entries.push(Entry { name, node });
        }
        self.tree.end_directory(dir, first);
        Ok(())
    }

    fn add(&mut self, file: &ListedFile, texts: &Arena, parent: NodeId) -> Result<NodeId> {
        let (options, tree) = (self.options, &mut self.tree);
        let number = u32::try_from(tree.nodes.len()).ok().filter(|n| *n < u32::MAX);
        let name = texts.get(file.name);
        let id =
            NodeId(number.ok_or_else(|| too_many(tree.nodes.len(), PathBuf::from(as_path(name))))?);
        let (mut size, mut origin) = (0, Origin::None);
        let kind = match file.body {
            ListedBody::Regular { size: bytes, sparse } => {
                (size, origin) = (bytes, Origin::File(file.identity));
                Kind::Regular { sparse }
            }
            ListedBody::Directory(_) => tree.new_directory(),
            ListedBody::Symlink(target) => Kind::Symlink(tree.intern(texts.get(target))),
            ListedBody::Device(kind, rdev) => Kind::Device(kind, rdev),
            ListedBody::Fifo => Kind::Fifo,
            ListedBody::Socket => Kind::Socket,
        };
        let (uid, gid) =
            options.attributes.owner(file.uid, file.gid).map_err(|fault| Error::Entry {
                path: self.source.join(as_path(&join(&tree.path_bytes(parent), name))),
                fault,
            })?;
        let name = tree.intern(name);
        let xattrs = tree.xattrs.intern(texts.get(file.xattrs));
        tree.nodes.push(Node {
            kind,
            permissions: file.permissions,
            uid,
            gid,
            nlink: if matches!(kind, Kind::Directory(_)) { 2 } else { 1 },
            mtime: options.attributes.all_time.unwrap_or(file.mtime).into(),
            xattrs,
            size,
            origin,
            parent,
            name,
        });
        Ok(id)
    }
}

fn too_many(files: usize, path: PathBuf) -> Error {
    Error::DoesNotFit {
        path,
        what: "the number of files",
        value: files as u64,
        limit: u32::MAX.into(),
    }
}
