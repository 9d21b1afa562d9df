//! What grew and what shrank between two images, for `ferofs inspect --compare`: by file,
//! directory, extension and use of blocks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ferofs::diff::{Event, Options, Side, diff};
use ferofs::escape::Escaped;
use ferofs::inspect::{BlockKind, Inspection};
use ferofs::read::{FileType, Image};
use serde_json::{Value, json};

use super::html::limit_depth;
use crate::args::byte_size::human;
use crate::exit::{About, Failure};
use crate::print::output::message;
use crate::print::shown;

/// Rows of a table at most: those that changed most.
const ROWS: usize = 15;

/// The bytes that something takes in the old and in the new image.
#[derive(Clone, Copy, Default)]
struct Sizes {
    old: u64,
    new: u64,
    /// The differences of all changed files, without their signs.
    changes: u64,
}

impl Sizes {
    const fn difference(self) -> u64 {
        self.old.abs_diff(self.new)
    }

    const fn add(&mut self, other: Self) {
        self.old = self.old.saturating_add(other.old);
        self.new = self.new.saturating_add(other.new);
        self.changes = self.changes.saturating_add(other.changes);
    }
}

/// The files whose content differs, and whether some could not be compared, which is printed. The
/// bytes in the image of others differ too: those of a fragment are a part of a packed inode, which
/// has other neighbours.
pub(super) fn changed_files(old: &Image, new: &Image) -> Result<(HashSet<PathBuf>, bool), Failure> {
    let [old, new] = [old, new].map(|image| Side::Image(Box::new(image.clone())));
    let mut options = Options::default();
    (options.mode, options.owner, options.times) = (false, false, false);
    (options.xattrs, options.links) = (false, false);
    let (mut changed, mut has_failed) = (HashSet::new(), false);
    let compared = diff(&old, &new, &options, |event| {
        match event {
            Event::Change(change) => drop(changed.insert(change.path)),
            Event::Failed { path, error } => {
                has_failed = true;
                message!("{}: {error}", shown(&path));
            }
        }
        ControlFlow::Continue(())
    });
    compared.without_subject()?;
    Ok((changed, has_failed))
}

/// The comparison as the page reads it. Both inspections list all files, and `changed` has those of
/// [`changed_files`].
pub(super) fn data(
    name: &Path,
    old: (&Image, &Inspection),
    new: (&Image, &Inspection),
    changed: &HashSet<PathBuf>,
) -> Value {
    let superblock = old.0.superblock();
    let mut files: HashMap<&Path, [Option<u64>; 2]> = HashMap::new();
    for (number, inspection) in [old.1, new.1].into_iter().enumerate() {
        for file in inspection.files.iter().filter(|file| file.file_type != FileType::Directory) {
            files.entry(&file.path).or_default()[number] = Some(file.stored);
        }
    }
    let mut directories: HashMap<&Path, Sizes> = HashMap::new();
    let mut counts = [0u64; 3];
    let mut rows = Vec::new();
    for (path, versions) in files {
        match versions {
            [None, _] => counts[0] += 1,
            [_, None] => counts[1] += 1,
            _ => counts[2] += u64::from(changed.contains(path)),
        }
        let [old, new] = versions.map(Option::unwrap_or_default);
        let mut sizes = Sizes { old, new, changes: 0 };
        if versions.contains(&None) || changed.contains(path) {
            sizes.changes = sizes.difference();
            rows.push((path.to_string_lossy().into_owned(), sizes));
        }
        for dir in limit_depth(path).ancestors().skip(1) {
            directories.entry(dir).or_default().add(sizes);
        }
    }
    let mut extensions: BTreeMap<&str, Sizes> = BTreeMap::new();
    for (name, group) in &old.1.extensions {
        extensions.entry(name).or_default().old = group.stored;
    }
    for (name, group) in &new.1.extensions {
        extensions.entry(name).or_default().new = group.stored;
    }
    let blocks = |(image, inspection): (&Image, &Inspection), kind| {
        inspection.map.total(kind).saturating_mul(image.superblock().block_size.bytes64())
    };
    let kinds = BlockKind::ALL.into_iter().map(|kind| {
        (
            kind.name().to_owned(),
            Sizes { old: blocks(old, kind), new: blocks(new, kind), changes: 0 },
        )
    });
    json!({
        "name": name.file_name().unwrap_or(name.as_os_str()).to_string_lossy(),
        "size": super::report::size(superblock),
        "content": old.1.types.values().map(|group| group.size).fold(0, u64::saturating_add),
        "added": counts[0],
        "removed": counts[1],
        "changed": counts[2],
        "directories": most_changed(without_mere_parents(directories)),
        "extensions": most_changed(extensions.into_iter().map(|(name, sizes)| (name.to_owned(), sizes)).collect()),
        "kinds": most_changed(kinds.collect()),
        "files": most_changed(rows),
    })
}

/// Writes the comparison with an image that takes `size` bytes as text; `data` is of [`data`].
pub(super) fn write(size: u64, data: &Value, out: &mut impl Write) -> io::Result<()> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let change = |old: u64, new: u64| {
        format!("{}{}", if new < old { '-' } else { '+' }, human(new.abs_diff(old)))
    };
    let old = number(&data["size"]);
    writeln!(out, "size   {} instead of {} ({})", human(size), human(old), change(old, size))?;
    writeln!(
        out,
        "files  {} added, {} removed, {} changed",
        data["added"], data["removed"], data["changed"]
    )?;
    for (key, head) in [
        ("files", "file"),
        ("directories", "directory"),
        ("extensions", "extension"),
        ("kinds", "use of blocks"),
    ] {
        let rows = data[key].as_array().map_or(&[][..], Vec::as_slice);
        if !rows.is_empty() {
            writeln!(out, "\n{:>12} {:>12} {:>13}  {head}", "before", "after", "change")?;
        }
        for row in rows {
            let (old, new) = (number(&row[1]), number(&row[2]));
            let name = row[0].as_str().filter(|name| !name.is_empty()).unwrap_or("(no extension)");
            let name =
                format!("{}{}", if key == "files" { "/" } else { "" }, Escaped(name.as_bytes()));
            writeln!(
                out,
                "{:>12} {:>12} {:>13}  {name}",
                human(old),
                human(new),
                change(old, new)
            )?;
        }
    }
    Ok(())
}

/// Leaves out directories without a changed file, and those that changed only, or nearly only, in
/// one directory below: it has the same row.
fn without_mere_parents(directories: HashMap<&Path, Sizes>) -> Vec<(String, Sizes)> {
    let is_most = |path: &Path, parent: &Path| {
        let changes = |dir| directories.get(dir).map_or(0, |sizes| u128::from(sizes.changes));
        changes(path) * 10 >= changes(parent) * 9
    };
    let mere: HashSet<&Path> = directories
        .keys()
        .filter_map(|path| path.parent().filter(|parent| is_most(path, parent)))
        .collect();
    let named = |(path, sizes): (&&Path, &Sizes)| (format!("/{}", path.to_string_lossy()), *sizes);
    let changed =
        directories.iter().filter(|(path, sizes)| sizes.changes > 0 && !mere.contains(*path));
    changed.map(named).collect()
}

/// The rows with the largest differences, the largest first.
fn most_changed(mut rows: Vec<(String, Sizes)>) -> Vec<Value> {
    rows.retain(|(_, sizes)| sizes.difference() > 0);
    rows.sort_by(|(a, left), (b, right)| {
        right.difference().cmp(&left.difference()).then_with(|| a.cmp(b))
    });
    rows.into_iter().take(ROWS).map(|(name, sizes)| json!([name, sizes.old, sizes.new])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_changed_only_below_is_left_out() {
        let mut directories = HashMap::new();
        for (path, old, new) in
            [("a/b/c/x", 10, 100), ("a/b/y", 50, 51), ("d/z", 80, 0), ("d/e/v", 0, 80)]
        {
            for dir in Path::new(path).ancestors().skip(1) {
                directories.entry(dir).or_insert_with(Sizes::default).add(Sizes {
                    old,
                    new,
                    changes: u64::abs_diff(old, new),
                });
            }
        }
        let rows = most_changed(without_mere_parents(directories));
        // `d` moved its bytes into `e`, so its sum did not change; `a` and `a/b` changed in `c`
        // only.
        assert_eq!(
            rows,
            [json!(["/", 140, 231]), json!(["/a/b/c", 10, 100]), json!(["/d/e", 0, 80])]
        );
    }
}
