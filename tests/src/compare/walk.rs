//! Walks both trees at the same time, with several threads that take tasks from one stack.
//!
//! A task is a directory to list, or some files of one directory to read: one directory may contain
//! most of a tree's data, so its files are divided between threads. A stack leads to a depth-first
//! walk, which keeps few directories open.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::{io, thread};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{Dir, FileType, OFlags, Statx};

use super::{Difference, Field, Options, Report, entry};

/// Files per task.
const BATCH: usize = 32;

/// A directory, open in both trees.
struct Pair {
    left: OwnedFd,
    right: OwnedFd,
    path: Vec<u8>,
}

impl Pair {
    fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.left.as_fd(), self.right.as_fd()]
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match (name, self.path.as_slice()) {
            (b".", path) => path.to_vec(),
            (name, b"") => name.to_vec(),
            (name, path) => [path, b"/", name].concat(),
        }
    }
}

enum Task {
    Directory(Arc<Pair>, Vec<u8>),
    Contents(Arc<Pair>, Vec<Vec<u8>>),
}

#[derive(Default)]
struct Stack {
    tasks: Vec<Task>,
    busy: usize,
}

struct Walk<'a> {
    options: &'a Options,
    stack: Mutex<Stack>,
    changed: Condvar,
    links: Mutex<Links>,
    report: Mutex<Report>,
}

pub(super) fn walk(left: &Path, right: &Path, options: &Options) -> io::Result<Report> {
    let open = |path| {
        Ok::<_, io::Error>(rustix::fs::open(
            path,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?)
    };
    let root = Arc::new(Pair { left: open(left)?, right: open(right)?, path: Vec::new() });
    let walk = Walk {
        options,
        stack: Mutex::default(),
        changed: Condvar::new(),
        links: Mutex::default(),
        report: Mutex::default(),
    };
    walk.push(Task::Directory(root, b".".to_vec()));
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| while walk.step() {});
        }
    });
    let Walk { links, report, .. } = walk;
    let links = links.into_inner();
    let report = Mutex::new(report.into_inner());
    for (path, field, sides) in links.wrong_counts() {
        record(options, &report, path, field, sides);
    }
    let mut report = report.into_inner();
    report.differences.sort();
    Ok(report)
}

fn record(
    options: &Options,
    report: &Mutex<Report>,
    path: String,
    field: Field,
    [left, right]: [String; 2],
) {
    if options.ignores(&field) {
        return;
    }
    let mut report = report.lock();
    report.count += 1;
    if report.differences.len() < options.limit {
        let path = if path.is_empty() { ".".into() } else { path };
        report.differences.push(Difference { path, field, left, right });
    }
}

/// Marks a task as done even if it panics, so that other threads do not wait for it forever.
struct Busy<'a>(&'a Mutex<Stack>, &'a Condvar);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.1.notify_all();
    }
}

impl Walk<'_> {
    fn push(&self, task: Task) {
        self.stack.lock().tasks.push(task);
        self.changed.notify_one();
    }

    /// Runs one task; false when none is left.
    fn step(&self) -> bool {
        let mut stack = self.stack.lock();
        let task = loop {
            if let Some(task) = stack.tasks.pop() {
                stack.busy += 1;
                break task;
            }
            if stack.busy == 0 {
                return false;
            }
            self.changed.wait(&mut stack);
        };
        drop(stack);
        let _busy = Busy(&self.stack, &self.changed);
        match task {
            Task::Directory(parent, name) => {
                if let Err(error) = self.directory(&parent, &name) {
                    self.record(
                        &parent,
                        &name,
                        Field::Unreadable,
                        [String::new(), error.to_string()],
                    );
                }
            }
            Task::Contents(pair, names) => names.iter().for_each(|name| self.contents(&pair, name)),
        }
        true
    }

    fn record(&self, pair: &Pair, name: &[u8], field: Field, sides: [String; 2]) {
        record(self.options, &self.report, entry::escape(&pair.path_of(name)), field, sides);
    }

    fn directory(&self, parent: &Pair, name: &[u8]) -> io::Result<()> {
        let open = |dir| entry::open(dir, name, OFlags::RDONLY | OFlags::DIRECTORY);
        let [left, right] = parent.fds();
        let pair =
            Arc::new(Pair { left: open(left)?, right: open(right)?, path: parent.path_of(name) });
        let here = b".".as_slice();
        let stats = [entry::stat(pair.left.as_fd(), here)?, entry::stat(pair.right.as_fd(), here)?];
        entry::attributes(pair.fds(), here, [&stats[0], &stats[1]], &mut |field, sides| {
            self.record(&pair, here, field, sides);
        })?;

        let (left, mut right) = (list(&pair.left)?, list(&pair.right)?);
        let mut subdirectories = 0;
        let mut batch = Vec::new();
        for name in left.into_keys() {
            let Some(listed) = right.remove(&name) else {
                self.record(&pair, &name, Field::Missing, ["there".into(), "missing".into()]);
                continue;
            };
            self.report.lock().entries += 1;
            match self.entry(&pair, &name, listed) {
                Ok(Some(FileType::Directory)) => {
                    subdirectories += 1;
                    self.push(Task::Directory(Arc::clone(&pair), name));
                }
                Ok(Some(FileType::RegularFile)) => batch.push(name),
                Ok(_) => {}
                Err(error) => {
                    self.record(&pair, &name, Field::Unreadable, [String::new(), error.to_string()])
                }
            }
            if batch.len() == BATCH {
                self.push(Task::Contents(Arc::clone(&pair), std::mem::take(&mut batch)));
            }
        }
        self.push(Task::Contents(Arc::clone(&pair), batch));
        for name in right.into_keys() {
            self.record(&pair, &name, Field::Unexpected, ["missing".into(), "there".into()]);
        }
        if stats[1].stx_nlink != subdirectories + 2 {
            let sides = [(subdirectories + 2).to_string(), stats[1].stx_nlink.to_string()];
            self.record(&pair, here, Field::Links, sides);
        }
        Ok(())
    }

    /// Compares everything except the content, and returns the type if it is the same on both
    /// sides.
    fn entry(&self, pair: &Pair, name: &[u8], listed: Listed) -> io::Result<Option<FileType>> {
        let stats = [entry::stat(pair.left.as_fd(), name)?, entry::stat(pair.right.as_fd(), name)?];
        let kind = entry::kind(&stats[0]);
        let actual = Listed { ino: stats[1].stx_ino, kind: entry::kind(&stats[1]) };
        if listed != actual {
            self.record(pair, name, Field::Listing, [format!("{actual:?}"), format!("{listed:?}")]);
        }
        if kind == FileType::Directory && actual.kind == kind {
            return Ok(Some(kind)); // compared when it is opened
        }
        let mut record = |field, sides| self.record(pair, name, field, sides);
        if !entry::attributes(pair.fds(), name, [&stats[0], &stats[1]], &mut record)? {
            return Ok(None);
        }
        let path = entry::escape(&pair.path_of(name));
        let [left, right] = [identity(&stats[0]), identity(&stats[1])];
        let contradiction = self.links.lock().add(left, right, stats[1].stx_nlink, &path);
        if let Some(sides) = contradiction {
            self.record(pair, name, Field::HardLink, sides);
        }
        Ok(Some(kind))
    }

    fn contents(&self, pair: &Pair, name: &[u8]) {
        let mut record = |field, sides| self.record(pair, name, field, sides);
        match entry::contents(pair.fds(), name, &mut record) {
            Ok(bytes) => self.report.lock().bytes += bytes,
            Err(error) => record(Field::Unreadable, [String::new(), error.to_string()]),
        }
    }
}

fn identity(stat: &Statx) -> (u64, u64) {
    (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// An entry as the directory lists it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Listed {
    ino: u64,
    kind: FileType,
}

/// All names except "." and "..". A duplicate name is an error.
fn list(dir: &OwnedFd) -> io::Result<BTreeMap<Vec<u8>, Listed>> {
    let mut names = BTreeMap::new();
    for item in Dir::read_from(dir)? {
        let item = item?;
        let name = item.file_name().to_bytes().to_vec();
        if name == b"." || name == b".." {
            continue;
        }
        let listed = Listed { ino: item.ino(), kind: item.file_type() };
        if names.insert(name, listed).is_some() {
            let name = entry::escape(item.file_name().to_bytes());
            return Err(io::Error::other(format!("the directory lists {name} twice")));
        }
    }
    Ok(names)
}

/// A file's identity on its side: device and inode.
pub(super) type Identity = (u64, u64);

/// A file of the left tree.
struct LinkedFile {
    right: Identity,
    path: String,
    names: u32,
    links: u32,
}

/// All files up to now.
#[derive(Default)]
pub(super) struct Links {
    left: HashMap<Identity, LinkedFile>,
    right: HashMap<Identity, Identity>,
}

impl Links {
    /// Adds one name and the link count of the right side. Returns the contradiction with earlier
    /// names, if there is one.
    pub(super) fn add(
        &mut self,
        left: Identity,
        right: Identity,
        links: u32,
        path: &str,
    ) -> Option<[String; 2]> {
        let file = self.left.entry(left).or_insert_with(|| LinkedFile {
            right,
            path: path.to_owned(),
            names: 0,
            links,
        });
        file.names += 1;
        if file.right != right {
            return Some([format!("same inode as {}", file.path), "separate inode".into()]);
        }
        let owner = *self.right.entry(right).or_insert(left);
        if owner != left {
            let other = self.left.get(&owner).map_or("", |file| &file.path);
            return Some(["separate inode".into(), format!("same inode as {other}")]);
        }
        None
    }

    /// Files whose link count on the right differs from the number of names on the left: path and
    /// both numbers.
    pub(super) fn wrong_counts(self) -> impl Iterator<Item = (String, Field, [String; 2])> {
        self.left
            .into_values()
            .filter(|file| file.names != file.links)
            .map(|file| (file.path, Field::Links, [file.names.to_string(), file.links.to_string()]))
    }
}
