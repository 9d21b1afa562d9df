use super::*;
use crate::xattr::{Entry, UNIT};
use proptest::collection::vec;
use proptest::prelude::*;

fn tables() -> impl Strategy<Value = Vec<LongPrefix>> {
    let infix = vec(prop_oneof![Just(b'.'), Just(b'a')], 0..5);
    vec((1u8..7, infix).prop_map(|(base, infix)| LongPrefix { base, infix }), 0..20)
}

proptest! {
    #[test]
    fn prefix_tables_round_trip(table in tables()) {
        let mut bytes = Vec::new();
        LongPrefix::write_table(&table, &mut bytes).unwrap();
        prop_assert_eq!(bytes.len() % UNIT, 0);
        let count = u8::try_from(table.len()).unwrap();
        prop_assert_eq!(LongPrefix::parse_table(&bytes, count), Ok(table));
    }

    #[test]
    fn names_split_and_join(table in tables(), prefix in 0usize..5, rest in vec(prop_oneof![Just(b'.'), Just(b'a')], 1..9)) {
        let prefix = NamePrefix::ALL[prefix];
        let rest = if prefix.is_whole_name() { Vec::new() } else { rest };
        let full = [prefix.text(), &rest].concat();
        let (index, name) = split_name(&full, &table).unwrap();
        let entry = Entry { index, name, value: b"" };
        prop_assert_eq!(entry.full_name(&table), Some(full.clone()));
        prop_assert!(entry.is_named(prefix, &rest, &table));
        prop_assert!(!entry.is_named(prefix, b"b", &table));
        let longest = table
            .iter()
            .filter(|long| long.base == prefix.index() && rest.starts_with(&long.infix))
            .map(|long| long.infix.len())
            .max();
        prop_assert_eq!(rest.len(), name.len().saturating_add(longest.unwrap_or(0)));
    }

    #[test]
    fn filters_never_deny_what_they_hold(names in vec((0usize..5, any::<Vec<u8>>()), 0..20)) {
        let filter = names.iter().fold(NameFilter::EMPTY, |f, (p, n)| f.with(NamePrefix::ALL[*p], n));
        for (prefix, name) in &names {
            prop_assert!(filter.may_contain(NamePrefix::ALL[*prefix], name));
        }
        prop_assert!(!NameFilter::EMPTY.may_contain(NamePrefix::User, b"a"));
    }

    #[test]
    fn garbage_never_panics(bytes: Vec<u8>, count: u8) {
        if let Ok(table) = LongPrefix::parse_table(&bytes, count) {
            prop_assert_eq!(table.len(), usize::from(count));
        }
    }
}

#[test]
fn names_that_erofs_cannot_hold() {
    for name in [
        &b"user."[..],
        b"system.posix_acl_access2",
        b"system.nfs4_acl",
        b"lustre.lov",
        b"user",
        b"",
    ] {
        assert_eq!(split_name(name, &[]), None);
    }
}

#[test]
fn tables_have_limits() {
    let mut out = Vec::new();
    let prefix = |len| LongPrefix { base: 1, infix: alloc::vec![b'x'; len] };
    assert!(LongPrefix::write_table(&[prefix(255)], &mut out).is_ok());
    assert!(LongPrefix::write_table(&[prefix(256)], &mut out).is_err());
    assert!(LongPrefix::write_table(&alloc::vec![prefix(1); 129], &mut out).is_err());
    assert!(LongPrefix::parse_table(&[0, 0], 1).is_err());
    assert!(LongPrefix::parse_table(&[1, 1, 1], 1).is_err());
}
