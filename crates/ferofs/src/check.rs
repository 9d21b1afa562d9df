//! Check: everything that an image says, held against the format's rules. Source: FORMAT.md 8.
//!
//! One thread walks the tree from the root and looks at inodes, directories, attributes and links;
//! workers decode the content of the files that it finds. Nothing is repaired.

mod rules;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use ferofs_format::{BytePos, Fault, FileOffset, Nid, Structure};

use crate::error::{Corruption, Error, Result};
use crate::read::{DirEntry, Extent, ExtentData, FileType, Image, Inode};

pub use rules::rule;

/// Files that may wait to be decoded.
const QUEUE: usize = 1024;
const BUFFER_SIZE: usize = 1 << 20;

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that decode content; `None`: one for each processor.
    pub workers: Option<NonZeroUsize>,
    /// Decode all content, and not only look at its map. Default: yes.
    pub content: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: None, content: true }
    }
}

/// A rule that the image breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file concerned; empty for the root, or for the image as a whole.
    pub path: PathBuf,
    /// The rule, and where.
    pub corruption: Corruption,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Broken rules, sorted by path.
    pub findings: Vec<Finding>,
    /// Inodes that were looked at.
    pub inodes: u64,
    /// Bytes of content that were decoded.
    pub content_bytes: u64,
}

/// Checks `image`.
///
/// # Errors
/// [`Error::Io`] when the image cannot be read; what is wrong with it is in the report.
pub fn check(image: &Image, options: &Options) -> Result<Report> {
    let checker = Checker { content: options.content, ..Checker::new(image) };
    let workers = options.workers.or_else(|| std::thread::available_parallelism().ok());
    let (sender, receiver) = bounded(QUEUE);
    let inodes = std::thread::scope(|scope| {
        for _ in 0..workers.map_or(1, NonZeroUsize::get) {
            let receiver = receiver.clone();
            scope.spawn(|| checker.serve(receiver));
        }
        drop(receiver);
        // Workers stop when this end is gone.
        let works = sender;
        checker.check_size();
        checker.special_inodes(&works);
        checker.walk(&works)
    });
    if let Some(error) = checker.failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    let mut findings = checker.findings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    findings.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Report { findings, inodes, content_bytes: checker.content_bytes.into_inner() })
}

struct Checker<'a> {
    image: &'a Image,
    content: bool,
    findings: Mutex<Vec<Finding>>,
    failure: Mutex<Option<Error>>,
    content_bytes: AtomicU64,
}

/// Content to decode.
struct Work {
    path: PathBuf,
    inode: Inode,
}

/// What is known of an inode after its first name.
struct Seen {
    /// Its file type, if it could be read.
    file_type: Option<FileType>,
    /// The first name.
    path: PathBuf,
    stored_links: u32,
    /// Names found; for directories, subdirectories and two more.
    found_links: u64,
}

/// A directory to walk.
struct Step {
    path: PathBuf,
    inode: Inode,
    parent: Nid,
}

impl<'a> Checker<'a> {
    fn new(image: &'a Image) -> Self {
        Self {
            image,
            content: true,
            findings: Mutex::default(),
            failure: Mutex::default(),
            content_bytes: AtomicU64::new(0),
        }
    }

    /// The superblock's size of the image must be there.
    fn check_size(&self) {
        let superblock = self.image.superblock();
        let size = superblock.blocks.checked_mul(superblock.block_size.bytes64());
        if !size
            .is_some_and(|size| self.image.has_range(ferofs_format::DeviceId::new(0), BytePos::new(0), size))
        {
            let limit = self.image.device_size(ferofs_format::DeviceId::new(0)).unwrap_or(0);
            let fault = Fault::OutOfRange {
                field: "blocks",
                value: superblock.blocks,
                limit: limit / superblock.block_size.bytes64() + 1,
            };
            self.find(Path::new(""), Corruption::new(Structure::Superblock, fault));
        }
    }

    /// The packed inode and the metabox are in no directory.
    fn special_inodes(&self, works: &Sender<Work>) {
        let superblock = self.image.superblock();
        for (name, nid) in [("(packed inode)", superblock.packed), ("(metabox)", superblock.metabox)] {
            let Some(nid) = nid else { continue };
            let path = PathBuf::from(name);
            if let Some(inode) = self.note(&path, self.image.inode(nid)) {
                let _ = works.send(Work { path, inode });
            }
        }
    }

    /// Walks the tree; says how many inodes it has.
    fn walk(&self, works: &Sender<Work>) -> u64 {
        let top = Path::new("");
        let Some(root) = self.note(top, self.image.root()) else { return 0 };
        if !root.is_dir() {
            self.find(top, Corruption::new(Structure::Inode, Fault::FileTypeMismatch).of(root.nid()));
            return 1;
        }
        let mut seen = HashMap::from([(root.nid(), self.first_sight(top, &root, works))]);
        let mut pending = vec![Step { path: top.to_owned(), parent: root.nid(), inode: root }];
        while let Some(step) = pending.pop() {
            if self.has_failed() {
                break;
            }
            self.directory(&step, works, &mut seen, &mut pending);
        }
        self.check_links(&seen);
        seen.len() as u64
    }

    fn directory(
        &self,
        step: &Step,
        works: &Sender<Work>,
        seen: &mut HashMap<Nid, Seen>,
        pending: &mut Vec<Step>,
    ) {
        let Some(entries) = self.note(&step.path, self.image.read_dir(&step.inode)) else { return };
        let bad = |fault| {
            self.find(&step.path, Corruption::new(Structure::Directory, fault).of(step.inode.nid()));
        };
        let (mut dot, mut dot_dot, mut complete) = (step.inode.on_disk().dot_omitted, false, true);
        let mut before: Option<Vec<u8>> = None;
        for entry in entries {
            let Some(entry) = self.note(&step.path, entry) else {
                complete = false;
                continue;
            };
            if before.as_ref().is_some_and(|before| *before >= entry.name) {
                bad(Fault::NameOrder);
            }
            match entry.name.as_slice() {
                b"." if entry.nid == step.inode.nid() => dot = true,
                b".." if entry.nid == step.parent => dot_dot = true,
                b"." | b".." => {}
                name if name.contains(&b'/') || name.contains(&0) => bad(Fault::Name),
                _ => self.entry(step, &entry, works, seen, pending),
            }
            before = Some(entry.name);
        }
        if complete && !(dot && dot_dot) {
            bad(Fault::DotEntry);
        }
    }

    fn entry(
        &self,
        step: &Step,
        entry: &DirEntry,
        works: &Sender<Work>,
        seen: &mut HashMap<Nid, Seen>,
        pending: &mut Vec<Step>,
    ) {
        let path = step.path.join(OsStr::from_bytes(&entry.name));
        if let Some(known) = seen.get_mut(&entry.nid) {
            if known.file_type == Some(FileType::Directory) {
                self.find(&path, Corruption::new(Structure::Directory, Fault::DirectoryLoop).of(entry.nid));
                return;
            }
            known.found_links += 1;
            self.check_type(&path, entry, known.file_type);
            return;
        }
        let Some(inode) = self.note(&path, self.image.inode(entry.nid)) else {
            let unreadable = Seen { file_type: None, path, stored_links: 0, found_links: 1 };
            seen.insert(entry.nid, unreadable);
            return;
        };
        self.check_type(&path, entry, Some(inode.file_type()));
        seen.insert(entry.nid, self.first_sight(&path, &inode, works));
        if inode.is_dir() {
            if let Some(parent) = seen.get_mut(&step.inode.nid()) {
                parent.found_links += 1;
            }
            pending.push(Step { path, inode, parent: step.inode.nid() });
        }
    }

    fn check_type(&self, path: &Path, entry: &DirEntry, file_type: Option<FileType>) {
        if file_type.is_some() && entry.file_type.is_some() && file_type != entry.file_type {
            self.find(path, Corruption::new(Structure::Directory, Fault::FileTypeMismatch).of(entry.nid));
        }
    }

    /// Checks what an inode says by itself, and sends its content to the workers.
    fn first_sight(&self, path: &Path, inode: &Inode, works: &Sender<Work>) -> Seen {
        self.note(path, self.image.xattrs(inode));
        if inode.file_type() == FileType::Symlink {
            self.note(path, self.image.read_link(inode));
        }
        if inode.file_type().has_data() && inode.size() > 0 {
            // The receiving end lives as long as the workers do.
            let _ = works.send(Work { path: path.to_owned(), inode: inode.clone() });
        }
        Seen {
            file_type: Some(inode.file_type()),
            path: path.to_owned(),
            stored_links: inode.on_disk().nlink,
            found_links: if inode.is_dir() { 2 } else { 1 },
        }
    }

    fn check_links(&self, seen: &HashMap<Nid, Seen>) {
        for (nid, seen) in seen {
            let stored = u64::from(seen.stored_links);
            let right = match seen.file_type {
                None => true,
                // 1 says that subdirectories are not counted.
                Some(FileType::Directory) => stored == 1 || stored == seen.found_links,
                Some(_) => stored == seen.found_links,
            };
            if !right {
                let fault = Fault::LinkCount { stored, found: seen.found_links };
                self.find(&seen.path, Corruption::new(Structure::Inode, fault).of(*nid));
            }
        }
    }

    fn serve(&self, works: Receiver<Work>) {
        let mut buffer = vec![0; BUFFER_SIZE];
        for work in works {
            if self.has_failed() {
                continue;
            }
            self.content(&work, &mut buffer);
        }
    }

    /// Plans the whole content, and decodes it.
    fn content(&self, work: &Work, buffer: &mut [u8]) {
        let Some(extents) = self.note(&work.path, self.image.extents(&work.inode, FileOffset::new(0))) else {
            return;
        };
        for extent in extents {
            let Some(extent) = self.note(&work.path, extent) else { return };
            if !self.content || matches!(extent.data, ExtentData::Hole) {
                continue;
            }
            // A damaged extent says nothing about the next one, but one line a file is enough.
            if !self.decode(work, &extent, buffer) {
                return;
            }
        }
    }

    fn decode(&self, work: &Work, extent: &Extent, buffer: &mut [u8]) -> bool {
        let mut offset = extent.start.get();
        while offset < extent.end() {
            let want = usize::try_from(extent.end() - offset).unwrap_or(usize::MAX).min(buffer.len());
            let read = self.image.read_at(&work.inode, FileOffset::new(offset), &mut buffer[..want]);
            let Some(read) = self.note(&work.path, read) else { return false };
            self.content_bytes.fetch_add(read as u64, Ordering::Relaxed);
            offset += read.max(1) as u64;
        }
        true
    }

    /// Takes down what is wrong with the image; ends the check when it cannot be read.
    fn note<T>(&self, path: &Path, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::Corrupt(corruption) | Error::Unsupported(corruption)) => {
                self.find(path, corruption);
                None
            }
            Err(error) => {
                lock(&self.failure).get_or_insert(error);
                None
            }
        }
    }

    fn find(&self, path: &Path, corruption: Corruption) {
        lock(&self.findings).push(Finding { path: path.to_owned(), corruption });
    }

    fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Both lists are sound after every push.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
