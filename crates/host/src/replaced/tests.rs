use super::*;

#[test]
fn links_are_followed_to_names_without_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for (name, target) in [("a", "b"), ("b", "none"), ("loop", "again"), ("again", "loop")] {
        std::os::unix::fs::symlink(target, path(name)).unwrap();
    }
    assert_eq!(follow_links(&path("a")), path("none"));
    assert_eq!(follow_links(&path("a/")), path("none"));
    assert_eq!(follow_links(&path("x/../none")), path("x/../none"));
    assert!(["loop", "again"].map(path).contains(&follow_links(&path("loop"))));
}

/// Owner, group and permissions of a new file of root with the permissions 644 that replaces this
/// one.
fn replace(dir: &Path, dir_owner: (u32, u32, u32), old: (u32, u32, u32)) -> (u32, u32, u32) {
    let (path, new) = (dir.join("image"), dir.join("new"));
    for (path, (uid, gid, mode)) in [(dir, dir_owner), (&path, old)] {
        if path != dir {
            std::fs::write(path, "old").unwrap();
        }
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let new = File::create(new).unwrap();
    set_permissions(&new, 0o600).unwrap();
    fchown(&new, Some(0), Some(0)).unwrap();
    keep_access(&new, &path, 0o644).unwrap();
    let new = new.metadata().unwrap();
    (new.uid(), new.gid(), new.mode() & 0o7777)
}

#[test]
fn a_file_that_others_can_have_planted_gives_no_permissions() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // A directory of root, or of the owner of the file.
    assert_eq!(replace(dir, (0, 0, 0o755), (5, 6, 0o6664)), (5, 6, 0o664));
    assert_eq!(replace(dir, (5, 0, 0o755), (5, 6, 0o640)), (5, 6, 0o640));
    assert_eq!(replace(dir, (7, 0, 0o755), (5, 6, 0o666)), (0, 0, 0o644));
    // As /tmp.
    assert_eq!(replace(dir, (0, 0, 0o1777), (5, 6, 0o6777)), (0, 0, 0o644));
    assert_eq!(replace(dir, (0, 0, 0o1777), (5, 6, 0o640)), (0, 0, 0o600));
    assert_eq!(replace(dir, (0, 0, 0o1777), (5, 6, 0)), (0, 0, 0o600));
    assert_eq!(replace(dir, (0, 0, 0o1777), (0, 6, 0o660)), (0, 6, 0o660));
    // The directory of a group.
    assert_eq!(replace(dir, (0, 6, 0o2775), (5, 6, 0o660)), (0, 6, 0o640));
    assert_eq!(replace(dir, (0, 6, 0o2775), (5, 7, 0o664)), (0, 0, 0o644));
    // A link to a file of root, and a link that leads to one.
    std::fs::remove_file(dir.join("image")).unwrap();
    std::fs::write(dir.join("root's"), "").unwrap();
    std::fs::hard_link(dir.join("root's"), dir.join("image")).unwrap();
    assert_eq!(replace(dir, (0, 0, 0o1777), (0, 0, 0o666)), (0, 0, 0o644));
    std::fs::remove_file(dir.join("image")).unwrap();
    std::os::unix::fs::symlink("root's", dir.join("image")).unwrap();
    assert_eq!(replace(dir, (0, 0, 0o755), (0, 0, 0o666)), (0, 0, 0o644));
}

/// The owner: rw-, user 7: rw-, the group: ---, mask: rw-, others: ---.
fn list() -> Vec<u8> {
    let entry =
        |tag: u8, permissions: u8, id: u32| [[tag, 0, permissions, 0], id.to_le_bytes()].concat();
    [
        vec![2, 0, 0, 0],
        entry(1, 6, u32::MAX),
        entry(2, 6, 7),
        entry(4, 0, u32::MAX),
        entry(16, 6, u32::MAX),
        entry(32, 0, u32::MAX),
    ]
    .concat()
}

#[test]
fn a_file_that_takes_the_place_of_a_link_gives_no_list() {
    let dir = tempfile::tempdir().unwrap();
    let [path, new, planted, link, own] =
        ["image", "new", "planted", "link", "own"].map(|name| dir.path().join(name));
    std::fs::write(&own, "").unwrap();
    let new = File::create(new).unwrap();
    std::fs::write(&planted, "").unwrap();
    if !rustix::process::geteuid().is_root()
        || rustix::fs::setxattr(&planted, ACL, &list(), XattrFlags::empty()).is_err()
    {
        return;
    }
    std::os::unix::fs::chown(&planted, Some(5), Some(6)).unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                std::os::unix::fs::symlink(&own, &link).unwrap();
                std::fs::rename(&link, &path).unwrap();
                std::fs::rename(&planted, &path).unwrap();
                std::fs::rename(&path, &planted).unwrap();
            }
        });
        let fails = (0..300_000).find(|_| {
            let kept = keep_access(&new, &path, 0o644);
            kept.is_err() || rustix::fs::fgetxattr(&new, ACL, [0; 100].as_mut_slice()).is_ok()
        });
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(fails, None);
    });
}

#[test]
fn a_list_is_kept_or_its_mask_gives_the_group_nothing() {
    let acl = list();
    assert_eq!(group_of_acl(&acl), 0);
    let dir = tempfile::tempdir().unwrap();
    let (path, new) = (dir.path().join("image"), File::create(dir.path().join("new")).unwrap());
    std::fs::write(&path, "").unwrap();
    if rustix::fs::setxattr(&path, ACL, &acl, XattrFlags::empty()).is_err() {
        // The file system has none.
        return;
    }
    keep_access(&new, &path, 0o644).unwrap();
    assert_eq!(list_of(&new), List::Known(acl.clone()));
    assert_eq!(new.metadata().unwrap().mode() & 0o777, 0o660);
    // Another name of the file: it can be of another user.
    std::fs::hard_link(&path, dir.path().join("link")).unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    rustix::fs::fremovexattr(&new, ACL).unwrap();
    keep_access(&new, &path, 0o644).unwrap();
    assert_eq!((list_of(&new), new.metadata().unwrap().mode() & 0o777), (List::None, 0o600));
    // The file that is replaced has none: neither has the new one.
    rustix::fs::removexattr(&path, ACL).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    std::fs::remove_file(dir.path().join("link")).unwrap();
    rustix::fs::fsetxattr(&new, ACL, &acl, XattrFlags::empty()).unwrap();
    keep_access(&new, &path, 0o644).unwrap();
    assert_eq!((list_of(&new), new.metadata().unwrap().mode() & 0o777), (List::None, 0o640));
}
