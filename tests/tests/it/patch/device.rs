//! The program for devices, which contains no builder, does to images what the command does, and
//! prints the same messages.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ferofs_tests::{Mount, Outcome, Run, compare, ferofs, need, tree};
use rustix::process::{Pid, Signal, kill_process};

use super::create;
use crate::common::fixture::{Fixture, same};

/// A fixture with an image, a patch, and the new tree.
fn fixture() -> (Fixture, PathBuf, PathBuf) {
    let (fixture, image) =
        Fixture::with_image(&tree::Options { wide: 40, deep: 0, ..tree::Options::default() });
    fixture.write("news", "news ".repeat(9000));
    let patch = fixture.path("patch");
    create(&image, &fixture.source(), &patch);
    (fixture, image, patch)
}

/// Both programs fail with the same message, but for their names, and the same code.
fn assert_same_failure(device: Outcome, command: Outcome, code: i32) {
    let own = device.stderr.strip_prefix("ferofs-device: ").expect("the name of the program");
    assert_eq!(own, command.stderr.strip_prefix("ferofs: ").expect("the name of the program"));
    assert_eq!((device.code, command.code), (code, code));
}

#[test]
fn patches_change_an_image_as_the_command_does() {
    let Some(program) = need::device_program() else { return };
    let (fixture, image, patch) = fixture();
    let [own, other, garbage] = ["own", "other", "garbage"].map(|name| fixture.path(name));
    fs::copy(&image, &own).unwrap();
    fs::copy(&image, &other).unwrap();
    fs::write(&garbage, "no patch").unwrap();
    let device = |verb: &str| Run::new(&program).arg(verb);
    let command = |verb: &str| ferofs!("patch", verb);
    let applied = device("apply").args([&own, &patch]).success();
    assert_eq!(applied.stdout, command("apply").args([&other, &patch]).success().stdout);
    assert!(fs::read(&own).unwrap() == fs::read(&other).unwrap(), "other bytes");
    for wrong in [&patch, &garbage, &fixture.path("none")] {
        let failed = device("apply").args([&own, wrong]).run();
        assert_same_failure(failed, command("apply").args([&own, wrong]).run(), 1);
    }
    assert_eq!(device("apply").arg(&own).run().code, 2);
    assert_eq!(device("repair").arg(&own).success().stdout, b"nothing to repair\n");
    device("rollback").arg(&own).success();
    let listed = ferofs!("patch log", &own).success().stdout;
    // As built, patched, and rolled back.
    assert_eq!(String::from_utf8_lossy(&listed).lines().count(), 3);
    // A stream, and a state that comes back.
    device("apply").arg(&own).arg("-").input(fs::File::open(&patch).unwrap()).success();
    fixture.assert_same_as_source(&fixture.extract(&own, "extracted"));
}

#[test]
fn check_and_verify_judge_as_the_command_does() {
    let Some(program) = need::device_program() else { return };
    let (fixture, image, _) = fixture();
    let device = |verb: &str| Run::new(&program).arg(verb);
    let printed = ferofs!("verity format", &image).success().stdout;
    let root = String::from_utf8(printed).unwrap().trim().to_owned();
    device("verify").arg(&image).arg(&root).success();
    device("check").arg(&image).arg("--deep").success();
    let damaged = fixture.path("damaged");
    let mut bytes = fs::read(&image).unwrap();
    // The root's nid in the superblock.
    bytes[1024 + 0x0e] ^= 0x55;
    fs::write(&damaged, bytes).unwrap();
    let verify = |program: Run| program.arg(&damaged).arg(&root).run();
    assert_same_failure(verify(device("verify")), verify(ferofs!("verity verify")), 1);
    let check = |program: Run| program.arg(&damaged).run();
    assert_same_failure(check(device("check")), check(ferofs!("check")), 4);
    let none = |program: Run| program.arg(fixture.path("none")).run();
    assert_same_failure(none(device("check")), none(ferofs!("check")), 8);
    assert_eq!(device("check").run().code, 16);
}

#[test]
fn mounts_show_the_tree_and_end_with_the_program() {
    let Some(program) = need::device_program() else { return };
    require!(need::root() && need::fuse());
    let (fixture, image, patch) = fixture();
    let dir = fixture.directory("mnt");
    let mount = |patch: Option<&PathBuf>| {
        let mut command = Command::new(&program);
        command.arg("mount").args([&image, &dir]);
        if let Some(patch) = patch {
            command.arg("--patch").arg(patch);
        }
        Mount::serve(&mut command, &dir).unwrap()
    };
    let mounted = mount(Some(&patch));
    compare(&fixture.source(), mounted.path(), &same()).unwrap().assert_same();
    assert_eq!(mounted.unmount().unwrap(), (Some(0), String::new()));
    let mounted = mount(None);
    assert!(!mounted.path().join("news").exists());
    let id = Pid::from_raw(mounted.daemon_id().unwrap().try_into().unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(mounted.wait().unwrap(), (Some(0), String::new()));
    assert!(!ferofs_tests::mount::is_mounted(&dir));
}
