//! Chains of patches: one patch that leads to what a chain shows, and files of several patches.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::{ferofs, update};

use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::Fixture;

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
            fs::write(
                source.join("between"),
                Content::Noise.bytes(between, &mut Rng::new(step as u64)),
            )
            .unwrap();
        }
        update::copy(&source, &tree(step)).unwrap();
        let patch = fixture.path(&format!("patch-{step}"));
        let create = ferofs().args(["patch", "create", "-T", &step.to_string()]);
        create.args([&last, &source]).arg("-o").arg(&patch).run().success();
        super::apply(&last, &patch);
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
    let rest =
        json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}: no {name}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_composed_patch_has_nothing_of_the_states_between() {
    for options in ["-z none", "-z lz4 -C 16K", "-z zstd -C 64K -E fragments", "--preset backup"] {
        let fixture = fixture();
        let Chain { base, patches, trees, last } = chain(&fixture, options, 3, 200_000);
        let [composed, again, portable] =
            ["composed", "again", "portable"].map(|name| fixture.path(name));
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
            super::apply(&image, patch);
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
        let compose =
            ferofs().args(["patch", "compose"]).args(chain).arg("-o").arg(&out).run().failure(1);
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
    super::apply(&image, first);
    ferofs()
        .args(["patch", "create"])
        .args([&image, &trees[0]])
        .arg("-o")
        .arg(&back)
        .run()
        .success();
    refused(&[&base, first, &back], ["base: ", "nothing to patch"]);
    // The output is an input.
    let own = ferofs()
        .args(["patch", "compose"])
        .args([&base, first])
        .arg("-o")
        .arg(first)
        .run()
        .failure(1);
    assert!(own.stderr.contains("also an input"), "{}", own.stderr);
}

/// The bytes of all files, one after another, in a new file.
fn joined(fixture: &Fixture, name: &str, files: &[&Path]) -> PathBuf {
    let path = fixture.path(name);
    fs::write(&path, files.iter().flat_map(|file| fs::read(file).unwrap()).collect::<Vec<u8>>())
        .unwrap();
    path
}

/// Applies the patches in a file to a copy of `image`, from the file and from a pipe, and returns the copy.
fn applied_both_ways(fixture: &Fixture, image: &Path, patches: &Path) -> PathBuf {
    let copies = ["from-file", "from-pipe"].map(|name| fixture.path(name));
    for (copy, is_pipe) in copies.iter().zip([false, true]) {
        fs::copy(image, copy).unwrap();
        let apply = ferofs().args(["patch", "apply"]).arg(copy);
        match is_pipe {
            false => apply.arg(patches).run().success(),
            true => apply.arg("-").input(fs::File::open(patches).unwrap()).run().success(),
        };
    }
    let [copy, piped] = copies;
    assert!(fs::read(&copy).unwrap() == fs::read(&piped).unwrap());
    copy
}

#[test]
fn of_a_file_with_several_patches_those_that_fit_are_applied() {
    let fixture = fixture();
    let Chain { base, patches, trees, last } = chain(&fixture, "-z lz4", 3, 30_000);
    let [first, second, third] = [&patches[0], &patches[1], &patches[2]];
    let all = joined(&fixture, "all", &[first, second, third]);
    // From each state of the chain the rest of it leads to the last tree, with the same bytes.
    let mut image = fixture.path("image");
    fs::copy(&base, &image).unwrap();
    for (done, patch) in patches.iter().enumerate() {
        let result = applied_both_ways(&fixture, &image, &all);
        assert!(fs::read(&result).unwrap() == fs::read(&last).unwrap(), "{done}");
        assert_eq!(states(&result).0, 4);
        super::apply(&image, patch);
    }
    let refused = ferofs().args(["patch", "apply"]).args([&image, &all]).run().failure(1);
    assert!(refused.stderr.contains("applied already"), "{}", refused.stderr);
    assert_shows(&fixture, &image, &trees[3]);
    // In the wrong order, one pass applies only what fits.
    let wrong = joined(&fixture, "wrong", &[second, first]);
    image = applied_both_ways(&fixture, &base, &wrong);
    assert_shows(&fixture, &image, &trees[1]);
    // If none fits, the message says for which images they are, and nothing changes.
    let others = joined(&fixture, "others", &[second, third]);
    let before = fs::read(&base).unwrap();
    for arguments in [vec![base.as_path(), &others], vec![base.as_path(), Path::new("-")]] {
        let apply = ferofs()
            .args(["patch", "apply"])
            .args(arguments)
            .input(fs::File::open(&others).unwrap());
        let refused = apply.run().failure(1);
        for expected in ["none of the 2 patches", "state 1 of", "state 2 of"] {
            assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        }
    }
    assert!(fs::read(&base).unwrap() == before);
    // In memory, too: a mount, and the input of compose.
    let composed = fixture.path("composed");
    ferofs()
        .args(["patch", "compose"])
        .args([&base, &all])
        .arg("-o")
        .arg(&composed)
        .run()
        .success();
    super::apply(&base, &composed);
    assert_shows(&fixture, &base, &trees[3]);
    let shown = ferofs().args(["patch", "show", "--json"]).arg(&all).run().success();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("{\"patches\":[") && shown.matches("\"patch_bytes\"").count() == 3,
        "{shown}"
    );
    let shown = ferofs().args(["patch", "show"]).arg(&all).run().success();
    assert!(String::from_utf8(shown.stdout).unwrap().contains("patch 3 of 3"));
}

#[test]
fn one_patch_file_is_for_several_bases() {
    let fixture = fixture();
    let Chain { base, patches, trees, .. } = chain(&fixture, "-z lz4", 2, 30_000);
    // Another image of the first tree: stored instead of compressed.
    fs::rename(fixture.source(), fixture.path("moved")).unwrap();
    update::copy(&trees[0], &fixture.source()).unwrap();
    let stored = fixture.build("stored", ["-z", "none"]);
    let mut middle = fixture.path("middle");
    fs::copy(&base, &middle).unwrap();
    ferofs().args(["patch", "apply"]).args([&middle, &patches[0]]).run().success();
    let file = fixture.path("for-all");
    let create = ferofs().args(["patch", "create", "--json", "-T", "9"]);
    let created =
        create.args([&base, &stored, &middle, &trees[2]]).arg("-o").arg(&file).run().success();
    let created = String::from_utf8(created.stdout).unwrap();
    assert!(
        created.starts_with("{\"patches\":[") && created.matches("\"patch_bytes\"").count() == 3,
        "{created}"
    );
    for image in [&base, &stored, &middle] {
        let copy = applied_both_ways(&fixture, image, &file);
        assert_shows(&fixture, &copy, &trees[2]);
        assert_eq!(states(&copy).1, 9);
        let again = ferofs().args(["patch", "apply"]).args([&copy, &file]).run().failure(1);
        assert!(again.stderr.contains("applied already"), "{}", again.stderr);
    }
    let stranger = fixture.build("stranger", ["-z", "lz4hc"]);
    let refused = ferofs().args(["patch", "apply"]).args([&stranger, &file]).run().failure(1);
    assert!(refused.stderr.contains("none of the 3 patches"), "{}", refused.stderr);
    // The same superblock, but other content: the digest decides.
    middle = fixture.path("other");
    let mut bytes = fs::read(&base).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&middle, &bytes).unwrap();
    let refused = ferofs().args(["patch", "apply"]).args([&middle, &file]).run().failure(1);
    assert!(
        refused.stderr.contains("none of the 3 patches") && fs::read(&middle).unwrap() == bytes
    );
    // A base that has the tree already is named, and no file is left.
    let none = fixture.path("none");
    let create =
        ferofs().args(["patch", "create"]).args([&base, &stored, &trees[0]]).arg("-o").arg(&none);
    let refused = create.run().failure(1);
    assert!(
        refused.stderr.contains("base: there is nothing to patch") && !none.exists(),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_damaged_file_of_several_patches_is_refused() {
    let fixture = fixture();
    let Chain { base, patches, .. } = chain(&fixture, "-z lz4", 2, 30_000);
    let all = joined(&fixture, "all", &[&patches[0], &patches[1]]);
    let (bytes, before) = (fs::read(&all).unwrap(), fs::read(&base).unwrap());
    let middle = size(&patches[0]) as usize;
    let bad = fixture.path("bad");
    let apply = |is_pipe: bool, bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        fs::write(&base, &before).unwrap();
        let apply = ferofs().args(["patch", "apply"]).arg(&base);
        let apply = if is_pipe {
            apply.arg("-").input(fs::File::open(&bad).unwrap())
        } else {
            apply.arg(&bad)
        };
        (apply.run().failure(1).stderr, states(&base).0)
    };
    // Of a file, all starts and lengths are checked first. From a pipe the patches before the defect are applied.
    for cut in [middle + 1, middle + 23, middle + 300, bytes.len() - 1] {
        let (message, count) = apply(false, &bytes[..cut]);
        assert!(count == 1 && message.contains("bad: "), "{cut}: {message}");
        let (message, count) = apply(true, &bytes[..cut]);
        assert!(
            count == 2
                && message.contains("patch 2 of the file")
                && message.contains("(1 before it"),
            "{message}"
        );
    }
    let (message, count) = apply(
        false,
        &[&bytes[..], b"trailing bytes, which are no patch at all, but many"].concat(),
    );
    assert!(count == 1 && message.contains("not a patch"), "{message}");
    // A patch with a wrong byte is not used, nor passed over.
    for is_pipe in [false, true] {
        for (at, expected) in [(middle - 40, 1), (middle + 1000, 2)] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            let (message, count) = apply(is_pipe, &wrong);
            assert!(count == expected && message.contains("damaged"), "{at}: {message}");
        }
    }
    let swapped = [&bytes[middle..], &bytes[..middle]].concat();
    let mut wrong = swapped.clone();
    wrong[(bytes.len() - middle) / 2] ^= 1;
    let (message, count) = apply(true, &wrong);
    assert!(count == 1 && message.contains("damaged"), "{message}");
    // One signature is for one patch.
    let (key, cert, signature) =
        (fixture.path("key"), fixture.path("cert"), fixture.path("signature"));
    fs::write(&signature, b"not read").unwrap();
    let signed =
        ferofs().args(["patch", "apply"]).args([&base, &all]).arg("--signature").arg(&signature);
    let refused = signed.arg("--cert").arg(&cert).run().failure(1);
    assert!(refused.stderr.contains("a signature is for one patch"), "{}", refused.stderr);
    // Nor may one come after it in a pipe, or anything else.
    for (file, reason) in
        [(&all, "a signature is for one patch"), (&bad, "patch 2 of the file: not a patch")]
    {
        fs::write(
            &bad,
            [&bytes[..middle], b"something else, which is long enough to be the start of a patch"]
                .concat(),
        )
        .unwrap();
        let signed = ferofs()
            .args(["patch", "apply"])
            .arg(&base)
            .arg("-")
            .arg("--signature")
            .arg(&signature);
        let refused =
            signed.arg("--cert").arg(&cert).input(fs::File::open(file).unwrap()).run().failure(1);
        assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    }
    let sign =
        ferofs().args(["patch", "sign"]).arg(&all).arg("--key").arg(&key).arg("--cert").arg(&cert);
    let refused = sign.arg("-o").arg(&signature).run().failure(1);
    assert!(refused.stderr.contains("several patches"), "{}", refused.stderr);
}
