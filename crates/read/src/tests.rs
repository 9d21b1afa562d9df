//! Compares the engine with a plain decoder: the same bytes for any range. Also checks the
//! counters.

#[cfg(feature = "comparison")]
mod comparison;
mod layouts;
mod profile_ranges;
mod remote;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use ferofs_codec::{Decoder, Portion};
use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::*;
use super::{FileSource, Inode, OpenOptions};
use crate::content::nested;
use crate::error::Result;
use ferofs_format::units::to_u64;
use ferofs_write::{self as build, Compression};

/// Text that compresses, noise that does not, and zeroes.
pub(crate) fn content() -> Vec<u8> {
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

/// Images of [`content`]: one by ferofs, and several kinds by `mkfs.erofs`, if it is installed.
pub(crate) fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, image) = (dir.path().join("source"), dir.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), content()).unwrap();
        let mut options = build::Options::new(source.clone());
        options.data.compression = Some(Compression::lz4(0).unwrap());
        build::build(&options, &image).unwrap();
        let ours = std::fs::read(&image).unwrap();
        let kinds: [&[&str]; 7] = [
            &["-zlz4"],
            &["-zlz4hc", "-C65536", "-Eztailpacking"],
            &["-zlz4hc", "-C16384", "-Efragments"],
            &["-zlzma", "-C65536", "-Eall-fragments"],
            &["-zlz4hc", "-C1048576"],
            &["-zdeflate", "-C16384"],
            &[],
        ];
        let theirs = kinds.iter().filter_map(|options| make(&source, &image, options));
        std::iter::once(ours).chain(theirs).collect()
    })
}

/// The newest erofs-utils that are installed: those of `cargo xtask peers`, or the system's.
fn mkfs() -> std::path::PathBuf {
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin/mkfs.erofs");
    if peer.is_file() { peer } else { "mkfs.erofs".into() }
}

fn make(source: &Path, image: &Path, options: &[&str]) -> Option<Vec<u8>> {
    let made = Command::new(mkfs()).arg("--quiet").args(options).arg(image).arg(source).output();
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
    EngineOptions {
        encoded_cache: 1 << 16,
        tail_cache: 1 << 15,
        packed_cache: 1 << 16,
        ..Default::default()
    }
}

/// Budgets from none to plenty, and any policy.
fn options() -> impl Strategy<Value = EngineOptions> {
    let pool = prop::sample::select(vec![0usize, 4 << 10, 80 << 10, 256 << 10]);
    let limit = prop::sample::select(vec![None, Some(64usize << 10), Some(1 << 20)]);
    let options =
        (pool, limit, any::<bool>()).prop_map(|(pool, memory_limit, short)| EngineOptions {
            pool,
            memory_limit,
            low_memory: if short { LowMemory::Always } else { LowMemory::Never },
            ..small_caches()
        });
    #[cfg(feature = "comparison")]
    let options = comparison::with_any_policy(options);
    options
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_range_gives_the_same_bytes(
        ranges in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..300_000, any::<bool>()), 1..12),
        options in options(),
    ) {
        let expected = content();
        for bytes in images() {
            let (image, inode) = open(bytes, options.clone());
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

    #[test]
    fn small_steps_give_the_same_bytes(
        start: prop::sample::Index, step in 1usize..20_000, len in 1usize..20_000, options in options(),
    ) {
        let expected = content();
        let start = start.index(expected.len());
        for bytes in images() {
            let (image, inode) = open(bytes, options.clone());
            for start in (start..expected.len()).step_by(step).take(20) {
                let mut buf = vec![0xa5; len.min(expected.len() - start)];
                image.read_at(&inode, FileOffset::new(to_u64(start)), &mut buf).unwrap();
                prop_assert!(buf == expected[start..start + buf.len()]);
            }
        }
    }
}

/// Reads all of the file in steps of `len` bytes.
fn read_through(image: &Image, inode: &Inode, len: usize) {
    let mut buf = vec![0; len];
    let mut offset = 0;
    while offset < inode.size() {
        offset += to_u64(image.read_at(inode, FileOffset::new(offset), &mut buf).unwrap());
    }
}

#[test]
fn every_extent_is_what_a_plain_decoder_gives() {
    let expected = content();
    for bytes in images() {
        let (image, inode) = open(bytes, EngineOptions::default());
        for extent in image.extents(&inode, FileOffset::new(0)).unwrap() {
            let extent = extent.unwrap();
            let ExtentData::Encoded {
                algorithm, at: Location::Device(_, pos), encoded_len, ..
            } = extent.data
            else {
                continue;
            };
            let (pos, encoded_len) =
                (usize::try_from(pos.get()).unwrap(), usize::try_from(encoded_len).unwrap());
            let mut out = vec![0; usize::try_from(extent.len).unwrap()];
            let encoded = &bytes[pos..pos + encoded_len];
            Decoder::new().decode(algorithm, encoded, &mut out, Portion::Prefix).unwrap();
            let start = usize::try_from(extent.start.get()).unwrap();
            assert!(out == expected[start..start + out.len()]);
        }
    }
}

#[test]
fn a_sequential_read_decodes_once_in_place_in_few_calls() {
    for bytes in images().iter().take(2) {
        for len in [4 << 10, 50_000, 128 << 10, 1 << 20] {
            let (image, inode) = open(bytes, EngineOptions::default());
            let before = image.stats();
            read_through(&image, &inode, len);
            let stats = image.stats();
            assert_eq!(stats.requested_bytes - before.requested_bytes, inode.size());
            assert!(stats.decoded_bytes - before.decoded_bytes <= inode.size(), "{len}: {stats:?}");
            assert!(stats.data_io().reads < stats.clusters() / 2, "{len}: {stats:?}");
            let share = (stats.in_place * 100).checked_div(stats.clusters());
            assert!(share >= Some(90), "{len}: {share:?} {stats:?}");
            assert!(stats.held_peak <= 1 << 20, "{len}: {stats:?}");
        }
    }
}

#[test]
fn random_and_strided_reads_read_no_unneeded_bytes() {
    let (image, inode) = open(&images()[0], EngineOptions::default());
    let before = image.stats();
    let mut buf = [0; 4096];
    for start in (4096..inode.size() - 4096).step_by(64 << 10) {
        image.read_at(&inode, FileOffset::new(start), &mut buf).unwrap();
    }
    let stats = image.stats();
    assert_eq!(stats.ahead, before.ahead);
    assert!(stats.hinted.reads > 0, "the stride is recognised: {stats:?}");
    let reads = stats.data_io().reads - before.data_io().reads;
    assert!(reads <= 2 * (stats.requests - before.requests), "{stats:?}");
}

#[test]
fn held_memory_stays_within_the_limit() {
    for bytes in images() {
        let limit = 2 << 20;
        let options = EngineOptions { memory_limit: Some(limit), ..EngineOptions::default() };
        let (image, inode) = open(bytes, options);
        for len in [4096, 100_000] {
            read_through(&image, &inode, len);
        }
        let stats = image.stats();
        assert!(stats.held_peak <= to_u64(limit), "{stats:?}");
    }
}

#[test]
fn memory_is_released_while_it_is_short() {
    let (image, inode) = open(&images()[0], EngineOptions::default());
    read_through(&image, &inode, 4096);
    let before = image.stats();
    image.content.engine.shrink(&image.content.volume.counters);
    let after = image.stats();
    assert!(after.held_bytes < before.held_bytes, "{before:?} {after:?}");
    assert_eq!(after.low_memory_entries, 1);
    let (image, inode) = open(
        &images()[0],
        EngineOptions { low_memory: LowMemory::Always, ..EngineOptions::default() },
    );
    read_through(&image, &inode, 4096);
    let stats = image.stats();
    assert!(
        stats.low_memory && stats.encoded_hits + stats.cluster_hits + stats.ahead.reads == 0,
        "{stats:?}"
    );
}

#[test]
fn the_ranges_that_are_read_most_are_pinned() {
    let expected = content();
    let (image, inode) =
        open(&images()[0], EngineOptions { record: true, ..EngineOptions::default() });
    for _ in 0..3 {
        image.read_at(&inode, FileOffset::new(200_000), &mut [0; 100]).unwrap();
    }
    image.read_at(&inode, FileOffset::new(10), &mut [0; 100]).unwrap();
    let profile = image.profile().unwrap();
    let hottest = &profile.ranges[0];
    assert_eq!(
        (hottest.reads, hottest.start, hottest.path.as_path()),
        (3, 3 << 16, Path::new("/file"))
    );
    let (image, inode) = open(&images()[0], EngineOptions::default());
    // Space for one of the two.
    let held = image.stats().held_bytes;
    let pinned = image.pin(&profile, 100_000).unwrap();
    assert_eq!(pinned, Pinned { ranges: 1, bytes: 1 << 16, missing: 0 });
    assert!(image.stats().held_bytes >= held + (1 << 16));
    let before = image.stats();
    // From before the pinned range to after it.
    let mut buf = vec![0; 100_000];
    image.read_at(&inode, FileOffset::new(190_000), &mut buf).unwrap();
    assert!(buf == expected[190_000..290_000]);
    image.read_at(&inode, FileOffset::new(200_000), &mut buf[..9000]).unwrap();
    assert!(buf[..9000] == expected[200_000..209_000]);
    let after = image.stats();
    // The bytes at the start of the range may have been read with the run before it.
    assert_eq!(after.pinned_hits - before.pinned_hits, 2);
    let bytes = after.pinned_bytes - before.pinned_bytes;
    assert!(bytes > 50_000 && bytes <= (1 << 16) + 9000, "{bytes}");
    let elsewhere =
        Profile { ranges: vec![HotRange { path: "/no/such".into(), ..hottest.clone() }] };
    assert_eq!(image.pin(&elsewhere, 1 << 20).unwrap().missing, 1);
}

#[test]
fn concurrent_readers_wait_for_one_decoding() {
    /// Delays reads once the flag is set, so that several readers want a cluster at the same time.
    struct Slow(Vec<u8>, std::sync::atomic::AtomicBool);
    impl super::Source for Slow {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
            if self.1.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            self.0.read_exact_at(pos, buf)
        }
    }
    let slow = std::sync::Arc::new(Slow(images()[0].clone(), false.into()));
    struct Shared(std::sync::Arc<Slow>);
    impl super::Source for Shared {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.0.read_exact_at(pos, buf)
        }
    }
    let image = Image::open(Shared(std::sync::Arc::clone(&slow))).unwrap();
    let inode = image.resolve("file".as_ref(), true).unwrap();
    // The threads read different parts of one cluster. Its index is in the cache then.
    let mut extents =
        image.extents(&inode, FileOffset::new(0)).unwrap().map(std::result::Result::unwrap);
    let extent =
        extents.find(|e| e.len > 8192 && matches!(e.data, ExtentData::Encoded { .. })).unwrap();
    image.extents(&inode, extent.start).unwrap().nth(1);
    let before = image.stats();
    slow.1.store(true, std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for skip in [1, 2000, 4000, 6000] {
            let (image, inode) = (&image, &inode);
            scope.spawn(move || {
                image
                    .read_at(inode, FileOffset::new(extent.start.get() + skip), &mut [0; 1000])
                    .unwrap();
            });
        }
    });
    let stats = image.stats();
    assert_eq!(stats.clusters() - before.clusters(), 1, "{stats:?}");
    assert_eq!(stats.cohort_hits, 3, "{stats:?}");
    assert!(stats.stalls >= 3 && stats.stalled_nanoseconds > 0);
}

#[test]
fn many_threads_share_decoded_clusters() {
    let expected = content();
    let Some(bytes) = images().get(3) else { return };
    let (image, inode) = open(bytes, EngineOptions::default());
    std::thread::scope(|scope| {
        for step in [4096, 5000, 70_000] {
            let (image, inode, expected) = (&image, &inode, &expected);
            scope.spawn(move || {
                for start in (0..expected.len()).step_by(step) {
                    let mut buf = vec![0; step];
                    let read =
                        image.read_at(inode, FileOffset::new(to_u64(start)), &mut buf).unwrap();
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
    let clusters: Vec<_> =
        image.extents(&inode, FileOffset::new(0)).unwrap().map(Result::unwrap).collect();
    let victim = clusters
        .iter()
        .find(|extent| matches!(extent.data, ExtentData::Encoded { .. }) && extent.start.get() > 0)
        .unwrap();
    let ExtentData::Encoded { at: Location::Device(_, pos), encoded_len, .. } = victim.data else {
        panic!()
    };
    let (pos, len) = (usize::try_from(pos.get()).unwrap(), usize::try_from(encoded_len).unwrap());
    let mut bytes = bytes.clone();
    bytes[pos..pos + len].fill(0);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let image = Image::open(FileSource::open(file.path(), 0).unwrap()).unwrap();
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

#[test]
fn extents_are_charged_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    // One read of a compact index gives 16 records, so reads alone would cost almost nothing. Half
    // noise and half zeroes fill a pcluster of 4 KiB with some 8 KiB.
    let mut state = 1u64;
    let mut noise = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    let content: Vec<u8> = (0..6_000)
        .flat_map(|_| (0..512).map(|n| if n < 256 { noise() } else { 0 }).collect::<Vec<_>>())
        .flat_map(u64::to_le_bytes)
        .collect();
    std::fs::write(source.join("file"), content).unwrap();
    let mut options = build::Options::new(source);
    options.data.compression = Some(Compression::lz4(0).unwrap());
    build::build(&options, &image).unwrap();

    let cancel = Cancel::default();
    let options = OpenOptions { cancel: cancel.clone(), ..OpenOptions::default() };
    let image =
        Image::open_with(Box::new(std::fs::read(&image).unwrap()), Vec::new(), &options).unwrap();
    let file = image.resolve("file".as_ref(), true).unwrap();
    assert!(image.extents(&file, FileOffset::new(0)).unwrap().count() > 2_800);
    cancel.cancel();
    let extents =
        image.extents(&file, FileOffset::new(0)).map(|extents| extents.take(2_500).last());
    let end = extents.and_then(Option::unwrap);
    assert!(matches!(end, Err(crate::Error::Interrupted)), "{end:?}");
}
