//! What is fetched in the background: by few requests, after what readers want, and without any
//! effect on them when it fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod common;

use std::thread::sleep;
use std::time::Duration;

use common::{LIMIT, Setup, quick};
use ferofs_serve::fetch::FetchOptions;
use ferofs_test_server::{Fault, Rule};

const MIB: u64 = 1 << 20;
const LEN: u64 = 64 * MIB;
/// Bytes of a request in the background.
const REQUEST: u64 = 4 * MIB;

fn setup(mut options: FetchOptions) -> Setup {
    options.prefetch_metadata = false;
    let setup = Setup::new(LEN, options);
    setup.server.reset();
    setup
}

#[test]
fn all_of_an_object_arrives_by_few_requests() {
    let setup = setup(quick());
    setup.fetcher.background(0..u64::MAX);
    // What was announced before is not queued again.
    setup.fetcher.background(10..setup.sealed.size());
    setup.wait_until_idle();
    let (stats, size) = (setup.fetcher.stats(), setup.sealed.size());
    assert_eq!(setup.fetcher.entry().stored_bytes().unwrap(), size);
    assert_eq!((stats.background_left, stats.failures), (0, 0));
    // Hashes that a job needs are fetched with it.
    assert!((LEN..=size).contains(&stats.background), "{stats:?}");
    let counts = setup.server.counts();
    // The hash tree of 512 KiB takes its own requests.
    assert!(counts.requests <= LEN.div_ceil(REQUEST) + 4, "{:?}", setup.server.ranges("/image"));
    assert!(counts.bytes <= size, "{counts:?}");
    assert!(setup.sealed.assert_stored_is_right(setup.fetcher.entry()) > 0);
}

#[test]
fn readers_come_first() {
    let mut options = quick();
    options.connections = 6;
    let setup = setup(options);
    setup.server.shape(Duration::from_millis(40), 0);
    setup.fetcher.background(0..u64::MAX);
    for start in [50 * MIB, 40 * MIB, 60 * MIB] {
        setup.wait_until("nothing is fetched", || setup.server.counts().requests > 0);
        let before = setup.server.ranges("/image").len();
        setup.read(start, LIMIT).unwrap();
        let ranges = setup.server.ranges("/image");
        let number = ranges.iter().position(|range| range.contains(&start)).unwrap();
        // At most one in the background, and the hashes, came between the look and the read.
        assert!(number <= before + 2, "{number} after {before}: {ranges:?}");
    }
    assert!(setup.fetcher.stats().background_left > 0, "all came before the readers");
}

#[test]
fn a_reader_does_not_fail_because_of_the_background() {
    let setup = setup(quick());
    setup.server.shape(Duration::from_millis(50), 0);
    setup.server.add(Rule::new(Fault::FlippedBit(MIB)).covering(MIB));
    setup.fetcher.background(0..REQUEST);
    setup.wait_until("nothing is fetched", || {
        setup.server.ranges("/image").iter().any(|range| range.contains(&MIB))
    });
    // A part of a request that fails four times.
    setup.read(2 * MIB, LIMIT).unwrap();
    setup.wait_until_idle();
    assert!(setup.fetcher.stats().digest_errors > 0);
    assert!(setup.read(MIB, LIMIT).unwrap_err().to_string().contains("digest"));
}

#[test]
fn the_background_ends_if_the_server_refuses_it_and_goes_on_if_the_server_comes_back() {
    let mut options = quick();
    options.prefetch_time = Duration::from_secs(1);
    let setup = setup(options);
    setup.server.add(Rule::new(Fault::Status(403)));
    setup.fetcher.background(0..u64::MAX);
    setup.wait_until_idle();
    let requests = setup.server.counts().requests;
    assert!(requests <= 8 + 16, "{requests}");
    setup.server.clear();
    setup.read(MIB, LIMIT).unwrap();

    setup.server.set_down(true);
    setup.fetcher.background(0..u64::MAX);
    sleep(Duration::from_secs(4));
    assert!(setup.fetcher.stats().background_left > 0);
    setup.server.set_down(false);
    setup.wait_until_idle();
    assert_eq!(setup.fetcher.entry().stored_bytes().unwrap(), setup.sealed.size());
}
