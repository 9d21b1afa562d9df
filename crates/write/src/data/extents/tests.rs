use super::*;
use proptest::prelude::*;

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let place = prop_oneof![
        3 => Just(ExtentPlace::Next),
        1 => (0u64..1 << 60, any::<bool>())
            .prop_map(|(at, partial)| ExtentPlace::Shared { at: BytePos::new(at), partial }),
    ];
    let size = prop_oneof![Just(4096), 1u64..1 << 20];
    let extent = (1u64..1 << 40, any::<bool>(), size, place)
        .prop_map(|(len, encoded, size, place)| Extent { len, encoded, size, place });
    proptest::collection::vec(extent, 0..50)
}

proptest! {
    #[test]
    fn returns_the_extents_that_were_pushed(a in extents(), b in extents()) {
        let log = |extents: &[Extent]| {
            let mut log = ExtentLog::new(4096);
            extents.iter().for_each(|extent| log.push(*extent));
            log
        };
        let mut joined = log(&a);
        joined.extend(&log(&b));
        let all = [a, b].concat();
        prop_assert_eq!(joined.iter().collect::<Vec<_>>(), all.clone());
        prop_assert_eq!(joined.count(), all.len() as u64);
        prop_assert_eq!(joined.decoded_len(), all.iter().map(|extent| extent.len).sum::<u64>());
        let own = || all.iter().filter(|extent| extent.place == ExtentPlace::Next);
        prop_assert_eq!(joined.size(), own().map(|extent| extent.size).sum::<u64>());
        prop_assert_eq!(joined.shares(), own().count() < all.len());
        let mut end = 77;
        for (at, extent) in joined.placed(BytePos::new(77)) {
            if extent.place == ExtentPlace::Next {
                prop_assert_eq!(at.get(), end);
                end += extent.size;
            }
        }
    }

    #[test]
    fn adjacent_holes_are_one(parts in proptest::collection::vec(proptest::collection::vec((any::<bool>(), 1u64..1 << 29), 0..9), 0..5)) {
        let mut joined = ExtentLog::new(4096);
        let mut wanted: Vec<(bool, u64)> = Vec::new();
        for part in parts {
            let mut log = ExtentLog::new(4096);
            for (is_hole, len) in part {
                let stored = Extent { len, encoded: true, size: 4096, place: ExtentPlace::Next };
                log.push(if is_hole { Extent::hole(len) } else { stored });
                match wanted.last_mut().filter(|last| is_hole && last.0) {
                    Some((_, before)) => *before += len,
                    None => wanted.push((is_hole, len)),
                }
            }
            joined.extend(&log);
        }
        let mut found: Vec<(bool, u64)> = Vec::new();
        for extent in joined.iter() {
            prop_assert!(!extent.is_hole() || extent.len <= HOLE_MAX);
            match found.last_mut().filter(|last| extent.is_hole() && last.0) {
                Some((_, before)) => {
                    prop_assert_eq!(*before % HOLE_MAX, 0);
                    *before += extent.len;
                }
                None => found.push((extent.is_hole(), extent.len)),
            }
        }
        prop_assert_eq!(joined.count(), joined.iter().count() as u64);
        prop_assert_eq!(joined.decoded_len(), wanted.iter().map(|(_, len)| len).sum::<u64>());
        prop_assert_eq!(joined.has_holes(), wanted.iter().any(|(is_hole, _)| *is_hole));
        prop_assert_eq!(found, wanted);
    }
}
