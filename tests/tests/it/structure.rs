//! Imports within each crate go one way, and no files import each other in a cycle.
//!
//! [`FLOWS`] lists the crates, each with their top-level modules from the lowest to the highest. A
//! crate whose imports do not go one way yet is not in the list; `crates` (run with `--ignored
//! --nocapture`) prints the state of all crates. Test modules are ignored. An import through a
//! re-export counts as an import of the re-exporting file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates, and their top-level modules from the lowest to the highest. Modules on one line may
/// import each other, as long as there is no cycle between their files. A module below the top has
/// its own place if it is named: `servers/args`.
const FLOWS: &[(&str, &[&[&str]])] = &[
    (
        "read",
        &[
            &["names"],
            &["escape"],
            &["error"],
            &["accounting", "access"],
            &["volume"],
            &["metadata"],
            &["engine"],
            &["content"],
            &["image"],
            &["structures"],
            &["tree"],
            &["profile"],
            &["lib"],
        ],
    ),
    (
        "host",
        &[
            &["preload", "replaced", "device", "known_format", "patterns"],
            &["open", "stat", "new_file"],
            &["lib"],
        ],
    ),
    (
        "write",
        &[
            &["paths", "skopeo"],
            &["error"],
            &["progress", "options"],
            &["output", "tree"],
            &["sources"],
            &["data"],
            &["metadata"],
            &["verify"],
            &["build"],
            &["builder", "estimate", "incremental"],
            &["lib"],
        ],
    ),
    (
        "update",
        &[
            &["error"],
            &["image"],
            &["format"],
            &["apply"],
            &["memory", "sequence", "delta"],
            &["lib"],
        ],
    ),
    (
        "ferofs",
        &[
            &["error"],
            &["range_marks", "select"],
            &["check", "diff", "extract", "inspect", "patch", "seal", "signature"],
            &["lib"],
        ],
    ),
    (
        "cli",
        &[
            &["print", "exit"],
            &["signals", "args", "servers/args"],
            &["cmd", "servers"],
            &["compat"],
            &["lib"],
        ],
    ),
    (
        "verity",
        &[
            &["digest"],
            &["error", "sha256"],
            &["params"],
            &["layout", "fsverity", "superblock"],
            &["tree"],
            &["verify"],
            &["seal"],
            &["write_hasher"],
            &["lib"],
        ],
    ),
    (
        "serve",
        &[
            &["error", "own_file", "ranges"],
            &["object", "confine"],
            &["cache"],
            &["http"],
            &["fetch"],
            &["source"],
            &["channel", "open"],
            &["oci", "pull"],
            &["location"],
            &["lib"],
        ],
    ),
    ("device", &[&["failure"], &["args"], &["change", "check"], &["delta", "mount"], &["lib"]]),
    ("capi", &[&["status"], &["image"], &["content", "delta"], &["names"], &["lib"]]),
    (
        "fuse",
        &[
            &["attr", "damage_log", "sandbox", "stats", "waiting_threads"],
            &["page_store"],
            &["filesystem"],
            &["read_around"],
            &["session"],
            &["lib"],
        ],
    ),
];

#[test]
fn imports_go_one_way() {
    for (name, flow) in FLOWS {
        let found = Crate::read(name);
        assert_eq!(
            found.cycles(),
            Vec::<Vec<String>>::new(),
            "crates/{name}: files that import each other"
        );
        assert_eq!(
            found.against(flow),
            Vec::<String>::new(),
            "crates/{name}: imports against {flow:?}"
        );
    }
}

/// Linux 6.18 can wait without end for a page of a hostile image that was unmounted, and then
/// nothing on the machine can sync. FUSE is for such images, and a virtual machine for Linux.
#[test]
fn hostile_images_are_not_mounted_by_this_kernel() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pending: Vec<PathBuf> = [
        "tests/tests/it/hostile",
        "tests/tests/it/common/hostile.rs",
        "campaigns/src/hostile",
        "fuzz",
    ]
    .iter()
    .map(|path| repository.join(path))
    .collect();
    let mut files = 0;
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            // What cargo builds is not a source.
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            pending.extend(
                entries.filter(|path| !path.ends_with("target") && !path.ends_with("corpus")),
            );
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            for call in ["Mount::kernel", "mount::mount(", "\"--kernel\"", "need::kernel_erofs"] {
                assert!(
                    !text.contains(call),
                    "{}: {call} would mount hostile images",
                    path.display()
                );
            }
        }
    }
    assert!(files > 15, "{files}: the sources were not found");
}

/// Prints the cycles of every crate.
#[test]
#[ignore = "prints the state of all crates, and checks nothing"]
fn crates() {
    let mut folders: Vec<_> = std::fs::read_dir(crates_folder()).unwrap().flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    for folder in folders {
        let name = folder.file_name().into_string().unwrap();
        let cycles = Crate::read(&name).cycles();
        println!("crates/{name}: {} cycles", cycles.len());
        cycles.iter().for_each(|cycle| println!("  {} files: {}", cycle.len(), cycle.join(" ")));
    }
}

/// The path of a module from the crate's root, which has an empty path.
type Module = Vec<String>;

struct Crate {
    /// Modules, and what each imports.
    files: BTreeMap<Module, BTreeSet<Module>>,
}

fn crates_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

impl Crate {
    fn read(name: &str) -> Self {
        let mut sources = BTreeMap::new();
        let mut pending = vec![(crates_folder().join(name).join("src"), Module::new())];
        while let Some((folder, at)) = pending.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
                let is_root = matches!(stem.as_str(), "lib" | "main" | "mod");
                let module = if is_root {
                    at.clone()
                } else {
                    [at.as_slice(), std::slice::from_ref(&stem)].concat()
                };
                if stem == "tests" {
                    continue;
                } else if path.is_dir() {
                    pending.push((path, module));
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    sources.insert(module, code_of(&text));
                }
            }
        }
        let imports = |module: &Module, code: &str| {
            let paths =
                paths_in(code).into_iter().filter_map(|path| resolve(module, &path, &sources));
            paths.filter(|to| to != module).collect()
        };
        let files =
            sources.iter().map(|(module, code)| (module.clone(), imports(module, code))).collect();
        Self { files }
    }

    /// Sets of files that import each other, directly or through others.
    fn cycles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<_, _> =
            self.files.keys().map(|from| (from, self.reached_from(from))).collect();
        let mut cycles = BTreeSet::new();
        for (from, reach) in &reached {
            let back = reach.iter().filter(|to| reached[*to].contains(*from));
            let cycle: BTreeSet<String> = back.map(|module| shown(module)).collect();
            if cycle.len() > 1 {
                cycles.insert(cycle);
            }
        }
        cycles.into_iter().map(|cycle| cycle.into_iter().collect()).collect()
    }

    fn reached_from(&self, from: &Module) -> BTreeSet<&Module> {
        let mut reached = BTreeSet::new();
        let mut pending: Vec<&Module> = self.files[from].iter().collect();
        while let Some(module) = pending.pop() {
            if reached.insert(module) {
                pending.extend(&self.files[module]);
            }
        }
        reached
    }

    /// Imports of a module that is higher in the `flow`, and modules that the flow does not have.
    fn against(&self, flow: &[&[&str]]) -> Vec<String> {
        let level = |module: &Module| {
            let place = |name: &str| flow.iter().position(|modules| modules.contains(&name));
            let top = module.first().map_or("lib", String::as_str);
            module.get(..2).and_then(|names| place(&names.join("/"))).or_else(|| place(top))
        };
        let mut against = Vec::new();
        for (from, imports) in &self.files {
            if level(from).is_none() {
                against.push(format!("{} is not in the flow", shown(from)));
            }
            let higher = imports.iter().filter(|to| level(to) > level(from));
            against.extend(higher.map(|to| format!("{} imports {}", shown(from), shown(to))));
        }
        against
    }
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("/") }
}

/// A file without its comments and without its tests, which come last.
fn code_of(text: &str) -> String {
    let tests = text.find("mod tests {").and_then(|tests| text[..tests].rfind("#[cfg(test)]"));
    let tests = tests.unwrap_or(text.len());
    let lines = text[..tests].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths that a file names: those of `use`, and others that start with `crate`, `self` or
/// `super`.
fn paths_in(code: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some((before, after)) =
        split_at_first(rest, &["use ", "crate::", "super::", "self::"])
    {
        let starts =
            !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
        let is_use = after.starts_with("use ");
        let len = if is_use {
            after.find(';').unwrap_or(after.len())
        } else {
            after
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
                .unwrap_or(after.len())
        };
        if starts {
            let path: String = after[..len]
                .trim_start_matches("use ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            expand(&Module::new(), &path, &mut paths);
        }
        rest = &after[len.max(1)..];
    }
    paths
}

fn split_at_first<'a>(text: &'a str, patterns: &[&str]) -> Option<(&'a str, &'a str)> {
    patterns.iter().filter_map(|pattern| text.find(pattern)).min().map(|at| text.split_at(at))
}

/// Adds the paths of a tree such as `a::{b, c::{d, e}}`.
fn expand(before: &Module, tree: &str, paths: &mut Vec<Module>) {
    let tree = tree.trim();
    let Some(brace) = tree.find('{') else {
        let names = tree.split(" as ").next().unwrap_or_default().split("::");
        let names = names
            .map(str::trim)
            .filter(|name| !name.is_empty() && *name != "self")
            .map(str::to_owned);
        let is_here = before.is_empty() && tree.starts_with("self");
        let here = is_here.then(|| "self".to_owned());
        paths.push(before.iter().cloned().chain(here).chain(names).collect());
        return;
    };
    let names =
        tree[..brace].split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let before: Module = before.iter().cloned().chain(names).collect();
    let (mut depth, mut start) = (0, brace + 1);
    for (at, c) in tree.char_indices().skip(brace) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || (c == '}' && depth == 0) {
            if !tree[start..at].trim().is_empty() {
                expand(&before, &tree[start..at], paths);
            }
            start = at + 1;
        }
    }
}

/// The file that contains what `path` names in the file of `module`; `None` if it is not in this
/// crate.
fn resolve<T>(module: &Module, path: &Module, files: &BTreeMap<Module, T>) -> Option<Module> {
    let mut at = module.clone();
    let mut names = path.iter().peekable();
    match names.peek()?.as_str() {
        "crate" => {
            at.clear();
            names.next();
        }
        "self" => drop(names.next()),
        "super" => {
            while names.next_if(|name| *name == "super").is_some() {
                at.pop()?;
            }
        }
        // A module of this one, or another crate.
        child => {
            let below = [at.as_slice(), &[child.to_owned()]].concat();
            files.contains_key(&below).then_some(())?;
        }
    }
    for name in names {
        at.push(name.clone());
        if !files.contains_key(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

#[test]
fn paths_are_found() {
    let code = "use super::{a, b::{C, d as e}};\npub use crate::f::G;\nfn h() { self::i(); reuse crate_x(); }";
    let found: Vec<String> = paths_in(code).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["super::a", "super::b::C", "super::b::d", "crate::f::G", "self::i"]);
}
