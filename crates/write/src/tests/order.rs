//! The order of data in the image.

use std::fs;
use std::num::NonZeroUsize;

use ferofs_format::FileOffset;
use ferofs_read::{ExtentData, HotRange, Location, Profile};

use super::{TestBuild, prose};
use crate::{ChunkOptions, Compression, ContentOrder, Fragments, HotFiles};

#[test]
fn data_is_stored_in_the_order_of_reads() {
    let mut test = TestBuild::new();
    fs::create_dir_all(test.options.source.path.join("b/d")).unwrap();
    let files = ["a", "b/c", "b/d/x", "b/e", "z"];
    for (seed, name) in (1..).zip(files) {
        test.write(name, prose(30_000, seed));
    }
    let order = |test: &TestBuild| {
        test.build();
        let image = test.open();
        let start = |name: &&str| {
            let inode = image.resolve(name.as_ref(), false).unwrap();
            match image.extents(&inode, FileOffset::new(0)).unwrap().next().unwrap().unwrap().data {
                ExtentData::Encoded { at: Location::Device(_, pos), .. } => (pos, true),
                ExtentData::Stored { at: Location::Device(_, pos) } => (pos, false),
                other => panic!("{name}: {other:?}"),
            }
        };
        let mut names = files.to_vec();
        names.sort_by_key(start);
        (names, files.into_iter().filter(|name| !start(name).1).collect::<Vec<_>>())
    };
    assert_eq!(order(&test), (files.to_vec(), vec![]));
    let range = |reads, path: &str| HotRange { reads, start: 0, len: 65_536, path: path.into() };
    let ranges = vec![range(7, "/z"), range(2, "/b/d/x"), range(1, "/gone")];
    test.options.data.hot_files = Some(HotFiles { profile: Profile { ranges }, stored: 30_000 });
    assert_eq!(order(&test), (vec!["b/d/x", "z", "a", "b/c", "b/e"], vec!["z"]));
    test.options.data.chunks =
        Some(ChunkOptions { size: 4096, force_indexes: false, device: None });
    assert_eq!(order(&test).0[..2], ["b/d/x", "z"]);
}

#[test]
fn nearby_fragments_of_files_with_one_name_are_adjacent() {
    let fragments = Compression {
        fragments: Fragments::Tails,
        pcluster: Some(64 << 10),
        ..Compression::lz4(3).unwrap()
    };
    // Six programs' messages in three languages. One language has more bytes than LZ4's window, so
    // that messages of one program compress well only if they are adjacent. `between` other files
    // follow each language.
    let built = |path: fn(u32, u32) -> String, between: u32| {
        let mut test = TestBuild::new();
        test.options.data.compression = Some(fragments.clone());
        for language in 0..3 {
            fs::create_dir(test.options.source.path.join(language.to_string())).unwrap();
            for program in 0..6 {
                let own = prose(1000, 100 * language + program);
                test.write(&path(language, program), [prose(30_000, program), own].concat());
            }
            for number in 0..between {
                test.write(
                    &format!("{language}/z{language}{number}"),
                    prose(60_000, 1000 + number),
                );
            }
        }
        test.build().bytes_out
    };
    let together = built(|language, program| format!("{language}/{program}"), 0);
    let other_names = built(|language, program| format!("{language}/{language}{program}"), 0);
    assert!(together * 2 < other_names, "{together} and {other_names}");
    let apart = built(|language, program| format!("{language}/{program}"), 150);
    let other_names = built(|language, program| format!("{language}/{language}{program}"), 150);
    assert_eq!(apart, other_names);
}

#[test]
fn versions_of_a_file_are_adjacent_in_the_order_by_similarity() {
    let mut test = TestBuild::new();
    test.options.data.compression = Some(Compression {
        fragments: Fragments::All,
        pcluster: Some(64 << 10),
        ..Compression::new(
            ferofs_codec::Params::new(ferofs_codec::Algorithm::Zstd, Some(3)).unwrap(),
        )
    });
    // Three versions of 60 files of one name, each changed a little: one version is larger than a
    // pcluster decodes to.
    for version in ["monday", "second", "v-3"] {
        for number in 0..60 {
            fs::create_dir_all(test.options.source.path.join(format!("{version}/{number}")))
                .unwrap();
            let own = prose(50, version.len() as u32 * 1000 + number);
            test.write(&format!("{version}/{number}/text"), [prose(40_000, number), own].concat());
        }
    }
    let mut size = |order| {
        test.options.data.order = order;
        test.build().bytes_out
    };
    let (tree, similar) = (size(ContentOrder::Tree), size(ContentOrder::Similar));
    assert!(similar * 3 < tree * 2, "{similar} is not two thirds of {tree}");
    assert_eq!(size(ContentOrder::Auto), similar);
    // Without versions, the automatic order is that of the tree.
    fs::remove_dir_all(test.options.source.path.join("second")).unwrap();
    fs::remove_dir_all(test.options.source.path.join("v-3")).unwrap();
    let mut size = |order| {
        test.options.data.order = order;
        test.build().bytes_out
    };
    assert_eq!(size(ContentOrder::Auto), size(ContentOrder::Tree));
}

#[test]
fn the_order_by_similarity_does_not_depend_on_the_number_of_threads() {
    let mut test = TestBuild::new();
    test.options.data.compression = Some(Compression {
        fragments: Fragments::All,
        pcluster: Some(1 << 20),
        ..Compression::lz4(0).unwrap()
    });
    test.options.data.order = ContentOrder::Similar;
    for version in 0..3 {
        fs::create_dir(test.options.source.path.join(format!("v{version}"))).unwrap();
        for number in 0..40 {
            test.write(&format!("v{version}/{number}"), prose(200_000, version / 2 + number));
        }
    }
    let mut built = |workers| {
        test.options.run.workers = NonZeroUsize::new(workers);
        test.build();
        fs::read(test.image()).unwrap()
    };
    let first = built(1);
    assert!(built(4) == first);
}
