//! The licences of the crates that a program contains.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ferofs_devtools::shell;
use serde_json::Value;

/// How file names of licence texts start.
const TEXT_NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// A list of the crates of others in the program that is built from `sources` for `target`, with
/// their licences, then the texts, each once.
pub(super) fn of_program(sources: &Path, target: &str) -> Result<String> {
    let used = used_crates(sources, target)?;
    let metadata: Value = serde_json::from_slice(&cargo(
        sources,
        &["metadata", "--locked", "--format-version=1", "--filter-platform", target],
    )?)?;
    let mut list =
        String::from("This program contains these crates of others, each under its licence:\n\n");
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().context("cargo metadata: no packages")? {
        let field = |name: &str| package[name].as_str();
        let (name, version) =
            (field("name").unwrap_or_default(), field("version").unwrap_or_default());
        let name = format!("{name} {version}");
        if field("source").is_none() || !used.contains(&name) {
            continue;
        }
        let licence =
            field("license").with_context(|| format!("{name}: its Cargo.toml names no licence"))?;
        list += &format!("  {name}: {licence}\n");
        let manifest = field("manifest_path").context("cargo metadata: no manifest_path")?;
        let dir = Path::new(manifest).parent().unwrap_or(Path::new("/"));
        for text in licence_texts(dir)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    for (text, crates) in texts {
        let crates: Vec<String> = crates.into_iter().collect();
        list += &format!("\n{}\n{}:\n\n{}\n", "-".repeat(72), crates.join(", "), text.trim_end());
    }
    Ok(list)
}

/// Names and versions of the crates that are linked into the program: not those that only compile
/// it.
fn used_crates(sources: &Path, target: &str) -> Result<BTreeSet<String>> {
    let args = [
        "tree",
        "--locked",
        "--package=ferofs-cli",
        "--edges=normal",
        "--prefix=none",
        "--target",
        target,
    ];
    let tree = String::from_utf8(cargo(sources, &args)?)?;
    let name = |line: &str| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    };
    Ok(tree.lines().filter_map(name).collect())
}

/// The texts of the licences of the crate in `dir`.
fn licence_texts(dir: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_text = TEXT_NAMES.iter().any(|start| name.starts_with(start));
        if is_text && entry.file_type()?.is_file() {
            let text = fs::read(entry.path())?;
            texts.push(String::from_utf8_lossy(&text).replace('\r', ""));
        }
    }
    texts.sort();
    Ok(texts)
}

fn cargo(sources: &Path, args: &[&str]) -> Result<Vec<u8>> {
    shell::output(shell::cargo().args(args).current_dir(sources))
}
