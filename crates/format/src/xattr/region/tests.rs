use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn entries() -> impl Strategy<Value = Vec<(u8, Vec<u8>, Vec<u8>)>> {
    vec((any::<u8>(), vec(any::<u8>(), 0..=NAME_MAX), vec(any::<u8>(), 0..600)), 0..9)
}

proptest! {
    #[test]
    fn regions_round_trip(stored in entries(), shared in vec(any::<u32>(), 0..=SHARED_MAX), raw: u32) {
        let inline: Vec<_> = stored
            .iter()
            .map(|(index, name, value)| Entry { index: NameIndex::new(*index), name, value })
            .collect();
        let filter = NameFilter::new(raw);
        let mut bytes = Vec::new();
        Region::write(filter, &shared, &inline, &mut bytes).unwrap();
        prop_assert_eq!(bytes.len(), Region::size(shared.len(), &inline));
        prop_assert_eq!(region_size(icount(bytes.len()).unwrap()), bytes.len());
        let region = Region::parse(&bytes).unwrap();
        if !bytes.is_empty() {
            prop_assert_eq!(region.filter, filter);
        }
        prop_assert_eq!(region.shared().collect::<Vec<_>>(), shared);
        prop_assert_eq!(region.entries().collect::<Result<Vec<_>>>().unwrap(), inline);
    }

    #[test]
    fn shared_entries_round_trip(index: u8, name in vec(any::<u8>(), 0..=NAME_MAX), value: Vec<u8>) {
        let entry = Entry { index: NameIndex::new(index), name: &name, value: &value };
        let mut bytes = Vec::new();
        entry.write(&mut bytes).unwrap();
        prop_assert_eq!(bytes.len(), entry.size());
        prop_assert_eq!(Entry::size_from_header(&bytes).unwrap(), entry.size());
        bytes.push(1);
        prop_assert_eq!(Entry::parse(&bytes), Ok(entry));
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        if let Ok(region) = Region::parse(&bytes) {
            prop_assert!(region.entries().count() <= bytes.len() / 4);
            region.entries().flatten().for_each(|entry| drop(entry.full_name(&[])));
        }
        let _ = Entry::parse(&bytes);
    }
}

#[test]
fn limits_are_errors() {
    let mut out = Vec::new();
    let entry = |name, value| Entry { index: NamePrefix::User.into(), name, value };
    assert!(entry(&[1; 256], b"").write(&mut out).is_err());
    assert!(entry(b"a", &[0; 65536]).write(&mut out).is_err());
    assert!(Region::write(NameFilter::EMPTY, &[0; 256], &[], &mut out).is_err());
    let huge = [0; VALUE_MAX];
    assert!(Region::write(NameFilter::EMPTY, &[], &[entry(b"a", &huge); 4], &mut out).is_err());
    assert!(out.is_empty());
    assert_eq!((icount(0), icount(12), icount(16)), (Ok(0), Ok(1), Ok(2)));
    assert!(icount(4).is_err() && icount(14).is_err());
}
