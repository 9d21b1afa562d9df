//! Deltas to images that were built again: their metadata is that of the old one with other
//! numbers, and takes nearly nothing.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferofs_format::Nid;
use ferofs_format::map::Address;
use ferofs_format::units::to_u64;
use ferofs_read::Image;
use ferofs_write::{Algorithm, Compression, Fragments, IndexKind, Options, Timestamp};

use super::delta::{Set, apply, compression, delta, image};
use super::prediction::relocated;
use super::{TIME, text};
use crate::format::delta_file::DeltaHeader;
use crate::format::prediction::{
    Places, Predict, Prediction, Relocations, Rules, Shifts, addresses,
};

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

/// Old inodes and directories that are longer than their new places overlap the next ones.
#[test]
fn what_is_predicted_of_a_byte_does_not_depend_on_where_a_reference_starts() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..900 {
        // The first ones are the longest.
        let folder = [0, 600, 750, 800].partition_point(|first| *first <= number);
        let path = dir.path().join(format!("old/folder-{folder}/a longer name {number}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text(3900.min((900 - number) * 39))).unwrap();
    }
    let old = image(dir.path(), "old", |options| options.data.compression = None);
    let len = old.len();
    let old = Image::open(Arc::<[u8]>::from(old)).unwrap();
    let mut nids: Vec<_> = old.walk().map(|entry| entry.unwrap().inode.unwrap().nid()).collect();
    nids.sort();
    let block = old.superblock().block_size.bytes64();
    let (mut list, mut data) = (Relocations::default(), Vec::new());
    let mut places = Places::new(&old, old.superblock(), Rules::default());
    for (ino, nid) in (0..).zip(&nids) {
        let inode = old.inode(*nid).unwrap();
        let new = Nid::new(nids[0].get() + u64::from(ino));
        list.inodes.push(relocated(&mut places, *nid, new, ino));
        if let (true, [Address::Data(first)]) =
            (inode.is_dir(), &addresses(&old, &inode).unwrap()[..])
        {
            data.push((first.get(), 32 * block + to_u64(data.len()) * block));
        }
    }
    assert!(data.len() > 1);
    list.data = Shifts::of(data);
    list.superblock = vec![0; old.superblock().size()];
    let prediction = Prediction::of_rebuilt(list, &old).unwrap();
    let mut whole = vec![0; len];
    prediction.fill(0, &mut whole).unwrap();
    let (mut part, mut start) = ([0; 300], 0);
    while start < len {
        let part = &mut part[..300.min(len - start)];
        prediction.fill(to_u64(start), part).unwrap();
        assert!(*part == whole[start..start + part.len()], "{start}");
        start += part.len();
    }
}

/// The metadata is the same, so a list of what differs would only add to the delta.
#[test]
fn a_prediction_that_saves_nothing_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let of = |tree: &str, first: u8| {
        for number in 0..400u32 {
            let path = dir.path().join(tree).join(number.to_string());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, vec![first; 5000]).unwrap();
        }
        image(dir.path(), tree, |options| options.data.compression = None)
    };
    let (old, new) = (of("old", 1), of("new", 2));
    let (delta, _) = delta(dir.path(), &old, &new);
    assert!(apply(&old, &delta).unwrap() == new);
    let (header, ..) = DeltaHeader::read(&mut &delta[..]).unwrap();
    assert!(header.relocations.is_none());
}
