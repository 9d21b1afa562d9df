//! The memory of patches whose plans have as many parts as a plan can have.

use std::process::Command;

use super::*;
use crate::format::columns::compress;
use crate::format::piece::{Piece, PieceKind};
use crate::format::plan::{ExtentKind, Item, Plan, Reference, Unit, UnitExtent};
use crate::format::relocation::Relocations;
use crate::format::writer;

/// For a process that only applies a patch: the directory of the fixture, and the bytes of memory that are stated.
const VARIABLES: [&str; 2] = ["FEROFS_TEST_APPLY", "FEROFS_TEST_MEMORY"];

/// Replaces the patch of `fixture` by one with a piece of this plan, which appends `len` bytes of the payload, all of them zeroes.
fn replace_patch(fixture: &Fixture, plan: &Plan, len: usize) {
    let mut header = fixture.patch().header().clone();
    header.result_size = header.base_size + len as u64;
    let piece = Piece {
        kind: PieceKind::Content,
        plan: plan.encode().unwrap(),
        payload_len: len,
        region_len: len,
        digest: [0; 16],
        compressed: true,
        delta_len: 0,
        payload: compress(&vec![0; len], 1).unwrap(),
        longest_extent: 0,
    };
    let methods = Compression::lz4(0).unwrap().methods;
    let relocations = Relocations::default().encode().unwrap().unwrap();
    let mut file = Vec::new();
    writer::write(&header, &methods, &[piece], &[], &relocations, |bytes| {
        file.extend_from_slice(bytes);
        Ok::<(), crate::Error>(())
    })
    .unwrap();
    std::fs::write(fixture.path("patch"), file).unwrap();
}

/// Applies the patch of a fixture in this process, and compares the largest resident set since its start with `bound`.
fn apply_within(dir: &Path, bound: u64) {
    let patch = Patch::open(&dir.join("patch")).unwrap();
    let medium = FileMedium::open(&dir.join("image")).unwrap();
    let applied = apply(&medium, &patch, TrailingData::Keep, &AtomicBool::new(false));
    // All pieces were made: only the digest of the result is another.
    let differs = |cause: &crate::Error| matches!(cause, crate::Error::Patch(PatchFault::ResultDiffers));
    assert!(matches!(&applied, Err(crate::Error::Unfinished { cause, .. }) if differs(cause)), "{applied:?}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    assert!(peak <= bound, "{peak} bytes, but {bound} are stated");
    assert!(bound < 3 * peak, "{peak} bytes, and {bound} are stated");
}

#[test]
fn the_stated_memory_is_enough_for_any_plan() {
    if let [Some(dir), Some(bound)] = VARIABLES.map(std::env::var_os) {
        return apply_within(Path::new(&dir), bound.to_str().unwrap().parse().unwrap());
    }
    let fixture = Fixture::new(None);
    let raw = Item::Raw { len: 1 };
    let extent = UnitExtent { kind: ExtentKind::Stored, len: 1, size: 1, capacity: 0 };
    let unit = Item::Unit(Unit { method: 0, content_len: 1, extents: vec![extent] });
    let references = vec![Reference::Image { pos: 0, len: 1 }; 2_700_000];
    // The decoded columns have nearly 8 MiB each.
    for (what, plan) in [
        ("raw items", Plan { references: Vec::new(), items: vec![raw; 4_000_000] }),
        ("units", Plan { references: Vec::new(), items: vec![unit; 1_190_000] }),
        ("references", Plan { references, items: vec![Item::Raw { len: 1 }] }),
    ] {
        replace_patch(&fixture, &plan, plan.items.len());
        let bound = fixture.patch().apply_memory().unwrap();
        let name = "tests::memory::the_stated_memory_is_enough_for_any_plan";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([name, "--exact", "--nocapture"]).env(VARIABLES[0], fixture.path(""));
        let output = child.env(VARIABLES[1], bound.to_string()).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{what}");
    }
}
