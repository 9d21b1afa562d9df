//! Every pair of settings occurs in an image, which is built, checked, mounted by Linux and compared with the source. If Linux does not
//! mount it, because its blocks are larger than a page, `ferofs extract` and `fsck.erofs` read it instead.
//!
//! Add a new setting to a line of [`DIMENSIONS`], and a new kind of setting as a line. [`excluded`] lists settings that contradict each
//! other.

use std::fs;

use ferofs_tests::compare::{self, Field, compare};
use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::{Mount, ferofs, need, tree};

use crate::common::fixture::{Fixture, same};
use crate::common::mkfs::{assert_valid, mkfs};

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
    let settings = |dimension: usize| (0..dimensions[dimension].len()).map(move |value| (dimension, value));
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
        for dimension in (0..dimensions.len()).filter(|dimension| *dimension != a.0 && *dimension != b.0) {
            let free =
                settings(dimension).filter(|setting| chosen.iter().all(|other| !clash(*setting, *other)));
            let news = |setting: &(usize, usize)| {
                chosen.iter().filter(|other| open.contains(&ordered(*setting, **other))).count()
            };
            let best = free.max_by_key(|setting| (news(setting), std::cmp::Reverse(setting.1)));
            chosen.push(best.expect("each dimension has a setting that is compatible with the chosen ones"));
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
    let has = |row: &Row, text: &str| row.iter().zip(dimensions).any(|(value, of)| of[*value] == text);
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
