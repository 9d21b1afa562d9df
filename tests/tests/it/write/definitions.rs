//! Files that change what the image gets: `--exclude-from`, `--pseudo-file` and `--sort`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ferofs_tests::{Mount, ferofs, need, run};

use crate::common::fixture::Fixture;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(fixture: &Fixture, path: &str, content: &[u8]) {
    let path = fixture.source().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// As root only: it mounts.
#[test]
fn other_file_systems_are_left_out() {
    if need::is_quick() || !need::root() {
        return;
    }
    let fixture = Fixture::empty();
    write(&fixture, "here/file", b"content");
    write(&fixture, "other/below", b"hidden by the mount");
    let other = fixture.source().join("other");
    let mount = run!("mount -t tmpfs tmpfs", &other);
    mount.success();
    write(&fixture, "other/file", b"content");
    let build = |image, options: &[&str]| {
        let image = fixture.path(image);
        ferofs!("build --quiet").args(options).arg(fixture.source()).arg(&image).success();
        text(&ferofs!("ls -R", &image).success().stdout)
    };
    let (all, one) = (build("all", &[]), build("one", &["--one-file-system"]));
    run!("umount", &other).success();
    assert_eq!(all, "here\nother\nhere/file\nother/file\n");
    assert_eq!(one, "here\nother\nhere/file\n");
}

#[test]
fn patterns_of_a_file_exclude() {
    let fixture = Fixture::empty();
    for path in ["a.o", "a.c", "keep.o", "sub/b.o", "sub/build/x", "build/x", "sub/build.c"] {
        write(&fixture, path, b"content");
    }
    let patterns = fixture.path("patterns");
    fs::write(&patterns, "# objects\n*.o\n!keep.o\n/build/\n").unwrap();
    let list = |image| {
        let listed = ferofs!("ls -R", &image).success().stdout;
        String::from_utf8(listed).unwrap()
    };
    let option = format!("--exclude-from={}", patterns.display());
    let names = list(fixture.build("image", [&option]));
    for (name, is_there) in [
        ("a.o", false),
        ("a.c", true),
        ("keep.o", true),
        ("sub/b.o", false),
        ("sub/build/x", true),
        ("/build/x", false),
    ] {
        let found = names
            .lines()
            .any(|line| line.ends_with(name) && (name != "/build/x" || !line.contains("sub")));
        assert_eq!(found, is_there, "{name} in\n{names}");
    }
    fs::write(&patterns, "*.c\n[z-a]\n").unwrap();
    let failed = ferofs!("build", &option, fixture.source(), fixture.path("no")).failure(1);
    failed.says("line 2");
}

#[test]
fn a_pseudo_file_defines_files_and_owners() {
    let fixture = Fixture::empty();
    write(&fixture, "bin/su", b"program");
    write(&fixture, "etc/passwd", b"root");
    let file = fixture.path("pseudo");
    let lines = "dev d 755 0 0\ndev/console c 600 0 5 5 1\ndev/loop0 b 660 0 6 7 0\nbin/su m 4755 0 0\nrun/lock D 1000000000 1777 1 2\n\
                run/pipe i 640 3 4\nrun/socket i 640 3 4 s\netc/mtab S 7 777 0 0 ../proc/self mounts\netc/copy h etc/passwd\n\
                etc/passwd x user.note=a b\n/ m 711 8 9\n";
    fs::write(&file, lines).unwrap();
    let options = [
        format!("--pseudo-file={}", file.display()),
        "-T1".into(),
        "--verify".into(),
        "--force-uid=77".into(),
    ];
    let image = fixture.build("image", &options);
    ferofs!("check --deep", &image).success();
    let json = ferofs!("ls -R --json", &image).success();
    let json = text(&json.stdout);
    for expected in
        [r#""name":"dev/console","#, r#""name":"run/socket","#, r#""target":"../proc/self mounts""#]
    {
        assert!(json.contains(expected), "{expected} in\n{json}");
    }
    require!(need::kernel_erofs());
    let mounted = Mount::kernel(&image, &fixture.directory("mounted")).unwrap();
    let stat = |path: &str| fs::symlink_metadata(mounted.path().join(path)).unwrap();
    let owner = |path: &str| {
        let stat = stat(path);
        (stat.mode(), stat.uid(), stat.gid())
    };
    assert_eq!(owner("dev/console"), (0o020_600, 0, 5));
    assert_eq!(stat("dev/console").rdev(), 0x0501);
    assert_eq!(owner("dev/loop0"), (0o060_660, 0, 6));
    assert_eq!(owner("bin/su"), (0o104_755, 0, 0));
    assert_eq!((owner("run/lock"), stat("run/lock").mtime()), ((0o041_777, 1, 2), 1_000_000_000));
    assert_eq!(owner("run/pipe"), (0o010_640, 3, 4));
    assert_eq!(owner("run/socket"), (0o140_640, 3, 4));
    assert_eq!((stat("etc/mtab").mtime(), owner("")), (7, (0o040_711, 8, 9)));
    assert_eq!(stat("etc/passwd").ino(), stat("etc/copy").ino());
    assert_eq!((owner("etc/passwd").1, stat("etc/passwd").nlink()), (77, 2));
    assert_eq!(fs::read(mounted.path().join("bin/su")).unwrap(), b"program");
}

#[test]
fn a_wrong_pseudo_file_is_refused() {
    let fixture = Fixture::empty();
    write(&fixture, "dir/file", b"content");
    let file = fixture.path("pseudo");
    for (text, reason) in [
        ("x q 1 1 1\n", "line 1: unknown type"),
        ("missing m 644 0 0\n", "missing: there is no file of this name to change"),
        ("dir s 777 0 0 file\n", "dir: a directory with entries is there"),
        ("x h missing\n", "x: a hard link to a name that does not exist"),
        ("dir/file/x d 755 0 0\n", "a part of the path is not a directory"),
    ] {
        fs::write(&file, text).unwrap();
        let image = fixture.path("image");
        let failed = ferofs!("build --pseudo-file", &file, fixture.source(), &image).failure(1);
        failed.says(reason);
        assert!(!image.exists());
    }
}

#[test]
fn content_is_stored_by_priority() {
    let fixture = Fixture::empty();
    for name in ["a", "b", "dir/c", "dir/d", "e"] {
        write(&fixture, name, format!("<{name}>").repeat(3000).as_bytes());
    }
    let file = fixture.path("sort");
    fs::write(&file, "e 5\n/dir 10\ndir/d -3\nmissing 1\n").unwrap();
    let image = fs::read(fixture.build("image", [format!("--sort={}", file.display())])).unwrap();
    let place = |name: &str| {
        let content = format!("<{name}>").repeat(3);
        image.windows(content.len()).position(|window| window == content.as_bytes()).unwrap()
    };
    let mut order = ["a", "b", "dir/c", "dir/d", "e"];
    order.sort_by_key(|name| place(name));
    assert_eq!(order, ["dir/c", "e", "a", "b", "dir/d"]);
}
