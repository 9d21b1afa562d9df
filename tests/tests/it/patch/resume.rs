//! An interrupted `ferofs patch apply` continues with what is written and right, and says so.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Outcome, Run, ferofs, need};

use super::{apply, create};
use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::Fixture;

/// Files of the new tree, each of which is more than a piece of a patch.
const NEW: u64 = 3;

/// An image, and a patch that appends several pieces.
fn fixture(options: &str) -> (Fixture, PathBuf, PathBuf) {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("text"), Content::Text.bytes(200_000, &mut Rng::new(1)))
        .unwrap();
    let (image, patch) = (fixture.build("image", options.split(' ')), fixture.path("patch"));
    for number in 0..NEW {
        let bytes = Content::Mixed.bytes(4_600_000, &mut Rng::new(number));
        fs::write(fixture.source().join(format!("new{number}")), bytes).unwrap();
    }
    create(&image, &fixture.source(), &patch);
    (fixture, image, patch)
}

/// Applies `patch`, and lets `fault` happen at system call `call` of number `number`.
fn interrupt(
    strace: &Path,
    [call, fault]: [&str; 2],
    number: u32,
    image: &Path,
    patch: &Path,
) -> Outcome {
    Run::new(strace)
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")])
        .args(["-e", &format!("inject={call}:{fault}:when={number}")])
        .arg(ferofs_path())
        .args(["patch", "apply"])
        .args([image, patch])
        .run()
}

/// Applies `patches`, and returns the numbers of patches, of bytes that they append, and of bytes that were there.
fn applied(image: &Path, patches: &Path) -> [u64; 3] {
    let apply = ferofs().args(["patch", "apply", "--json"]).arg(image);
    // A patch from a pipe continues, too.
    let apply = apply.arg("-").input(fs::File::open(patches).unwrap());
    let shown = String::from_utf8(apply.run().success().stdout).unwrap();
    ["patches", "appended", "resumed"].map(|name| {
        let (_, after) = shown.split_once(&format!("\"{name}\":")).unwrap();
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    })
}

#[test]
fn after_each_kill_the_same_patch_continues() {
    let Some(strace) = need::tool("strace", "interrupted patches") else { return };
    for options in ["-z lz4", "-z zstd -C 64K", "-z zstd -C 64K -E 48bit -m 16K"] {
        let (fixture, image, patch) = fixture(options);
        let (base, changed) = (fs::read(&image).unwrap(), fixture.path("changed"));
        fs::write(&changed, &base).unwrap();
        let [_, appended, resumed] = applied(&changed, &patch);
        let whole = fs::read(&changed).unwrap();
        assert_eq!((appended, resumed), ((whole.len() - base.len()) as u64, 0));
        let (mut most, mut interrupted) = (0, 0);
        for number in 1.. {
            fs::write(&changed, &base).unwrap();
            let outcome = interrupt(&strace, ["pwrite64", "signal=KILL"], number, &changed, &patch);
            if outcome.code == 0 || fs::read(&changed).unwrap() == whole {
                break;
            }
            interrupted += 1;
            // The continued change is interrupted, too.
            let again = interrupt(&strace, ["pwrite64", "signal=KILL"], 2, &changed, &patch);
            assert!(again.code != 0, "{options} {number}");
            let [_, _, resumed] = applied(&changed, &patch);
            assert!(fs::read(&changed).unwrap() == whole, "{options} {number}");
            assert!(resumed >= most, "{options} {number}: {resumed} after {most}");
            most = resumed;
        }
        assert!(
            interrupted >= 5 && most > appended / 2,
            "{options} {interrupted} {most} of {appended}"
        );
        assert_valid(&changed);
    }
}

#[test]
fn a_signal_keeps_what_is_written() {
    let Some(strace) = need::tool("strace", "a signal to patch apply") else { return };
    let (fixture, image, patch) = fixture("-z lz4");
    let (base, whole) = (fs::read(&image).unwrap(), fixture.path("whole"));
    fs::copy(&image, &whole).unwrap();
    apply(&whole, &patch);
    for end in ["repair", "apply"] {
        let stopped = interrupt(&strace, ["pwrite64", "signal=TERM"], 3, &image, &patch);
        let message =
            "the image shows the old tree; the same command continues where this one stopped";
        assert!(stopped.code != 0 && stopped.stderr.contains(message), "{}", stopped.stderr);
        assert!(stopped.stderr.contains("interrupted"), "{}", stopped.stderr);
        ferofs().args(["check", "--deep"]).arg(&image).run().success();
        if end == "repair" {
            ferofs().args(["patch", "repair"]).arg(&image).run().success();
            assert!(fs::read(&image).unwrap() == base);
            continue;
        }
        let outcome =
            ferofs().args(["patch", "apply", "--verbose"]).args([&image, &patch]).run().success();
        let shown = String::from_utf8(outcome.stdout).unwrap();
        assert!(shown.contains("continued an interrupted change: "), "{shown}");
        assert!(fs::read(&image).unwrap() == fs::read(&whole).unwrap());
    }
}

#[test]
fn of_several_patches_the_interrupted_one_continues() {
    let Some(strace) = need::tool("strace", "an interrupted file of several patches") else {
        return;
    };
    let (fixture, image, first) = fixture("-z lz4");
    let (base, changed, second) =
        (fs::read(&image).unwrap(), fixture.path("changed"), fixture.path("second"));
    fs::copy(&image, &changed).unwrap();
    apply(&changed, &first);
    for number in 0..NEW {
        let file = fixture.source().join(format!("new{number}"));
        fs::write(file, Content::Mixed.bytes(4_500_000, &mut Rng::new(100 + number))).unwrap();
    }
    create(&changed, &fixture.source(), &second);
    apply(&changed, &second);
    let whole = fs::read(&changed).unwrap();
    let all = fixture.path("all");
    fs::write(&all, [fs::read(&first).unwrap(), fs::read(&second).unwrap()].concat()).unwrap();
    let mut continued = [0, 0];
    for number in 2.. {
        fs::write(&changed, &base).unwrap();
        if interrupt(&strace, ["pwrite64", "signal=KILL"], number, &changed, &all).code == 0 {
            break;
        }
        if fs::read(&changed).unwrap() == whole {
            continue;
        }
        let [patches, _, resumed] = applied(&changed, &all);
        assert!(fs::read(&changed).unwrap() == whole, "{number}");
        // After the first patch was applied, only the second one is left.
        let which = if patches == 2 { 0 } else { 1 };
        continued[which] = resumed.max(continued[which]);
    }
    assert!(continued.iter().all(|resumed| *resumed > 1 << 20), "{continued:?}");
}

#[test]
fn on_a_device_a_patch_continues() {
    let Some(strace) = need::tool("strace", "an interrupted patch of a device") else { return };
    require!(need::root("an interrupted patch of a device"));
    let (fixture, image, patch) = fixture("-z lz4");
    let whole = fixture.path("whole");
    fs::copy(&image, &whole).unwrap();
    apply(&whole, &patch);
    let whole = fs::read(&whole).unwrap();
    fs::File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
    let Ok(setup) = Run::new("losetup").args(["--find", "--show"]).arg(&image).try_run() else {
        return;
    };
    if setup.code != 0 {
        need::lacks("an interrupted patch of a device", "loop devices");
        return;
    }
    let device = PathBuf::from(String::from_utf8(setup.stdout).unwrap().trim());
    let stopped = interrupt(&strace, ["pwrite64", "signal=KILL"], 4, &device, &patch);
    let [patches, _, resumed] = applied(&device, &patch);
    Run::new("losetup").arg("--detach").arg(&device).run().success();
    assert!(stopped.code != 0 && patches == 1 && resumed > 1 << 20, "{resumed}");
    let after = fs::read(&image).unwrap();
    assert!(after.len() == 64 << 20 && after[..whole.len()] == whole);
    assert!(after[whole.len()..].iter().all(|byte| *byte == 0));
}
