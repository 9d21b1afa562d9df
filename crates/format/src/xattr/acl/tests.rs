use super::*;

#[test]
fn an_acl_is_parsed_in_all_forms() {
    let access =
        |text: &str| attribute(b"SCHILY.acl.access", text.as_bytes()).map(|(_, value)| value);
    let same = "user::rw-,user:1:rw-,user:12345:r--,group::r--,group:60:--x,mask::rwx,other::r--";
    // The order and the numbers of bsdtar.
    let bsdtar = "user::rw-,group::r--,other::r--,user:daemon:rw-:1,user:12345:r--,group:games:--x:60,mask::rwx";
    let lines = "user::rw-\nuser:12345:r--\t#effective:r--\nuser:1:rw-\ngroup::r--\ngroup:60:x\nmask::rwx\nother::r--\n";
    for form in [same, bsdtar, lines] {
        assert_eq!(text(&access(form).unwrap()).as_deref(), Some(same), "{form}");
    }
    // The permissions say the same; a default ACL is none of them.
    let small = "user::rwx,group::r-x,other::---";
    assert_eq!(access(small), Some(Vec::new()));
    let default = attribute(b"SCHILY.acl.default", small.as_bytes()).unwrap();
    assert_eq!(
        (default.0, text(&default.1)),
        (b"system.posix_acl_default".as_slice(), Some(small.to_owned()))
    );
    for bad in [
        "",
        "user::rw-,group::r--",
        "user::rw-,user:1:r--,group::r--,other::r--",
        "user::rw-,user:daemon:r--,group::r--,mask::r--,other::r--",
        "user::rw-,user:1:r--,user:1:rw-,group::r--,mask::r--,other::r--",
        "user::rw-,user:4294967295:r--,group::r--,mask::r--,other::r--",
        "user::rws,group::r--,other::r--",
        "owner@:rwx::allow",
    ] {
        assert_eq!(access(bad), None, "{bad}");
    }
}

#[test]
fn offsets_move_the_named_users_and_groups() {
    let acl = "user::rw-,user:1000:r--,group::r--,group:7:--x,mask::r-x,other::---";
    let (name, value) = attribute(b"SCHILY.acl.access", acl.as_bytes()).unwrap();
    let change = |is_user: bool, id: u32| match is_user {
        true => Ok(id + 100_000),
        false => id.checked_sub(7).ok_or(()),
    };
    let mut moved = value.clone();
    change_ids(name, &mut moved, change).unwrap();
    let expected = "user::rw-,user:101000:r--,group::r--,group:0:--x,mask::r-x,other::---";
    assert_eq!(text(&moved).as_deref(), Some(expected));
    assert_eq!(change_ids(name, &mut moved, change), Err(()));
    let mut other = value.clone();
    change_ids(b"user.x", &mut other, change).unwrap();
    assert_eq!(other, value);
}

#[test]
fn an_acl_is_written_with_numbers() {
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, bits, id) in
        [(1u16, 6u16, u32::MAX), (2, 4, 1000), (4, 5, u32::MAX), (0x10, 7, 0), (0x20, 0, 0)]
    {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    let expected = "user::rw-,user:1000:r--,group::r-x,mask::rwx,other::---";
    assert_eq!(text(&value).as_deref(), Some(expected));
    assert_eq!(text(&value[..9]), None);
    assert_eq!(text(b""), None);
}

#[test]
fn values_that_linux_refuses_are_malformed() {
    let acl = [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255];
    assert!(is_valid(&acl));
    let of_user = [2, 0, 0, 0, 2, 0, 7, 0, 255, 255, 255, 255];
    assert!(!is_valid(&of_user) && is_valid(&[&of_user[..8], &[1, 0, 0, 0]].concat()));
    for (at, byte) in [(0, 3), (4, 3), (5, 1)] {
        let mut bad = acl;
        bad[at] = byte;
        assert!(!is_valid(&bad), "{bad:?}");
    }
    assert!([0, 3, 4, 11].iter().all(|len| !is_valid(&acl[..*len])));
}
