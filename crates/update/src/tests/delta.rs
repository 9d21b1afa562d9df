//! Exact deltas: each layout comes out byte for byte, resumed or not, and no delta of garbage is
//! believed.

use std::sync::Arc;

use ferofs::patch::{DeltaOptions, create_delta};
use ferofs_read::{FileOffset, Image};
use ferofs_verity::Seal;
use ferofs_write::{self as build, Algorithm, Compression, Fragments, IndexKind, Options, Params};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::DeltaFile;
use crate::delta::files::other_data;
use crate::format::delta_file::{CHUNK, DeltaHeader, DeltaPiece, digest};
use crate::format::plan::{ExtentKind, Item, Plan, Reference, Unit, UnitExtent};
use crate::format::reencode::Encoders;

/// A directory with two versions of a tree.
fn trees() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, edit) in [("old", false), ("new", true)] {
        let tree = dir.path().join(name);
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        let mut large = text(1_500_000);
        if edit {
            large.splice(700_000..700_010, *b"more than ten bytes are here now");
        }
        std::fs::write(tree.join("a/large"), large).unwrap();
        for number in 0..60 {
            let mut small = text(5_000 + number * 97);
            small[40] = number as u8;
            if edit && number % 7 == 0 {
                small[2_000] ^= 0x55;
            }
            std::fs::write(tree.join(format!("a/b/{number}")), small).unwrap();
        }
        std::fs::write(tree.join(if edit { "moved" } else { "a/moved" }), text(300_000)).unwrap();
    }
    dir
}

pub(super) fn image(dir: &Path, tree: &str, change: impl Fn(&mut Options)) -> Vec<u8> {
    let mut options = Options::new(dir.join(tree));
    options.attributes.all_time = TIME;
    change(&mut options);
    let path = dir.join("image");
    build::build(&options, &path).unwrap();
    std::fs::read(path).unwrap()
}

pub(super) fn compression(algorithm: Algorithm, level: u8, pcluster: u32) -> Compression {
    let mut compression = Compression::new(Params::new(algorithm, Some(level)).unwrap());
    compression.pcluster = Some(pcluster);
    compression
}

/// The delta of two images, and its summary.
pub(super) fn delta(dir: &Path, old: &[u8], new: &[u8]) -> (Vec<u8>, ferofs::patch::DeltaSummary) {
    let [old_path, new_path, out] = ["x.old", "x.new", "x.delta"].map(|name| dir.join(name));
    std::fs::write(&old_path, old).unwrap();
    std::fs::write(&new_path, new).unwrap();
    let summary = create_delta(&old_path, &new_path, &DeltaOptions::default(), &out).unwrap();
    (std::fs::read(out).unwrap(), summary)
}

pub(super) fn apply(old: &[u8], delta: &[u8]) -> Result<Vec<u8>> {
    let (mut out, old) = (Vec::new(), Arc::new(old.to_vec()) as Arc<dyn Source>);
    Delta::read(delta)?.apply(&old, DeltaOutput::Stream(&mut out), |_| {}, &Cancel::default())?;
    Ok(out)
}

/// Sets options of a build.
pub(super) type Set = Box<dyn Fn(&mut Options)>;

#[test]
fn each_layout_comes_out_exactly() {
    let dir = trees();
    let dir = dir.path();
    let plain = |options: &mut Options| options.data.compression = None;
    let with = |compression: Compression| {
        move |options: &mut Options| options.data.compression = Some(compression.clone())
    };
    let mut fragments = compression(Algorithm::Zstd, 3, 65_536);
    fragments.fragments = Fragments::All;
    fragments.dedupe = true;
    let mut by_bytes = compression(Algorithm::Lzma, 6, 65_536);
    by_bytes.index = IndexKind::Extents;
    let all: [(&str, Set); 8] = [
        ("plain", Box::new(plain)),
        ("lz4", Box::new(with(compression(Algorithm::Lz4, 0, 4096)))),
        ("lz4hc", Box::new(with(compression(Algorithm::Lz4, 12, 65_536)))),
        ("deflate", Box::new(with(compression(Algorithm::Deflate, 6, 65_536)))),
        ("lzma", Box::new(with(compression(Algorithm::Lzma, 6, 65_536)))),
        ("zstd", Box::new(with(compression(Algorithm::Zstd, 3, 65_536)))),
        ("fragments", Box::new(with(fragments))),
        ("by bytes", Box::new(with(by_bytes))),
    ];
    for (name, options) in &all {
        let (old, new) = (image(dir, "old", options), image(dir, "new", options));
        let (delta, summary) = delta(dir, &old, &new);
        assert!(apply(&old, &delta).unwrap() == new, "{name}");
        let share = summary.carried * 100 / (summary.carried + summary.encoded).max(1);
        println!("{name}: {} of {}, {share} % carried", delta.len(), new.len());
        assert!(delta.len() < 16_000, "{name}: {} {summary:?}", delta.len());
    }
    // From one algorithm to another, and between images that are the same.
    let (lz4, zstd) = (image(dir, "old", &all[1].1), image(dir, "new", &all[5].1));
    let (cross, _) = delta(dir, &lz4, &zstd);
    assert!(apply(&lz4, &cross).unwrap() == zstd && cross.len() < 30_000, "{}", cross.len());
    let (same, summary) = delta(dir, &lz4, &lz4);
    assert!(apply(&lz4, &same).unwrap() == lz4 && same.len() < 400, "{} {summary:?}", same.len());
}

#[test]
fn extents_that_are_longer_than_a_piece_are_carried() {
    let dir = trees();
    let dir = dir.path();
    std::fs::write(dir.join("new/zeroes"), vec![0; 40 << 20]).unwrap();
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        let options = |options: &mut Options| {
            options.data.compression = Some(compression(algorithm, 3, 1 << 20));
        };
        let (old, new) = (image(dir, "old", options), image(dir, "new", options));
        let (delta, _) = delta(dir, &old, &new);
        assert!(apply(&old, &delta).unwrap() == new, "{algorithm:?}");
    }
}

#[test]
fn sealed_images_and_other_bytes_after_them_come_out_exactly() {
    let dir = trees();
    let dir = dir.path();
    // More than a chunk, and than a hash block covers.
    let options = |options: &mut Options| options.data.compression = None;
    let (old, new) = (image(dir, "old", options), image(dir, "new", options));
    let mut params = ferofs_verity::Params::default();
    params.salt = b"some salt".to_vec();
    let path = dir.join("sealed");
    std::fs::write(&path, &new).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let len = new.len() as u64;
    let (seal, root) = Seal::write(&new, len, params, None, 1, &file, len).unwrap();
    let mut sealed = std::fs::read(&path).unwrap();
    sealed.extend_from_slice(b"a footer that is not part of the image");
    let (delta, summary) = delta(dir, &old, &sealed);
    assert_eq!(summary.tree, seal.byte_len().unwrap() - 4096);
    assert!(summary.tree > 4096 && apply(&old, &delta).unwrap() == sealed);
    let read = Delta::read(&delta[..]).unwrap();
    assert_eq!(read.header().seal.as_ref().unwrap().root, root.as_bytes());
    // A tree with a wrong digest is carried.
    let at = sealed.len() - 200;
    sealed[at] ^= 1;
    let (carried, summary) = self::delta(dir, &old, &sealed);
    assert_eq!(summary.tree, 0);
    assert!(apply(&old, &carried).unwrap() == sealed && carried.len() > delta.len());
    // Resuming after each chunk, and after parts of one.
    for present in [0, 1, CHUNK - 1, CHUNK, CHUNK + 5, new.len(), sealed.len()] {
        resume(&old, &carried, &sealed, present);
    }
}

/// Applies `delta` where the first `present` bytes are there, and then wrong ones.
fn resume(old: &[u8], delta: &[u8], new: &[u8], present: usize) {
    let (mut there, old) = (new[..present].to_vec(), Arc::new(old.to_vec()) as Arc<dyn Source>);
    there.extend_from_slice(&[7; 3000]);
    let mut out = there.clone();
    out.resize(new.len().max(out.len()), 0);
    let mut write = |at: u64, bytes: &[u8]| {
        out[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    let output = DeltaOutput::Resume(&there, &mut write);
    let applied =
        Delta::read(delta).unwrap().apply(&old, output, |_| {}, &Cancel::default()).unwrap();
    let expected = if present == new.len() { present } else { present / CHUNK * CHUNK };
    assert_eq!(applied.resumed as usize, expected, "{present}");
    assert!(out[..new.len()] == *new, "{present}");
}

#[test]
fn other_data_is_replaced_only_with_force() {
    let dir = trees();
    let dir = dir.path();
    let (old, new) = (image(dir, "old", |_| {}), image(dir, "new", |_| {}));
    delta(dir, &old, &new);
    let [old_path, delta_path, out] = ["x.old", "x.delta", "out"].map(|name| dir.join(name));
    let is_replaced = |content: &[u8], resume, force| {
        std::fs::write(&out, content).unwrap();
        let delta = DeltaFile::open(&delta_path).unwrap();
        let applied = delta.apply(&old_path, &out, resume, force, |_| {}, &Cancel::default());
        assert_eq!(applied.is_ok(), std::fs::read(&out).unwrap() == new);
        applied.is_ok()
    };
    // A power cut can lose the first page.
    let mut lost = new.clone();
    lost[..4096].fill(0);
    let mut behind = vec![0; 128 << 10];
    behind[(64 << 10) + 64] = 1;
    // A file system whose superblock is not in the first page.
    let mut btrfs = vec![0; 128 << 10];
    btrfs[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
    // A file is not written in place, as devices are.
    for (content, [own, in_place]) in [
        (&new[..], [true, true]),
        (&[0; 8192], [true, true]),
        (&lost, [false, true]),
        (&behind, [false, true]),
        (&btrfs, [false, false]),
        (b"text", [false, false]),
    ] {
        assert_eq!(is_replaced(content, false, false), own);
        assert_eq!(is_replaced(content, true, false), own);
        std::fs::write(&out, content).unwrap();
        assert_eq!(other_data(&out, true).unwrap().is_none(), in_place);
        assert!(is_replaced(content, false, true));
    }
}

#[test]
fn another_old_image_and_mutated_deltas_are_refused() {
    let dir = trees();
    let dir = dir.path();
    let options = |options: &mut Options| {
        options.data.compression = Some(compression(Algorithm::Lz4, 0, 4096));
    };
    let (old, new) = (image(dir, "old", options), image(dir, "new", options));
    let (delta, _) = delta(dir, &old, &new);
    let mut other = old.clone();
    *other.last_mut().unwrap() ^= 1;
    let refused = |result: Result<Vec<u8>>| match result {
        Err(Error::Patch(fault)) => fault,
        result => panic!("{result:?}"),
    };
    assert!(matches!(refused(apply(&other, &delta)), PatchFault::OtherOld { .. }));
    assert!(matches!(refused(apply(&old[1..], &delta)), PatchFault::Truncated { .. }));
    assert!(matches!(refused(apply(&old, &old)), PatchFault::NotADelta));
    // A device that is larger than the image.
    assert!(apply(&[&old[..], &[1; 5000]].concat(), &delta).unwrap() == new);
    let mut state = 5u64;
    for number in 0..2000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut mutant = delta.clone();
        let at = (state >> 33) as usize % mutant.len();
        match number % 4 {
            0 => mutant.truncate(at),
            1 => mutant[at] = mutant[at].wrapping_add(1),
            2 => mutant[at] = (state >> 20) as u8,
            _ => drop(mutant.splice(at..at, [0xff; 4])),
        }
        // Refused, or right: never wrong bytes.
        if let Ok(out) = apply(&old, &mutant) {
            assert!(out == new, "mutant {number}");
        }
    }
}

/// A delta whose only piece makes `new` with this plan, from references or not. It states `memory`.
fn crafted(old: &[u8], new: &[u8], plan: &Plan, memory: u64) -> Vec<u8> {
    crafted_by(old, new, plan, new, &[], memory)
}

/// The same with methods, and their content.
fn crafted_by(
    old: &[u8],
    new: &[u8],
    plan: &Plan,
    payload: &[u8],
    methods: &[Params],
    memory: u64,
) -> Vec<u8> {
    let header = DeltaHeader {
        old_size: old.len() as u64,
        old_digest: Sha256::digest(old).into(),
        new_size: new.len() as u64,
        new_digest: Sha256::digest(new).into(),
        pieces: 1,
        longest_extent: 1 << 24,
        memory,
        seal: None,
        relocations: None,
        chunks: new.chunks(CHUNK).map(digest).collect(),
    };
    let (plan, payload, payload_len) = (plan.encode().unwrap(), payload.to_vec(), payload.len());
    let piece =
        DeltaPiece { plan, payload, payload_len, made_len: new.len(), ..DeltaPiece::default() };
    [header.encode(methods).unwrap(), piece.encode().unwrap()].concat()
}

fn is_malformed(result: Result<Vec<u8>>) -> bool {
    matches!(result, Err(Error::Patch(PatchFault::Malformed(_))))
}

#[test]
fn references_that_take_too_much_work_are_refused() {
    let dir = trees();
    let dir = dir.path();
    std::fs::write(dir.join("old/zeroes"), vec![0; 20 << 20]).unwrap();
    let old = image(dir, "old", |options| {
        options.data.compression = Some(compression(Algorithm::Zstd, 3, 1 << 20));
    });
    let image = Image::open(old.clone()).unwrap();
    let zeroes = image.resolve("zeroes".as_ref(), true).unwrap();
    let extent = image.extents(&zeroes, FileOffset::new(0)).unwrap().next().unwrap().unwrap();
    assert!(extent.len > 8 << 20, "{extent:?}");
    let decoded = Reference::File { nid: zeroes.nid().get(), offset: extent.len - 1, len: 1 };
    let stored = Reference::Image { pos: 0, len: 16 << 20 };
    let references = |reference, count| {
        let plan = Plan { references: vec![reference; count], items: vec![Item::Raw { len: 3 }] };
        apply(&old, &crafted(&old, b"new", &plan, u64::MAX))
    };
    // Each decodes 8 MB.
    assert_eq!(references(decoded, 20).unwrap(), b"new");
    assert!(is_malformed(references(decoded, 400)));
    assert_eq!(references(stored, 1).unwrap(), b"new");
    // Short ones, in pieces that make nothing, or are many.
    let short = Reference::Image { pos: 0, len: 1 };
    assert!(is_malformed(references(short, 1_000_000)));
    let empty = DeltaPiece::default().encode().unwrap();
    for (count, is_right) in [(1000, true), (30_000, false)] {
        let plan = Plan { references: Vec::new(), items: vec![Item::Raw { len: 3 }] };
        let mut rest = &crafted(&old, b"new", &plan, u64::MAX)[..];
        let (mut header, ..) = DeltaHeader::read(&mut rest).unwrap();
        header.pieces += count;
        let delta =
            [header.encode(&[]).unwrap(), empty.repeat(count as usize), rest.to_vec()].concat();
        assert_eq!(is_malformed(apply(&old, &delta)), !is_right, "{count}");
    }
}

#[test]
fn slow_encoders_get_work_in_proportion_to_the_new_image() {
    let dir = trees();
    let dir = dir.path();
    let old = image(dir, "old", |options| options.data.compression = None);
    // A MiB counts as a second, whatever it has.
    let zeroes = vec![0; 1 << 20];
    let method = Params::new(Algorithm::Zstd, Some(22)).unwrap();
    for (count, is_right) in [(2, true), (4, false)] {
        let extent = UnitExtent { kind: ExtentKind::Exact, len: 1 << 20, size: 4096, capacity: 0 };
        let content = zeroes.repeat(count);
        let (mut encoders, mut new) = (Encoders::new(&[method]), Vec::new());
        for number in 0..count {
            encoders.encode_one(0, &extent, &content, number << 20, &mut new).unwrap().unwrap();
        }
        let unit =
            Unit { method: 0, content_len: content.len() as u32, extents: vec![extent; count] };
        let plan = Plan { references: Vec::new(), items: vec![Item::Unit(unit)] };
        let applied = apply(&old, &crafted_by(&old, &new, &plan, &content, &[method], u64::MAX));
        assert_eq!(applied.as_ref().is_ok_and(|made| *made == new), is_right, "{count}");
        assert_eq!(is_malformed(applied), !is_right, "{count}");
    }
}

#[test]
fn a_delta_takes_no_more_memory_than_it_says() {
    let dir = trees();
    let dir = dir.path();
    let options = |options: &mut Options| {
        options.data.compression = Some(compression(Algorithm::Zstd, 3, 65_536));
    };
    let (old, new) = (image(dir, "old", options), image(dir, "new", options));
    let (delta, summary) = delta(dir, &old, &new);
    let stating = |memory| {
        let mut rest = &delta[..];
        let (mut header, methods, _) = DeltaHeader::read(&mut rest).unwrap();
        assert_eq!(header.memory, summary.memory);
        header.memory = memory;
        let methods: Vec<_> = methods.iter().map(|method| method.params().unwrap()).collect();
        [&header.encode(&methods).unwrap(), rest].concat()
    };
    assert!(apply(&old, &stating(summary.memory)).unwrap() == new);
    for memory in [0, 20 << 20, summary.memory - 1] {
        assert!(is_malformed(apply(&old, &stating(memory))), "{memory}");
    }
    // A plan of 2 MB, which takes 32 MB when it is parsed.
    let bytes = vec![7; 1 << 20];
    let plan = Plan { references: Vec::new(), items: vec![Item::Raw { len: 1 }; bytes.len()] };
    assert!(apply(&old, &crafted(&old, &bytes, &plan, 1 << 30)).unwrap() == bytes);
    assert!(is_malformed(apply(&old, &crafted(&old, &bytes, &plan, 80 << 20))));
}

#[test]
fn large_pclusters_are_encoded_again() {
    let dir = trees();
    let dir = dir.path();
    let mut state = 9u64;
    let mut number = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 44
    };
    let mut large: Vec<u8> =
        (0..900_000).flat_map(|_| format!("{} ", number()).into_bytes()).collect();
    std::fs::write(dir.join("old/numbers"), &large).unwrap();
    large[3_000_000] ^= 1;
    std::fs::write(dir.join("new/numbers"), &large).unwrap();
    let options = |options: &mut Options| {
        options.data.compression = Some(compression(Algorithm::Zstd, 3, 512 << 10));
    };
    let (old, new) = (image(dir, "old", options), image(dir, "new", options));
    let (delta, summary) = delta(dir, &old, &new);
    assert!(apply(&old, &delta).unwrap() == new);
    assert!(summary.encoded > 1 << 20 && summary.carried * 8 < summary.encoded, "{summary:?}");
}
