use super::*;
use crate::stat::{stat_at, stat_fd};

/// Both ways to open a directory, because Linux before 5.6 and preloaded libraries need the second.
#[test]
fn no_name_of_a_path_is_a_link_or_leaves_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
    let root = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for open in [open_piece, open_each_name] {
        let open = |path: &str| open(root.as_fd(), path.as_bytes(), flags);
        let inode = |path: &str| stat_fd(open(path).unwrap().as_fd()).unwrap().st_ino;
        let expected = stat_at(root.as_fd(), b"a/b/c").unwrap().st_ino;
        assert_eq!((inode("a/b/c"), inode("./a//b/c")), (expected, expected));
        assert_eq!(inode("."), stat_fd(root.as_fd()).unwrap().st_ino);
        for path in ["link", "link/b", "../x", "none", ""] {
            assert!(open(path).is_err(), "{path}");
        }
    }
    assert_eq!(open_each_name(root.as_fd(), b"a/../../..", flags).unwrap_err(), Errno::XDEV);
}
