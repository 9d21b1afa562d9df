//! Deltas to images that were built again: their metadata is that of the old one with other
//! numbers, and takes nearly nothing.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ferofs_write::{Algorithm, Compression, Fragments, IndexKind, Options, Timestamp};

use super::delta::{Set, apply, compression, delta, image};
use super::{TIME, text};

/// Files of a tree, in directories of 25.
const FILES: usize = 500;

fn tree(dir: &Path) {
    for number in 0..FILES {
        let folder = dir.join(format!("some/folder-{}", number / 25));
        std::fs::create_dir_all(&folder).unwrap();
        let content = text(number + 200 + number * 97 % 30_000);
        std::fs::write(folder.join(format!("file-{number}.py")), &content[number..]).unwrap();
    }
}

/// Gives everything below `dir` a time of its own.
fn set_times(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            set_times(&path);
        }
        let name = path.file_name().unwrap().as_encoded_bytes();
        let number = name.iter().fold(7u64, |sum, byte| sum * 31 % 999_983 + u64::from(*byte));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number * 97);
        File::open(path).unwrap().set_modified(time).unwrap();
    }
}

/// Bytes of the delta from the image of `old` to that of `new`, which comes out exactly.
fn delta_len(dir: &Path, set: &Set, set_new: &dyn Fn(&mut Options)) -> usize {
    ["old", "new"].iter().for_each(|tree| set_times(&dir.join(tree)));
    let old = image(dir, "old", |options| {
        set(options);
        options.attributes.all_time = None;
    });
    let new = image(dir, "new", |options| {
        set(options);
        options.attributes.all_time = None;
        set_new(options);
    });
    let (delta, _) = delta(dir, &old, &new);
    assert!(apply(&old, &delta).unwrap() == new);
    delta.len()
}

#[test]
fn metadata_of_a_rebuilt_image_takes_nearly_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let with = |compression: Compression| {
        move |options: &mut Options| options.data.compression = Some(compression.clone())
    };
    let mut fragments = compression(Algorithm::Zstd, 3, 65_536);
    fragments.fragments = Fragments::All;
    let mut by_bytes = compression(Algorithm::Zstd, 3, 65_536);
    by_bytes.index = IndexKind::Extents;
    let mut full = compression(Algorithm::Lz4, 0, 16_384);
    full.index = IndexKind::Full;
    // Without a prediction, times take five times as many bytes, and names twice.
    let forms: [(&str, Set, [usize; 3]); 5] = [
        ("plain", Box::new(|options| options.data.compression = None), [3000, 9000, 2500]),
        ("lz4", Box::new(with(compression(Algorithm::Lz4, 0, 4096))), [500, 2000, 1300]),
        ("full", Box::new(with(full)), [500, 2000, 900]),
        ("fragments", Box::new(with(fragments)), [7500, 600, 12_000]),
        ("by bytes", Box::new(with(by_bytes)), [500, 600, 900]),
    ];
    for (name, set, limits) in &forms {
        tree(&dir.join("old"));
        tree(&dir.join("new"));
        let edited = dir.join("new/some/folder-3/file-80.py");
        let content = std::fs::read(&edited).unwrap();
        std::fs::write(&edited, [&content[..], &content[..5000]].concat()).unwrap();
        let line = delta_len(dir, set, &|_| {});
        std::fs::write(&edited, &content).unwrap();
        let times = delta_len(dir, set, &|options| options.attributes.all_time = Some(later()));
        std::fs::remove_file(&edited).unwrap();
        std::fs::write(dir.join("new/some/folder-9/another.py"), &content[2000..]).unwrap();
        let names = delta_len(dir, set, &|_| {});
        std::fs::remove_dir_all(dir.join("new")).unwrap();
        let lens = [line, times, names];
        assert!(lens.iter().zip(limits).all(|(len, limit)| len < limit), "{name}: {lens:?}");
    }
}

fn later() -> Timestamp {
    let time = TIME.unwrap();
    Timestamp { secs: time.secs + 1000, ..time }
}
