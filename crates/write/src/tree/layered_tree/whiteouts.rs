//! Whiteouts, by which a layer removes entries of lower layers: applies them, or converts them to
//! those of overlayfs. Recognizes the marks of overlayfs: whiteouts, opaque directories and
//! redirects.

use ferofs_format::inode::{FileType, Rdev, Timestamp};

use crate::paths::join;
use crate::tree::layered_tree::{
    Body, EntryFault, EntryPosition, FileId, LayeredFile, LayeredTree,
};

pub(crate) const OPAQUE: &[u8] = b"trusted.overlay.opaque";
pub(super) const ORIGIN: &[u8] = b"trusted.overlay.origin";

impl LayeredTree {
    /// Removes the entry of lower layers at `path`, with all below it. Entries of the current layer
    /// stay, with their directories, wherever they are in the layer. The targets of hard links and
    /// other whiteouts are not entries there. Source: OCI Image Format Specification, "Whiteouts".
    pub(crate) fn remove_lower(&mut self, path: &[u8]) -> Result<(), EntryFault> {
        let Some(EntryPosition { dir, name: Some(name) }) = self.resolve(path, false)? else {
            return Ok(());
        };
        let Some(link) = self.child(dir, &name) else { return Ok(()) };
        let own = link.layer == self.layer;
        self.remove_lower_below(link.file);
        if !own && let Some((names, texts)) = self.names_mut(dir) {
            texts.remove(names, &name);
        }
        Ok(())
    }

    /// Removes the entries of lower layers in the directory `path`.
    pub(crate) fn remove_lower_entries(&mut self, path: &[u8]) -> Result<(), EntryFault> {
        if let Some(dir) = self.file_at(path)? {
            self.remove_lower_below(dir);
        }
        Ok(())
    }

    fn remove_lower_below(&mut self, top: FileId) {
        let layer = self.layer;
        let mut dirs = vec![top];
        while let Some(dir) = dirs.pop() {
            // Once per layer is enough: entries that come later belong to this layer.
            if self.names(dir).is_some() && !self.emptied.insert(dir) {
                continue;
            }
            let Some((names, texts)) = self.names_mut(dir) else { continue };
            // A name of this layer is there because the layer has it, or something below it.
            texts.keep_layer(names, layer);
            dirs.extend(names.links().iter().map(|link| link.file));
        }
    }

    /// Puts overlayfs' whiteout at `path` in place of what lower layers have there, unless the
    /// current layer has an entry there. A directory of the current layer becomes opaque instead.
    pub(crate) fn put_whiteout(&mut self, path: &[u8], mtime: Timestamp) -> Result<(), EntryFault> {
        self.remove_lower(path)?;
        match self.file_at(path)? {
            Some(file) if self.names(file).is_some() => self.mark_opaque(path),
            Some(_) => Ok(()),
            None => {
                let body = Body::Device(FileType::CharDevice, Rdev { major: 0, minor: 0 });
                let xattrs = self.attributes(Vec::new());
                let layered_file = LayeredFile {
                    body,
                    permissions: 0,
                    uid: 0,
                    gid: 0,
                    mtime: mtime.into(),
                    xattrs,
                    ignores_options: false,
                };
                self.put(path, layered_file)?;
                self.mark_whiteout(path)
            }
        }
    }

    /// Records that `path` is a whiteout: a directory that replaces it is opaque.
    pub(crate) fn mark_whiteout(&mut self, path: &[u8]) -> Result<(), EntryFault> {
        let file = self.file_at(path)?;
        self.whiteouts.extend(file);
        Ok(())
    }

    /// Gives directories with whiteouts the attribute of copied-up directories: overlayfs looks for
    /// whiteouts only in those.
    pub(crate) fn mark_directories_with_whiteouts(&mut self) {
        let is_whiteout =
            |file: FileId| self.files[file.index()].is_whiteout() || self.whiteouts.contains(&file);
        let has_whiteouts = |dir: &FileId| {
            let names = self.names(*dir).into_iter().flat_map(|names| names.links());
            let has_origin =
                || self.files[dir.index()].xattrs.iter().any(|(name, _)| name == ORIGIN);
            names.map(|link| link.file).any(is_whiteout) && !has_origin()
        };
        let dirs: Vec<FileId> =
            (0..self.files.len() as u32).map(FileId).filter(has_whiteouts).collect();
        for dir in dirs {
            self.set_attribute(dir, ORIGIN, b"");
        }
    }

    /// Makes the directory `path` opaque, without what lower layers have there, and creates it if it
    /// is missing.
    pub(crate) fn mark_opaque(&mut self, path: &[u8]) -> Result<(), EntryFault> {
        let inside = join(path, b".");
        let dir = match self.file_at(path)? {
            Some(dir) if self.names(dir).is_some() => {
                // The current layer has it: it stays when the directory above becomes opaque.
                if let Some(EntryPosition { dir: above, name: Some(name) }) =
                    self.resolve(path, true)?
                {
                    self.mark_in_layer(above, &name);
                }
                dir
            }
            Some(_) => return Err(EntryFault::NotADirectory),
            None => {
                let implied = self.implied_directory();
                self.put(&inside, implied)?;
                self.file_at(path)?.ok_or(EntryFault::NotADirectory)?
            }
        };
        self.remove_lower_below(dir);
        self.make_opaque(dir);
        Ok(())
    }

    pub(super) fn make_opaque(&mut self, dir: FileId) {
        self.set_attribute(dir, OPAQUE, b"y");
        self.opaque.insert(dir);
    }

    /// Says that the directory `path` has the attribute of an opaque directory: it keeps it when a
    /// later layer describes the directory again.
    pub(crate) fn keep_opaque(&mut self, path: &[u8]) -> Result<(), EntryFault> {
        let dir = self.file_at(path)?;
        self.opaque.extend(dir);
        Ok(())
    }

    pub(super) fn copy_opaque_marks(&mut self, from: &LayeredFile, to: FileId) {
        for (name, value) in from.xattrs.iter().filter(|(name, _)| is_opaque_mark(name)) {
            self.set_attribute(to, name, value);
        }
    }

    fn set_attribute(&mut self, file: FileId, name: &[u8], value: &[u8]) {
        let known = &self.files[file.index()].xattrs;
        // Sets are sorted.
        let found = known.binary_search_by(|(old, _)| old.as_slice().cmp(name));
        if found.is_ok_and(|at| known[at].1 == value) {
            return;
        }
        let mut set = (**known).clone();
        set.retain(|(old, _)| old != name);
        set.push((name.to_vec(), value.to_vec()));
        self.files[file.index()].xattrs = self.attributes(set);
    }
}

impl LayeredFile {
    /// Whether this is a whiteout of overlayfs.
    pub(crate) fn is_whiteout(&self) -> bool {
        matches!(self.body, Body::Device(FileType::CharDevice, Rdev { major: 0, minor: 0 }))
    }

    /// Whether this is a directory.
    pub(crate) const fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }
}

/// The prefixes of overlayfs' attributes.
const PREFIXES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The marks of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlayMarks {
    /// The file removes its name from lower layers.
    pub(crate) is_whiteout: bool,
    /// The directory hides those of lower layers.
    pub(crate) is_opaque: bool,
    /// Its content or its entries are those of another path.
    pub(crate) redirects: bool,
}

impl OverlayMarks {
    pub(crate) fn of(
        kind: FileType,
        device: Option<Rdev>,
        attributes: &[(Vec<u8>, Vec<u8>)],
    ) -> Self {
        let mut marks = Self {
            is_whiteout: kind == FileType::CharDevice
                && device == Some(Rdev { major: 0, minor: 0 }),
            ..Self::default()
        };
        for (name, value) in attributes {
            match (own_part(name), kind) {
                (Some(b"opaque"), FileType::Directory) => marks.is_opaque |= value == b"y",
                (Some(b"whiteout"), FileType::Regular) => marks.is_whiteout = true,
                (Some(b"redirect" | b"metacopy"), _) => marks.redirects = true,
                _ => {}
            }
        }
        marks
    }
}

/// Whether an attribute has a meaning only for overlayfs, and none after the layers are merged.
pub(crate) fn is_overlay_mark(name: &[u8]) -> bool {
    own_part(name)
        .is_some_and(|part| matches!(part, b"opaque" | b"whiteout" | b"origin" | b"impure"))
}

/// Whether an attribute can mark a directory as opaque, so that it hides those of lower layers.
pub(super) fn is_opaque_mark(name: &[u8]) -> bool {
    own_part(name) == Some(b"opaque")
}

fn own_part(name: &[u8]) -> Option<&[u8]> {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(*prefix))
}
