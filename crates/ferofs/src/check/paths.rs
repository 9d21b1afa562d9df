//! The paths of all directories, each stored as its name and its parent: in a deep tree, the memory
//! of full paths would grow with the square of the depth.

use std::path::PathBuf;

use ferofs_read::names::path_of;
use parking_lot::RwLock;

/// The index of a directory in [`Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dir(usize);

/// A name in a directory; an empty name is the directory itself.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub dir: Dir,
    pub name: Vec<u8>,
}

#[derive(Debug)]
struct Node {
    parent: usize,
    name: Box<[u8]>,
}

/// The directories.
#[derive(Debug)]
pub(super) struct Paths {
    nodes: RwLock<Vec<Node>>,
}

impl Paths {
    pub(super) const ROOT: Dir = Dir(0);

    pub(super) fn new() -> Self {
        Self { nodes: RwLock::new(vec![Node { parent: 0, name: Box::default() }]) }
    }

    /// Adds the directory `name`.
    pub(super) fn add(&self, name: &Name) -> Dir {
        let mut nodes = self.nodes.write();
        let dir = Dir(nodes.len());
        nodes.push(Node { parent: name.dir.0, name: name.name.clone().into_boxed_slice() });
        dir
    }

    /// The path of `name`, from the root on; empty for the root.
    pub(super) fn path(&self, name: &Name) -> PathBuf {
        let nodes = self.nodes.read();
        let mut parts: Vec<&[u8]> = Vec::new();
        if !name.name.is_empty() {
            parts.push(&name.name);
        }
        let mut at = name.dir.0;
        // A parent's index is smaller than its child's, so this ends.
        while let Some(node) = nodes.get(at).filter(|_| at != 0) {
            parts.push(&node.name);
            at = node.parent;
        }
        parts.reverse();
        path_of(parts.join(&b'/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_whole_paths() {
        let paths = Paths::new();
        let name = |dir, name: &[u8]| Name { dir, name: name.to_vec() };
        assert_eq!(paths.path(&name(Paths::ROOT, b"")), PathBuf::new());
        let a = paths.add(&name(Paths::ROOT, b"a"));
        let b = paths.add(&name(a, b"b"));
        assert_eq!(paths.path(&name(b, b"c")), PathBuf::from("a/b/c"));
        assert_eq!(paths.path(&name(b, b"")), PathBuf::from("a/b"));
    }
}
