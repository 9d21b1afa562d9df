//! Commands to which the system refuses something.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use ferofs_tests::run::ferofs_path;
use ferofs_tests::{ferofs, need, tree};

use crate::stage::Stage;

/// No address space has room for a stack of this size, so that no thread can be started.
const NO_STACK: &str = "1152921504606846976";

#[test]
fn without_threads_commands_end_with_a_message() {
    let stage = Stage::new(&tree::Options::small());
    let image = stage.path("image");
    ferofs().arg("build").args([stage.source(), image.clone()]).run().success();
    let other = stage.path("other");
    let commands: [(&[&str], Vec<_>); 7] = [
        (&["build", "-z", "lz4", "--verify"], vec![stage.source(), other.clone()]),
        (&["build", "--chunk-size", "4096"], vec![stage.source(), other.clone()]),
        (&["check", "--deep"], vec![image.clone()]),
        (&["extract"], vec![image.clone(), stage.path("tree")]),
        (&["extract", "--tar"], vec![other.clone(), image.clone()]),
        (&["patch", "create", "-o"], vec![other.clone(), image.clone(), stage.source()]),
        (&["patch", "add"], vec![image.clone(), stage.source()]),
    ];
    for (words, paths) in commands {
        let output = Command::new(ferofs_path())
            .env("RUST_MIN_STACK", NO_STACK)
            .args(words)
            .args(paths)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 8)), "{words:?}: {}: {told}", output.status);
        assert!(told.contains("start a thread"), "{words:?}: {told}");
        assert!(!other.exists(), "{words:?} leaves a file");
    }
    ferofs().arg("check").arg(&image).run().success();
}

#[test]
fn an_archive_without_room_leaves_the_old_one() {
    if !need::root("a full disk: a tmpfs") {
        return;
    }
    let stage = Stage::new(&tree::Options { largest: 9_000_000, ..tree::Options::small() });
    let (image, disk) = (stage.path("image"), stage.directory("disk"));
    ferofs().arg("build").args([stage.source(), image.clone()]).run().success();
    rustix::mount::mount("tmpfs", &disk, "tmpfs", rustix::mount::MountFlags::empty(), c"size=2m").unwrap();
    fs::write(disk.join("archive"), "old").unwrap();
    let outcome = ferofs().args(["extract", "--tar"]).args([disk.join("archive"), image]).run();
    let (left, old) = (fs::read_dir(&disk).unwrap().count(), fs::read(disk.join("archive")));
    rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
    outcome.failure(1);
    assert_eq!((left, old.unwrap()), (1, b"old".to_vec()));
}

#[test]
fn outputs_replace_files_and_are_written_to_devices() {
    let stage = Stage::new(&tree::Options::small());
    let (image, page) = (stage.path("image"), stage.path("page"));
    ferofs().arg("build").args([stage.source(), image.clone()]).run().success();
    fs::write(&page, "old").unwrap();
    let inode = fs::metadata(&page).unwrap().ino();
    ferofs().args(["inspect", "--html"]).args([page.clone(), image.clone()]).run().success();
    // What had the name is as it was, for whoever still reads it.
    assert_ne!(fs::metadata(&page).unwrap().ino(), inode);
    ferofs().args(["extract", "--tar", "/dev/null", "--metadata", "/dev/null"]).arg(&image).run().success();
}

#[test]
fn zeroes_are_an_archive_without_members_and_that_is_said() {
    let stage = Stage::bare();
    let zeroes = stage.path("zeroes");
    fs::write(&zeroes, [0; 10_240]).unwrap();
    let outcome = ferofs().arg("build").args([zeroes, stage.path("image")]).run().success();
    assert!(outcome.stderr.contains("without members"), "{}", outcome.stderr);
}
