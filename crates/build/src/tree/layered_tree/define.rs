//! Applies [`Definitions`] to a layered tree.

use std::rc::Rc;

use super::{Body, EntryFault, FileId, LayeredFile, LayeredTree};
use crate::options::source::definition::{Change, DefinedBody, Definition, Owner};
use ferofs_format::inode::Timestamp;
use ferofs_format::xattr::acl;

impl LayeredTree {
    /// Applies one definition. A new file without a time of its own gets `time`; with `all_time`, each gets that.
    pub(crate) fn define(
        &mut self,
        definition: &Definition,
        time: Timestamp,
        all_time: Option<Timestamp>,
    ) -> Result<(), EntryFault> {
        let Definition { path, change } = definition;
        let mtime = |owner: &Owner, otherwise| {
            all_time.unwrap_or_else(|| owner.mtime.map_or(otherwise, |secs| Timestamp { secs, nanos: 0 }))
        };
        match change {
            Change::Put { body, owner } => {
                let body = match body {
                    DefinedBody::Directory => Body::Directory(Box::default()),
                    DefinedBody::Symlink(target) => Body::Symlink(target.clone().into()),
                    DefinedBody::Device(kind, device) => Body::Device(*kind, *device),
                    DefinedBody::Fifo => Body::Fifo,
                    DefinedBody::Socket => Body::Socket,
                };
                let existing = self.file_at(path)?;
                if !matches!(body, Body::Directory(_)) && existing.is_some_and(|file| self.has_names(file)) {
                    return Err(EntryFault::DirectoryNotEmpty);
                }
                let Owner { permissions, uid, gid, .. } = *owner;
                // A directory that exists keeps its attributes as it keeps its entries.
                let kept = existing.filter(|file| self.names(*file).is_some());
                let xattrs = match kept {
                    Some(file) => Rc::clone(&self.files[file.index()].xattrs),
                    None => self.attributes(Vec::new()),
                };
                let mtime = mtime(owner, time).into();
                self.put(
                    path,
                    LayeredFile { body, permissions, uid, gid, mtime, xattrs, ignores_options: true },
                )
            }
            Change::Modify(owner) => {
                let file = self.defined_file(path)?;
                let file = &mut self.files[file.index()];
                file.mtime = mtime(owner, file.mtime.into()).into();
                (file.permissions, file.uid, file.gid) = (owner.permissions, owner.uid, owner.gid);
                file.ignores_options = true;
                Ok(())
            }
            Change::Link { target } => self.link(path, target),
            Change::Xattr { name, value } => {
                if acl::is_malformed(name, value) {
                    return Err(EntryFault::Acl);
                }
                let file = self.defined_file(path)?;
                let mut set = (*self.files[file.index()].xattrs).clone();
                set.retain(|(known, _)| known != name);
                set.push((name.clone(), value.clone()));
                self.files[file.index()].xattrs = self.attributes(set);
                Ok(())
            }
        }
    }

    fn has_names(&self, file: FileId) -> bool {
        self.names(file).is_some_and(|names| !names.is_empty())
    }

    /// The file at `path`, which must exist.
    fn defined_file(&mut self, path: &[u8]) -> Result<FileId, EntryFault> {
        self.file_at(path)?.ok_or(EntryFault::Missing)
    }
}
