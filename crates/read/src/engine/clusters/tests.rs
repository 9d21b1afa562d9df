use ferofs_format::{BytePos, DeviceId};

use super::*;

fn at(pos: u64) -> Location {
    Location::Device(DeviceId::new(0), BytePos::new(pos))
}

fn cache(budget: usize) -> Clusters {
    Clusters::new(budget, 4096, true, Arc::new(Memory::new(None)))
}

fn find(cache: &Clusters, pos: u64, len: usize) -> Found<'_> {
    cache.find(at(pos), len, &Counters::default())
}

/// Whether the cluster had to be decoded.
fn decode(cache: &Clusters, pos: u64, len: usize) -> bool {
    match find(cache, pos, len) {
        Found::Missing(mut decoding) => {
            decoding.buffer(len).fill(7);
            decoding.publish(len);
            true
        }
        Found::Decoded(_) => false,
    }
}

#[test]
fn the_first_partial_read_is_remembered_for_a_while() {
    let cache = cache(1 << 20);
    assert!(cache.is_first_partial_read(at(1)) && !cache.is_first_partial_read(at(1)));
    for pos in 2..=PARTIAL_READS as u64 {
        assert!(cache.is_first_partial_read(at(pos)));
    }
    assert!(!cache.is_first_partial_read(at(1)), "as many as are remembered");
    assert!(cache.is_first_partial_read(at(0)) && cache.is_first_partial_read(at(1)), "one more");
}

#[test]
fn recent_clusters_stay_within_the_budget() {
    const BUDGET: usize = 10_000;
    let cache = cache(BUDGET);
    let held = || cache.memory.held();
    assert!(decode(&cache, 0, 4000) && decode(&cache, 1, 4000));
    assert!(!decode(&cache, 0, 4000), "still there");
    assert!(decode(&cache, 2, 4000));
    assert!(held() <= BUDGET);
    assert!(!decode(&cache, 0, 4000) && decode(&cache, 1, 4000), "1 was the older");
    assert!(decode(&cache, 3, 1 << 20) && held() == 1 << 20, "one stays, however large it is");
    assert!(decode(&cache, 4, 10) && held() <= BUDGET);
    cache.shrink();
    assert!(!decode(&cache, 4, 10));
}

#[test]
fn clusters_decoded_at_the_same_time_stay_within_the_budget() {
    const BUDGET: usize = 10_000;
    let cache = cache(BUDGET);
    let mut decodings = Vec::new();
    for pos in 0..5 {
        let Found::Missing(mut decoding) = find(&cache, pos, 4000) else {
            panic!("no thread has it yet")
        };
        decoding.buffer(4000).fill(7);
        decodings.push(decoding);
    }
    assert!(cache.memory.held() > BUDGET, "five requests need their buffers");
    for decoding in decodings {
        decoding.publish(4000);
    }
    assert!(cache.memory.held() <= BUDGET);
    assert!(!decode(&cache, 4, 4000) && !decode(&cache, 3, 4000), "the newest stay");
}

#[test]
fn one_decodes_and_the_others_wait() {
    let cache = cache(100);
    let Found::Missing(mut decoding) = find(&cache, 0, 10) else { panic!("no thread has it yet") };
    assert!(!decoding.is_wanted());
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| matches!(find(&cache, 0, 10), Found::Decoded(_))))
            .collect();
        while !decoding.is_wanted() {
            std::thread::yield_now();
        }
        decoding.buffer(10).fill(1);
        decoding.publish(10);
        assert!(others.into_iter().all(|other| other.join().unwrap()));
    });
}

#[test]
fn a_panic_while_decoding_lets_a_waiting_thread_decode() {
    let cache = cache(100);
    std::thread::scope(|scope| {
        let Found::Missing(mut decoding) = find(&cache, 0, 10) else {
            panic!("no thread has it yet")
        };
        let others: Vec<_> = (0..4).map(|_| scope.spawn(|| decode(&cache, 0, 10))).collect();
        let panicked = ferofs_threads::catch(|| {
            decoding.buffer(10);
            while !decoding.is_wanted() {
                std::thread::yield_now();
            }
            let _decoding = decoding;
            panic!("a decoder's defect");
        });
        assert!(panicked.is_err());
        let decoded = others.into_iter().map(|other| other.join().unwrap());
        assert_eq!(decoded.filter(|decoded| *decoded).count(), 1, "one of them, for all");
    });
}

#[test]
fn after_a_failure_another_thread_decodes() {
    let cache = cache(100);
    let Found::Missing(mut decoding) = find(&cache, 0, 10) else { panic!("no thread has it yet") };
    decoding.buffer(10);
    drop(decoding);
    assert_eq!(cache.memory.held(), 0);
    assert!(decode(&cache, 0, 10));
}

#[test]
fn a_shorter_prefix_is_not_enough() {
    let cache = cache(1 << 20);
    assert!(decode(&cache, 0, 10) && decode(&cache, 0, 20));
    assert!(!decode(&cache, 0, 15));
}
