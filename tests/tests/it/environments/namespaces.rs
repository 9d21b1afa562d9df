//! Trees with owners that a user namespace does not map: a build must not take "nobody" for them silently.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Outcome, Run, need, scratch};

/// Builds `tree` as root of a namespace that maps this user only.
fn build(dir: &Path, options: &[&str]) -> Outcome {
    let image = dir.join("image");
    let _ = fs::remove_file(&image);
    let command = Run::new("unshare").args(["--user", "--map-root-user"]).arg(ferofs_path());
    command.args(["build", "-q"]).args(options).arg(dir.join("tree")).arg(image).run()
}

#[test]
fn a_build_tells_of_owners_that_a_user_namespace_does_not_map() {
    require!(need::tool("unshare", "a namespace").is_some());
    let dir = scratch();
    let file = dir.path().join("tree/file");
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(&file, "content").unwrap();
    assert_eq!(build(dir.path(), &[]).success().stderr, "");
    chown(&file, Some(12345), Some(0)).unwrap();
    let told = build(dir.path(), &[]).success().stderr;
    assert!(told.contains("tree/file: owner 65534, group 0: this user namespace does not map"), "{told}");
    assert_ne!(build(dir.path(), &["--strict"]).code, 0);
    assert_eq!(build(dir.path(), &["--all-root"]).success().stderr, "");
}

#[test]
fn a_build_refuses_access_control_lists_that_a_user_namespace_does_not_map() {
    require!(need::tool("unshare", "an ACL in a namespace").is_some());
    let dir = scratch();
    let file = dir.path().join("tree/file");
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(&file, "content").unwrap();
    // Version 2; the owner, user 12345, the group, the mask and others, each with its tag and permissions.
    let entries = [
        (0x01u16, 6u16, u32::MAX),
        (0x02, 4, 12345),
        (0x04, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let entry = |(tag, bits, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
    rustix::fs::setxattr(&file, "system.posix_acl_access", &acl, rustix::fs::XattrFlags::empty()).unwrap();
    let refused = build(dir.path(), &[]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("tree/file: its ACL names users or groups"), "{}", refused.stderr);
    build(dir.path(), &["--no-xattrs"]).success();
}
