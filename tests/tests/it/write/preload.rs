//! fakeroot and pseudo, under which Buildroot, Yocto and Debian's packages make images: libraries
//! that show programs other owners, types and attributes than the files have.

use std::path::{Path, PathBuf};

use ferofs_tests::{Outcome, Run, ferofs, ferofs_path, need};

use crate::common::fixture::Fixture;

/// Makes a tree, images of it by both command lines, and trees from the images. Lists all trees.
const SCRIPT: &str = r#"set -e
mkdir t t/d
echo content > t/a
ln t/a t/d/again
ln -s a t/link
mknod t/null c 1 3
mknod t/disk b 259 7
mkfifo t/fifo
chown 123:456 t/a
chown -h 7:8 t/link
chown 9:10 t/d t/disk
chmod 4750 t/a
chmod 2711 t/d
chmod 640 t/null
setfattr -n security.x -v 1 t/a
setfattr -n security.y -v 2 t/d
setfattr -n security.z -v 3 t/null
"$0" build -q -z none t image
./mkfs.erofs --quiet other t
"$0" diff image t
"$0" diff other t
"$0" extract -q image out
./fsck.erofs --extract=third --xattrs other > /dev/null
"$0" diff image out
for tree in t out third; do
    cd $tree
    find . -mindepth 1 -printf '%p %M %n %U:%G %l\n' | sort
    stat -c '%n %t:%T' null disk
    getfattr -h -m - -d a d null
    cd ..
    echo =
done
"#;

#[test]
fn images_and_extracted_trees_have_what_fakeroot_shows() {
    if let Some(tool) = need::tool("fakeroot") {
        check(|dir| Run::new(tool).args(["sh", "-c", SCRIPT]).arg(ferofs_path()).dir(dir).run());
    }
}

#[test]
fn images_and_extracted_trees_have_what_pseudo_shows() {
    if let Some(tool) = need::tool("pseudo") {
        let run = |dir: &Path, args: &[&str]| {
            let state = dir.join("state");
            std::fs::create_dir_all(&state).unwrap();
            let run = Run::new(&tool).args(args).dir(dir);
            run.env("PSEUDO_PREFIX", "/usr").env("PSEUDO_LOCALSTATEDIR", state)
        };
        check(|dir| {
            let outcome = run(dir, &["sh", "-c", SCRIPT]).arg(ferofs_path()).run();
            // Ends the server, which would wait for more programs.
            run(dir, &["-S"]).run();
            outcome
        });
    }
}

/// Runs the script with `run`, in the directory that it is given.
fn check(run: impl FnOnce(&Path) -> Outcome) {
    require!(need::tool("setfattr").is_some());
    let fixture = Fixture::empty();
    let dir = fixture.directory("work");
    for name in ["mkfs.erofs", "fsck.erofs"] {
        std::os::unix::fs::symlink(ferofs_path(), dir.join(name)).unwrap();
    }
    let made = run(&dir).success();
    // ferofs has no complaint. pseudo prints one line about a device that it then shows as it
    // should.
    let is_of_pseudo = |line: &&str| line.starts_with("couldn't allocate absolute path for 'null'");
    assert_eq!(made.stderr.lines().find(|line| !is_of_pseudo(line)), None);

    let listed = made.text();
    let trees: Vec<&str> = listed.split("=\n").collect();
    for line in [
        "./a -rwsr-x--- 2 123:456 \n",
        "./d drwx--s--x 2 9:10 \n",
        "./d/again -rwsr-x--- 2 123:456 \n",
        "./disk brw-r--r-- 1 9:10 \n",
        "./fifo prw-r--r-- 1 0:0 \n",
        "./link lrwxrwxrwx 1 7:8 a\n",
        "./null crw-r----- 1 0:0 \n",
        "null 1:3\ndisk 103:7\n",
        "# file: a\nsecurity.x=\"1\"\n",
        "# file: null\nsecurity.z=\"3\"\n",
    ] {
        assert!(trees[0].contains(line), "{line} in {listed}");
    }
    assert_eq!((trees[1], trees[2]), (trees[0], trees[0]));

    for image in ["image", "other"] {
        assert_is_stored(&dir.join(image));
    }
}

/// Checks an image without the library that its source was shown by.
fn assert_is_stored(image: &Path) {
    let image: PathBuf = image.to_owned();
    let listed = ferofs!("ls -R -l", &image).success().stdout;
    let lines: Vec<String> = String::from_utf8(listed).unwrap().lines().map(without_time).collect();
    let expected = [
        "-rwsr-x--- 2 123 456 8 a",
        "drwx--s--x 2 9 10 44 d",
        "brw-r--r-- 1 9 10 259, 7 disk",
        "prw-r--r-- 1 0 0 0 fifo",
        "lrwxrwxrwx 1 7 8 1 link -> a",
        "crw-r----- 1 0 0 1, 3 null",
        "-rwsr-x--- 2 123 456 8 d/again",
    ];
    assert_eq!(lines, expected);
    let archive = image.with_extension("tar");
    ferofs!("extract --tar", &archive, &image).success();
    let archive = std::fs::read(archive).unwrap();
    for record in [
        "SCHILY.xattr.security.x=1\n",
        "SCHILY.xattr.security.y=2\n",
        "SCHILY.xattr.security.z=3\n",
    ] {
        assert!(archive.windows(record.len()).any(|bytes| bytes == record.as_bytes()), "{record}");
    }
}

/// A line of `ferofs ls -l` with single blanks, and without date and time.
fn without_time(line: &str) -> String {
    let is_time =
        |word: &str| word.contains(':') || word.matches('-').count() == 2 && word.starts_with('2');
    line.split_whitespace().filter(|word| !is_time(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_program_that_lost_the_library_of_fakeroot_refuses() {
    let Some(tool) = need::tool("fakeroot") else { return };
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let run = Run::new(tool).args(["env", "-u", "LD_PRELOAD"]).arg(ferofs_path()).arg("build");
    run.args([&fixture.source(), &image]).failure(2).says("LD_PRELOAD");
    assert!(!image.exists());
}
