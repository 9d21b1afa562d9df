//! Checks hard links: names that share an inode in one tree must share one in the other.

use std::collections::HashMap;

use super::Field;

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
    /// Adds one name and the link count of the right side. Returns the contradiction with earlier names, if there is one.
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

    /// Files whose link count on the right differs from the number of names on the left: path and both numbers.
    pub(super) fn wrong_counts(self) -> impl Iterator<Item = (String, Field, [String; 2])> {
        self.left
            .into_values()
            .filter(|file| file.names != file.links)
            .map(|file| (file.path, Field::Links, [file.names.to_string(), file.links.to_string()]))
    }
}
