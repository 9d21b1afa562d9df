//! Compares two trees, each of an image or a directory.
//!
//! Both trees are walked together, in the order of names, one directory at a time, so that memory
//! depends on the largest directory. `ferofs_read::walk` does not fit: it walks one image, in
//! another order, and one tree can be a directory of the host. Content is read last, and only if
//! needed: not if the sizes differ, and not if both trees are of the same image and the extents are
//! the same.

mod change;
mod content;
mod side;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Result;
use ferofs_read::FileType;

pub use crate::select::Selection;
pub use change::{Change, ChangeKind, Differences, Event, Options, Stat};
pub use side::Side;
use side::{FileId, Node, Tree};

/// Compares `first` with `second`, and calls `each` for each event, in the order of paths, until it
/// breaks.
///
/// # Errors
/// Errors of opening the roots, and those that [end all work](crate::Error::ends_all). Others are
/// events.
pub fn diff(
    first: &Side,
    second: &Side,
    options: &Options,
    mut each: impl FnMut(Event) -> ControlFlow<()>,
) -> Result<()> {
    let trees = [Tree::new(first), Tree::new(second)];
    let same_image = first.is_same_image(second);
    let mut walk = Diff { trees, same_image, options, linked: Default::default() };
    let [first, second] = [walk.trees[0].root()?, walk.trees[1].root()?];
    // The directories from the root to the current one, each with the length of its path and its
    // remaining entries. The path is stored once: the paths of a deep tree can be far longer than
    // its image.
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
        if walk.is_excluded(&path, first.as_ref(), second.as_ref()) {
            continue;
        }
        let here = Path::new(OsStr::from_bytes(&path));
        options.compared.add(1);
        let ended = match walk.compare(here, first.as_ref(), second.as_ref()) {
            Some(Event::Failed { error, .. }) if error.ends_all() => return Err(error),
            Some(event) => each(event).is_break(),
            None => false,
        };
        if ended {
            break;
        }
        match walk.entries(path.len(), first, second) {
            Ok(entries) => open.push((path.len(), entries.into_iter())),
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
    /// The file that has the same name in the other tree, for each file of the first and of the
    /// second tree with several names.
    linked: [HashMap<FileId, FileId>; 2],
}

/// A name, and its file in both trees.
type Entry = (OsString, Option<Node>, Option<Node>);

impl Diff<'_> {
    /// Whether `path`, with all names below it, is left out.
    fn is_excluded(&self, path: &[u8], first: Option<&Node>, second: Option<&Node>) -> bool {
        let select = &self.options.select;
        if path.is_empty() || select.is_all() {
            return false;
        }
        let is_dir = |tree: &Tree<'_>, node: Option<&Node>| {
            node.is_some_and(|node| {
                tree.stat(node).is_ok_and(|stat| stat.file_type == FileType::Directory)
            })
        };
        select.excludes(path, is_dir(&self.trees[0], first) || is_dir(&self.trees[1], second))
    }

    fn compare(
        &mut self,
        path: &Path,
        first: Option<&Node>,
        second: Option<&Node>,
    ) -> Option<Event> {
        let kind = match (first, second) {
            (Some(first), Some(second)) => {
                self.changed(first, second).map(|changed| changed.map(ChangeKind::Changed))
            }
            (Some(first), None) => {
                self.trees[0].stat(first).map(|stat| Some(ChangeKind::Removed(stat)))
            }
            (None, Some(second)) => {
                self.trees[1].stat(second).map(|stat| Some(ChangeKind::Added(stat)))
            }
            (None, None) => Ok(None),
        };
        let path = path.to_owned();
        match kind {
            Ok(kind) => kind.map(|kind| Event::Change(Change { path, kind })),
            Err(error) => Some(Event::Failed { path, error }),
        }
    }

    fn changed(&mut self, first: &Node, second: &Node) -> Result<Option<Differences>> {
        let links = self.options.links && self.links_differ(first, second)?;
        if self.is_same_inode(first, second) && !links {
            return Ok(None);
        }
        let [left, right] = &self.trees;
        let stat = [left.stat(first)?, right.stat(second)?];
        let [a, b] = &stat;
        let mut changed = Differences {
            stat,
            file_type: a.file_type != b.file_type,
            content: false,
            mode: false,
            owner: false,
            mtime: false,
            xattrs: Vec::new(),
            links: links && a.file_type == b.file_type,
        };
        if !changed.file_type {
            let options = self.options;
            // Linux ignores the permissions of symbolic links.
            changed.mode =
                options.mode && a.permissions != b.permissions && a.file_type != FileType::Symlink;
            changed.owner = options.owner && (a.uid, a.gid) != (b.uid, b.gid);
            changed.mtime = options.times && a.mtime != b.mtime;
            if options.xattrs {
                changed.xattrs = differing(&left.xattrs(first)?, &right.xattrs(second)?);
            }
            changed.content = options.content && self.content_differs(first, second, &stat)?;
        }
        Ok((!changed.is_same()).then_some(changed))
    }

    /// Whether a file of one tree is here compared with another file than at an earlier name: it
    /// has hard links that the other tree does not have.
    fn links_differ(&mut self, first: &Node, second: &Node) -> Result<bool> {
        let [left, right] = &self.trees;
        let (Some((a, a_linked)), Some((b, b_linked))) =
            (left.identity(first)?, right.identity(second)?)
        else {
            return Ok(false);
        };
        let [of_left, of_right] = &mut self.linked;
        if !a_linked && !b_linked {
            return Ok(false);
        }
        let (pair_of_a, pair_of_b) =
            (*of_left.entry(a).or_insert(b), *of_right.entry(b).or_insert(a));
        Ok((pair_of_a, pair_of_b) != (b, a))
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

    /// Whether both are the same inode of the same image: then nothing differs, also below it.
    fn is_same_inode(&self, first: &Node, second: &Node) -> bool {
        self.same_image && first.nid().is_some() && first.nid() == second.nid()
    }

    /// The entries of both directories, in the order of names.
    fn entries(
        &mut self,
        path_len: usize,
        first: Option<Node>,
        second: Option<Node>,
    ) -> Result<Vec<Entry>> {
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
        let mut entries = Vec::new();
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Ok(entries),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            let Some(name) = a.as_ref().or(b.as_ref()).map(|(name, _)| name.clone()) else {
                return Ok(entries);
            };
            entries.push((name, a.map(|(_, node)| node), b.map(|(_, node)| node)));
        }
    }
}

/// The names whose values differ, or that only one list has. Both lists are sorted.
fn differing(first: &[(Vec<u8>, Vec<u8>)], second: &[(Vec<u8>, Vec<u8>)]) -> Vec<Vec<u8>> {
    let only = |here: &[(Vec<u8>, Vec<u8>)], there: &[(Vec<u8>, Vec<u8>)]| -> Vec<Vec<u8>> {
        here.iter()
            .filter(|pair| there.binary_search(pair).is_err())
            .map(|(name, _)| name.clone())
            .collect()
    };
    let mut names = only(first, second);
    names.extend(only(second, first));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
