//! Chains of patches: one patch that leads to what a chain shows, and files of several patches.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::ferofs;
use ferofs_tests::rng::Rng;
use ferofs_tests::update;

use crate::common::fixture::Fixture;
use crate::common::mkfs::assert_valid;

/// A tree of small files.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for number in 0..60 {
        let dir = fixture.source().join(format!("dir{}", number % 7));
        fs::create_dir_all(&dir).unwrap();
        let bytes = Content::Text.bytes(500 + number * 301, &mut Rng::new(number as u64));
        fs::write(dir.join(format!("file{number}")), bytes).unwrap();
    }
    fixture
}

/// Patches of a chain, the trees before the first one and after each, and the image with all patches.
struct Chain {
    base: PathBuf,
    patches: Vec<PathBuf>,
    trees: Vec<PathBuf>,
    last: PathBuf,
}

/// Makes a chain. Each tree between the first and the last one has a file of `between` bytes that no other has.
fn chain(fixture: &Fixture, options: &str, steps: usize, between: usize) -> Chain {
    let base = fixture.build("base", options.split(' '));
    let (last, source) = (fixture.path("last"), fixture.source());
    fs::copy(&base, &last).unwrap();
    let tree = |number: usize| fixture.path(&format!("tree-{number}"));
    update::copy(&source, &tree(0)).unwrap();
    let (mut patches, mut trees) = (Vec::new(), vec![tree(0)]);
    for step in 1..=steps {
        update::update(&source, step as u64, 2).unwrap();
        let _ = fs::remove_file(source.join("between"));
        if step < steps {
            fs::write(source.join("between"), Content::Noise.bytes(between, &mut Rng::new(step as u64)))
                .unwrap();
        }
        update::copy(&source, &tree(step)).unwrap();
        let patch = fixture.path(&format!("patch-{step}"));
        let create = ferofs().args(["patch", "create", "-T", &step.to_string()]);
        create.args([&last, &source]).arg("-o").arg(&patch).run().success();
        ferofs().args(["patch", "apply"]).args([&last, &patch]).run().success();
        patches.push(patch);
        trees.push(tree(step));
    }
    Chain { base, patches, trees, last }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn assert_shows(fixture: &Fixture, image: &Path, tree: &Path) {
    assert_valid(image);
    let extracted = fixture.extract(image, "extracted");
    ferofs_tests::compare(tree, &extracted, &crate::common::fixture::same()).unwrap().assert_same();
    fs::remove_dir_all(extracted).unwrap();
}

/// The states in the log of an image, and the time of the last one.
fn states(image: &Path) -> (usize, u64) {
    let log = ferofs().args(["patch", "log", "--json"]).arg(image).run().success();
    let log = String::from_utf8(log.stdout).unwrap();
    let (count, last) = (log.matches("\"number\"").count(), log.rfind("\"time\"").unwrap());
    (count, if count == 1 { 0 } else { number(&log[last..], "time") })
}

/// The first number of this name in the JSON text.
fn number(json: &str, name: &str) -> u64 {
    let rest = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}: no {name}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_composed_patch_has_nothing_of_the_states_between() {
    for options in ["-z none", "-z lz4 -C 16K", "-z zstd -C 64K -E fragments"] {
        let fixture = fixture();
        let Chain { base, patches, trees, last } = chain(&fixture, options, 3, 200_000);
        let [composed, again, portable] = ["composed", "again", "portable"].map(|name| fixture.path(name));
        let compose = |more: &[&str], out: &Path| {
            let compose = ferofs().args(["patch", "compose"]).args(more).arg(&base).args(&patches);
            compose.arg("-o").arg(out).run().success()
        };
        let made = compose(&["--verify", "--json"], &composed);
        let made = String::from_utf8(made.stdout).unwrap();
        assert_eq!(number(&made, "patch_bytes"), size(&composed), "{options}");
        // The chain sends and appends the files between.
        let sum: u64 = patches.iter().map(|patch| size(patch)).sum();
        assert!(size(&composed) + 390_000 < sum, "{options}: {} of {sum}", size(&composed));
        // The result does not depend on the number of threads, and has the time of the last patch.
        compose(&["--workers=1"], &again);
        assert!(fs::read(&again).unwrap() == fs::read(&composed).unwrap(), "{options}");
        compose(&["--portable", "-T", "77"], &portable);
        for (patch, time) in [(&composed, 3), (&portable, 77)] {
            let image = fixture.path("image");
            fs::copy(&base, &image).unwrap();
            ferofs().args(["patch", "apply"]).args([&image, patch]).run().success();
            assert!(size(&image) + 390_000 < size(&last), "{options}");
            assert_shows(&fixture, &image, &trees[3]);
            assert_eq!(states(&image), (2, time), "{options}");
            ferofs().args(["patch", "rollback"]).arg(&image).run().success();
            assert_shows(&fixture, &image, &trees[0]);
        }
        // Applying has not changed the base.
        assert_eq!(states(&base).0, 1);
    }
}

#[test]
fn a_chain_that_does_not_fit_is_not_composed() {
    let fixture = fixture();
    let Chain { base, patches, trees, .. } = chain(&fixture, "-z lz4", 3, 1000);
    let out = fixture.path("out");
    let refused = |chain: &[&PathBuf], expected: [&str; 2]| {
        let compose = ferofs().args(["patch", "compose"]).args(chain).arg("-o").arg(&out).run().failure(1);
        let message = compose.stderr;
        assert!(expected.iter().all(|expected| message.contains(expected)), "{message}");
        assert!(!out.exists());
    };
    let [first, second, third] = [&patches[0], &patches[1], &patches[2]];
    refused(&[&base, second, third], ["patch-2: ", "for state 1"]);
    refused(&[&base, first, third], ["patch-3: ", "for state 2"]);
    refused(&[&base, first, second, second], ["patch-2: ", "applied already"]);
    let stranger = fixture.build("stranger", ["-z", "none"]);
    refused(&[&stranger, first], ["patch-1: ", "for another image"]);
    refused(&[&base, first, &stranger], ["stranger: ", "not a patch"]);
    // A chain that leads back to the tree of the base.
    let (image, back) = (fixture.path("image"), fixture.path("back"));
    fs::copy(&base, &image).unwrap();
    ferofs().args(["patch", "apply"]).args([&image, first]).run().success();
    ferofs().args(["patch", "create"]).args([&image, &trees[0]]).arg("-o").arg(&back).run().success();
    refused(&[&base, first, &back], ["base: ", "nothing to patch"]);
    // The output is an input.
    let own = ferofs().args(["patch", "compose"]).args([&base, first]).arg("-o").arg(first).run().failure(1);
    assert!(own.stderr.contains("also an input"), "{}", own.stderr);
}
