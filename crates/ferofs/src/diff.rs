//! Diff: two trees, each an image or a directory, held against each other.
//!
//! Both are walked at once, in the order of names, a directory at a time: memory follows the largest directory. Content
//! is read last, and only where nothing cheaper tells: not when sizes differ, nor when both sides are the same image
//! and the extents are the same.

mod content;
mod side;

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use ferofs_read::{FileType, Rdev, Timestamp};

pub use side::Side;
use side::{Node, Tree};

/// What to compare. By default: everything.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Options {
    pub content: bool,
    pub mode: bool,
    pub owner: bool,
    pub times: bool,
    pub xattrs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { content: true, mode: true, owner: true, times: true, xattrs: true }
    }
}

/// What the walk came upon.
#[derive(Debug)]
pub enum Event {
    /// A difference.
    Change(Change),
    /// Something that could not be compared; the rest still is.
    Failed {
        /// The path within the trees.
        path: PathBuf,
        /// The reason.
        error: Error,
    },
}

/// A difference.
#[derive(Debug)]
pub struct Change {
    /// The path within the trees; empty for their roots.
    pub path: PathBuf,
    /// What differs.
    pub kind: ChangeKind,
}

/// What differs.
#[derive(Debug)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added(Stat),
    /// Only the first tree has it.
    Removed(Stat),
    /// Both have it.
    Changed(Changed),
}

/// What a file is, beside its content and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in stat(2)")]
pub struct Stat {
    pub file_type: FileType,
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    /// Bytes of content; 0 for what has none.
    pub size: u64,
    pub mtime: Timestamp,
    pub rdev: Rdev,
}

/// How a file differs.
#[derive(Debug)]
pub struct Changed {
    /// Both sides as they are.
    pub stat: [Stat; 2],
    /// The type differs; then nothing else was compared.
    pub file_type: bool,
    /// The content of a regular file, the target of a symbolic link, or the number of a device differs.
    pub content: bool,
    /// Permissions differ.
    pub mode: bool,
    /// User or group differ.
    pub owner: bool,
    /// Modification times differ.
    pub mtime: bool,
    /// Names of attributes that are not the same on both sides.
    pub xattrs: Vec<Vec<u8>>,
}

impl Changed {
    fn is_same(&self) -> bool {
        let Self { file_type, content, mode, owner, mtime, xattrs, .. } = self;
        !(*file_type || *content || *mode || *owner || *mtime) && xattrs.is_empty()
    }
}

/// Compares `first` with `second`, and shows `each` event, in the order of paths, until it breaks.
///
/// # Errors
/// What opening the roots reports, [`Error::Limit`]. Other failures are events.
pub fn diff(
    first: &Side,
    second: &Side,
    options: &Options,
    mut each: impl FnMut(Event) -> ControlFlow<()>,
) -> Result<()> {
    let trees = [Tree::new(first), Tree::new(second)];
    let mut walk = Diff { same_image: first.is_same_image(second), options, trees };
    let [first, second] = [walk.trees[0].root()?, walk.trees[1].root()?];
    // The directories on the way down, each with the length of its path and its entries that are still to be compared.
    // The path is kept once: those of a deep tree are far longer than its image.
    let mut path: Vec<u8> = Vec::new();
    let mut open = vec![(0, vec![(OsString::new(), Some(first), Some(second))].into_iter())];
    while let Some((len, entries)) = open.last_mut() {
        path.truncate(*len);
        let Some((name, first, second)) = entries.next() else {
            open.pop();
            continue;
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let here = Path::new(OsStr::from_bytes(&path));
        let ended = match walk.compare(here, first.as_ref(), second.as_ref()) {
            Some(Event::Failed { error, .. }) if error.ends_all() => return Err(error),
            Some(event) => each(event).is_break(),
            None => false,
        };
        if ended {
            break;
        }
        match walk.below(path.len(), first, second) {
            Ok(below) => open.push((path.len(), below.into_iter())),
            Err(error) if error.ends_all() => return Err(error),
            Err(error) => {
                if each(Event::Failed { path: here.to_owned(), error }).is_break() {
                    break;
                }
            }
        }
    }
    Ok(())
}

struct Diff<'a> {
    trees: [Tree<'a>; 2],
    same_image: bool,
    options: &'a Options,
}

/// A name, and what it is on both sides.
type Pair = (OsString, Option<Node>, Option<Node>);

impl Diff<'_> {
    fn compare(&self, path: &Path, first: Option<&Node>, second: Option<&Node>) -> Option<Event> {
        let kind = match (first, second) {
            (Some(first), Some(second)) => {
                self.changed(first, second).map(|changed| changed.map(ChangeKind::Changed))
            }
            (Some(first), None) => self.trees[0].stat(first).map(|stat| Some(ChangeKind::Removed(stat))),
            (None, Some(second)) => self.trees[1].stat(second).map(|stat| Some(ChangeKind::Added(stat))),
            (None, None) => Ok(None),
        };
        let path = path.to_owned();
        match kind {
            Ok(kind) => kind.map(|kind| Event::Change(Change { path, kind })),
            Err(error) => Some(Event::Failed { path, error }),
        }
    }

    fn changed(&self, first: &Node, second: &Node) -> Result<Option<Changed>> {
        if self.is_same_inode(first, second) {
            return Ok(None);
        }
        let [left, right] = &self.trees;
        let stat = [left.stat(first)?, right.stat(second)?];
        let [a, b] = &stat;
        let mut changed = Changed {
            stat,
            file_type: a.file_type != b.file_type,
            content: false,
            mode: false,
            owner: false,
            mtime: false,
            xattrs: Vec::new(),
        };
        if !changed.file_type {
            let options = self.options;
            // Linux gives no symbolic link permissions of its own.
            changed.mode = options.mode && a.permissions != b.permissions && a.file_type != FileType::Symlink;
            changed.owner = options.owner && (a.uid, a.gid) != (b.uid, b.gid);
            changed.mtime = options.times && a.mtime != b.mtime;
            if options.xattrs {
                changed.xattrs = differing(&left.xattrs(first)?, &right.xattrs(second)?);
            }
            changed.content = options.content && self.content_differs(first, second, &stat)?;
        }
        Ok((!changed.is_same()).then_some(changed))
    }

    fn content_differs(&self, first: &Node, second: &Node, [a, b]: &[Stat; 2]) -> Result<bool> {
        let [left, right] = &self.trees;
        match a.file_type {
            FileType::CharDevice | FileType::BlockDevice => Ok(a.rdev != b.rdev),
            FileType::Symlink => Ok(left.read_link(first)? != right.read_link(second)?),
            FileType::Regular if a.size != b.size => Ok(true),
            FileType::Regular if a.size == 0 => Ok(false),
            FileType::Regular => {
                if self.same_image && left.same_extents(first, right, second)? {
                    return Ok(false);
                }
                content::differs(&left.open(first)?, &right.open(second)?, a.size)
            }
            _ => Ok(false),
        }
    }

    /// Whether both are one inode of one image: then all is the same, and all below.
    fn is_same_inode(&self, first: &Node, second: &Node) -> bool {
        self.same_image && first.nid().is_some() && first.nid() == second.nid()
    }

    /// The entries below both nodes, in the order of names.
    fn below(&mut self, path_len: usize, first: Option<Node>, second: Option<Node>) -> Result<Vec<Pair>> {
        if let (Some(first), Some(second)) = (&first, &second)
            && self.is_same_inode(first, second)
        {
            return Ok(Vec::new());
        }
        let [left, right] = &mut self.trees;
        let list = |tree: &mut Tree<'_>, node: Option<Node>| match node {
            Some(node) => tree.list(&node, path_len),
            None => Ok(Vec::new()),
        };
        let mut left = list(left, first)?.into_iter().peekable();
        let mut right = list(right, second)?.into_iter().peekable();
        let mut pairs = Vec::new();
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Ok(pairs),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            let Some(name) = a.as_ref().or(b.as_ref()).map(|(name, _)| name.clone()) else {
                return Ok(pairs);
            };
            pairs.push((name, a.map(|(_, node)| node), b.map(|(_, node)| node)));
        }
    }
}

/// The names that do not have the same value on both sides, which are sorted.
fn differing(first: &[(Vec<u8>, Vec<u8>)], second: &[(Vec<u8>, Vec<u8>)]) -> Vec<Vec<u8>> {
    let only = |here: &[(Vec<u8>, Vec<u8>)], there: &[(Vec<u8>, Vec<u8>)]| -> Vec<Vec<u8>> {
        here.iter().filter(|pair| there.binary_search(pair).is_err()).map(|(name, _)| name.clone()).collect()
    };
    let mut names = only(first, second);
    names.extend(only(second, first));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
