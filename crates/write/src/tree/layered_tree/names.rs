//! The names in the directories of a [`LayeredTree`](super::LayeredTree). A tree from an archive
//! has millions, so a name costs few bytes: its text is in one arena, which the
//! [`Tree`](crate::tree::Tree) takes over, and each directory has a list and a table of positions
//! in it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::tree::compact::{Arena, Text};

/// The index of a file in the list of a [`LayeredTree`](super::LayeredTree).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId(pub(super) u32);

impl FileId {
    pub(super) const ROOT: Self = Self(0);

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) name: Text,
    pub(super) file: FileId,
    /// The highest layer with this name.
    pub(super) layer: u32,
}

/// The names of one directory. The text of each is in the [`Texts`] of its tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    links: Vec<Link>,
    /// The positions in `links`, by the hash of the name.
    positions: HashTable<u32>,
}

impl Names {
    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// All names, in the order in which they came, but for those that took the place of a removed
    /// one.
    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(super) fn into_links(self) -> Vec<Link> {
        self.links
    }
}

/// The bytes of all names of a tree, and how they are hashed.
#[derive(Debug)]
pub(super) struct Texts {
    arena: Arena,
    /// With a random key, so that an archive cannot have names of equal hashes.
    hasher: RandomState,
}

impl Texts {
    /// No names.
    pub(super) fn new() -> Self {
        Self { arena: Arena::default(), hasher: RandomState::new() }
    }

    /// The bytes of all names, for the tree that is made of this one.
    pub(super) fn take_arena(&mut self) -> Arena {
        std::mem::take(&mut self.arena)
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    fn position(&self, names: &Names, name: &[u8]) -> Option<usize> {
        let links = &names.links;
        let same = |at: &u32| self.arena.get(links[*at as usize].name) == name;
        names.positions.find(self.hash(name), same).map(|at| *at as usize)
    }

    pub(super) fn get(&self, names: &Names, name: &[u8]) -> Option<Link> {
        self.position(names, name).map(|at| names.links[at])
    }

    /// Says that `layer` has `name`, if there is one.
    pub(super) fn set_layer(&self, names: &mut Names, name: &[u8], layer: u32) {
        if let Some(at) = self.position(names, name) {
            names.links[at].layer = layer;
        }
    }

    /// Adds `name`, or replaces what it leads to and returns true.
    pub(super) fn insert(
        &mut self,
        names: &mut Names,
        name: &[u8],
        file: FileId,
        layer: u32,
    ) -> bool {
        let hash = self.hash(name);
        let Self { arena, hasher } = self;
        let Names { links, positions } = names;
        let text = |at: &u32| arena.get(links[*at as usize].name);
        match positions.entry(hash, |at| text(at) == name, |at| hasher.hash_one(text(at))) {
            Entry::Occupied(found) => {
                let link = &mut links[*found.get() as usize];
                (link.file, link.layer) = (file, layer);
                true
            }
            Entry::Vacant(vacant) => {
                // A directory has fewer names than there can be files and links, which 32 bits
                // count.
                vacant.insert(links.len() as u32);
                links.push(Link { name: arena.push(name), file, layer });
                false
            }
        }
    }

    pub(super) fn remove(&self, names: &mut Names, name: &[u8]) {
        let Some(at) = self.position(names, name) else { return };
        self.remove_at(names, at);
    }

    /// Removes the names of layers below `layer`.
    pub(super) fn keep_layer(&self, names: &mut Names, layer: u32) {
        for at in (0..names.links.len())
            .rev()
            .filter(|at| names.links[*at].layer != layer)
            .collect::<Vec<_>>()
        {
            self.remove_at(names, at);
        }
    }

    /// Removes the name at `at`. The last name takes its place.
    fn remove_at(&self, names: &mut Names, at: usize) {
        let Names { links, positions } = names;
        let hash = |link: &Link| self.hash(self.arena.get(link.name));
        if let Ok(found) = positions.find_entry(hash(&links[at]), |found| *found as usize == at) {
            found.remove();
        }
        let last = links.len() - 1;
        if let Some(moved) = positions.find_mut(hash(&links[last]), |found| *found as usize == last)
        {
            *moved = at as u32;
        }
        links.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The operations on the names of a directory. A name is a number.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u32, u32),
        Remove(u8),
        SetLayer(u8, u32),
        KeepLayer(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (name, layer) = (0..40_u8, 0..3_u32);
        prop_oneof![
            8 => (name.clone(), any::<u32>(), layer.clone()).prop_map(|(n, file, l)| Step::Insert(n, file, l)),
            3 => name.clone().prop_map(Step::Remove),
            2 => (name, layer.clone()).prop_map(|(n, l)| Step::SetLayer(n, l)),
            1 => layer.prop_map(Step::KeepLayer),
        ]
    }

    proptest! {
        #[test]
        fn names_are_those_of_a_map(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut texts, mut names) = (Texts::new(), Names::default());
            let mut expected: BTreeMap<String, (u32, u32)> = BTreeMap::new();
            let name = |number: u8| format!("name {number}");
            for step in steps {
                match step {
                    Step::Insert(n, file, layer) => {
                        let replaced = texts.insert(&mut names, name(n).as_bytes(), FileId(file), layer);
                        prop_assert_eq!(replaced, expected.insert(name(n), (file, layer)).is_some());
                    }
                    Step::Remove(n) => {
                        texts.remove(&mut names, name(n).as_bytes());
                        expected.remove(&name(n));
                    }
                    Step::SetLayer(n, layer) => {
                        texts.set_layer(&mut names, name(n).as_bytes(), layer);
                        if let Some(link) = expected.get_mut(&name(n)) {
                            link.1 = layer;
                        }
                    }
                    Step::KeepLayer(layer) => {
                        texts.keep_layer(&mut names, layer);
                        expected.retain(|_, link| link.1 == layer);
                    }
                }
                for n in 0..40 {
                    let found = texts.get(&names, name(n).as_bytes()).map(|link| (link.file.0, link.layer));
                    prop_assert_eq!(found, expected.get(&name(n)).copied());
                }
                prop_assert_eq!(names.is_empty(), expected.is_empty());
            }
            let arena = texts.take_arena();
            let mut found: Vec<&[u8]> = names.into_links().iter().map(|link| arena.get(link.name)).collect();
            found.sort_unstable();
            prop_assert!(found.into_iter().eq(expected.keys().map(String::as_bytes)));
        }
    }
}
