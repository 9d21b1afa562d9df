//! Large files with the content of an earlier file: they get its data when it is stored.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

use crate::data::append::Appender;
use crate::data::identical::large::Duplicates;
use crate::tree::NodeId;

impl Appender<'_> {
    /// Gives each duplicate the data of its first file. If the image leaves out the first file, the first of its duplicates must
    /// be read instead: returns these files, and the others as their duplicates.
    pub(in crate::data) fn resolve_duplicates(
        &mut self,
        duplicates: &Duplicates,
    ) -> (Vec<NodeId>, Duplicates) {
        let mut new_firsts: HashMap<NodeId, NodeId> = HashMap::new();
        let (mut unresolved, mut others) = (Vec::new(), Duplicates::new());
        for (id, first) in duplicates {
            if self.is_skipped(*first) {
                match new_firsts.entry(*first) {
                    Entry::Occupied(new_first) => drop(others.insert(*id, *new_first.get())),
                    Entry::Vacant(new_first) => {
                        new_first.insert(*id);
                        unresolved.push(*id);
                    }
                }
                continue;
            }
            self.data.contents[id.index()] = self.data.contents[first.index()];
            let size = self.context.tree.node(*id).size;
            self.data.bytes_shared += size;
            self.options.run.progress.bytes_done.fetch_add(size, Ordering::Relaxed);
            self.options.run.progress.files_done.fetch_add(1, Ordering::Relaxed);
        }
        (unresolved, others)
    }
}
