use super::*;

fn one(line: &str) -> Result<Definition, &'static str> {
    Definitions::parse(line.as_bytes()).map(|mut all| all.0.remove(0)).map_err(|error| error.reason)
}

#[test]
fn lines_are_those_of_mksquashfs() {
    let owner = |permissions, uid, gid, mtime| Owner { permissions, uid, gid, mtime };
    let body = DefinedBody::Device(FileType::CharDevice, Rdev { major: 5, minor: 1 });
    let console = Change::Put { body, owner: owner(0o600, 0, 5, None) };
    assert_eq!(
        one("/dev/console c 600 root 5 5 1"),
        Ok(Definition { path: b"dev/console".into(), change: console })
    );
    let change = Change::Modify(owner(0o4755, 0, 0, Some(-7)));
    assert_eq!(one("bin/su M -7 4755 0 0"), Ok(Definition { path: b"bin/su".into(), change }));
    let body = DefinedBody::Symlink(b"a target with spaces".into());
    let change = Change::Put { body, owner: owner(0o777, 0, 0, None) };
    assert_eq!(
        one("a\\ b s 777 0 0 a target with spaces"),
        Ok(Definition { path: b"a b".into(), change: change.clone() })
    );
    assert_eq!(
        one("\"a b\" s 777 0 0 a target with spaces"),
        Ok(Definition { path: b"a b".into(), change })
    );
    let change = Change::Xattr { name: b"user.x".into(), value: b"a=b c".into() };
    assert_eq!(one("f x user.x=a=b c"), Ok(Definition { path: b"f".into(), change }));
    assert!(matches!(
        one("s i 644 0 0 s").unwrap().change,
        Change::Put { body: DefinedBody::Socket, .. }
    ));
    assert!(matches!(
        one("s i 644 0 0").unwrap().change,
        Change::Put { body: DefinedBody::Fifo, .. }
    ));
}

#[test]
fn a_wrong_line_is_reported() {
    let error = Definitions::parse(b"# comment\n\ndev d 755 0 0\nx q 1 2 3\n").unwrap_err();
    assert_eq!((error.line, error.reason), (4, UNKNOWN_TYPE));
    for wrong in [
        "x",
        "x d",
        "x d 8 0 0",
        "x d 10000 0 0",
        "x d 755 me 0",
        "x d 755 0",
        "x d 755 4294967295 0",
        "x d 755 0 0 more",
        "x c 600 0 0 5",
        "x D 755 0 0",
        "x i 600 0 0 q",
        "\"x d 755 0 0",
        "x\\",
        "x f 644 0 0 date",
        "x l file",
        "x x name",
        "x h",
        "x c 600 0 0 5 -1",
    ] {
        assert!(one(wrong).is_err(), "{wrong}");
    }
}
