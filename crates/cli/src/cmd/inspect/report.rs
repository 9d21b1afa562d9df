//! The report of `ferofs inspect` as text and as JSON.

use std::io::{self, Write};

use ferofs::inspect::{BlockKind, FileInfo, FileTotals, Inspection, Storage, type_name};
use ferofs::read::{Algorithm, FileType, Image, Superblock, Uuid};
use serde_json::{Map, Value, json};

use crate::args::byte_size::human;
use crate::cmd::linux::Requirement;
use crate::cmd::ls::time_string;
use crate::print::{json_path, shown};

/// File name extensions that the text shows at most: those with the most stored bytes.
const EXTENSIONS: usize = 15;
/// Ranges of blocks of one kind that the JSON lists at most. Layouts with more ranges are listed in
/// cells of equal size.
const MAX_RUNS: usize = 2000;
/// Cells of the map in the text at most: 8 rows of 64 letters.
const CELLS: u64 = 512;

/// Writes the report as text.
pub(super) fn write(
    image: &Image,
    inspection: &Inspection,
    out: &mut impl Write,
) -> io::Result<()> {
    let superblock = image.superblock();
    let field = |out: &mut dyn Write, name: &str, value: &dyn std::fmt::Display| {
        writeln!(out, "{name:<14}{value}")
    };
    field(out, "uuid", &Uuid(superblock.uuid).to_string())?;
    field(out, "label", &label(superblock))?;
    let created = superblock.epoch.saturating_add(superblock.build_time.into());
    field(out, "created", &time_string(created))?;
    let (size, blocks) = (human(size(superblock)), superblock.blocks);
    field(out, "size", &format!("{size}, {blocks} blocks of {}", superblock.block_size))?;
    field(out, "features", &features(superblock).join(" "))?;
    field(out, "algorithms", &algorithms(image).join(" "))?;
    field(out, "mounted by", &Requirement::of_image(superblock))?;
    if !image.device_slots().is_empty() {
        field(out, "devices", &image.device_slots().len())?;
    }
    let directories =
        inspection.types.get(type_name(FileType::Directory)).map_or(0, |group| group.files);
    let files =
        inspection.types.values().map(|group| group.files).sum::<u64>().saturating_sub(directories);
    field(
        out,
        "files",
        &format!("{files} in {directories} directories ({} names)", inspection.names),
    )?;

    writeln!(
        out,
        "\n{:<20} {:>9} {:>12} {:>12} {:>7}",
        "type", "number", "size", "stored", "ratio"
    )?;
    for (name, group) in &inspection.types {
        write_group(name, group, out)?;
    }
    writeln!(
        out,
        "\n{:<20} {:>9} {:>12} {:>12} {:>7}",
        "stored as", "extents", "size", "stored", "ratio"
    )?;
    for (storage, sum) in &inspection.storage {
        let group = FileTotals { files: sum.extents, size: sum.decoded, stored: sum.encoded };
        write_group(storage_name(*storage), &group, out)?;
    }
    writeln!(
        out,
        "\n{:<20} {:>9} {:>12} {:>12} {:>7}",
        "extension", "files", "size", "stored", "ratio"
    )?;
    for (name, group) in by_stored(inspection).into_iter().take(EXTENSIONS) {
        write_group(&shown(name.as_ref())[1..], group, out)?;
    }
    if !inspection.largest.is_empty() {
        writeln!(out, "\n{:>12} {:>12} {:>7}  largest files", "stored", "size", "ratio")?;
    }
    for file in &inspection.largest {
        let FileInfo { path, size, stored, .. } = file;
        writeln!(
            out,
            "{:>12} {:>12} {:>7}  {}",
            human(*stored),
            human(*size),
            ratio(*stored, *size),
            shown(path)
        )?;
    }
    let sharing = &inspection.sharing;
    writeln!(out, "\ndeduplication saves {}", human(sharing.deduplicated))?;
    if sharing.packed_size > 0 {
        writeln!(
            out,
            "{} files have {} in fragments; the packed inode has {} in {}",
            sharing.fragment_files,
            human(sharing.fragment_bytes),
            human(sharing.packed_size),
            human(sharing.packed_stored),
        )?;
    }
    write_map(inspection, out)
}

fn write_group(name: &str, group: &FileTotals, out: &mut impl Write) -> io::Result<()> {
    let name = if name.is_empty() { "(no extension)" } else { name };
    let (size, stored) = (human(group.size), human(group.stored));
    writeln!(
        out,
        "{name:<20} {:>9} {size:>12} {stored:>12} {:>7}",
        group.files,
        ratio(group.stored, group.size)
    )
}

/// Writes the map of the blocks, one letter for each cell.
fn write_map(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    let map = &inspection.map;
    let (per_cell, cells) = map.cells(CELLS);
    writeln!(out, "\nlayout, {per_cell} blocks per letter:")?;
    for row in cells.chunks(64) {
        writeln!(out, "  {}", row.iter().map(|kind| letter(*kind)).collect::<String>())?;
    }
    for kind in BlockKind::ALL {
        if map.total(kind) > 0 {
            writeln!(out, "  {} {:<10} {:>10} blocks", letter(kind), kind.name(), map.total(kind))?;
        }
    }
    writeln!(out, "  {:<12} {:>10} of these blocks", "shared", map.shared())
}

fn letter(kind: BlockKind) -> char {
    match kind {
        BlockKind::Hole => '.',
        BlockKind::Unused => '?',
        BlockKind::Metadata => 'M',
        BlockKind::Directory => 'D',
        BlockKind::Stored => 'S',
        BlockKind::Packed => 'F',
        BlockKind::Encoded(algorithm) => {
            ['4', 'X', 'G', 'Z'].get(usize::from(algorithm.id())).copied().unwrap_or('C')
        }
    }
}

/// The report as JSON.
pub(super) fn to_json(image: &Image, inspection: &Inspection) -> Value {
    let superblock = image.superblock();
    let groups = |groups: &mut dyn Iterator<Item = (String, FileTotals)>| -> Value {
        let pairs = groups.map(|(name, group)| {
            (name, json!({ "files": group.files, "size": group.size, "stored": group.stored }))
        });
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let storage: Map<_, _> = inspection
        .storage
        .iter()
        .map(|(storage, sum)| {
            let sum =
                json!({ "extents": sum.extents, "decoded": sum.decoded, "encoded": sum.encoded });
            (storage_name(*storage).to_owned(), sum)
        })
        .collect();
    let map = &inspection.map;
    let kinds: Map<_, _> = BlockKind::ALL
        .into_iter()
        .map(|kind| (kind.name().to_owned(), json!(map.total(kind))))
        .collect();
    let mut runs: Vec<_> = map
        .runs()
        .take(MAX_RUNS + 1)
        .map(|run| json!({ "block": run.start, "blocks": run.blocks, "kind": run.kind.name() }))
        .collect();
    if runs.len() > MAX_RUNS {
        let (per_cell, cells) = map.cells(MAX_RUNS as u64);
        let cell = |(block, kind): (u64, &BlockKind)| json!({ "block": block, "blocks": per_cell.min(map.blocks() - block), "kind": kind.name() });
        let starts = (0..map.blocks()).step_by(usize::try_from(per_cell).unwrap_or(usize::MAX));
        runs = starts.zip(&cells).map(cell).collect();
    }
    let (sharing, linux) = (&inspection.sharing, Requirement::of_image(superblock));
    json!({
        "superblock": {
            "uuid": Uuid(superblock.uuid).to_string(),
            "label": label(superblock),
            "created": superblock.epoch.saturating_add(superblock.build_time.into()),
            "block_size": superblock.block_size.bytes(),
            "blocks": superblock.blocks,
            "inodes": superblock.inodes,
            "root": superblock.root.get(),
            "features": features(superblock),
            "algorithms": algorithms(image),
            "linux": linux.version.to_string(),
            "linux_page_size": linux.page,
            "devices": image.device_slots().len(),
        },
        "names": inspection.names,
        "with_xattrs": inspection.with_xattrs,
        "types": groups(&mut inspection.types.iter().map(|(name, group)| ((*name).to_owned(), *group))),
        "extensions": groups(&mut inspection.extensions.iter().map(|(name, group)| (name.clone(), *group))),
        "layouts": inspection.layouts,
        "storage": storage,
        "largest": inspection.largest.iter().map(|file| json!({
            "path": json_path(&file.path),
            "size": file.size,
            "stored": file.stored,
            "extents": file.extents,
        })).collect::<Vec<_>>(),
        "sharing": {
            "deduplicated": sharing.deduplicated,
            "fragment_files": sharing.fragment_files,
            "fragment_bytes": sharing.fragment_bytes,
            "packed_size": sharing.packed_size,
            "packed_stored": sharing.packed_stored,
        },
        "extent_sizes": inspection.extent_sizes.bins().map(|(from, count)| [from, count]).collect::<Vec<_>>(),
        "ratios": inspection.ratios.bins().map(|(from, count)| [u64::from(from), count]).collect::<Vec<_>>(),
        "block_kinds": kinds,
        "shared_blocks": map.shared(),
        "layout": runs,
        "damage": inspection.damage.iter().map(|(path, corruption)| json!({
            "path": json_path(path),
            "message": corruption.to_string(),
        })).collect::<Vec<_>>(),
    })
}

/// Extensions sorted by stored bytes, the largest first.
pub(super) fn by_stored(inspection: &Inspection) -> Vec<(&String, &FileTotals)> {
    let mut all: Vec<_> = inspection.extensions.iter().collect();
    all.sort_by(|(a, left), (b, right)| right.stored.cmp(&left.stored).then_with(|| a.cmp(b)));
    all
}

/// The bytes of an image.
pub(super) fn size(superblock: &Superblock) -> u64 {
    superblock.blocks.saturating_mul(superblock.block_size.bytes64())
}

pub(super) const fn storage_name(storage: Storage) -> &'static str {
    match storage {
        Storage::Stored => "stored",
        Storage::Inline => "inline",
        Storage::Encoded(algorithm) => algorithm.name(),
        Storage::Fragment => "fragment",
        Storage::Hole => "hole",
    }
}

pub(super) fn ratio(stored: u64, size: u64) -> String {
    if size == 0 { "-".to_owned() } else { format!("{:.1}%", stored as f64 * 100.0 / size as f64) }
}

pub(super) fn label(superblock: &Superblock) -> String {
    let end = superblock
        .volume_name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(superblock.volume_name.len());
    superblock.volume_name[..end].escape_ascii().to_string()
}

pub(super) fn features(superblock: &Superblock) -> Vec<String> {
    let compat = superblock.compat.iter_names().map(|(name, _)| name);
    let incompat = superblock.incompat.iter_names().map(|(name, _)| name);
    compat.chain(incompat).map(|name| name.to_lowercase().replace("bit48", "48bit")).collect()
}

pub(super) fn algorithms(image: &Image) -> Vec<&'static str> {
    let configs = image.configs();
    Algorithm::ALL.into_iter().filter(|a| configs.contains(*a)).map(|a| a.name()).collect()
}
