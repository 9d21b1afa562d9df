//! The page of `ferofs inspect --html`: the template `page.html` with the data as JSON in it.
//!
//! Names come from the image and may be hostile. The JSON contains no `<`, `>` or `&`, so that no
//! name can end the script element, and the script of the page inserts names only as text. The size
//! of the page is limited: cells of the map, nodes of the tree and rows of the table beyond the
//! limits are summed up.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ferofs::inspect::{BlockKind, FileInfo, Inspection};
use ferofs::read::{FileType, Image, Uuid};
use serde_json::{Value, json};

use super::report;
use crate::args::byte_size::human;
use crate::cmd::ls::time_string;

const TEMPLATE: &str = include_str!("page.html");
/// The text in the template that the data replaces.
const DATA_MARKER: &str = "@DATA@";
/// Cells of the block map at most, to limit the size of the page. In larger images a cell stands
/// for several blocks.
const CELLS: u64 = 16_384;
/// Files with their own node and table row at most: those with the most stored bytes. The others
/// are summed up for each directory.
const FILES: usize = 6000;
/// Nodes of the tree at most, including directories; the limit keeps the page usable in a browser.
const NODES: usize = 20_000;
/// Levels of the tree at most; deeper files are added to the directory at this level.
const DEPTH: usize = 64;
/// File name extensions in the table at most: those with the most stored bytes.
const EXTENSIONS: usize = 16;

/// The whole page. `comparison` is of [`super::compare`], or null.
pub(super) fn page(
    subject: &Path,
    image: &Image,
    inspection: &Inspection,
    comparison: Value,
) -> String {
    let mut data = data(subject, image, inspection);
    data["compare"] = comparison;
    let data = escape(&data.to_string());
    let (head, tail) = TEMPLATE.split_once(DATA_MARKER).unwrap_or((TEMPLATE, ""));
    [head, &data, tail].concat()
}

/// Escapes the characters in JSON that have a meaning in HTML.
fn escape(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            c => text.push(c),
        }
    }
    text
}

fn data(subject: &Path, image: &Image, inspection: &Inspection) -> Value {
    let superblock = image.superblock();
    let map = &inspection.map;
    let size = report::size(superblock);
    let created = superblock.epoch.saturating_add(superblock.build_time.into());
    let content: u64 =
        inspection.types.values().map(|group| group.size).fold(0, u64::saturating_add);
    let sharing = &inspection.sharing;
    let facts = [
        ("UUID", Uuid(superblock.uuid).to_string()),
        ("Label", report::label(superblock)),
        ("Created", time_string(created)),
        ("Blocks", format!("{} of {} bytes", superblock.blocks, superblock.block_size)),
        ("Features", report::features(superblock).join(" ")),
        ("Algorithms", report::algorithms(image).join(" ")),
        ("Inodes", format!("{} ({} names)", superblock.inodes, inspection.names)),
        ("Deduplication saves", human(sharing.deduplicated)),
        (
            "Fragments",
            format!("{} of {} files", human(sharing.fragment_bytes), sharing.fragment_files),
        ),
        (
            "Packed inode",
            format!("{} in {}", human(sharing.packed_size), human(sharing.packed_stored)),
        ),
        (
            "Damage",
            if inspection.damage.is_empty() { "none seen".to_owned() } else { "yes".to_owned() },
        ),
    ];
    let (per_cell, cells) = map.cells(CELLS);
    let cells: String = cells.into_iter().map(|kind| char::from(b'0' + kind.code())).collect();
    let kinds: Vec<_> =
        BlockKind::ALL.into_iter().map(|kind| json!([kind.name(), map.total(kind)])).collect();
    let extensions: Vec<_> = report::by_stored(inspection)
        .into_iter()
        .take(EXTENSIONS)
        .map(|(name, group)| json!([name, group.files, group.size, group.stored]))
        .collect();
    let storage: Vec<_> = inspection
        .storage
        .iter()
        .map(|(storage, sum)| {
            json!([report::storage_name(*storage), sum.extents, sum.decoded, sum.encoded])
        })
        .collect();
    let tree = Tree::new(&inspection.files);
    json!({
        "name": subject.file_name().unwrap_or(subject.as_os_str()).to_string_lossy(),
        "size": size,
        "content": content,
        "facts": facts,
        "blockSize": superblock.block_size.bytes(),
        "blocks": map.blocks(),
        "perCell": per_cell,
        "cells": cells,
        "kinds": kinds,
        "extensions": extensions,
        "storage": storage,
        "extentSizes": inspection.extent_sizes.bins().map(|(from, count)| [from, count]).collect::<Vec<_>>(),
        "ratios": inspection.ratios.bins().map(|(from, count)| [u64::from(from), count]).collect::<Vec<_>>(),
        "nodes": tree.nodes.iter().map(Node::to_json).collect::<Vec<_>>(),
        "omitted": tree.omitted,
    })
}

/// The kind of a node, a letter in the page.
#[derive(Clone, Copy)]
enum Kind {
    Directory,
    File,
    Link,
    Special,
    /// The sum of this many files that have no node of their own.
    Others(u64),
}

struct Node {
    parent: usize,
    name: String,
    kind: Kind,
    size: u64,
    stored: u64,
    extents: u64,
}

impl Node {
    fn to_json(&self) -> Value {
        let (letter, name) = match self.kind {
            Kind::Directory => ("d", self.name.clone()),
            Kind::File => ("f", self.name.clone()),
            Kind::Link => ("l", self.name.clone()),
            Kind::Special => ("s", self.name.clone()),
            Kind::Others(count) => ("o", format!("({count} smaller files)")),
        };
        json!([self.parent, name, letter, self.size, self.stored, self.extents])
    }
}

/// The part of the tree that the page shows. A directory comes before the files in it.
struct Tree<'a> {
    nodes: Vec<Node>,
    directories: HashMap<&'a Path, usize>,
    omitted: u64,
}

impl<'a> Tree<'a> {
    fn new(files: &'a [FileInfo]) -> Self {
        let root = Node {
            parent: 0,
            name: String::new(),
            kind: Kind::Directory,
            size: 0,
            stored: 0,
            extents: 0,
        };
        let mut tree = Self {
            nodes: vec![root],
            directories: HashMap::from([(Path::new(""), 0)]),
            omitted: 0,
        };
        let mut largest: Vec<&FileInfo> = files.iter().collect();
        largest.sort_by(|a, b| {
            // `Path` compares component by component, which is slower than bytes.
            (b.stored, b.size, a.path.as_os_str()).cmp(&(a.stored, a.size, b.path.as_os_str()))
        });
        let mut others: HashMap<usize, (u64, u64, u64)> = HashMap::new();
        let mut shown = 0;
        for file in largest {
            if file.path == PathBuf::new() {
                tree.nodes[0].stored = file.stored;
                continue;
            }
            let is_dir = file.file_type == FileType::Directory;
            let place = limit_depth(&file.path);
            if !is_dir && shown < FILES && place == file.path && tree.add(file) {
                shown += 1;
                continue;
            }
            let nearest = tree.nearest(place);
            let sums = others.entry(nearest).or_default();
            sums.1 = sums.1.saturating_add(if is_dir { 0 } else { file.size });
            sums.2 = sums.2.saturating_add(file.stored);
            if !is_dir {
                sums.0 += 1;
                tree.omitted += 1;
            }
        }
        let mut others: Vec<_> = others.into_iter().collect();
        others.sort_unstable();
        for (parent, (count, size, stored)) in others {
            if count == 0 {
                // The blocks of directories themselves.
                tree.nodes[parent].stored = tree.nodes[parent].stored.saturating_add(stored);
                continue;
            }
            tree.nodes.push(Node {
                parent,
                name: String::new(),
                kind: Kind::Others(count),
                size,
                stored,
                extents: 0,
            });
        }
        tree
    }

    /// Adds a file and its missing parent directories. Returns `false` if this would exceed
    /// [`NODES`].
    fn add(&mut self, file: &'a FileInfo) -> bool {
        let missing: Vec<&Path> = file
            .path
            .ancestors()
            .skip(1)
            .take_while(|dir| !self.directories.contains_key(dir))
            .collect();
        if self.nodes.len() + missing.len() >= NODES {
            return false;
        }
        for dir in missing.into_iter().rev() {
            let parent = self.nearest(dir);
            self.directories.insert(dir, self.nodes.len());
            let (name, kind) = (name(dir), Kind::Directory);
            self.nodes.push(Node { parent, name, kind, size: 0, stored: 0, extents: 0 });
        }
        let kind = match file.file_type {
            FileType::Regular => Kind::File,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        };
        let parent = self.nearest(&file.path);
        let FileInfo { size, stored, extents, .. } = *file;
        self.nodes.push(Node { parent, name: name(&file.path), kind, size, stored, extents });
        true
    }

    /// The node of the nearest parent directory of `path` that has a node.
    fn nearest(&self, path: &Path) -> usize {
        path.ancestors().skip(1).find_map(|dir| self.directories.get(dir)).copied().unwrap_or(0)
    }
}

/// `path`, or its ancestor at level [`DEPTH`] if it is deeper.
pub(super) fn limit_depth(path: &Path) -> &Path {
    let too_deep = path.components().count().saturating_sub(DEPTH);
    path.ancestors().nth(too_deep).unwrap_or(path)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, file_type: FileType, stored: u64) -> FileInfo {
        let nid = ferofs::read::Nid::new(stored);
        let (size, path) = (stored * 2, path.into());
        FileInfo {
            path,
            file_type,
            size,
            stored,
            extents: 1,
            nid,
            links: 1,
            compressed_blocks: None,
        }
    }

    #[test]
    fn names_cannot_end_the_script_element() {
        let hostile = json!({ "name": "</script><script>alert(1)</script><!--&amp;" }).to_string();
        let escaped = escape(&hostile);
        assert!(!escaped.contains(['<', '>', '&']), "{escaped}");
        assert_eq!(
            serde_json::from_str::<Value>(&escaped).unwrap(),
            serde_json::from_str::<Value>(&hostile).unwrap()
        );
        assert_eq!(TEMPLATE.matches(DATA_MARKER).count(), 1);
    }

    #[test]
    fn the_tree_is_limited_and_its_sums_are_complete() {
        let mut files = vec![file("", FileType::Directory, 0), file("a", FileType::Directory, 7)];
        let count = FILES as u64 + 500;
        files.extend((0..count).map(|n| file(&format!("a/{n}/f"), FileType::Regular, n)));
        let tree = Tree::new(&files);
        assert!(tree.nodes.len() <= NODES + FILES);
        assert_eq!(tree.omitted, 500);
        let stored: u64 = tree.nodes.iter().map(|node| node.stored).sum();
        assert_eq!(stored, (0..count).sum::<u64>() + 7);
        assert!(tree.nodes.iter().enumerate().all(|(number, node)| node.parent < number.max(1)));
    }
}
