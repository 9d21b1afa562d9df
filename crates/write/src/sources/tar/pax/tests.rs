use super::*;

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let mut len = body.len() + 1;
    while len.to_string().len() + body.len() != len {
        len += 1;
    }
    [len.to_string().as_bytes(), &body].concat()
}

fn records(pairs: &[(&str, &[u8])]) -> Result<Records, TarFault> {
    let bytes: Vec<u8> = pairs.iter().flat_map(|(key, value)| record(key, value)).collect();
    let mut records = Records::default();
    records.read(&bytes).map(|()| records)
}

#[test]
fn an_acl_as_text_becomes_an_attribute() {
    let entry =
        |tag: u16, bits: u16| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &[0xff; 4]].concat();
    let value = [&2u32.to_le_bytes()[..], &entry(1, 6), &entry(4, 4), &entry(16, 4), &entry(32, 0)]
        .concat();
    let (text, names) =
        ("SCHILY.acl.access", b"user::rw-,user:me:r--,group::r--,mask::r--,other::---");
    let xattr: (&str, &[u8]) = ("SCHILY.xattr.system.posix_acl_access", &value);
    let found = |pairs: &[(&str, &[u8])]| {
        let records = records(pairs).unwrap();
        let xattrs = records.xattrs().unwrap();
        let unsupported = records.unsupported_acls(&xattrs).count();
        (xattrs.first().map(|(_, value)| value.clone()), unsupported)
    };
    assert_eq!(
        found(&[(text, b"user::rw-,group::r--,mask::r--,other::---")]),
        (Some(value.clone()), 0)
    );
    // The attribute wins, in any order, and makes up for names without a number.
    assert_eq!(found(&[(text, names), xattr]), (Some(value.clone()), 0));
    assert_eq!(
        found(&[xattr, (text, b"user::rwx,group::r--,mask::r--,other::---")]),
        (Some(value.clone()), 0)
    );
    assert_eq!(found(&[(text, names)]), (None, 1));
    assert_eq!(found(&[(text, b"user::rw-,group::r--,other::---")]), (None, 0));
    assert_eq!(found(&[("SCHILY.acl.ace", b"owner@:rwx::allow")]), (None, 1));
}

#[test]
fn values_may_contain_any_bytes() {
    let odd = b"a\nb=c\0d".as_slice();
    let found =
        records(&[("path", odd), ("SCHILY.xattr.user.x", b"\0=\n"), ("uid", b"4000000000")])
            .unwrap();
    assert_eq!(found.text("path"), Some(odd));
    assert_eq!(found.number_u32("uid", "").unwrap(), Some(4_000_000_000));
    assert_eq!(found.xattrs().unwrap(), [(b"user.x".to_vec(), b"\0=\n".to_vec())]);
    for bad in [
        b"5 a=b".as_slice(),
        b"99 a=b\n",
        b"x",
        b"6 abc\n",
        b"-1 a=\n",
        b"18446744073709551616 a=b\n",
    ] {
        assert_eq!(Records::default().read(bad), Err(TarFault::Pax), "{bad:?}");
    }
}

#[test]
fn xattrs_of_libarchive_are_decoded() {
    let found = records(&[
        ("LIBARCHIVE.xattr.user.a%20b", b"AAEC/w"),
        ("LIBARCHIVE.xattr.user.c", b"Zg=="),
    ]);
    let expected =
        [(b"user.a b".to_vec(), vec![0, 1, 2, 255]), (b"user.c".to_vec(), b"f".to_vec())];
    assert_eq!(found.unwrap().xattrs().unwrap(), expected);
    assert!(records(&[("LIBARCHIVE.xattr.user.c", b"Z")]).unwrap().xattrs().is_err());
}

#[test]
fn times_have_fractions_and_signs() {
    let time = |secs, nanos| Some(Timestamp { secs, nanos });
    assert_eq!(timestamp(b"12.5"), time(12, 500_000_000));
    assert_eq!(timestamp(b"12.1234567899"), time(12, 123_456_789));
    assert_eq!(timestamp(b"-1"), time(-1, 0));
    assert_eq!(timestamp(b"-0.25"), time(-1, 750_000_000));
    // Python writes floating-point numbers.
    assert_eq!(timestamp(b"-1e-09"), time(-1, 999_999_999));
    assert_eq!(timestamp(b"1e-09"), time(0, 1));
    assert_eq!(timestamp(b"1.5e-10"), time(0, 0));
    assert_eq!(timestamp(b"1.25E+3"), time(1250, 0));
    assert_eq!(timestamp(b"1234567.5e3"), time(1_234_567_500, 0));
    assert_eq!(timestamp(b"-9223372036854775808"), time(i64::MIN, 0));
    assert_eq!(timestamp(b"0e999"), time(0, 0));
    let huge = [b"0.".as_slice(), &[b'1'; 100]].concat();
    assert_eq!(timestamp(&huge), time(0, 111_111_111));
    for bad in [
        b"".as_slice(),
        b"1.x",
        b".5",
        b"e5",
        b"1e",
        b"1e5x",
        b"1e99",
        b"1e999",
        b"1e-99999",
        b"99999999999999999999",
    ] {
        assert_eq!(timestamp(bad), None, "{bad:?}");
    }
}

#[test]
fn records_of_a_member_override_global_records() {
    let global = records(&[("uid", b"1"), ("gid", b"2"), ("path", b"x")]).unwrap();
    let own = records(&[("uid", b"3"), ("path", b""), ("SCHILY.xattr.user.e", b"")])
        .unwrap()
        .with_global(&global);
    assert_eq!(own.xattrs().unwrap(), [(b"user.e".to_vec(), b"".to_vec())]);
    assert_eq!(own.number_u32("uid", "").unwrap(), Some(3));
    assert_eq!(own.number_u32("gid", "").unwrap(), Some(2));
    assert_eq!(own.text("path"), None);
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        let mut records = Records::default();
        let _ = records.read(&bytes);
        let _ = (records.mtime(), records.xattrs(), timestamp(&bytes));
        let _ = (decode_base64(&bytes), decode_percent(&bytes));
    }
}
