//! The FUSE daemon without root: in a user namespace, for an ordinary user, and with access control lists.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};

use ferofs_tests::mount::is_mounted;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Run, acl, need, tree, xattr};

use super::daemon::{mounted, small_image};
use crate::common::fixture::Fixture;

/// The user id of nobody, who has no permissions.
const NOBODY: u32 = 65534;

/// A command run as nobody.
fn as_nobody() -> Run {
    let ids = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    Run::new("setpriv").args(ids)
}

#[test]
fn the_daemon_works_in_a_user_namespace() {
    require!(
        need::fuse("FUSE in a user namespace") && need::tool("unshare", "FUSE in a user namespace").is_some()
    );
    let unshare = || Run::new("unshare").args(["--user", "--map-root-user", "--mount"]);
    if unshare().arg("true").run().code != 0 {
        need::lacks("FUSE in a user namespace", "the right to make user namespaces");
        return;
    }
    let fixture = Fixture::new(&tree::Options::small());
    let image = small_image(&fixture);
    let dir = fixture.directory("mount");
    // Without --fuse: the kernel refuses the mount there, so ferofs uses FUSE.
    let script = "\"$0\" mount \"$1\" \"$2\" && cmp \"$2/files/text/4097\" \"$3/files/text/4097\" && \"$0\" umount \"$2\"";
    unshare()
        .args(["sh", "-c", script])
        .arg(ferofs_path())
        .args([&image, &dir, &fixture.source()])
        .run()
        .success();
    assert!(!is_mounted(&dir));
}

#[test]
fn an_ordinary_user_can_mount_and_unmount() {
    require!(
        need::root("becoming an ordinary user")
            && need::tool("fusermount3", "FUSE for ordinary users").is_some()
    );
    let fixture = Fixture::new(&tree::Options::small());
    let image = small_image(&fixture);
    let dir = fixture.directory("mount");
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let parent = image.parent().unwrap();
    fs::set_permissions(parent, PermissionsExt::from_mode(0o755)).unwrap();
    // A copy: the checkout may be in a directory that nobody else may enter, like root's.
    let program = fixture.path("ferofs");
    fs::copy(ferofs_path(), &program).unwrap();
    // On some machines only root may open /dev/fuse. Here all users may, as with the rules of udev.
    let script = "set -e; mknod -m 666 \"$4/fuse\" c 10 229; mount --bind \"$4/fuse\" /dev/fuse
        user='setpriv --reuid=65534 --regid=65534 --clear-groups --'
        $user \"$0\" mount \"$1\" \"$2\"
        $user cat \"$2/files/text/4097\" | cmp - \"$3/files/text/4097\"
        $user \"$0\" umount \"$2\"";
    let unshare = Run::new("unshare").args(["--mount", "sh", "-c", script]).arg(program);
    unshare.args([&image, &dir, &fixture.source()]).arg(parent).run().success();
    assert!(!is_mounted(&dir));
}

#[test]
fn access_control_lists_are_enforced() {
    require!(need::root("becoming an ordinary user") && need::fuse("ACLs through FUSE"));
    let fixture = Fixture::empty();
    let mode = fs::Permissions::from_mode(0o644);
    for name in ["open", "closed"] {
        fs::write(fixture.source().join(name), name).unwrap();
        fs::set_permissions(fixture.source().join(name), mode.clone()).unwrap();
    }
    fs::set_permissions(fixture.source(), PermissionsExt::from_mode(0o755)).unwrap();
    use acl::Entry::{Mask, Other, Owner, OwningGroup, User};
    let list = acl::encode(&[Owner(6), User(NOBODY, 0), OwningGroup(4), Mask(4), Other(4)]);
    let source = File::open(fixture.source()).unwrap();
    xattr::set(&source, b"closed", acl::ACCESS, &list).unwrap();
    let image = small_image(&fixture);
    let mount = mounted(&fixture, &image);
    fs::set_permissions(image.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    let read = |name| as_nobody().arg("cat").arg(mount.path().join(name)).run();
    if read("open").code != 0 {
        need::lacks("ACLs through FUSE", "a checkout that others may read");
        return;
    }
    assert!(read("closed").stderr.contains("Permission denied"));
    assert_eq!(fs::read(mount.path().join("closed")).unwrap(), b"closed");
}
