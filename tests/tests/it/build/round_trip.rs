//! Builds an image and extracts it: the result is the source. Needs no mount, so most of these tests run without root.
//!
//! Every pair of settings occurs in an image, which is built, checked, mounted by Linux and compared with the source. If Linux does not
//! mount it, because its blocks are larger than a page, `ferofs extract` and `fsck.erofs` read it instead. Add a new setting to a line of
//! [`DIMENSIONS`], and a new kind of setting as a line. [`excluded`] lists settings that contradict each other.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::tar::{archive, file};
use ferofs_tests::{Mount, ferofs, need, tree};

use crate::common::erofs_utils::{assert_valid, mkfs};
use crate::common::fixture::{COMPRESSIONS, Fixture, full, same, usual_tree};

#[test]
fn the_whole_test_tree_is_preserved() {
    let fixture = Fixture::new(&usual_tree());
    for compression in COMPRESSIONS {
        let image = fixture.build(compression, ["--compress", compression]);
        ferofs().args(["check", "--deep"]).arg(&image).run().success();
        fixture
            .assert_same_as_source(&fixture.extract(&image, &format!("{compression}-extracted")));
    }
}

#[test]
fn every_block_size_works() {
    let fixture = Fixture::new(&tree::Options { deep: 30, wide: 300, ..tree::Options::small() });
    for compression in COMPRESSIONS {
        for size in need::sample(&["512", "1024", "2048", "4096"]) {
            let name = format!("{compression}-{size}");
            let image = fixture.build(&name, ["--compress", compression, "-b", size]);
            ferofs().args(["check", "--deep"]).arg(&image).run().success();
            fixture.assert_same_as_source(&fixture.extract(&image, &format!("{name}-extracted")));
        }
    }
}

#[test]
fn tails_can_be_inline_in_a_metabox() {
    let fixture = Fixture::empty();
    let text = Content::Text.bytes(39_077, &mut Rng::new(3));
    fs::write(fixture.source().join("text"), text).unwrap();
    let image = fixture.build("image", ["-z", "zstd,22", "-E", "ztailpacking", "-m", "65536"]);
    ferofs().args(["check", "--deep"]).arg(&image).run().success();
    fixture.assert_same_as_source(&fixture.extract(&image, "extracted"));
}

#[test]
fn an_empty_directory_can_be_built() {
    let fixture = Fixture::empty();
    let image = fixture.build("image", ["--compress", "lz4"]);
    ferofs().args(["check", "--deep"]).arg(&image).run().success();
    fixture.assert_same_as_source(&fixture.extract(&image, "extracted"));
}

#[test]
fn trees_of_other_seeds_are_preserved() {
    for seed in need::sample(&[2, 3, 4, 5]).copied() {
        let (fixture, image) =
            Fixture::with_image(&tree::Options { seed, ..tree::Options::small() });
        fixture.assert_same_as_source(&fixture.extract(&image, "extracted"));
    }
}

#[test]
fn holes_stay_holes() {
    let fixture = Fixture::empty();
    let file = fs::File::create(fixture.source().join("hole")).unwrap();
    file.set_len(20_000_000).unwrap();
    for compression in COMPRESSIONS {
        let image = fixture.build(compression, ["--compress", compression]);
        let extracted = fixture.extract(&image, &format!("{compression}-extracted"));
        let blocks = fs::metadata(extracted.join("hole")).unwrap().blocks();
        assert!(blocks * 512 < 1_000_000, "{compression}: {blocks} blocks for a hole");
        fixture.assert_same_as_source(&extracted);
    }
}

#[test]
fn large_xattrs_are_preserved() {
    require!(need::root("large xattrs: a tmpfs"));
    let fixture = Fixture::empty();
    let tmpfs = Tmpfs::new(&fixture.directory("tmpfs"));
    let source = tmpfs.0.join("source");
    fs::create_dir(&source).unwrap();
    if !tree::create_large_xattrs(&source, 1).unwrap() {
        need::lacks("large xattrs", "user xattrs on tmpfs (Linux 6.6)");
        return;
    }
    let image = fixture.path("image");
    ferofs().args(["build", "--compress", "lz4"]).args([&source, &image]).run().success();
    ferofs().args(["check", "--deep"]).arg(&image).run().success();
    let extracted = tmpfs.0.join("extracted");
    ferofs().arg("extract").args([&image, &extracted]).run().success();
    compare(&source, &extracted, &same()).unwrap().assert_same();
}

#[test]
fn cat_prints_the_data_and_ls_the_names() {
    let (fixture, image) = Fixture::with_image(&tree::Options::small());
    for path in
        ["files/mixed/65537", "files/noise/4097", "files/text/1", "files/text/0", "sparse/middle"]
    {
        let shown = ferofs().arg("cat").arg(&image).arg(path).run().success();
        assert!(shown.stdout == fs::read(fixture.source().join(path)).unwrap(), "{path}");
    }
    let listed = ferofs().arg("ls").arg(&image).arg("files/text").run().success();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for entry in fs::read_dir(fixture.source().join("files/text")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            listed.split_whitespace().any(|word| word.rsplit('/').next() == Some(&name)),
            "{name}: {listed}"
        );
    }
}

#[test]
fn excluded_names_are_not_in_the_image() {
    let fixture = Fixture::new(&tree::Options::small());
    let image = fixture.build("image", ["--exclude", "files/large", "--exclude", "attrs"]);
    let extracted = fixture.extract(&image, "extracted");
    let report = compare(&fixture.source(), &extracted, &same()).unwrap();
    let missing: Vec<_> = report
        .differences
        .iter()
        .filter(|d| d.field == Field::Missing)
        .map(|d| d.path.as_str())
        .collect();
    assert_eq!(missing, ["attrs", "files/large"]);
    assert_eq!(report.count, 2, "{:?}", report.differences);
}

#[test]
fn owners_can_be_replaced_and_shifted() {
    require!(need::root("forced owners"));
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "file").unwrap();
    std::os::unix::fs::chown(fixture.source().join("file"), Some(1_000), Some(2_000)).unwrap();
    let owner = |path: &Path| fs::metadata(path.join("file")).map(|m| (m.uid(), m.gid())).unwrap();
    for (name, options, expected) in [
        ("forced", ["--force-uid=70000", "--force-gid=5"], (70_000, 5)),
        ("shifted", ["--uid-offset=100000", "--gid-offset=200000"], (101_000, 202_000)),
    ] {
        let image = fixture.build(name, options);
        let extracted = fixture.extract(&image, &format!("{name}-extracted"));
        assert_eq!(owner(&extracted), expected, "{name}");
    }
}

#[test]
fn owners_beyond_the_range_are_refused() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "file").unwrap();
    let tar = fixture.path("tar");
    fs::write(&tar, archive(&[file("file", b"file")])).unwrap();
    for (option, id) in [
        ("--uid-offset=4294967296", "4294967296"),
        ("--gid-offset=-2147483648", "-2147483648"),
        ("--force-uid=4294967295", "4294967295"),
    ] {
        for source in [fixture.source(), tar.clone()] {
            let image = fixture.path("image");
            let failed = ferofs().args(["build", option]).args([&source, &image]).run().failure(1);
            let named = failed.stderr.contains(source.to_str().unwrap());
            assert!(
                named && failed.stderr.contains(&format!("the options make {id} its")),
                "{}",
                failed.stderr
            );
            assert!(!image.exists());
        }
    }
}

#[test]
fn all_time_sets_the_time_of_all_files() {
    let fixture = Fixture::new(&tree::Options::small());
    let image = fixture.build("image", ["-T", "1234567890", "--all-time"]);
    let extracted = fixture.extract(&image, "extracted");
    for path in ["", "files", "files/text/1", "kinds/fifo", "meta/times/-1.999999999"] {
        let meta = fs::symlink_metadata(extracted.join(path)).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_234_567_890, 0), "{path}");
    }
    // Without --all-time the times of files do not change.
    let image = fixture.build("image of a time", ["-T", "1234567890"]);
    fixture.assert_same_as_source(&fixture.extract(&image, "extracted too"));
}

#[test]
fn all_of_usr_is_preserved() {
    if !full() {
        return;
    }
    let fixture = Fixture::empty();
    let image = fixture.path("usr");
    ferofs().args(["build", "--compress", "lz4", "/usr"]).arg(&image).run().success();
    ferofs().args(["check", "--deep"]).arg(&image).run().success();
    let extracted = fixture.extract(&image, "extracted");
    compare(Path::new("/usr"), &extracted, &same()).unwrap().assert_same();
}

/// A mounted tmpfs. Dropping the value unmounts it.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn new(dir: &Path) -> Self {
        rustix::mount::mount("tmpfs", dir, "tmpfs", rustix::mount::MountFlags::empty(), None)
            .unwrap();
        Self(dir.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Options of `mkfs.erofs`. An image uses one option of each line.
const DIMENSIONS: &[&[&str]] = &[
    &["-b512", "-b1024", "-b2048", "-b4096", "-b16384", "-b65536"],
    &[
        NO_ALGORITHM,
        "-zlz4",
        "-zlz4hc,9",
        "-zlz4hc,12",
        "-zlzma,1",
        "-zdeflate,3",
        "-zzstd,3",
        "--chunksize=65536",
        "--chunksize=1048576 -Eforce-chunk-indexes",
    ],
    &["", "-C65536", "-C131072", "-C1048576 --max-extent-bytes=3000000"],
    &[
        "",
        "-Eztailpacking",
        "-Efragments",
        "-Eall-fragments,ztailpacking",
        "-Elegacy-compress,fragments=65536",
        "-E48bit",
        "-E48bit,fragments",
        "-Ededupe",
        "-E48bit,dedupe,all-fragments",
    ],
    &["", "-Edot-omitted", "--zD", "-m65536", "-m65536:zstd --zD -E48bit,dot-omitted --MZ"],
    &["", "-x 0", "--xattr-prefix=user.num --xattr-prefix=trusted.ferofs.", "-E^xattr-name-filter"],
    &["", "-Eforce-inode-extended", "-T0 --mkfs-time"],
    &["", "-E^inline_data"],
    &["", "-Enosbcrc", "--fsalignblks=64", "--root-xattr-isize=100"],
];

/// Two settings that contradict each other.
fn excluded(one: &str, other: &str) -> bool {
    let unencoded = one == NO_ALGORITHM || one.starts_with("--chunksize");
    let encoding = ["-C", "-Ez", "-Ef", "-Ea", "-El", "-E4", "-Ede", "-m", "--zD"];
    unencoded && encoding.iter().any(|word| other.starts_with(word))
}

/// No compression. Not an empty string, so that [`excluded`] can distinguish it from other empty settings.
const NO_ALGORITHM: &str = "-d2";

/// Settings by number, one of each dimension.
type Row = Vec<usize>;

/// Rows that together contain each pair of settings of two dimensions, unless the pair is excluded.
fn pairwise(dimensions: &[&[&str]], excluded: fn(&str, &str) -> bool) -> Vec<Row> {
    let clash = |a: (usize, usize), b: (usize, usize)| {
        let (one, other) = (dimensions[a.0][a.1], dimensions[b.0][b.1]);
        excluded(one, other) || excluded(other, one)
    };
    let settings =
        |dimension: usize| (0..dimensions[dimension].len()).map(move |value| (dimension, value));
    let mut open = std::collections::BTreeSet::new();
    for one in 0..dimensions.len() {
        for other in one + 1..dimensions.len() {
            let pairs = settings(one).flat_map(|a| settings(other).map(move |b| (a, b)));
            open.extend(pairs.filter(|(a, b)| !clash(*a, *b)));
        }
    }
    let mut rows = Vec::new();
    while let Some((a, b)) = open.first().copied() {
        let mut chosen = vec![a, b];
        for dimension in
            (0..dimensions.len()).filter(|dimension| *dimension != a.0 && *dimension != b.0)
        {
            let free = settings(dimension)
                .filter(|setting| chosen.iter().all(|other| !clash(*setting, *other)));
            let news = |setting: &(usize, usize)| {
                chosen.iter().filter(|other| open.contains(&ordered(*setting, **other))).count()
            };
            let best = free.max_by_key(|setting| (news(setting), std::cmp::Reverse(setting.1)));
            chosen.push(
                best.expect("each dimension has a setting that is compatible with the chosen ones"),
            );
        }
        for one in &chosen {
            for other in &chosen {
                open.remove(&(*one, *other));
            }
        }
        chosen.sort_unstable();
        rows.push(chosen.into_iter().map(|(_, value)| value).collect());
    }
    rows
}

fn ordered(a: (usize, usize), b: (usize, usize)) -> ((usize, usize), (usize, usize)) {
    if a < b { (a, b) } else { (b, a) }
}

#[test]
fn the_rows_contain_every_pair() {
    let dimensions: &[&[&str]] = &[&["a", "b", "c"], &["d", "e", "f"], &["g", "h"], &["i", "j"]];
    let rows = pairwise(dimensions, |one, other| one == "a" && other == "d");
    let has =
        |row: &Row, text: &str| row.iter().zip(dimensions).any(|(value, of)| of[*value] == text);
    for (one, other) in [("a", "e"), ("c", "j"), ("g", "i"), ("f", "h"), ("b", "d")] {
        assert!(rows.iter().any(|row| has(row, one) && has(row, other)), "{one} {other}");
    }
    assert!(!rows.iter().any(|row| has(row, "a") && has(row, "d")));
    assert!(rows.len() < 14, "{}", rows.len());
}

#[test]
fn every_pair_of_settings_gives_a_valid_image() {
    require!(need::kernel_erofs("the matrix through the kernel"));
    let fixture = Fixture::new(&tree::Options { largest: 70_001, ..tree::Options::small() });
    // Larger than the largest pcluster, and than a segment.
    for content in [Content::Text, Content::Mixed] {
        let bytes = content.bytes(4_500_000, &mut Rng::new(3));
        fs::write(fixture.source().join(format!("{content:?}")), bytes).unwrap();
    }
    let page = rustix::param::page_size();
    let mounted = fixture.directory("mount");
    let rows = pairwise(DIMENSIONS, excluded);
    for (number, row) in rows.iter().enumerate() {
        let words: Vec<&str> = row.iter().zip(DIMENSIONS).map(|(value, of)| of[*value]).collect();
        let options = words.join(" ");
        eprintln!("{number} of {}: {options}", rows.len());
        let image = fixture.path("image");
        mkfs(&fixture, &options, &image).success();
        assert_valid(&image);
        let block: usize = words[0].trim_start_matches("-b").parse().unwrap();
        if block <= page {
            let mount = Mount::kernel(&image, &mounted).unwrap();
            compare(&fixture.source(), mount.path(), &ignoring(&options)).unwrap().assert_same();
            mount.unmount().unwrap();
        } else {
            let extracted = fixture.path("extracted");
            ferofs().arg("extract").args([&image, &extracted]).run().success();
            compare(&fixture.source(), &extracted, &ignoring(&options)).unwrap().assert_same();
            fs::remove_dir_all(extracted).unwrap();
        }
        fs::remove_file(image).unwrap();
    }
}

/// Ignores the fields that the options do not store.
fn ignoring(options: &str) -> compare::Options {
    let mut comparison = same();
    if options.contains("force-inode-compact") {
        comparison.ignore.push(Field::Mtime);
    }
    comparison
}
