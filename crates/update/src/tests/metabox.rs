//! Patches of images with a metabox, which the patch continues.

use std::num::NonZeroUsize;
use std::time::{Duration, UNIX_EPOCH};

use super::faults::killed_apply;
use super::prediction::same_root;
use super::*;
use crate::format::plan::{Item, Reference};
use crate::format::prediction::{Predict, Relocations, SourceCode};
use ferofs_codec::Algorithm;
use ferofs_codec::Params;
use ferofs_format::Nid;
use ferofs_write::{Fragments, IndexKind, MetadataCompression};

/// Names in the tree, and files among them.
const FILES: u64 = 400;

/// A tree of small files, some of them in a directory of several blocks.
fn tree(dir: &Path) {
    for number in 0..FILES {
        let sub = dir.join(if number % 2 == 0 {
            "wide".into()
        } else {
            format!("group{}/sub", number % 14)
        });
        std::fs::create_dir_all(&sub).unwrap();
        let name = format!("a-name-of-a-file-{number}");
        std::fs::write(sub.join(&name), text(200 + number as usize * 7)).unwrap();
        if number % 50 == 1 {
            std::os::unix::fs::symlink(name, sub.join(format!("link-{number}"))).unwrap();
        }
    }
}

/// Gives each file its own time.
fn touch(dir: &Path, start: u64) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            touch(&path, start + 1_000_000);
            continue;
        }
        let number = blake3::hash(path.file_name().unwrap().as_encoded_bytes()).as_bytes()[0];
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(start + u64::from(number) * 977))
            .unwrap();
    }
}

fn compression(algorithm: Algorithm, level: u8) -> Compression {
    let mut compression = Compression::new(Params::new(algorithm, Some(level)).unwrap());
    compression.index = IndexKind::Extents;
    compression.pcluster = Some(16 << 10);
    compression.fragments = Fragments::All;
    compression.metadata = Some(MetadataCompression::new(0, 16 << 10));
    compression
}

/// An image of [`tree`] with a metabox, and the tree in `new` with other times.
fn fixture(algorithm: Algorithm, level: u8) -> Fixture {
    let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
    for (name, start) in [("old", 1_500_000_000), ("new", 1_600_000_000)] {
        tree(&fixture.path(name));
        touch(&fixture.path(name), start);
    }
    let mut options = build::Options::new(fixture.path("old"));
    options.data.compression = Some(compression(algorithm, level));
    build::build(&options, fixture.path("image")).unwrap();
    fixture
}

fn options(fixture: &Fixture) -> CreateOptions {
    let mut options = CreateOptions::new(fixture.path("new"));
    options.build.image.build_time = Some(5);
    options
}

/// Makes a patch to `new`, and returns the bytes that it appends.
fn create_patch(fixture: &Fixture, options: &CreateOptions) -> u64 {
    create(fixture.path("image"), options, fixture.path("patch")).unwrap().growth
}

/// What an image of the tree in `new` shows.
fn expected(fixture: &Fixture) -> Vec<String> {
    build::build(&build::Options::new(fixture.path("new")), fixture.path("rebuilt")).unwrap();
    let shown = shown(std::fs::read(fixture.path("rebuilt")).unwrap());
    std::fs::remove_file(fixture.path("rebuilt")).unwrap();
    shown
}

/// Whether the patch adds new inodes to the metabox.
fn continues_metabox(patch: &Patch) -> bool {
    let [before, after] = patch.superblocks().unwrap();
    before.metabox != after.metabox
}

/// Bytes of content of the metabox that the patch describes: as a difference to predicted bytes.
fn described(patch: &Patch) -> u64 {
    let mut len = 0;
    patch
        .each_plan(|_, plan| {
            let is_metabox =
                |reference: &&Reference| matches!(reference, Reference::PredictedMetabox { .. });
            let predicted = plan
                .references
                .iter()
                .filter(is_metabox)
                .map(|reference| u64::from(reference.len()));
            let units = plan.items.iter().any(|item| matches!(item, Item::Unit(_)));
            len += if units { predicted.sum() } else { 0 };
        })
        .unwrap();
    len
}

#[test]
fn new_inodes_are_described_and_encoded_in_the_metabox() {
    for (algorithm, level) in
        [(Algorithm::Lz4, 0), (Algorithm::Lz4, 9), (Algorithm::Zstd, 3), (Algorithm::Lzma, 6)]
    {
        let what = format!("{algorithm:?} {level}");
        let fixture = fixture(algorithm, level);
        let mut options = options(&fixture);
        let growth = create_patch(&fixture, &options);
        let patch = fixture.patch();
        assert!(continues_metabox(&patch), "{what}");
        // Half of the names are in a directory of several blocks, which are not encoded.
        assert!(growth < FILES * 70, "{what}: {growth}");
        assert!(described(&patch) > FILES * 32, "{what}");
        assert!(patch.size_parts().metadata < FILES * 6, "{what}: {:?}", patch.size_parts());
        let new = applied(&fixture.image(), &patch);
        assert_eq!(shown(new.clone()), expected(&fixture), "{what}");
        // With any number of workers, and in memory.
        let file = std::fs::read(fixture.path("patch")).unwrap();
        for workers in [1, 3] {
            options.build.run.workers = NonZeroUsize::new(workers);
            create_patch(&fixture, &options);
            assert!(std::fs::read(fixture.path("patch")).unwrap() == file, "{what} {workers}");
        }
        let over = overlay(Arc::new(fixture.image()), &patch, &Cancel::default()).unwrap();
        let mut bytes = vec![0; over.size() as usize];
        over.read_exact_at(0, &mut bytes).unwrap();
        assert!(bytes == new, "{what}");
        // A patch that carries encoded bytes leaves new inodes outside of the metabox, where it
        // need not carry them.
        options.portable = true;
        create_patch(&fixture, &options);
        let portable = fixture.patch();
        assert!(!continues_metabox(&portable), "{what}");
        assert!(portable.size_parts().metadata < FILES * 6, "{what}: {:?}", portable.size_parts());
        assert_eq!(shown(applied(&fixture.image(), &portable)), expected(&fixture), "{what}");
    }
}

#[test]
fn a_chain_continues_what_the_patch_before_added() {
    let fixture = fixture(Algorithm::Zstd, 3);
    let image = FileMedium::open(fixture.path("image")).unwrap();
    let old = shown(fixture.image());
    for step in 0..4_u64 {
        match step {
            // A patch whose new inodes are outside of the metabox is the base of one that continues
            // it.
            1 => std::fs::write(fixture.path("new/wide/one-more"), "new").unwrap(),
            _ => touch(&fixture.path("new"), 1_600_000_000 + step * 7_000_000),
        }
        std::fs::remove_file(
            fixture.path(&format!("new/group1/sub/a-name-of-a-file-{}", 1 + 14 * step)),
        )
        .unwrap();
        std::fs::create_dir_all(fixture.path(&format!("new/more-{step}"))).unwrap();
        std::fs::write(fixture.path(&format!("new/more-{step}/file")), text(3000)).unwrap();
        let mut options = options(&fixture);
        options.portable = step == 1;
        create_patch(&fixture, &options);
        let patch = fixture.patch();
        assert_eq!(continues_metabox(&patch), step != 1, "{step}");
        assert!(patch.size_parts().metadata < FILES * 6, "{step}: {:?}", patch.size_parts());
        apply_to(&image, &patch).unwrap();
        assert_eq!(shown(fixture.image()), expected(&fixture), "{step}");
    }
    rollback(&image, Some(0), TrailingData::Keep, 9).unwrap();
    assert_eq!(shown(fixture.image()), old);
}

#[test]
fn a_small_change_leaves_the_metabox_as_it_is() {
    let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
    for name in ["old", "new"] {
        std::fs::create_dir_all(fixture.path(name).join("wide")).unwrap();
        for number in 0..2000 {
            std::fs::write(fixture.path(name).join(format!("wide/a-name-of-a-file-{number}")), "")
                .unwrap();
        }
    }
    let mut build_options = build::Options::new(fixture.path("old"));
    build_options.data.compression = Some(compression(Algorithm::Zstd, 3));
    build_options.attributes.all_time = TIME;
    build::build(&build_options, fixture.path("image")).unwrap();
    std::fs::write(fixture.path("new/wide/a-name-of-a-file-77"), "changed").unwrap();
    let mut options = options(&fixture);
    options.build.attributes.all_time = TIME;
    let growth = create_patch(&fixture, &options);
    assert!(!continues_metabox(&fixture.patch()));
    // A directory in the metabox cannot keep its old blocks: all of them would be written again.
    assert!(growth < 24 << 10, "{growth}");
    let new = applied(&fixture.image(), &fixture.patch());
    assert!(shown(new).iter().any(|line| line.contains("a-name-of-a-file-77")));
}

#[test]
fn after_each_kill_the_old_tree_is_shown_and_the_patch_continues() {
    let fixture = fixture(Algorithm::Zstd, 3);
    create_patch(&fixture, &options(&fixture));
    let (image, patch) = (fixture.image(), fixture.patch());
    assert!(continues_metabox(&patch));
    let (old, new) = (shown(image.clone()), applied(&image, &patch));
    let states = killed_apply(&image, &patch);
    assert!(states.len() >= 5, "{}", states.len());
    let (last, interrupted) = states.split_last().unwrap();
    assert!(*last == new);
    for (number, state) in interrupted.iter().enumerate() {
        assert_eq!(shown(state.clone()), old, "{number}");
        assert!(applied(state, &patch) == new, "{number}");
        let repaired = Recorder::new(state.clone());
        repair(&repaired).unwrap();
        assert!(*repaired.bytes.lock().unwrap() == image, "{number}");
    }
    let back = Recorder::new(new.clone());
    rollback(&back, None, TrailingData::Keep, 7).unwrap();
    assert_eq!(shown(back.bytes.into_inner().unwrap()), old);
    // Another byte of the old metabox is noticed.
    let metabox = Image::open(image.clone()).unwrap().superblock().metabox.unwrap();
    let slots = Image::open(image.clone()).unwrap().superblock().inode_base().unwrap().get();
    let mut changed = image;
    changed[(slots + metabox.get() * 32) as usize + 33] ^= 1;
    let refused = apply_to(&Recorder::new(changed), &patch);
    assert!(matches!(refused, Err(crate::Error::Patch(PatchFault::BaseChanged))), "{refused:?}");
}

/// The bytes that are predicted for the first 9000 bytes of new content of the metabox.
fn predict(fixture: &Fixture, list: &Relocations) -> crate::Result<Vec<u8>> {
    let bytes = fixture.image();
    let image = Image::open(bytes.clone()).unwrap();
    let list = Relocations::decode(&list.encode()?.unwrap())?;
    let prediction = fixture.patch().header().predict(list, &image, &bytes)?;
    let start = new_content(&image);
    let mut out = vec![1; 9000];
    prediction.fill_metabox(start, &mut out)?;
    for pos in [0, start - 1, u64::MAX - 1] {
        prediction.fill_metabox(pos, &mut [0; 100])?;
        prediction.fill(pos, &mut [0; 100])?;
    }
    Ok(out)
}

/// Where a patch continues the content of the metabox.
fn new_content(image: &Image) -> u64 {
    let metabox = image.superblock().metabox.unwrap();
    image.inode(metabox).unwrap().size().next_multiple_of(4096)
}

#[test]
fn relocated_inodes_in_the_metabox_that_lie_are_refused_or_harmless() {
    let fixture = fixture(Algorithm::Lz4, 0);
    create_patch(&fixture, &options(&fixture));
    let image = Image::open(fixture.image()).unwrap();
    // The root, which resembles the old one.
    let sound = same_root(&image, Nid::metabox_slot(new_content(&image) / 32));
    let bytes = predict(&fixture, &sound).unwrap();
    assert!(bytes[..32].iter().any(|byte| *byte != 0));
    assert!(bytes[4096..].iter().all(|byte| *byte == 0));
    let with = |change: &dyn Fn(&mut Relocations)| {
        let mut list = sound.clone();
        change(&mut list);
        list
    };
    for (what, list) in [
        ("no inode", with(&|list| list.inodes[0].source = SourceCode::After(-1))),
        ("past the slots", with(&|list| list.inodes[0].nid = 1 << 62)),
    ] {
        assert!(predict(&fixture, &list).is_err(), "{what}");
    }
    for (field, value) in (0..9).flat_map(|field| [0, 1, u64::MAX].map(|value| (field, value))) {
        let list = with(&|list| {
            list.inodes[0].values = 1;
            list.values = vec![(field, value)];
        });
        predict(&fixture, &list).unwrap();
    }
}
