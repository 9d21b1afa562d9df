//! The engine against a plain decoder: the same bytes for any range, and what the counters say of it.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use ferofs_codec::{Decoder, Extent as Decode};
use proptest::prelude::*;

use super::super::{FileSource, Inode, OpenOptions};
use super::options::Strategy as Plan;
use super::*;

/// Text that compresses, noise that does not, and zeroes.
fn content() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut state = 1u32;
    for line in 0..24_000u32 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(
            format!("line {line} of {} words, {:x}\n", state >> 28, state >> 8).as_bytes(),
        );
        if line % 4_000 == 0 {
            bytes.extend((0..20_000u32).map(|i| (i.wrapping_mul(i ^ state) >> 13) as u8));
            bytes.resize(bytes.len() + 30_000, 0);
        }
    }
    bytes
}

/// Images of [`content`] by `mkfs.erofs`, of several kinds; empty where there is no `mkfs.erofs`.
fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let room = tempfile::tempdir().unwrap();
        let source = room.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), content()).unwrap();
        let kinds: [&[&str]; 4] = [
            &["-zlz4"],
            &["-zlz4hc", "-C65536", "-Eztailpacking"],
            &["-zlz4hc", "-C16384", "-Efragments"],
            &[],
        ];
        kinds.iter().filter_map(|options| make(&source, &room.path().join("image"), options)).collect()
    })
}

fn make(source: &Path, image: &Path, options: &[&str]) -> Option<Vec<u8>> {
    let made = Command::new("mkfs.erofs").arg("--quiet").args(options).arg(image).arg(source).output();
    match made {
        Ok(output) if output.status.success() => Some(std::fs::read(image).unwrap()),
        _ => {
            eprintln!("skipped: mkfs.erofs {options:?}");
            None
        }
    }
}

fn open(bytes: &[u8], options: EngineOptions) -> (Image, Inode) {
    let options = OpenOptions { engine: options, ..OpenOptions::default() };
    let image = Image::open_with(Box::new(bytes.to_vec()), Vec::new(), &options).unwrap();
    let inode = image.resolve("file".as_ref(), true).unwrap();
    (image, inode)
}

fn small_caches() -> EngineOptions {
    EngineOptions { encoded_cache: 1 << 16, tail_cache: 1 << 15, packed_cache: 1 << 16, ..Default::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_range_gives_the_same_bytes(
        ranges in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..300_000, any::<bool>()), 1..12),
        low_memory: bool,
        strategy in prop::sample::select(vec![Plan::InPlace, Plan::Direct, Plan::Buffer]),
    ) {
        let expected = content();
        for bytes in images() {
            let (image, inode) = open(bytes, EngineOptions { low_memory, strategy, ..small_caches() });
            let mut next = 0;
            for (start, len, sequel) in &ranges {
                let start = if *sequel && next < expected.len() { next } else { start.index(expected.len()) };
                let mut buf = vec![0xa5; *len];
                let read = image.read_at(&inode, FileOffset::new(to_u64(start)), &mut buf).unwrap();
                prop_assert_eq!(read, (*len).min(expected.len() - start));
                prop_assert!(buf[..read] == expected[start..start + read]);
                next = start + read;
            }
        }
    }
}

#[test]
fn every_extent_is_what_a_plain_decoder_gives() {
    let expected = content();
    for bytes in images() {
        let (image, inode) = open(bytes, EngineOptions::default());
        for extent in image.extents(&inode, FileOffset::new(0)).unwrap() {
            let extent = extent.unwrap();
            let ExtentData::Encoded { algorithm, at: Location::Device(_, pos), encoded_len, .. } =
                extent.data
            else {
                continue;
            };
            let (pos, encoded_len) =
                (usize::try_from(pos.get()).unwrap(), usize::try_from(encoded_len).unwrap());
            let mut out = vec![0; usize::try_from(extent.len).unwrap()];
            let encoded = &bytes[pos..pos + encoded_len];
            Decoder::new().decode(algorithm, encoded, &mut out, Decode::Prefix).unwrap();
            let start = usize::try_from(extent.start.get()).unwrap();
            assert!(out == expected[start..start + out.len()]);
        }
    }
}

#[test]
fn a_sequential_read_decodes_once_in_few_calls() {
    let Some(bytes) = images().first() else { return };
    let (image, inode) = open(bytes, EngineOptions::default());
    let before = image.stats().requested_bytes;
    let mut buf = vec![0; 128 << 10];
    let mut offset = 0;
    while offset < inode.size() {
        offset += to_u64(image.read_at(&inode, FileOffset::new(offset), &mut buf).unwrap());
    }
    let stats = image.stats();
    assert_eq!(stats.requested_bytes - before, inode.size());
    assert!(stats.decoded_bytes <= inode.size(), "{stats:?}");
    assert!(stats.runs.reads + stats.partial.reads + stats.stored.reads < stats.clusters() / 2, "{stats:?}");
    assert!(stats.in_place > stats.copied, "{stats:?}");
    assert!(stats.held_peak <= 1 << 20, "{stats:?}");
}

#[test]
fn many_threads_share_what_one_decodes() {
    let expected = content();
    let Some(bytes) = images().get(2) else { return };
    let (image, inode) = open(bytes, EngineOptions::default());
    std::thread::scope(|scope| {
        for step in [4096, 5000, 70_000] {
            let (image, inode, expected) = (&image, &inode, &expected);
            scope.spawn(move || {
                for start in (0..expected.len()).step_by(step) {
                    let mut buf = vec![0; step];
                    let read = image.read_at(inode, FileOffset::new(to_u64(start)), &mut buf).unwrap();
                    assert!(buf[..read] == expected[start..start + read]);
                }
            });
        }
    });
}

#[test]
fn a_damaged_cluster_fails_alone() {
    let Some(bytes) = images().first() else { return };
    let (image, inode) = open(bytes, EngineOptions::default());
    let clusters: Vec<_> = image.extents(&inode, FileOffset::new(0)).unwrap().map(Result::unwrap).collect();
    let victim = clusters
        .iter()
        .find(|extent| matches!(extent.data, ExtentData::Encoded { .. }) && extent.start.get() > 0)
        .unwrap();
    let ExtentData::Encoded { at: Location::Device(_, pos), encoded_len, .. } = victim.data else { panic!() };
    let (pos, len) = (usize::try_from(pos.get()).unwrap(), usize::try_from(encoded_len).unwrap());
    let mut bytes = bytes.clone();
    bytes[pos..pos + len].fill(0);
    let room = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(room.path(), bytes).unwrap();
    let image = Image::open(FileSource::open(room.path(), 0).unwrap()).unwrap();
    let expected = content();
    let mut buf = vec![0; 100];
    assert!(image.read_at(&inode, victim.start, &mut buf).is_err());
    assert!(image.read_at(&inode, FileOffset::new(victim.start.get() + 1), &mut buf).is_err());
    assert!(image.read_at(&inode, FileOffset::new(0), &mut vec![0; 1 << 20]).is_err());
    let mut offset = victim.end();
    image.read_at(&inode, FileOffset::new(offset), &mut buf).unwrap();
    let start = usize::try_from(offset).unwrap();
    assert!(buf == expected[start..start + 100]);
    offset = victim.start.get() - 100;
    image.read_at(&inode, FileOffset::new(offset), &mut buf).unwrap();
}

#[test]
fn content_within_itself_is_an_error() {
    fn endless() -> Result<()> {
        nested(endless)
    }
    assert!(endless().unwrap_err().corruption().is_some());
    assert!(nested(|| Ok(())).is_ok(), "the count goes back");
}
