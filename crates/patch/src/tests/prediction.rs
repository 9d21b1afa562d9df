//! New metadata that is predicted from old metadata.

use ferofs_read::OpenOptions;

use super::*;
use crate::format::prediction::{Predict, Prediction};
use crate::format::relocation::{Edit, INODES_MAX, Relocated, Relocations, SourceCode};

/// A tree of directories with 40 files each, some of them large enough to keep old blocks.
fn tree(dir: &Path) {
    for number in 0..30 {
        let sub = dir.join(format!("group{}/directory-{number}", number % 4));
        std::fs::create_dir_all(&sub).unwrap();
        for file in 0..40 {
            std::fs::write(sub.join(format!("file-{file}.c")), format!("{number} {file}")).unwrap();
        }
        std::os::unix::fs::symlink("file-1.c", sub.join("link")).unwrap();
    }
    std::fs::create_dir(dir.join("large")).unwrap();
    for file in 0..900 {
        std::fs::write(dir.join(format!("large/a-rather-long-name-of-a-file-{file}")), "").unwrap();
    }
}

/// An image of [`tree`] in `old`, and the same tree in `new`.
fn fixture() -> Fixture {
    let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
    tree(&fixture.path("old"));
    tree(&fixture.path("new"));
    let mut options = build::Options::new(fixture.path("old"));
    options.data.compression = Compression::lz4(0).ok();
    options.attributes.all_time = TIME;
    build::build(&options, fixture.path("image")).unwrap();
    fixture
}

/// Applies the patch from the image to `new`, and returns the bytes of metadata in it.
fn metadata_of_patch(fixture: &Fixture, what: &str) -> u64 {
    fixture.create("new", "patch").unwrap();
    let patch = fixture.patch();
    let patched = applied(&fixture.image(), &patch);
    let mut options = build::Options::new(fixture.path("new"));
    options.attributes.all_time = TIME;
    build::build(&options, fixture.path("rebuilt")).unwrap();
    assert_eq!(shown(patched), shown(std::fs::read(fixture.path("rebuilt")).unwrap()), "{what}");
    std::fs::remove_file(fixture.path("rebuilt")).unwrap();
    patch.size_parts().metadata
}

#[test]
fn rewritten_directories_cost_nearly_nothing() {
    let fixture = fixture();
    // All directories are written again, as the root moves.
    std::fs::write(fixture.path("new/group1/directory-1/file-7.c"), "changed").unwrap();
    let one = metadata_of_patch(&fixture, "one file");
    let parents = fixture.patch().new_parents();
    assert_eq!(parents.directories, 36 - 3);
    assert!(parents.bytes > 30_000, "{parents:?}");
    assert!(one < 300, "{one}");
    // Names that come and go in one directory.
    std::fs::remove_file(fixture.path("new/group2/directory-2/file-9.c")).unwrap();
    std::fs::write(fixture.path("new/group2/directory-2/another"), "new").unwrap();
    std::fs::rename(
        fixture.path("new/group3/directory-3/file-3.c"),
        fixture.path("new/group3/moved"),
    )
    .unwrap();
    std::fs::rename(
        fixture.path("new/group0/directory-4"),
        fixture.path("new/group1/directory-44"),
    )
    .unwrap();
    std::fs::remove_dir_all(fixture.path("new/group0/directory-8")).unwrap();
    std::fs::copy(fixture.path("new/group0/directory-0/file-3.c"), fixture.path("new/group3/copy"))
        .unwrap();
    std::fs::write(fixture.path("new/large/a-rather-long-name-of-a-file-45000"), "more").unwrap();
    let names = metadata_of_patch(&fixture, "names");
    assert!(names < 1100, "{names}");
    // A file becomes a directory, and the other way.
    std::fs::remove_file(fixture.path("new/group1/directory-1/file-0.c")).unwrap();
    std::fs::create_dir(fixture.path("new/group1/directory-1/file-0.c")).unwrap();
    std::fs::remove_dir_all(fixture.path("new/group2/directory-6")).unwrap();
    std::fs::write(fixture.path("new/group2/directory-6"), "a file").unwrap();
    metadata_of_patch(&fixture, "types");
}

#[test]
fn a_second_patch_predicts_from_the_first() {
    let fixture = fixture();
    for round in 0..3 {
        std::fs::write(fixture.path("new/group1/directory-1/file-7.c"), format!("changed {round}"))
            .unwrap();
        let metadata = metadata_of_patch(&fixture, "a chain");
        assert!(metadata < 300, "{metadata}");
        let image = FileMedium::open(fixture.path("image")).unwrap();
        apply_to(&image, &fixture.patch()).unwrap();
    }
}

#[test]
fn times_that_all_move_cost_a_few_bytes_each() {
    let fixture = fixture();
    let mut options = CreateOptions::new(fixture.path("old"));
    options.build.attributes.all_time = Some(build::Timestamp { secs: 99, nanos: 5 });
    let summary = create(fixture.path("image"), &options, fixture.path("patch")).unwrap();
    let metadata = fixture.patch().size_parts().metadata;
    assert!(summary.growth > 100_000, "{}", summary.growth);
    assert!(metadata < 500, "{metadata}");
}

/// What is predicted for `inodes`, which follow the base by a block, with a limit on the work.
fn prediction_of(fixture: &Fixture, inodes: Vec<Relocated>) -> crate::Result<Prediction> {
    let bytes = fixture.image();
    let mut options = OpenOptions::default();
    options.work_limit = Some(1);
    let image = Image::open_with(Box::new(bytes.clone()), Vec::new(), &options).unwrap();
    let list = Relocations { start: 4096, first_ino: 5, inodes, ..Relocations::default() };
    let list = Relocations::decode(&list.encode()?.unwrap())?;
    Prediction::new(fixture.patch().header(), list, &image, &bytes)
}

/// The bytes that are predicted for the first 5000 appended bytes, for `inodes` that follow the
/// base by a block.
fn predict(fixture: &Fixture, inodes: Vec<Relocated>) -> crate::Result<Vec<u8>> {
    let patch = fixture.patch();
    let prediction = prediction_of(fixture, inodes)?;
    let mut out = vec![1; 5000];
    prediction.fill(patch.base_size(), &mut out)?;
    for pos in [0, 1, u64::MAX - 1, patch.result_size() - 1] {
        prediction.fill(pos, &mut [0; 100])?;
    }
    Ok(out)
}

/// The root, with nothing changed.
pub(super) fn same_root() -> Relocated {
    Relocated {
        source: SourceCode::Next { is_dir: true, skip: 0 },
        fields: Vec::new(),
        in_chunks: false,
        len: 0,
        blocks: 0,
        inline: 0,
        edits: Vec::new(),
    }
}

#[test]
fn predicting_a_directory_with_many_edits_counts_as_work() {
    let fixture = fixture();
    std::fs::write(fixture.path("new/group1/directory-1/file-7.c"), "changed").unwrap();
    fixture.create("new", "patch").unwrap();
    let edits = vec![Edit::Removed(u32::MAX); 1 << 20];
    let prediction = prediction_of(&fixture, vec![Relocated { edits, ..same_root() }]).unwrap();
    let start = fixture.patch().base_size() + 4096;
    let filled = (0..100).try_for_each(|_| prediction.fill(start, &mut [0; 100]));
    let ended = matches!(filled, Err(crate::Error::Read(ferofs_read::Error::Limit { .. })));
    assert!(ended, "{filled:?}");
}

#[test]
fn relocated_inodes_that_lie_are_refused_or_harmless() {
    let fixture = fixture();
    std::fs::write(fixture.path("new/group1/directory-1/file-7.c"), "changed").unwrap();
    fixture.create("new", "patch").unwrap();
    let sound = same_root();
    let bytes = predict(&fixture, vec![sound.clone()]).unwrap();
    assert!(bytes[4096..].iter().any(|byte| *byte != 0));
    let with = |change: &dyn Fn(&mut Relocated)| {
        let mut one = sound.clone();
        change(&mut one);
        one
    };
    let none = with(&|one| one.source = SourceCode::None);
    for (what, inodes) in [
        ("the root twice", vec![sound.clone(), with(&|one| one.source = SourceCode::Nid(36))]),
        ("no inode", vec![with(&|one| one.source = SourceCode::Nid(u64::MAX))]),
        (
            "past the queue",
            vec![with(&|one| one.source = SourceCode::Next { is_dir: false, skip: 0 })],
        ),
        ("long", vec![with(&|one| one.len = i64::MAX)]),
        ("short", vec![with(&|one| one.len = i64::MIN)]),
        ("many blocks", vec![with(&|one| one.blocks = 1 << 40)]),
        ("blocks past the end", vec![with(&|one| one.blocks = 1 << 20)]),
        ("an inline tail", vec![with(&|one| (one.source, one.inline) = (SourceCode::None, 1))]),
        ("too many", vec![none; INODES_MAX + 1]),
    ] {
        let image = Image::open(fixture.image()).unwrap();
        // The first has the root's own number.
        let inodes = match what {
            "the root twice" => {
                let root = image.superblock().root.get();
                vec![inodes[0].clone(), with(&|one| one.source = SourceCode::Nid(root))]
            }
            _ => inodes,
        };
        assert!(predict(&fixture, inodes).is_err(), "{what}");
    }
    // Nonsense in fields only leads to other bytes.
    for field in 0..8 {
        for value in [0, 1, u64::MAX] {
            predict(&fixture, vec![with(&|one| one.fields = vec![(field, value)])]).unwrap();
        }
    }
    predict(&fixture, vec![with(&|one| one.in_chunks = true)]).unwrap();
    predict(&fixture, vec![with(&|one| (one.len, one.blocks) = (-20, 1))]).unwrap();
}
