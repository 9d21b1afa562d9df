//! Which names are one file: on both sides the same names must be.

use std::collections::HashMap;

use super::Field;

/// A file's identity on its side: device and inode.
pub(super) type Identity = (u64, u64);

/// What is known of one file of the left tree.
struct Seen {
    right: Identity,
    path: String,
    names: u32,
    links: u32,
}

/// All files met so far.
#[derive(Default)]
pub(super) struct Links {
    left: HashMap<Identity, Seen>,
    right: HashMap<Identity, Identity>,
}

impl Links {
    /// Takes note of one name, and of the right side's link count. Says with what it clashes, if it does.
    pub(super) fn meet(
        &mut self,
        left: Identity,
        right: Identity,
        links: u32,
        path: &str,
    ) -> Option<[String; 2]> {
        let seen =
            self.left.entry(left).or_insert_with(|| Seen { right, path: path.to_owned(), names: 0, links });
        seen.names += 1;
        if seen.right != right {
            return Some([format!("one file with {}", seen.path), "a file of its own".into()]);
        }
        let owner = *self.right.entry(right).or_insert(left);
        if owner != left {
            let other = self.left.get(&owner).map_or("", |seen| &seen.path);
            return Some(["a file of its own".into(), format!("one file with {other}")]);
        }
        None
    }

    /// Files whose link count on the right is not the number of names on the left: path and both numbers.
    pub(super) fn miscounted(self) -> impl Iterator<Item = (String, Field, [String; 2])> {
        self.left
            .into_values()
            .filter(|seen| seen.names != seen.links)
            .map(|seen| (seen.path, Field::Links, [seen.names.to_string(), seen.links.to_string()]))
    }
}
