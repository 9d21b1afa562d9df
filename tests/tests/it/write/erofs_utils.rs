//! erofs-utils read images of ferofs, and ferofs reads images of erofs-utils: the version of this
//! machine, and the newest one in `FEROFS_PEERS` (from `cargo xtask peers`). Other versions, from
//! 1.2.1 on, are compared if `FEROFS_OTHER_PEERS` names their directories.

use std::path::Path;

use ferofs_tests::{Mount, Run, ferofs, need, tree};

use crate::common::erofs_utils::programs_of_all_versions as programs;
use crate::common::fixture::{COMPRESSIONS, Fixture};

#[test]
fn erofs_utils_accept_images_of_ferofs() {
    let fixture =
        Fixture::new(&tree::Options { deep: 50, wide: 2_000, ..tree::Options::default() });
    for fsck in programs("fsck.erofs") {
        for compression in COMPRESSIONS {
            let image = fixture.build("image", ["--compress", compression]);
            let extracted = fixture.path("extracted");
            let mut extract = std::ffi::OsString::from("--extract=");
            extract.push(&extracted);
            // Extraction decodes everything. It restores neither hard links nor xattrs, so the
            // trees are not compared.
            Run::new(&fsck).arg(extract).arg(&image).success();
            std::fs::remove_dir_all(extracted).unwrap();
        }
    }
}

#[test]
fn ferofs_accepts_images_of_erofs_utils() {
    let options = tree::Options { wide: 300, ..tree::Options::small() };
    for mkfs in programs("mkfs.erofs") {
        // On disk, as /tmp: with chunks, erofs-utils 1.5 copies only within one file system.
        let fixture = Fixture::on_disk(&options);
        let mut settings = OLDEST_SETTINGS.to_vec();
        if !version(&mkfs).contains(" 1.2") {
            settings.extend(SETTINGS);
        }
        if is_old(&mkfs) {
            // This version stores "." and ".." before names that must be before them. Linux does
            // not find these names, and `ferofs check` reports them.
            for dir in ["names", "meta/times"] {
                std::fs::remove_dir_all(fixture.source().join(dir)).unwrap();
            }
        } else {
            settings.extend(NEW_SETTINGS);
            if !version(&mkfs).contains(" 1.8") {
                settings.extend(NEWEST_SETTINGS);
            }
        }
        for options in settings {
            let image = fixture.path("image");
            Run::new(&mkfs).arg("-d0").args(options).args([&image, &fixture.source()]).success();
            let context = format!("{} {options:?}", mkfs.display());
            let checked = ferofs!("check --deep", &image).run();
            assert_eq!(checked.code, 0, "{context}: {}{}", checked.stderr, checked.text());
            assert_same_as_kernel(&fixture, &image, &context);
        }
    }
}

/// Settings of erofs-utils 1.2.
const OLDEST_SETTINGS: [&[&str]; 6] = [
    &[],
    &["-Eforce-inode-extended"],
    &["-x-1"],
    &["-zlz4"],
    &["-zlz4hc,9"],
    &["-zlz4", "-Elegacy-compress"],
];

/// Settings of erofs-utils 1.5.
const SETTINGS: [&[&str]; 3] = [
    &["-zlz4hc", "-C65536"],
    &["--chunksize=4096"],
    &["--chunksize=65536", "-Eforce-chunk-indexes"],
];

/// Settings of later versions.
const NEW_SETTINGS: [&[&str]; 7] = [
    &["-zlz4", "-b512"],
    &["-zlz4hc", "-b1024", "-C8192"],
    &["-E^inline_data"],
    &["-zlz4", "-Eztailpacking"],
    &["-zlz4hc", "-C65536", "-Efragments"],
    &["-zlz4hc", "-C65536", "-Eall-fragments"],
    &["-zlz4hc", "-C16384", "-Ededupe"],
];
/// Settings of erofs-utils 1.9.
const NEWEST_SETTINGS: [&[&str]; 1] = [&["-zlz4hc", "-E48bit"]];

/// Whether this mkfs.erofs is older than 2023.
fn is_old(mkfs: &Path) -> bool {
    let version = version(mkfs);
    [" 1.2", " 1.4", " 1.5"].iter().any(|old| version.contains(old))
}

/// What this mkfs.erofs prints as its version.
fn version(mkfs: &Path) -> String {
    let outcome = Run::new(mkfs).arg("-V").run();
    outcome.text() + outcome.stderr.as_str()
}

/// Compares the extracted tree with the image mounted by Linux. Not with the source: erofs-utils do
/// not store all of it.
fn assert_same_as_kernel(fixture: &Fixture, image: &Path, context: &str) {
    require!(need::kernel_erofs());
    let dir = fixture.directory("mount");
    let extracted = fixture.extract(image, "extracted");
    let mount = Mount::kernel(image, &dir).unwrap();
    let report =
        ferofs_tests::compare(mount.path(), &extracted, &crate::common::fixture::same()).unwrap();
    assert_eq!(report.differences, [], "{context}");
    mount.unmount().unwrap();
    std::fs::remove_dir(dir).unwrap();
    std::fs::remove_dir_all(extracted).unwrap();
}
