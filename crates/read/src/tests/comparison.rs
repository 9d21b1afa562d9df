//! Tests of the policies and strategies of the comparison with the EROFS paper.

use ferofs_write::{self as build, Compression};
use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::{images, open};
use crate::Strategy as Plan;
use crate::{EngineOptions, FileOffset, LowMemory, Policy};
use ferofs_format::units::to_u64;

pub(super) fn with_any_policy(
    options: impl Strategy<Value = EngineOptions>,
) -> impl Strategy<Value = EngineOptions> {
    use Plan::{Buffer, Direct, InPlace, Rolling, Vmap};
    let all = [InPlace, Rolling, Vmap, Buffer, Direct].map(Policy::Always);
    let policies = [all.as_slice(), &[Policy::Auto, Policy::Paper, Policy::Commercial]].concat();
    (prop::sample::select(policies), options)
        .prop_map(|(policy, options)| EngineOptions { policy, ..options })
}

#[test]
fn each_strategy_is_used_when_forced_and_counted() {
    let used = |policy, len| {
        let (image, inode) =
            open(&images()[0], EngineOptions { policy, ..EngineOptions::default() });
        // The second page of each eight: something precedes it, something follows.
        let mut buf = vec![0; len];
        for start in (4096..inode.size() - to_u64(len)).step_by(32768) {
            image.read_at(&inode, FileOffset::new(start), &mut buf).unwrap();
        }
        image.stats()
    };
    for len in [4096, 100_000] {
        let stats = used(Policy::Always(Plan::Rolling), len);
        assert!(stats.rolling > 0 && stats.rolling == stats.clusters(), "{stats:?}");
        let stats = used(Policy::Always(Plan::Buffer), len);
        assert!(stats.buffered > 0 && stats.buffered == stats.clusters(), "{stats:?}");
        let stats = used(Policy::Always(Plan::Vmap), len);
        assert!(stats.vmap > 0 && stats.rolling + stats.in_place == 0, "{stats:?}");
        let stats = used(Policy::Commercial, len);
        assert!(stats.vmap > 0 && stats.buffered > 0 && stats.in_place == 0, "{stats:?}");
        let stats = used(Policy::Paper, len);
        assert!(stats.rolling > 0 && stats.vmap == 0, "{stats:?}");
    }
    assert!(used(Policy::Always(Plan::InPlace), 100_000).in_place > 0);
    assert!(used(Policy::Auto, 100_000).in_place > 0);
}

#[test]
fn rolling_takes_no_more_memory_for_a_larger_cluster() {
    let peak = |policy| {
        let options = EngineOptions {
            policy,
            pool: 0,
            low_memory: LowMemory::Always,
            ..EngineOptions::default()
        };
        // Zeroes: a cluster of a block decodes to megabytes.
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("source")).unwrap();
        std::fs::write(dir.path().join("source/file"), vec![0; 1 << 20]).unwrap();
        let mut built = build::Options::new(dir.path().join("source"));
        built.data.compression = Some(Compression::lz4(0).unwrap());
        build::build(&built, dir.path().join("image")).unwrap();
        let (image, inode) = open(&std::fs::read(dir.path().join("image")).unwrap(), options);
        let extents =
            image.extents(&inode, FileOffset::new(0)).unwrap().map(std::result::Result::unwrap);
        let extent = extents.max_by_key(|extent| extent.len).unwrap();
        let end = extent.end() - 4096;
        let before = image.stats().held_bytes;
        image.read_at(&inode, FileOffset::new(end), &mut [1; 4096]).unwrap();
        (image.stats().held_peak - before, end - extent.start.get())
    };
    let (rolling, skipped) = peak(Policy::Always(Plan::Rolling));
    let (buffer, _) = peak(Policy::Always(Plan::Buffer));
    assert!(skipped > 400_000 && buffer > skipped, "{buffer} {skipped}");
    // A block of encoded bytes and 17 pages, in units of 64 KiB from the heap.
    assert!(rolling <= 3 << 16, "{rolling}");
}
