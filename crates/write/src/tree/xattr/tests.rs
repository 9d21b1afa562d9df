use super::*;
use crate::options::attributes::DIGEST_NAME;

fn set(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    encode_set(pairs.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.to_vec())).collect()).unwrap()
}

fn plan(table: &XattrTable, options: &XattrOptions) -> XattrPlan {
    table.plan(options, SetId::default(), false).unwrap()
}

const OTHER: NodeId = NodeId(1);

#[test]
fn shares_only_xattrs_that_save_space() {
    let mut table = XattrTable::default();
    let common = ("security.selinux", b"system_u:object_r:usr_t:s0".as_slice());
    let first = table.intern(&set(&[common, ("user.one", b"1")]));
    let second = table.intern(&set(&[common, ("user.two", b"2")]));
    assert_ne!(first, second);
    assert_eq!(table.intern(&set(&[("user.one", b"1"), common])), first);
    let plan = plan(&table, &XattrOptions::default());
    // Only the label saves space: user.one, shared, would need 8 bytes and two references of 4, as
    // much as two copies.
    let (entry, _) = entries(&plan.shared).next().unwrap();
    assert_eq!(entry.value, common.1);
    for id in [first, second] {
        let region = Region::parse(plan.region(OTHER, id)).unwrap();
        assert_eq!(region.shared().collect::<Vec<_>>(), [0]);
        assert_eq!(region.entries().count(), 1);
    }
    assert!(plan.region(OTHER, SetId::default()).is_empty());
}

#[test]
fn in_the_metabox_attributes_are_shared_together_or_not_at_all() {
    let mut table = XattrTable::default();
    let long = [7; 40];
    let mixed = table.intern(&set(&[("user.common", &long), ("user.own", b"")]));
    let whole = table.intern(&set(&[("user.common", &long)]));
    table.intern(&set(&[("user.common", &long)]));
    let plan = table.plan(&XattrOptions::default(), SetId::default(), true).unwrap();
    let counts = |id| {
        let region = Region::parse(plan.region(OTHER, id)).unwrap();
        (region.shared().len(), region.entries().count())
    };
    assert_eq!((counts(mixed), counts(whole)), ((0, 2), (1, 0)));
    assert!(!plan.shared.is_empty());

    // A patch shares what the image shares.
    let entry = set(&[("user.common", &long)]);
    let ids = HashMap::from([(entries(&entry).next().unwrap().1.to_vec(), 5)]);
    for (in_metabox, of_mixed) in [(true, (0, 2)), (false, (1, 1))] {
        let plan = table.plan_on(&XattrOptions::default(), &ids, in_metabox).unwrap();
        let counts = |id| {
            let region = Region::parse(plan.region(OTHER, id)).unwrap();
            (region.shared().len(), region.entries().count())
        };
        assert_eq!((counts(mixed), counts(whole)), (of_mixed, (1, 0)), "{in_metabox}");
    }
}

#[test]
fn the_inline_limit_counts_inodes() {
    let mut table = XattrTable::default();
    let id = table.intern(&set(&[("user.a", b"")]));
    table.intern(&set(&[("user.a", b"")]));
    for (limit, shared) in [(0, 1), (1, 1), (2, 0)] {
        let options = XattrOptions { inline_limit: Some(limit), ..XattrOptions::default() };
        let plan = plan(&table, &options);
        assert_eq!(
            Region::parse(plan.region(OTHER, id)).unwrap().shared().len(),
            shared,
            "{limit}"
        );
    }
}

#[test]
fn long_prefixes_shorten_names() {
    let prefixes = vec![XattrOptions::prefix(b"trusted.overlay.").unwrap()];
    let digest = XattrOptions::digest_name(DIGEST_NAME);
    assert_eq!(digest.as_ref().unwrap().base, 0);
    let options = XattrOptions { prefixes, digest: digest.clone(), ..XattrOptions::default() };
    let mut table = XattrTable::default();
    let plain = table.intern(&set(&[("trusted.overlay.opaque", b"y"), ("trusted.x", b"z")]));
    let id = table.add_digest(plain, 0, digest.as_ref().unwrap(), b"digest").unwrap();
    let plan = plan(&table, &options);
    let region = Region::parse(plan.region(OTHER, id)).unwrap();
    let entries: Vec<_> = region.entries().map(Result::unwrap).collect();
    assert_eq!(
        (entries[0].index.raw(), entries[0].name, entries[0].value),
        (0x80, &b""[..], &b"digest"[..])
    );
    assert_eq!((entries[1].index.raw(), entries[1].name), (0x81, &b"opaque"[..]));
    assert_eq!((entries[2].index.raw(), entries[2].name), (4, &b"x"[..]));
    assert!(region.filter.may_contain(NamePrefix::Trusted, b"overlay.opaque"));
}

#[test]
fn a_digest_replaces_an_xattr_of_the_same_name() {
    let name = XattrOptions::digest_name(b"user.digest").unwrap();
    let mut table = XattrTable::default();
    let old = table.intern(&set(&[("user.digest", b"old"), ("user.digests", b"other")]));
    let new = table.add_digest(old, 0, &name, b"new").unwrap();
    assert_eq!(
        table.attributes(new, &[name]),
        [(b"user.digest".to_vec(), b"new".to_vec()), (b"user.digests".to_vec(), b"other".to_vec())]
    );
}

#[test]
fn the_root_gets_its_minimum_size() {
    let options = XattrOptions { root_min: 199, ..XattrOptions::default() };
    let plan = plan(&XattrTable::default(), &options);
    assert_eq!(plan.region(NodeId::ROOT, SetId::default()).len(), 200);
    assert!(plan.region(OTHER, SetId::default()).is_empty());
}

/// What fills it up is with the inode, so nothing of a root in the metabox is shared.
#[test]
fn a_root_in_the_metabox_that_is_filled_up_shares_nothing() {
    let mut table = XattrTable::default();
    let label = set(&[("security.selinux", &[7; 40])]);
    let root = table.intern(&label);
    table.intern(&label);
    let options = XattrOptions { root_min: 400, ..XattrOptions::default() };
    for (in_metabox, counts) in [(true, (0, 1)), (false, (1, 0))] {
        let plan = table.plan(&options, root, in_metabox).unwrap();
        let region = Region::parse(plan.region(NodeId::ROOT, root)).unwrap();
        let own = region.entries().map(Result::unwrap).filter(|entry| !entry.name.is_empty());
        assert_eq!((region.shared().len(), own.count()), counts, "{in_metabox}");
    }
}

#[test]
fn replaces_by_name() {
    let mut table = XattrTable::default();
    let old = table.intern(&set(&[("security.selinux", b"old"), ("user.a", b"1")]));
    let new = table.replace(old, b"security.selinux", Some(b"new")).unwrap();
    assert_eq!(table.encoded(new), set(&[("security.selinux", b"new"), ("user.a", b"1")]));
    assert_eq!(table.sets[0].1, 0);
}

#[test]
fn unsupported_names_are_left_out() {
    assert_eq!(set(&[("system.nfs4_acl", b"x"), ("plain", b"y")]), b"");
}

#[test]
fn errors_give_the_size_and_the_limit() {
    let too_large = |pairs: Vec<(Vec<u8>, Vec<u8>)>| encode_set(pairs).unwrap_err();
    let one = too_large(vec![(b"user.a".to_vec(), vec![0; 65536])]);
    assert_eq!((one.value, one.limit), (65536, 65535));
    let name = too_large(vec![([b"user.".as_slice(), &[b'a'; 300]].concat(), vec![])]);
    assert_eq!((name.value, name.limit), (300, 255));
    let many = (0..5).map(|n| (format!("user.{n}").into_bytes(), vec![0; 60_000])).collect();
    let set = too_large(many);
    assert_eq!((set.value, set.limit), (12 + 5 * 60_008, REGION_MAX));
}
