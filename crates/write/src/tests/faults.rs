//! Sources that cannot be read, are changed, or make a worker panic, in each stage that reads them.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use super::TestBuild;
use crate::sources::reader::injected_faults::READS_LEFT;
use crate::*;
use ferofs_threads::catch;

/// Content of `len` bytes.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 5 % 251) as u8).collect()
}

/// Files beside the source, and the source.
fn files(test: &TestBuild) -> usize {
    fs::read_dir(test.dir.path()).unwrap().count()
}

/// A change of a build's options.
type Change = fn(&mut Options);

/// A change of the options for each way to store content.
fn ways() -> Vec<(&'static str, Change)> {
    fn chunked(options: &mut Options) {
        options.data.chunks = Some(ChunkOptions { size: 4096, force_indexes: false, device: None });
        options.data.compression = None;
    }
    fn digests(options: &mut Options) {
        options.xattrs.digest = XattrOptions::digest_name(DIGEST_NAME);
    }
    fn dedupe(options: &mut Options) {
        options.data.compression.as_mut().unwrap().dedupe = true;
    }
    fn fragments(options: &mut Options) {
        options.data.compression.as_mut().unwrap().fragments = Fragments::All;
    }
    vec![
        ("compressed", |_| ()),
        ("plain", |options| options.data.compression = None),
        ("chunked", chunked),
        ("digests", digests),
        ("dedupe", dedupe),
        ("fragments", fragments),
    ]
}

#[test]
fn a_panic_of_a_reader_ends_the_build() {
    for (way, set) in ways() {
        for (workers, len) in
            [(1, 100), (2, 100), (8, 100), (1, 9 << 20), (2, 9 << 20), (8, 9 << 20)]
        {
            let mut test = TestBuild::new();
            (0..40).for_each(|n| test.write(&format!("file{n}"), content(5000 + n)));
            test.write("panics", content(len));
            // The same size: hashed to find identical files.
            test.write("same-size", content(len));
            set(&mut test.options);
            test.options.run.workers = NonZeroUsize::new(workers);
            let panic = catch(|| build(&test.options, test.image())).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"asked to"), "{way}, {workers} workers");
            assert_eq!(files(&test), 1, "{way}: nothing but the source");
        }
    }
}

#[test]
fn unreadable_files_are_left_out_in_each_stage() {
    for (way, set) in ways() {
        // Without a file of the same size, an uncompressed file is copied, and not read.
        for (name, len, other) in [
            ("unreadable", 100, 100),
            ("unreadable", 100 << 10, 100),
            ("unreadable", 9 << 20, 9 << 20),
            ("unreadable-in-the-middle", 30 << 20, 30 << 20),
        ] {
            let mut test = TestBuild::new();
            test.write("before", content(5 << 20));
            test.write(name, content(len));
            test.write("zz-other", content(other));
            set(&mut test.options);
            let error = build(&test.options, test.image()).unwrap_err();
            assert!(matches!(error, Error::Io(_)), "{way}: {error}");
            assert_eq!(files(&test), 1);

            test.options.source.skip_unreadable = true;
            test.options.output.verify = true;
            let summary = build(&test.options, test.image()).unwrap();
            let [Warning::Skipped(warning)] = &summary.warnings[..] else {
                panic!("{way} {name}: {:?}", summary.warnings)
            };
            assert!(warning.to_string().contains(name), "{warning}");
            assert_eq!(summary.files, 2, "{way} {name}");
            let image = test.open();
            assert!(image.resolve(Path::new(name), false).is_err());
            let mut options = ferofs::check::Options::default();
            options.content = true;
            let report = ferofs::check::check(&image, &options);
            assert!(report.unwrap().is_sound(), "{way} {name}");
        }
    }
}

#[test]
fn each_name_of_an_unreadable_file_has_a_warning() {
    let mut test = TestBuild::new();
    test.write("other", content(100));
    test.write("unreadable", content(100));
    let source = &test.options.source.path;
    std::fs::hard_link(source.join("unreadable"), source.join("zz")).unwrap();
    test.options.source.skip_unreadable = true;
    let warnings = build(&test.options, test.image()).unwrap().warnings;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[1].contains("zz: left out: another name of"), "{warnings:?}");
}

#[test]
fn a_changed_file_is_never_left_out() {
    for (way, set) in ways() {
        for (len, other) in [(100, 100), (100 << 10, 100), (9 << 20, 9 << 20)] {
            let mut test = TestBuild::new();
            test.write("changed", content(len));
            test.write("other", content(other));
            set(&mut test.options);
            test.options.source.skip_unreadable = true;
            let error = build(&test.options, test.image()).unwrap_err();
            assert!(matches!(error, Error::SourceChanged(_)), "{way}: {error}");
            assert_eq!(files(&test), 1);
        }
    }
}

/// One of three identical large files can be hashed but not read again.
#[test]
fn identical_files_do_not_need_the_unreadable_one() {
    for (number, (way, set)) in ways().into_iter().enumerate() {
        let name =
            ["original0", "original1", "original2", "original3", "original4", "original5"][number];
        // One read for the samples and one for the hash; with digests one more before them.
        READS_LEFT.lock().push((name, if way == "digests" { 3 } else { 2 }));
        let mut test = TestBuild::new();
        for name in [name, "other1", "other2"] {
            test.write(name, content(9 << 20));
        }
        set(&mut test.options);
        if way == "chunked" {
            continue;
        }
        test.options.source.skip_unreadable = true;
        test.options.output.verify = true;
        let summary = build(&test.options, test.image()).unwrap();
        assert_eq!((summary.files, summary.warnings.len()), (2, 1), "{way}");
        assert_eq!(
            summary.bytes_shared >> 20,
            if way == "dedupe" { summary.bytes_shared >> 20 } else { 9 }
        );
    }
}

/// The image leaves out a file whose digest could not be computed, even if the content can be read
/// later.
#[test]
fn a_file_without_its_digest_is_left_out() {
    let mut test = TestBuild::new();
    test.write("unreadable", content(5000));
    test.write("file", content(5000));
    test.options.xattrs.digest = XattrOptions::digest_name(DIGEST_NAME);
    test.options.source.skip_unreadable = true;
    assert_eq!(build(&test.options, test.image()).unwrap().files, 1);
    let bytes = fs::read(test.image()).unwrap();
    let zeroes = [b"sha256:".as_slice(), &[0; 32]].concat();
    assert!(!bytes.windows(zeroes.len()).any(|window| window == zeroes));
}
