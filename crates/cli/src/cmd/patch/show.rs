//! Prints patches and histories, as text and as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use ferofs::patch::{Change, ChangeKind, Origin, Patch, PatchReader, PatchSummary, State};
use ferofs::read::{Hex, Superblock, Uuid};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::byte_size::human;
use crate::args::other_format::unusable_update;
use crate::cmd::linux::{LinuxVersion, Requirement};
use crate::exit::{About, Outcome};
use crate::print::output::{is_verbose, json_text, print_line};
use ferofs::escape::Escaped;

/// Runs `ferofs patch show`.
pub(super) fn run(path: &Path, files: bool, as_json: bool) -> Outcome {
    let mut reader = PatchReader::open(path).map_err(|error| unusable_update(error, path))?;
    let mut patches = Vec::new();
    while let Some(patch) = reader.next_patch().about(path)? {
        patches.push(patch);
    }
    if as_json {
        let mut all = Vec::with_capacity(patches.len());
        for patch in &patches {
            all.push(patch_json(patch, files).about(path)?);
        }
        let value = match <[Value; 1]>::try_from(all) {
            Ok([one]) => one,
            Err(several) => json!({ "patches": several }),
        };
        print_line!("{}", json_text(&value))?;
        return Ok(0);
    }
    for (number, patch) in patches.iter().enumerate() {
        if patches.len() > 1 {
            print_line!(
                "{}patch {} of {}",
                if number > 0 { "\n" } else { "" },
                number + 1,
                patches.len()
            )?;
        }
        print_line!("{}", patch_text(patch, files).about(path)?)?;
    }
    Ok(0)
}

fn patch_json(patch: &Patch, files: bool) -> Result<Value, ferofs::Error> {
    let changes = patch.changes()?;
    let (parts, parents) = (patch.size_parts(), patch.new_parents());
    let [before, after] = patch.superblocks()?;
    let list = |change: &Change| {
        json!({
            "path": String::from_utf8_lossy(&change.path),
            "change": change.kind.name(),
            "bytes": change.bytes,
        })
    };
    let mut value = json!({
        "uuid": Uuid(patch.uuid()).to_string(),
        "time": patch.time(),
        "patch_bytes": patch.file_len(),
        "patch_parts": {
            "content": parts.content, "metadata": parts.metadata, "plans": parts.plans, "changes": parts.changes,
            "header": parts.header,
        },
        "base": { "state": patch.base_state(), "bytes": patch.base_size(), "digest": Hex(&patch.base_digest()).to_string() },
        "result": { "bytes": patch.result_size(), "digest": Hex(&patch.result_digest()).to_string() },
        "growth": {
            "bytes": patch.result_size() - patch.base_size(),
            "content": patch.content_len(),
            "metadata": patch.metadata_len(),
        },
        "cost": { "memory": patch.apply_memory()? },
        "inodes": { "before": before.inodes, "after": after.inodes },
        "new_features": new_features(&before, &after),
        "linux": { "before": linux(&before).to_string(), "after": linux(&after).to_string() },
        "changes": sums(&changes).into_iter().map(|(kind, (count, bytes))| {
            (kind.name().to_owned(), json!({ "files": count, "bytes": bytes }))
        }).collect::<serde_json::Map<String, Value>>(),
        "new_parents": { "directories": parents.directories, "bytes": parents.bytes },
    });
    if files {
        value["files"] = changes.iter().map(list).collect();
    }
    Ok(value)
}

/// The first version of Linux that mounts the image.
fn linux(superblock: &Superblock) -> LinuxVersion {
    Requirement::of_image(superblock).version
}

/// The names of features that only the patched image needs.
fn new_features(before: &Superblock, after: &Superblock) -> Vec<&'static str> {
    (after.incompat - before.incompat).iter_names().map(|(name, _)| name).collect()
}

fn patch_text(patch: &Patch, files: bool) -> Result<String, ferofs::Error> {
    let mut changes = patch.changes()?;
    let (parts, parents) = (patch.size_parts(), patch.new_parents());
    let [before, after] = patch.superblocks()?;
    let mut lines = vec![
        format!("for image      {}, state {}", Uuid(patch.uuid()), patch.base_state()),
        format!(
            "base           {}, digest {}",
            human(patch.base_size()),
            Hex(&patch.base_digest())
        ),
        format!(
            "result         {}, digest {}",
            human(patch.result_size()),
            Hex(&patch.result_digest())
        ),
        format!(
            "patch          {}: {} for data, {} for metadata, {} for how to encode it, {} for the list of changes",
            human(patch.file_len()),
            human(parts.content),
            human(parts.metadata),
            human(parts.plans),
            human(parts.changes),
        ),
        format!(
            "image grows by {}: {} of data, {} of metadata",
            human(patch.result_size() - patch.base_size()),
            human(patch.content_len()),
            human(patch.metadata_len()),
        ),
        format!("inodes         {} become {}", before.inodes, after.inodes),
    ];
    lines.push(format!("applying       takes up to {} of memory", human(patch.apply_memory()?)));
    lines.push(match (linux(&before), linux(&after)) {
        (before, after) if before == after => {
            format!("mounted by     Linux {after} or newer, as before")
        }
        (before, after) => {
            format!("mounted by     Linux {after} or newer; the base image by {before}")
        }
    });
    let new_features = new_features(&before, &after);
    if !new_features.is_empty() {
        lines.push(format!("new features   {}", new_features.join(", ")));
    }
    for (kind, (count, bytes)) in sums(&changes) {
        lines.push(format!("{:<14} {count} files, {}", kind.name(), human(bytes)));
    }
    if parents.directories > 0 {
        lines.push(format!(
            "{:<14} {} directories in which only .. changes, {}",
            "new parents",
            parents.directories,
            human(parents.bytes)
        ));
    }
    if files {
        changes.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        for change in changes {
            let path = Escaped(&change.path);
            lines.push(format!("{:>12} {:<10} /{path}", human(change.bytes), change.kind.name()));
        }
    }
    Ok(lines.join("\n"))
}

fn sums(changes: &[Change]) -> BTreeMap<ChangeKind, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for change in changes {
        let (count, bytes) = sums.entry(change.kind).or_insert((0, 0));
        *count += 1;
        *bytes += change.bytes;
    }
    sums
}

pub(super) fn created_text(created: &PatchSummary) -> String {
    let features: Vec<&str> = created.new_features.iter_names().map(|(name, _)| name).collect();
    let features = match features[..] {
        [] => String::new(),
        _ => format!("\nnew features: {}", features.join(", ")),
    };
    let parts =
        created.growth_parts.named().into_iter().filter(|(_, bytes)| *bytes > 0 && is_verbose());
    let parts: String =
        parts.map(|(name, bytes)| format!("\n{:>12} {name}", human(bytes))).collect();
    format!(
        "patch of {}; the image grows by {}{parts}{features}",
        human(created.patch_len),
        human(created.growth),
    )
}

pub(super) fn created_json(created: &PatchSummary) -> Value {
    let parts = created.growth_parts.named().into_iter();
    let parts: serde_json::Map<String, Value> =
        parts.map(|(name, bytes)| (name.replace(' ', "_"), bytes.into())).collect();
    json!({
        "patch_bytes": created.patch_len,
        "growth": { "bytes": created.growth, "content": created.content_len, "metadata": created.metadata_len, "parts": parts },
        "new_features": created.new_features.iter_names().map(|(name, _)| name).collect::<Vec<_>>(),
        "warnings": created.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

pub(super) fn log_text(states: &[State]) -> String {
    let line = |state: &State| {
        let origin = match state.origin {
            Origin::Built => "built".to_owned(),
            Origin::Patch => "patch".to_owned(),
            Origin::Rollback(to) => format!("back to {to}"),
        };
        let mark = if state.current { '*' } else { ' ' };
        let time = state.time.map_or_else(|| "-".to_owned(), date);
        let grown = human(state.end - state.start);
        format!(
            "{mark} {:>4}  {origin:<12} {time:<20} {:>12}  {} inodes",
            state.number, grown, state.inodes
        )
    };
    states.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The date and the time in UTC: `2026-01-31T13:05:00Z`; the seconds since 1970 if no calendar has
/// the year.
fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| format!("@{seconds}"), |time| time.to_string())
}

pub(super) fn log_json(states: &[State]) -> Value {
    let one = |state: &State| {
        let (origin, to) = match state.origin {
            Origin::Built => ("built", None),
            Origin::Patch => ("patch", None),
            Origin::Rollback(to) => ("rollback", Some(to)),
        };
        json!({
            "number": state.number, "origin": origin, "to": to, "time": state.time, "start": state.start,
            "end": state.end, "inodes": state.inodes, "current": state.current,
        })
    };
    json!({ "states": states.iter().map(one).collect::<Vec<_>>() })
}
