use super::*;

#[test]
fn ids_do_not_wrap() {
    let offset = |uid_offset| AttributeOptions { uid_offset, ..AttributeOptions::default() };
    assert_eq!(offset(100_000).owner(1000, 7), Ok((101_000, 7)));
    assert_eq!(offset(-1000).owner(1000, 7), Ok((0, 7)));
    assert_eq!(offset(-1001).owner(1000, 7), Err(EntryFault::Owner(-1)));
    assert_eq!(offset(1 << 32).owner(0, 7), Err(EntryFault::Owner(1 << 32)));
    assert_eq!(offset(i64::MAX).owner(1, 7), Err(EntryFault::Owner(i64::MAX)));
    assert_eq!(offset(u32::MAX.into()).owner(0, 7), Err(EntryFault::Owner(u32::MAX.into())));
    let forced = AttributeOptions { force_gid: Some(u32::MAX), ..AttributeOptions::default() };
    assert_eq!(forced.owner(0, 0), Err(EntryFault::Owner(u32::MAX.into())));
    let forced = AttributeOptions { gid_offset: -1, force_gid: Some(u32::MAX), ..forced };
    assert_eq!(forced.owner(0, 0), Err(EntryFault::Owner(u32::MAX.into())));
    // An image with such an owner can still be rebuilt.
    assert_eq!(AttributeOptions::default().owner(u32::MAX, 7), Ok((u32::MAX, 7)));
}

#[test]
fn prefixes_must_be_prefixes() {
    for text in ["", "user", "user.", "other.x", "system.posix_acl_access"] {
        assert_eq!(XattrOptions::prefix(text.as_bytes()), None, "{text}");
    }
    assert_eq!(XattrOptions::prefix(&[b"user.".as_slice(), &[b'x'; 256]].concat()), None);
    assert_eq!(XattrOptions::digest_name(b"trusted.x").unwrap().base, 4);
    assert_eq!(XattrOptions::digest_name(b""), None);
}

#[test]
fn lines_are_read_from_their_end() {
    let text =
        b"/ 0 0 0755\nsystem/bin/run-as 0 2000 0750 capabilities=0xc0\nsystem/a b 1 2 644 selabel=u:x\n";
    let config = FsConfig::parse(text).unwrap();
    assert_eq!(config.lookup(b"").unwrap().permissions, 0o755);
    let run_as = config.lookup(b"system/bin/run-as").unwrap();
    assert_eq!((run_as.gid, run_as.permissions, run_as.capabilities), (2000, 0o750, 0xc0));
    assert_eq!(config.lookup(b"system/a b").unwrap().uid, 1);
    assert_eq!(config.lookup(b"other"), None);
    assert_eq!(FsConfig::parse(b"ok 0 0 755\nbad 0 0\n").unwrap_err().line, 2);
    assert!(FsConfig::parse(b"bad 0 0 99999\n").is_err());
    assert!(FsConfig::parse(b"bad 4294967295 0 755\n").is_err());
}

#[test]
fn the_target_of_a_link_is_ignored() {
    let text =
        b"system/etc/a 0 1 0644 /vendor/etc/a b\nsystem/a 1 0 0 644 capabilities=2 ../7 x\n 0 0 0755\n";
    let config = FsConfig::parse(text).unwrap();
    let link = config.lookup(b"system/etc/a").unwrap();
    assert_eq!((link.uid, link.gid, link.permissions, link.capabilities), (0, 1, 0o644, 0));
    assert_eq!(config.lookup(b"system/a 1").unwrap().capabilities, 2);
    assert_eq!(config.lookup(b"").unwrap().permissions, 0o755);
    assert!(FsConfig::parse(b"a 0 0 0644 capabilities=x\n").is_err());
    assert!(FsConfig::parse(b"a 0 0 link\n").is_err());
}

#[test]
fn capabilities_are_as_linux_has_them() {
    let value = capability_xattr(1 << 13);
    assert_eq!(value, [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}
