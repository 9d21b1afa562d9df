//! Runs ferofs under the name `mkfs.erofs`, and checks the images with both implementations.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ferofs_tests::{Outcome, Run, ferofs};

use super::erofs_utils::newest;
use super::fixture::Fixture;

/// Runs `mkfs.erofs` on the source with these options.
pub(crate) fn mkfs(fixture: &Fixture, options: &str, image: &Path) -> Outcome {
    mkfs_command(fixture).args(options.split_whitespace()).arg(image).arg(fixture.source()).run()
}

/// `mkfs.erofs` without arguments.
pub(crate) fn mkfs_command(fixture: &Fixture) -> Run {
    let link = fixture.path("mkfs.erofs");
    if fs::symlink_metadata(&link).is_err() {
        std::os::unix::fs::symlink(ferofs_tests::run::ferofs_path(), &link).unwrap();
    }
    Run::new(link)
}

/// Fails if `ferofs check` or the newest `fsck.erofs` finds an error.
pub(crate) fn assert_valid(image: &Path) {
    let checked = ferofs().arg("check").arg(image).run();
    assert_eq!(checked.code, 0, "{}{}", checked.stderr, String::from_utf8_lossy(&checked.stdout));
    // fsck.erofs does not support blocks larger than a page.
    let mut bits = [0];
    fs::File::open(image).unwrap().read_exact_at(&mut bits, 1024 + 0x0C).unwrap();
    if let Some(fsck) = newest("fsck.erofs").filter(|_| 1 << bits[0] <= rustix::param::page_size()) {
        let out = image.with_extension("erofs-utils");
        let mut extract = OsString::from("--extract=");
        extract.push(&out);
        Run::new(fsck).arg(extract).arg(image).run().success();
        fs::remove_dir_all(out).unwrap();
    }
}
