use super::*;
use proptest::prelude::*;

fn plan() -> impl Strategy<Value = Plan> {
    let reference = prop_oneof![
        (any::<u64>(), 1..u32::MAX).prop_map(|(pos, len)| Reference::Image { pos, len }),
        (any::<u64>(), 1..u32::MAX).prop_map(|(pos, len)| Reference::Predicted { pos, len }),
        (any::<u64>(), 1..u32::MAX).prop_map(|(pos, len)| Reference::PredictedMetabox { pos, len }),
        (0..u64::MAX - 2, any::<u64>(), 1..u32::MAX)
            .prop_map(|(nid, offset, len)| Reference::File { nid, offset, len }),
    ];
    let extent = (0usize..4, any::<u32>(), 1..u32::MAX, any::<u32>()).prop_map(
        |(kind, len, size, capacity)| UnitExtent {
            kind: ExtentKind::ALL[kind],
            len,
            size,
            capacity,
        },
    );
    let unit = (any::<u8>(), any::<u32>(), proptest::collection::vec(extent, 1..5)).prop_map(
        |(method, content_len, extents)| Item::Unit(Unit { method, content_len, extents }),
    );
    let item = prop_oneof![(1..u32::MAX).prop_map(|len| Item::Raw { len }), unit];
    (proptest::collection::vec(reference, 0..20), proptest::collection::vec(item, 0..20))
        .prop_map(|(references, items)| Plan { references, items })
}

proptest! {
    #[test]
    fn plans_round_trip(plan in plan()) {
        prop_assert_eq!(Plan::decode(&plan.encode().unwrap(), PLAN_MAX).unwrap().1, plan);
    }

    #[test]
    fn garbage_is_refused_without_panic(columns: Vec<u8>) {
        let _ = Plan::decode(&columns, PLAN_MAX);
        let _ = Plan::decode(&zstd::bulk::compress(&columns, 1).unwrap(), PLAN_MAX);
    }
}

#[test]
fn empty_parts_are_refused() {
    let reference = |len| Reference::Image { pos: 0, len };
    let unit = |extents| Item::Unit(Unit { method: 0, content_len: 4, extents });
    for (references, items, is_right) in [
        (vec![reference(1)], vec![Item::Raw { len: 1 }], true),
        (vec![reference(0); 1000], Vec::new(), false),
        (Vec::new(), vec![Item::Raw { len: 0 }; 1000], false),
        (Vec::new(), vec![unit(Vec::new())], false),
    ] {
        let plan = Plan { references, items };
        assert_eq!(Plan::decode(&plan.encode().unwrap(), PLAN_MAX).is_ok(), is_right, "{plan:?}");
    }
}

#[test]
fn a_plan_that_decodes_to_too_much_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; PLAN_MAX + 1], 1).unwrap();
    assert!(Plan::decode(&bomb, usize::MAX).is_err());
}
