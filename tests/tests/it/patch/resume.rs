//! An interrupted `ferofs patch apply` continues with what is written and right, and says so.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Content, LoopDevice, Outcome, Rng, ferofs, ferofs_with_fault, need};

use super::{apply, create};
use crate::common::fixture::Fixture;

/// Files of the new tree, each of which is more than a piece of a patch.
const NEW: u64 = 3;

/// An image, and a patch that appends several pieces.
fn fixture(options: &str) -> (Fixture, PathBuf, PathBuf) {
    let fixture = Fixture::empty();
    fixture.write("text", Content::Text.bytes(200_000, &mut Rng::new(1)));
    let (image, patch) = (fixture.build("image", options.split(' ')), fixture.path("patch"));
    for number in 0..NEW {
        let bytes = Content::Mixed.bytes(4_600_000, &mut Rng::new(number));
        fixture.write(format!("new{number}"), bytes);
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
    ferofs_with_fault(strace, call, fault, number)
        .args(["patch", "apply"])
        .args([image, patch])
        .run()
}

/// Applies `patches`, and returns the numbers of patches, of bytes that they append, and of bytes
/// that were there.
fn applied(image: &Path, patches: &Path) -> [u64; 3] {
    let apply = ferofs!("patch apply --json", image);
    // A patch from a pipe continues, too.
    let apply = apply.arg("-").input(fs::File::open(patches).unwrap());
    let shown = apply.success().text();
    ["patches", "appended", "resumed"].map(|name| {
        let (_, after) = shown.split_once(&format!("\"{name}\":")).unwrap();
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    })
}

#[test]
fn a_signal_keeps_what_is_written() {
    let Some(strace) = need::tool("strace") else { return };
    let (fixture, image, patch) = fixture("-z lz4");
    let (base, whole) = (fs::read(&image).unwrap(), fixture.path("whole"));
    fs::copy(&image, &whole).unwrap();
    apply(&whole, &patch);
    for end in ["repair", "apply"] {
        let stopped = interrupt(&strace, ["pwrite64", "signal=TERM"], 3, &image, &patch);
        let message =
            "the image shows the old tree; the same command continues where this one stopped";
        assert!(stopped.code != 0 && stopped.stderr.contains(message), "{}", stopped.stderr);
        stopped.says("interrupted");
        ferofs!("check --deep", &image).success();
        if end == "repair" {
            ferofs!("patch repair", &image).success();
            assert!(fs::read(&image).unwrap() == base);
            continue;
        }
        let outcome = ferofs!("patch apply --verbose", &image, &patch).success();
        let shown = outcome.text();
        assert!(shown.contains("continued an interrupted change: "), "{shown}");
        assert!(fs::read(&image).unwrap() == fs::read(&whole).unwrap());
    }
}

#[test]
fn on_a_device_a_patch_continues() {
    let Some(strace) = need::tool("strace") else { return };
    let (fixture, image, patch) = fixture("-z lz4");
    let whole = fixture.path("whole");
    fs::copy(&image, &whole).unwrap();
    apply(&whole, &patch);
    let whole = fs::read(&whole).unwrap();
    fs::File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
    let Some(device) = LoopDevice::attach(&image, &[]) else {
        return;
    };
    let stopped = interrupt(&strace, ["pwrite64", "signal=KILL"], 4, device.path(), &patch);
    let [patches, _, resumed] = applied(device.path(), &patch);
    drop(device);
    assert!(stopped.code != 0 && patches == 1 && resumed > 1 << 20, "{resumed}");
    let after = fs::read(&image).unwrap();
    assert!(after.len() == 64 << 20 && after[..whole.len()] == whole);
    assert!(after[whole.len()..].iter().all(|byte| *byte == 0));
}
