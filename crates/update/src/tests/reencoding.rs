//! Content that is encoded again when a patch is applied: every algorithm, other compressors, and
//! pieces that lie.

use super::base::{HEADER, edited};
use super::*;
use crate::format::piece::base::{Base, REFERENCES_MAX};
use crate::format::piece::{Buffers, PAYLOAD_MAX, REGION_MAX, StoredPiece};
use crate::format::plan::{ExtentKind, Item, Plan, Reference, Unit, UnitExtent};
use crate::format::prediction::Relocations;
use crate::format::reencode::Encoders;
use ferofs_codec::Algorithm;
use ferofs_write::{IndexKind, Params};

/// The settings of all algorithms, with large pclusters, inline tails and records of extents.
fn compressions() -> Vec<Compression> {
    let mut all = Vec::new();
    for (algorithm, level) in [
        (Algorithm::Lz4, 0),
        (Algorithm::Lz4, 9),
        (Algorithm::Zstd, 3),
        (Algorithm::Deflate, 3),
        (Algorithm::Lzma, 0),
    ] {
        let mut in_blocks = Compression::new(Params::new(algorithm, Some(level)).unwrap());
        let mut large = in_blocks.clone();
        in_blocks.inline_tails = true;
        large.pcluster = Some(64 << 10);
        let mut records = in_blocks.clone();
        (records.index, records.pcluster) = (IndexKind::Extents, Some(16 << 10));
        records.inline_tails = false;
        all.extend([in_blocks, large, records]);
    }
    all
}

/// Words that compress well, with a change in each `step` bytes.
fn words(len: usize, step: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 16);
    let mut state = 7u64;
    while out.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = (state >> 40) % 3000;
        if step > 0 && out.len() % step < 6 {
            out.extend_from_slice(b"CHANGED ");
        }
        out.extend_from_slice(format!("w{word:x} ").as_bytes());
    }
    out.truncate(len);
    out
}

/// An image whose files are encoded by `compression`, the largest of `large` bytes, and a new tree
/// that changes most of them a little.
fn fixture(compression: &Compression, large: usize) -> Fixture {
    let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
    for (dir, step) in [("old", 0), ("new", 50_000)] {
        let dir = fixture.path(dir);
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::write(dir.join("large"), words(large, step)).unwrap();
        std::fs::write(dir.join("sub/small"), words(3000, step)).unwrap();
        std::fs::write(dir.join("sub/middle"), words(150_001, step)).unwrap();
        std::fs::write(dir.join("sub/random"), text(9000 + step / 100)).unwrap();
    }
    std::fs::write(fixture.path("new/come"), words(40_000, 7000)).unwrap();
    let mut options = build::Options::new(fixture.path("old"));
    options.data.compression = Some(compression.clone());
    options.attributes.all_time = TIME;
    build::build(&options, fixture.path("image")).unwrap();
    fixture
}

fn options(fixture: &Fixture, compression: &Compression) -> CreateOptions {
    let mut options = CreateOptions::new(fixture.path("new"));
    options.build.attributes.all_time = TIME;
    options.build.image.build_time = Some(9);
    options.encoding = Encoding::With(compression.clone());
    // The default takes minutes without optimisation.
    options.level = Some(3);
    options
}

#[test]
fn every_algorithm_gives_the_same_bytes_again() {
    for compression in compressions() {
        let what = format!("{compression:?}");
        // Files of more than 4 MiB are encoded in segments.
        let is_fast =
            compression.methods[0].algorithm == Algorithm::Lz4 && compression.pcluster.is_some();
        let fixture = fixture(&compression, if is_fast { 4_700_000 } else { 400_000 });
        let mut options = options(&fixture, &compression);
        options.build.run.workers = std::num::NonZeroUsize::new(3);
        create(fixture.path("image"), &options, fixture.path("patch")).unwrap();
        options.build.run.workers = std::num::NonZeroUsize::new(1);
        create(fixture.path("image"), &options, fixture.path("again")).unwrap();
        let read = |name: &str| std::fs::read(fixture.path(name)).unwrap();
        assert!(read("patch") == read("again"), "{what}");
        options.portable = true;
        create(fixture.path("image"), &options, fixture.path("portable")).unwrap();
        let (small, portable) = (fixture.patch(), Patch::open(fixture.path("portable")).unwrap());
        assert_eq!(small.result_digest(), portable.result_digest(), "{what}");
        // Extents of DEFLATE that need not fill blocks can be moved for Linux after they were
        // encoded: such extents are carried.
        let algorithm = compression.methods[0].algorithm;
        if compression.index != IndexKind::Extents || algorithm != Algorithm::Deflate {
            let (small, portable) = (small.file_len(), portable.file_len());
            assert!(small < portable, "{what}: {small} {portable}");
        }
        let image = fixture.image();
        let patched = applied(&image, &small);
        assert!(patched == applied(&image, &portable), "{what}");
        assert_ne!(shown(patched), shown(image), "{what}");
    }
}

#[test]
fn a_patch_for_another_version_of_a_compressor_is_refused() {
    let compression = Compression::lz4(0).unwrap();
    let fixture = fixture(&compression, 100_000);
    create(fixture.path("image"), &options(&fixture, &compression), fixture.path("patch")).unwrap();
    // The version of the first method is before its last field.
    let header =
        HEADER + fixture.patch().header().root.as_ref().map_or(0, |(_, bytes)| bytes.len());
    let bytes = std::fs::read(fixture.path("patch")).unwrap();
    let bytes = edited(&bytes, |parts| parts.header[header + 13] += 1);
    let patch = Patch::new(Box::new(bytes)).unwrap();
    let recorder = Recorder::new(fixture.image());
    let refused = apply_to(&recorder, &patch).unwrap_err();
    assert!(
        matches!(
            refused,
            crate::Error::Patch(PatchFault::Encoder { algorithm: "lz4", expected, found }) if expected == found + 1
        ),
        "{refused}"
    );
    assert!(*recorder.bytes.lock().unwrap() == fixture.image());
    assert!(overlay(Arc::new(fixture.image()), &patch, &Cancel::default()).is_err());
}

#[test]
fn files_that_differ_only_in_ignored_attributes_stay() {
    let compression = Compression::lz4(0).unwrap();
    let fixture = fixture(&compression, 100_000);
    let mut options = options(&fixture, &compression);
    options.build.source.path = fixture.path("old");
    options.build.attributes.all_time = Some(build::Timestamp { secs: 99, nanos: 5 });
    options.build.attributes.force_uid = Some(77);
    let all = create(fixture.path("image"), &options, fixture.path("patch")).unwrap();
    assert!(all.growth > 0);
    options.ignore.times = true;
    assert!(create(fixture.path("image"), &options, fixture.path("patch")).is_ok());
    options.ignore.owner = true;
    let same = create(fixture.path("image"), &options, fixture.path("patch"));
    assert!(matches!(same, Err(ferofs_write::Error::Patch(ferofs::patch::PatchFault::Unchanged))));
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(fixture.path("old/large"), private).unwrap();
    let attributes = create(fixture.path("image"), &options, fixture.path("patch")).unwrap();
    assert_eq!((attributes.growth_parts.content, attributes.growth_parts.new_tails), (0, 0));
    let sum: u64 = attributes.growth_parts.named().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(sum, attributes.growth);
    options.ignore.mode = true;
    let same = create(fixture.path("image"), &options, fixture.path("patch"));
    assert!(matches!(same, Err(ferofs_write::Error::Patch(ferofs::patch::PatchFault::Unchanged))));
    // A file with other differences gets all attributes of the new file.
    std::fs::write(fixture.path("old/sub/small"), "other").unwrap();
    create(fixture.path("image"), &options, fixture.path("patch")).unwrap();
    let patched = overlay(Arc::new(fixture.image()), &fixture.patch(), &Cancel::default()).unwrap();
    let image = Image::open(patched).unwrap();
    let disk = |path: &str| image.resolve(path.as_ref(), true).unwrap().on_disk().clone();
    assert_eq!((disk("sub/small").uid, disk("sub/small").mtime.secs), (77, 99));
    assert_eq!(disk("large").mtime.secs, 7);
}

/// Decodes a piece of `plan` with an uncompressed `payload` over the image of `fixture`.
fn decode(
    fixture: &Fixture,
    plan: &Plan,
    payload: &[u8],
    region_len: usize,
) -> crate::Result<Vec<u8>> {
    decode_within(fixture, plan, payload, region_len, u64::MAX)
}

/// The same, of a patch whose references read extents of up to `longest_extent` bytes.
fn decode_within(
    fixture: &Fixture,
    plan: &Plan,
    payload: &[u8],
    region_len: usize,
    longest_extent: u64,
) -> crate::Result<Vec<u8>> {
    let bytes = fixture.image();
    let image = Image::open(bytes.clone()).unwrap();
    if !fixture.path("patch").exists() {
        fixture.create("new", "patch").unwrap();
    }
    let prediction =
        fixture.patch().header().predict(Relocations::default(), &image, &bytes).unwrap();
    let size = bytes.len() as u64;
    let base = Base {
        source: &bytes,
        size,
        image: &image,
        prediction: Some(&prediction),
        threads: 2,
        longest_extent,
    };
    let methods = [
        Params::new(Algorithm::Lz4, Some(0)).unwrap(),
        Params::new(Algorithm::Zstd, Some(3)).unwrap(),
    ];
    let (_, plan) = Plan::decode(&plan.encode().unwrap(), usize::MAX)?;
    let mut region = Vec::new();
    let payload_len = payload.len();
    let piece = StoredPiece {
        plan: &plan,
        payload,
        payload_len,
        region_len,
        compressed: false,
        delta_len: 0,
    };
    piece.decode(
        &base,
        &mut [Encoders::new(&methods)],
        &mut Buffers::default(),
        &mut region,
        || Ok(()),
    )?;
    Ok(region)
}

#[test]
fn pieces_that_lie_are_refused() {
    let fixture = fixture(&Compression::lz4(0).unwrap(), 100_000);
    let content = words(20_000, 0);
    let extent = |kind, len, size| UnitExtent { kind, len, size, capacity: 0 };
    let unit = |method, extents: Vec<UnitExtent>| {
        let unit = Unit { method, content_len: content.len() as u32, extents };
        let region = unit.extents.iter().map(|extent| extent.size as usize).sum::<usize>();
        let carried = unit.carried_len() as usize;
        let mut payload = content.clone();
        payload.resize(content.len() + carried.min(1 << 20), 1);
        decode(
            &fixture,
            &Plan { references: Vec::new(), items: vec![Item::Unit(unit)] },
            &payload,
            region,
        )
    };
    let whole = content.len() as u32;
    let sound = unit(1, vec![extent(ExtentKind::Exact, whole, 16 << 10)]).unwrap();
    assert_eq!(sound.len(), 16 << 10);
    assert_eq!(
        unit(0, vec![extent(ExtentKind::Stored, whole, whole + 5)]).unwrap().len(),
        content.len() + 5
    );
    // Content that no extent takes is for looking ahead.
    for ahead in [
        extent(ExtentKind::Exact, whole - 1, 16 << 10),
        extent(ExtentKind::Fill, 0, 4096),
        extent(ExtentKind::Carried, 0, 100),
    ] {
        let method = u8::from(ahead.kind == ExtentKind::Exact);
        assert_eq!(unit(method, vec![ahead]).unwrap().len(), ahead.size as usize, "{ahead:?}");
    }
    for (method, extents) in [
        // An unknown method; too much content; a capacity that is too small.
        (2, vec![extent(ExtentKind::Exact, whole, 16 << 10)]),
        (255, vec![extent(ExtentKind::Stored, whole, whole)]),
        (1, vec![extent(ExtentKind::Exact, whole + 1, 16 << 10)]),
        (1, vec![extent(ExtentKind::Exact, u32::MAX, 16 << 10)]),
        (1, vec![extent(ExtentKind::Exact, 0, 0)]),
        (1, vec![extent(ExtentKind::Exact, whole, 70)]),
        (0, vec![extent(ExtentKind::Fill, 5, 4096)]),
        (0, vec![extent(ExtentKind::Fill, 0, 0)]),
        (0, vec![extent(ExtentKind::Stored, whole, whole - 1)]),
        (0, vec![extent(ExtentKind::Carried, whole + 1, 100)]),
        (0, Vec::new()),
        // More extents than there can be.
        (0, vec![extent(ExtentKind::Stored, 1, 1); content.len()]),
    ] {
        let refused = unit(method, extents.clone());
        assert!(
            matches!(
                refused,
                Err(crate::Error::Patch(_) | crate::Error::Params(_) | crate::Error::Encode(_))
            ),
            "{method} {extents:?}"
        );
    }
    // Lengths that do not add up.
    let raw = |len| Plan { references: Vec::new(), items: vec![Item::Raw { len }] };
    assert_eq!(decode(&fixture, &raw(3), b"abc", 3).unwrap(), b"abc");
    assert!(decode(&fixture, &raw(4), b"abc", 3).is_err());
    assert!(decode(&fixture, &raw(3), b"abc", 4).is_err());
    assert!(decode(&fixture, &raw(u32::MAX), b"abc", 3).is_err());
    // References past the end are zeroes; to inodes that do not exist, or to too much, errors.
    let refer = |reference: Reference, count: usize| {
        let plan = Plan { references: vec![reference; count], ..raw(3) };
        decode(&fixture, &plan, b"abc", 3)
    };
    assert!(refer(Reference::Image { pos: u64::MAX, len: 9 }, 1).is_ok());
    assert!(refer(Reference::File { nid: u64::MAX - 3, offset: 0, len: 9 }, 1).is_err());
    assert!(refer(Reference::Image { pos: 0, len: REFERENCES_MAX as u32 }, 2).is_err());
    assert!(refer(Reference::Image { pos: 0, len: u32::MAX }, 1).is_err());
    // To a longer extent than the patch says.
    let image = Image::open(fixture.image()).unwrap();
    let large = image.resolve("large".as_ref(), true).unwrap();
    let extent = image.extents(&large, FileOffset::new(0)).unwrap().next().unwrap().unwrap().len;
    let plan = Plan {
        references: vec![Reference::File { nid: large.nid().get(), offset: 0, len: 9 }],
        ..raw(3)
    };
    assert!(decode_within(&fixture, &plan, b"abc", 3, extent).is_ok());
    assert!(decode_within(&fixture, &plan, b"abc", 3, extent - 1).is_err());
    const { assert!(PAYLOAD_MAX + REGION_MAX + REFERENCES_MAX < 40 << 20) }
}

/// Code with an address of four bytes after each twelve bytes, all of which are `base` higher.
fn program(seed: u64, len: usize, base: u32) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes());
        bytes.extend_from_slice(&state.rotate_left(20).to_be_bytes()[..4]);
        bytes.extend_from_slice(&((state >> 44) as u32 + base).to_le_bytes());
    }
    bytes
}

#[test]
fn a_program_with_other_addresses_is_a_delta() {
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        let fixture = Fixture::new(compression);
        let len = 700_000;
        std::fs::write(fixture.path("new/program"), &program(1, len, 0)[..len]).unwrap();
        fixture.create("new", "first").unwrap();
        let medium = FileMedium::open(fixture.path("image")).unwrap();
        apply_to(&medium, &Patch::open(fixture.path("first")).unwrap()).unwrap();
        std::fs::write(fixture.path("new/program"), &program(1, len, 0x40)[..len]).unwrap();
        fixture.create_at(Some(12), "new", "plain").unwrap();
        fixture.create("new", "patch").unwrap();
        let (plain, patch) = (Patch::open(fixture.path("plain")).unwrap(), fixture.patch());
        // One or two bytes of each address differ, and all the rest is equal.
        assert!(
            patch.file_len() * 3 < plain.file_len(),
            "{} {}",
            patch.file_len(),
            plain.file_len()
        );
        let applied = applied(&fixture.image(), &patch);
        let image = Image::open(applied.clone()).unwrap();
        let inode = image.resolve("program".as_ref(), true).unwrap();
        let mut content = vec![0; len];
        image.read_at(&inode, FileOffset::new(0), &mut content).unwrap();
        assert!(content == program(1, len, 0x40)[..len]);
        let over = overlay(Arc::new(fixture.image()), &patch, &Cancel::default()).unwrap();
        let mut bytes = vec![0; over.size() as usize];
        over.read_exact_at(0, &mut bytes).unwrap();
        assert!(bytes == applied);
    }
}
