//! Additions to images with `48BIT`: the metabox and the packed inode grow, so that new inodes and new fragments are compressed together.

use std::fs;
use std::path::Path;

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::{Run, ferofs, need, tree, update};

use super::update::assert_shows;
use crate::common::fixture::Fixture;
use crate::common::mkfs::assert_valid;

/// Images in which the metabox, the packed inode, or both grow. Clusters of LZ4 and LZMA are placed to the byte in other ways than those of
/// Zstandard.
const SETTINGS: [&str; 5] = [
    "--preset backup",
    "-z zstd -C 64K -E 48bit,all-fragments -m 4K",
    "-z lzma -C 64K -E 48bit,all-fragments -m 16K",
    "-z lz4 -C 16K -E 48bit,all-fragments -m 4K",
    "-z zstd -C 64K -E 48bit,fragments",
];

/// Writes files of one version below `root`, most of them in small directories, and one directory of several blocks.
fn write_version(root: &Path, version: u64) {
    let mut rng = Rng::new(version);
    for number in 0..120 {
        let dir = root.join(format!("version-{version}/directory-{}", number % 30));
        fs::create_dir_all(&dir).unwrap();
        let kind = if number % 10 == 0 { Content::Noise } else { Content::Text };
        // Content that no other version has, in one file of four.
        let seed = if number % 4 == 0 { rng.next_u64() } else { number };
        fs::write(dir.join(format!("file-{number}")), kind.bytes(3000, &mut Rng::new(seed))).unwrap();
    }
    let wide = root.join(format!("version-{version}/wide"));
    fs::create_dir_all(&wide).unwrap();
    for number in 0..300 {
        fs::write(wide.join(format!("a-name-of-some-length-{number}")), "").unwrap();
    }
}

#[test]
fn each_state_of_a_growing_image_is_shown() {
    require!(need::kernel_erofs("a grown image through the kernel") && need::fuse("the same through FUSE"));
    for options in SETTINGS {
        let fixture = Fixture::new(&tree::Options::small());
        write_version(&fixture.source(), 0);
        let image = fixture.build("image", options.split(' '));
        let mut states = vec![fixture.path("state-0")];
        update::copy(&fixture.source(), &states[0]).unwrap();
        for version in 1..4 {
            let upper = fixture.directory(&format!("upper-{version}"));
            write_version(&upper, version);
            // A file of the first version changes.
            let changed = upper.join("version-0/directory-1");
            fs::create_dir_all(&changed).unwrap();
            fs::write(changed.join("file-1"), format!("version {version} of this file")).unwrap();
            ferofs().args(["patch", "add", "--verify"]).args([&image, &upper]).run().success();
            let state = fixture.path(&format!("state-{version}"));
            update::copy(&states[states.len() - 1], &state).unwrap();
            Run::new("cp").arg("-a").arg(upper.join(".")).arg(&state).run().success();
            assert_valid(&image);
            // A copy for each mount: Linux can use a loop device again that holds older blocks of the same file.
            let shown = fixture.path(&format!("shown-{version}"));
            fs::copy(&image, &shown).unwrap();
            assert_shows(&fixture, &shown, &state);
            states.push(state);
        }
        // A patch that is made of the grown image, and a new image of it.
        let (patch, other, squashed) =
            (fixture.path("patch"), fixture.path("other"), fixture.path("squashed"));
        fs::copy(&image, &other).unwrap();
        ferofs().args(["patch", "create"]).args([&image, &states[0]]).arg("-o").arg(&patch).run().success();
        super::apply(&other, &patch);
        assert_valid(&other);
        assert_shows(&fixture, &other, &states[0]);
        ferofs().args(["patch", "squash"]).args([&image, &squashed]).run().success();
        assert_shows(&fixture, &squashed, &states[3]);
        // Back to each state.
        for (number, state) in states.iter().enumerate().rev().skip(1) {
            let (number, back) = (number.to_string(), fixture.path(&format!("back-{number}")));
            fs::copy(&image, &back).unwrap();
            ferofs().args(["patch", "rollback", "--to", &number]).arg(&back).run().success();
            assert_valid(&back);
            assert_shows(&fixture, &back, state);
        }
    }
}

#[test]
fn versions_that_are_added_need_little_metadata() {
    let fixture = Fixture::empty();
    write_version(&fixture.source(), 0);
    let image = fixture.build("image", ["--preset", "backup"]);
    for version in 1..4_u64 {
        // The content of the first version, so that only metadata is added.
        let upper = fixture.directory(&format!("upper-{version}"));
        update::copy(&fixture.source().join("version-0"), &upper.join(format!("version-{version}"))).unwrap();
        let before = fs::metadata(&image).unwrap().len();
        ferofs().args(["patch", "add", "--loose-parents"]).args([&image, &upper]).run().success();
        let growth = fs::metadata(&image).unwrap().len() - before;
        // 452 inodes with their names take more than 30,000 bytes without compression.
        assert!(growth <= 20_480, "{growth}");
    }
}
