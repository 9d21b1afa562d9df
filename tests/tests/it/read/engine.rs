//! The read engine after a FUSE mount: access profiles and pinned data, memory limits.

use std::fs;
use std::path::Path;

use ferofs_tests::{Mount, ferofs, need};

use crate::common::fixture::{Fixture, counter};

/// Mounts in the background with `options`.
fn mounted(image: &Path, dir: &Path, options: &[&str]) -> Mount {
    ferofs!("mount --fuse").args(options).args([image, dir]).success();
    Mount::adopt(dir)
}

#[test]
fn a_recorded_access_profile_can_be_pinned() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let profile = fixture.path("profile");
    let file = "files/large/Mixed";
    let dir = fixture.directory("recorded");
    let mount = mounted(&image, &dir, &["--record-profile", profile.to_str().unwrap()]);
    let expected = fs::read(mount.path().join(file)).unwrap();
    mount.unmount().unwrap();
    // The daemon writes the profile after the unmount.
    let written = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::read_to_string(&profile).ok().filter(|text| text.contains(file))
    });
    let written = written.expect("a profile within five seconds");
    assert!(written.starts_with("# ferofs access profile 1\n"), "{written}");

    let dir = fixture.directory("pinned");
    let options = ["--pin", profile.to_str().unwrap(), "--pin-memory", "64M"];
    let mount = mounted(&image, &dir, &options);
    assert_eq!(fs::read(mount.path().join(file)).unwrap(), expected);
    assert!(counter(mount.path(), "pinned hits") > 0);
    assert!(counter(mount.path(), "pinned bytes") >= expected.len() as u64);
    mount.unmount().unwrap();

    fs::write(&profile, "no profile").unwrap();
    let refused = ferofs!("mount --fuse").args(options).args([&image, &dir]).run();
    assert_eq!(refused.code, 1);
    refused.says("not an access profile");
}

#[test]
fn memory_stays_within_its_limit() {
    require!(need::fuse());
    let (fixture, image) = Fixture::small_image();
    let dir = fixture.directory("mount");
    let mount = mounted(&image, &dir, &["--memory-limit", "1M"]);
    fixture.assert_same_as_source(mount.path());
    let peak = counter(mount.path(), "held peak");
    // On a busy machine, a thread that waited in vain exceeds the limit by what it needs.
    assert!(peak > 0 && peak <= 2 << 20, "{peak}");
    mount.unmount().unwrap();
}
