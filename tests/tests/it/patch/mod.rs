//! Patches: update images, and roll back.
//!
//! - `chain`: one patch for a chain of patches, and files of several patches.
//! - `delta`: exact new images.
//! - `device`: the program for devices does the same as the command.
//! - `faults`: interrupted writes, and data behind an image.
//! - `for_updates`: images that grow little.
//! - `growth`: additions that are compressed together.
//! - `resume`: interrupted patches that continue.
//! - `sparse`: files with holes.
//! - `squash`: new images without history.
//! - `update`: patches change an image to the new tree and back; patches for other images are refused.

mod chain;
mod delta;
mod device;
mod faults;
mod for_updates;
mod growth;
mod resume;
mod sparse;
mod squash;
mod update;

use std::path::Path;

use ferofs_tests::ferofs;

/// Makes a patch from an image to a tree.
fn create(old: &Path, new: &Path, patch: &Path) {
    ferofs().args(["patch", "create"]).args([old, new]).arg("-o").arg(patch).run().success();
}

fn apply(image: &Path, patch: &Path) {
    ferofs().args(["patch", "apply"]).args([image, patch]).run().success();
}
