//! Patches: update images, and roll back.
//!
//! - `chain`: one patch for a chain of patches, and files of several patches.
//! - `delta`: exact new images.
//! - `device`: the program for devices does the same as the command.
//! - `erofs_utils`: every change of images in every form of mkfs.erofs.
//! - `faults`: interrupted writes, and data after an image.
//! - `for_updates`: images that grow little.
//! - `growth`: additions that are compressed together.
//! - `in_place`: images that are mounted while they are replaced.
//! - `resume`: interrupted patches that continue.
//! - `sparse`: files with holes.
//! - `squash`: new images without history.
//! - `update`: patches change an image to the new tree and back; patches for other images are
//!   refused.

mod chain;
mod delta;
mod device;
mod erofs_utils;
mod faults;
mod for_updates;
mod growth;
mod in_place;
mod resume;
mod sparse;
mod squash;
mod update;

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Content, Rng, ferofs};

use crate::common::fixture::{Fixture, copy};

/// Makes a patch from an image to a tree.
fn create(old: &Path, new: &Path, patch: &Path) {
    ferofs!("patch create", old, new, "-o", patch).success();
}

fn apply(image: &Path, patch: &Path) {
    ferofs!("patch apply", image, patch).success();
}

/// A tree whose image has more than 2 MiB: without `48BIT`, a new root inode cannot be in the
/// appended bytes.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for (content, len) in
        [(Content::Text, 900_000), (Content::Noise, 2_700_000), (Content::Mixed, 70_001)]
    {
        fixture.write(format!("{content:?}"), content.bytes(len, &mut Rng::new(3)));
    }
    for number in 0..100 {
        let bytes = Content::Text.bytes(number * 97, &mut Rng::new(number as u64));
        fixture.write(format!("file{number}"), bytes);
    }
    fixture
}

/// Changes the source: content, names and a directory.
fn change(fixture: &Fixture, number: usize) {
    let path = |name: String| fixture.source().join(name);
    let mut text = fs::read(path("Text".into())).unwrap();
    text[400_000 + number] ^= 1;
    text.extend_from_slice(b"more");
    fixture.write("Text", text);
    fs::remove_file(path(format!("file{number}"))).unwrap();
    fs::rename(path(format!("file{}", number + 50)), path(format!("moved{number}"))).unwrap();
    let bytes = Content::Mixed.bytes(90_000, &mut Rng::new(number as u64));
    fixture.write(format!("dir{number}/new"), bytes);
}

/// A copy of the source.
fn copied(fixture: &Fixture, name: &str) -> PathBuf {
    let tree = fixture.path(name);
    copy(&fixture.source(), &tree);
    tree
}
