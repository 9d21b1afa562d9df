//! The changes that settings make to the tree that an image must show.

use std::collections::BTreeMap;

use ferofs_tests::acl;
use ferofs_tests::compare::Field;
use ferofs_tests::model::{Kind, Model, Name, parent};
use sha2::{Digest, Sha256};

/// The change that one setting makes to the tree.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// No change.
    None,
    /// Every file gets this time.
    AllTime(i64),
    /// Replaces later times by this one.
    Clamp(i64),
    /// Compact inodes, of 32 bytes, lose their times.
    TimesMayDiffer,
    Uid(u32),
    Gid(u32),
    AddUid(u32),
    AddGid(u32),
    NoXattrs,
    /// Every file gets this attribute, with this value.
    Label(&'static [u8], &'static [u8]),
    /// Regular files get the SHA-256 of their content under this name.
    FileDigest(&'static [u8]),
    /// Leaves out this name and all names below it.
    Exclude(Name),
    /// Leaves out names whose path contains this text, and all names below them.
    ExcludeText(&'static str),
    /// Hard links become separate files.
    Dereference,
    /// Leaves out names whose last component starts with this text, and all names below them.
    ExcludeStart(&'static str),
}

impl Effect {
    /// Changes the tree, and returns the fields that must not be compared.
    pub(crate) fn apply(&self, model: &mut Model) -> Option<Field> {
        match self {
            Effect::None => {}
            Effect::AllTime(seconds) => model.used().for_each(|file| file.time = (*seconds, 0)),
            Effect::Clamp(seconds) => {
                for file in model.used().filter(|file| file.time > (*seconds, 0)) {
                    file.time = (*seconds, 0);
                }
            }
            Effect::TimesMayDiffer => return Some(Field::Mtime),
            Effect::Uid(uid) => model.used().for_each(|file| file.uid = *uid),
            Effect::Gid(gid) => model.used().for_each(|file| file.gid = *gid),
            Effect::AddUid(offset) => model.used().for_each(|file| {
                file.uid = file.uid.wrapping_add(*offset);
                add_to_acls(&mut file.xattrs, acl::USER, *offset);
            }),
            Effect::AddGid(offset) => model.used().for_each(|file| {
                file.gid = file.gid.wrapping_add(*offset);
                add_to_acls(&mut file.xattrs, acl::GROUP, *offset);
            }),
            Effect::NoXattrs => model.used().for_each(|file| file.xattrs.clear()),
            Effect::Label(key, value) => model.used().for_each(|file| {
                file.xattrs.insert(key.to_vec(), value.to_vec());
            }),
            Effect::FileDigest(key) => {
                for file in model.used() {
                    if let Kind::Regular(pieces) = &file.kind {
                        let mut digest = Sha256::new();
                        pieces.iter().for_each(|piece| digest.update(piece.bytes()));
                        let value = [b"sha256:".as_slice(), &digest.finalize()].concat();
                        file.xattrs.insert(key.to_vec(), value);
                    }
                }
            }
            Effect::Exclude(name) => model.remove(name),
            Effect::ExcludeText(text) => {
                let found =
                    |name: &Name| name.windows(text.len()).any(|part| part == text.as_bytes());
                let names: Vec<Name> =
                    model.names.keys().filter(|name| found(name)).cloned().collect();
                names.iter().for_each(|name| model.remove(name));
            }
            Effect::Dereference => {
                let Model { names, files } = model;
                for number in names.values_mut() {
                    files.push(files[*number].clone());
                    *number = files.len() - 1;
                }
            }
            Effect::ExcludeStart(text) => {
                let last = |name: &Name| {
                    name[if parent(name).is_empty() { 0 } else { parent(name).len() + 1 }..]
                        .starts_with(text.as_bytes())
                };
                let names: Vec<Name> =
                    model.names.keys().filter(|name| last(name)).cloned().collect();
                names.iter().for_each(|name| model.remove(name));
            }
        }
        None
    }
}

/// Adds `offset` to the IDs of the entries with this tag.
fn add_to_acls(xattrs: &mut BTreeMap<Vec<u8>, Vec<u8>>, tag: u16, offset: u32) {
    for (_, value) in
        xattrs.iter_mut().filter(|(name, _)| [acl::ACCESS, acl::DEFAULT].contains(&name.as_slice()))
    {
        for entry in value[4..].chunks_exact_mut(8).filter(|entry| entry[..2] == tag.to_le_bytes())
        {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            entry[4..].copy_from_slice(&id.wrapping_add(offset).to_le_bytes());
        }
    }
}
