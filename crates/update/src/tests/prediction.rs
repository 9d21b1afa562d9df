//! New metadata that is predicted from old metadata.

use ferofs_format::area::MetadataSize;
use ferofs_format::inode::FileType;
use ferofs_format::{BytePos, Nid};
use ferofs_read::OpenOptions;

use super::*;
use crate::format::prediction::{
    Area, DirForm, Edit, INODES_MAX, Places, Predict, Prediction, Relocated, Relocations, Rules,
    SourceCode, Target,
};

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

/// What is predicted for `list`, with a limit on the work.
fn prediction_of(fixture: &Fixture, list: &Relocations) -> crate::Result<Prediction> {
    let bytes = fixture.image();
    let mut options = OpenOptions::default();
    options.work_limit = Some(1);
    let image = Image::open_with(Box::new(bytes.clone()), Vec::new(), &options).unwrap();
    let list = Relocations::decode(&list.encode()?.unwrap())?;
    fixture.patch().header().predict(list, &image, &bytes)
}

/// The bytes that are predicted for the first 5000 appended bytes.
fn predict(fixture: &Fixture, list: &Relocations) -> crate::Result<Vec<u8>> {
    let patch = fixture.patch();
    let prediction = prediction_of(fixture, list)?;
    let mut out = vec![1; 5000];
    prediction.fill(patch.base_size(), &mut out)?;
    for pos in [0, 1, u64::MAX - 1, patch.result_size() - 1] {
        prediction.fill(pos, &mut [0; 100])?;
    }
    Ok(out)
}

/// The next inode of a list: like `old`, with these numbers.
pub(super) fn relocated(places: &mut Places, old: Nid, nid: Nid, ino: u32) -> Relocated {
    let source = places.code(old, false);
    let old = places.source(source).unwrap();
    let predicted = places.predict(old.as_ref(), MetadataSize::default()).unwrap();
    places.pass(old.as_ref(), nid, ino);
    Relocated {
        source,
        nid: nid.get().wrapping_sub(predicted.nid.get()).cast_signed(),
        ino: i64::from(ino) - i64::from(predicted.ino),
        ..Relocated::default()
    }
}

/// A list of the old root alone, which has the number `new` now.
pub(super) fn same_root(image: &Image, new: Nid) -> Relocations {
    let mut places = Places::new(image, image.superblock(), Rules::default());
    let root = relocated(&mut places, image.superblock().root, new, 5);
    Relocations { inodes: vec![root], ..Relocations::default() }
}

/// [`same_root`], a block after the base.
fn root_after_base(fixture: &Fixture) -> Relocations {
    let image = Image::open(fixture.image()).unwrap();
    let pos = BytePos::new(fixture.patch().base_size() + 4096);
    same_root(&image, image.superblock().nid_at(pos).unwrap())
}

const fn next(skip: u32) -> SourceCode {
    SourceCode::Next { is_dir: true, skip }
}

/// A list of the old root alone, in an area at `start`.
fn in_area(fixture: &Fixture, start: u64) -> Relocations {
    let area = Area { start, ..Area::default() };
    let root = Relocated { source: next(0), ..Relocated::default() };
    let rules = Rules { area: Some(area), consecutive: true };
    let list = Relocations { rules, inodes: vec![root], ..Relocations::default() };
    assert!(start > 0 || predict(fixture, &list).is_ok());
    list
}

#[test]
fn predicting_a_directory_with_many_edits_counts_as_work() {
    let fixture = fixture();
    std::fs::write(fixture.path("new/group1/directory-1/file-7.c"), "changed").unwrap();
    fixture.create("new", "patch").unwrap();
    let mut list = root_after_base(&fixture);
    list.inodes[0].form = DirForm::Tail;
    list.edits = vec![(0, Edit::Removed(u32::MAX)); 1 << 20];
    let prediction = prediction_of(&fixture, &list).unwrap();
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
    let sound = root_after_base(&fixture);
    let bytes = predict(&fixture, &sound).unwrap();
    assert!(bytes[..4096].iter().all(|byte| *byte == 0));
    assert!(bytes[4096..].iter().any(|byte| *byte != 0));
    let with = |change: &dyn Fn(&mut Relocations)| {
        let mut list = sound.clone();
        change(&mut list);
        list
    };
    for (what, list) in [
        ("no inode", with(&|list| list.inodes[0].source = SourceCode::After(-1))),
        ("past all positions", with(&|list| list.inodes[0].nid = 1 << 62)),
        ("nothing waits", with(&|list| list.inodes[0].source = next(0))),
        ("longer than all", with(&|list| list.inodes[0].len = -1000)),
        ("a long tail", with(&|list| list.inodes[0].inline = 4096)),
        ("the root twice", {
            let mut list = in_area(&fixture, 0);
            list.inodes.push(Relocated { source: SourceCode::After(-2), ..list.inodes[0] });
            list
        }),
        ("past the queue", {
            let mut list = in_area(&fixture, 0);
            list.inodes.push(Relocated { source: next(4000), ..list.inodes[0] });
            list
        }),
        ("too many", with(&|list| list.inodes = vec![list.inodes[0]; INODES_MAX + 1])),
    ] {
        assert!(predict(&fixture, &list).is_err(), "{what}");
    }
    // Nonsense in places, fields, forms and names only leads to other bytes.
    predict(&fixture, &in_area(&fixture, u64::MAX - 4095)).unwrap();
    for form in [DirForm::AsStored, DirForm::Blocks, DirForm::Tail, DirForm::Chunks] {
        let edits = [
            Edit::Removed(7),
            Edit::Added {
                name: vec![b'/'; 300],
                file_type: FileType::Fifo,
                target: Target::Old(1),
            },
            Edit::Added {
                name: vec![b'x'],
                file_type: FileType::Fifo,
                target: Target::New(1 << 31),
            },
        ];
        predict(
            &fixture,
            &with(&|list| {
                list.inodes[0].form = form;
                list.edits.extend(edits.iter().map(|edit| (0, edit.clone())));
                list.edits.retain(|_| form != DirForm::AsStored);
            }),
        )
        .unwrap();
        for (field, value) in (0..9).flat_map(|field| [0, 1, u64::MAX].map(|value| (field, value)))
        {
            let list = with(&|list| {
                (list.inodes[0].form, list.inodes[0].values) = (form, 1);
                (list.values, list.relative) =
                    (vec![(field, value)], u32::from(value > 1) << field);
            });
            predict(&fixture, &list).unwrap();
        }
    }
    // The same inode at several places.
    let image = Image::open(fixture.image()).unwrap();
    let mut places = Places::new(&image, image.superblock(), Rules::default());
    let root = image.superblock().root;
    let inodes = (5000..5003).map(|nid| relocated(&mut places, root, Nid::new(nid), 7)).collect();
    predict(&fixture, &Relocations { inodes, ..Relocations::default() }).unwrap();
}
