//! Chains of patches: one patch that leads to what a chain shows, and files of several patches.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Content, Model, Rng, ferofs};

use super::growth::number;
use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::Fixture;

/// Patches of a chain, the trees before the first one and after each, and the image with all
/// patches.
struct Chain {
    fixture: Fixture,
    base: PathBuf,
    patches: Vec<PathBuf>,
    trees: Vec<PathBuf>,
    last: PathBuf,
}

/// Makes a chain. Each tree between the first and the last one has a file of `between` bytes that
/// no other has.
fn chain(options: &str, steps: usize, between: usize) -> Chain {
    let (fixture, mut rng) = (Fixture::empty(), Rng::new(1));
    let (mut model, last) = (Model::medium(&mut rng), fixture.path("last"));
    let mut trees = vec![fixture.directory("tree-0")];
    model.write_to(&trees[0]).unwrap();
    let base = fixture.build_from(&trees[0], "base", options.split(' '));
    fs::copy(&base, &last).unwrap();
    let mut patches = Vec::new();
    for step in 1..=steps {
        model = model.changed(6, &mut rng);
        let tree = fixture.directory(&format!("tree-{step}"));
        model.write_to(&tree).unwrap();
        if step < steps {
            fs::write(tree.join("between"), Content::Noise.bytes(between, &mut rng)).unwrap();
        }
        let patch = fixture.path(&format!("patch-{step}"));
        ferofs!("patch create -T", step.to_string(), &last, &tree, "-o", &patch).success();
        super::apply(&last, &patch);
        patches.push(patch);
        trees.push(tree);
    }
    Chain { fixture, base, patches, trees, last }
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
    let log = ferofs!("patch log --json", image).success().text();
    let (count, last) = (log.matches("\"number\"").count(), log.rfind("\"time\"").unwrap());
    (count, if count == 1 { 0 } else { number(&log[last..], "time") })
}

#[test]
fn a_composed_patch_has_nothing_of_the_states_between() {
    for options in ["-z none", "-z lz4 -C 16K", "-z zstd -C 64K -E fragments", "--preset backup"] {
        let Chain { fixture, base, patches, trees, last } = chain(options, 3, 200_000);
        let [composed, again, portable] =
            ["composed", "again", "portable"].map(|name| fixture.path(name));
        let compose = |more: &[&str], out: &Path| {
            let compose = ferofs!("patch compose").args(more).arg(&base).args(&patches);
            compose.arg("-o").arg(out).success()
        };
        let made = compose(&["--verify", "--json"], &composed);
        let made = made.text();
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
            ferofs!("patch rollback", &image).success();
            assert_shows(&fixture, &image, &trees[0]);
        }
        // Applying has not changed the base.
        assert_eq!(states(&base).0, 1);
    }
}

#[test]
fn a_chain_that_does_not_fit_is_not_composed() {
    let Chain { fixture, base, patches, trees, .. } = chain("-z lz4", 3, 1000);
    let out = fixture.path("out");
    let refused = |chain: &[&PathBuf], expected: [&str; 2]| {
        let compose = ferofs!("patch compose").args(chain).arg("-o").arg(&out).failure(1);
        let message = compose.stderr;
        assert!(expected.iter().all(|expected| message.contains(expected)), "{message}");
        assert!(!out.exists());
    };
    let [first, second, third] = [&patches[0], &patches[1], &patches[2]];
    refused(&[&base, second, third], ["patch-2: ", "for state 1"]);
    refused(&[&base, first, third], ["patch-3: ", "for state 2"]);
    refused(&[&base, first, second, second], ["patch-2: ", "applied already"]);
    let stranger = fixture.build_from(&trees[1], "stranger", ["-z", "none"]);
    refused(&[&stranger, first], ["patch-1: ", "for another image"]);
    refused(&[&base, first, &stranger], ["stranger: ", "not a patch"]);
    // A chain that leads back to the tree of the base.
    let (image, back) = (fixture.path("image"), fixture.path("back"));
    fs::copy(&base, &image).unwrap();
    super::apply(&image, first);
    ferofs!("patch create", &image, &trees[0], "-o", &back).success();
    refused(&[&base, first, &back], ["base: ", "nothing to patch"]);
    // The output is an input.
    ferofs!("patch compose", &base, first, "-o", first).failure(1).says("also an input");
}

/// The bytes of all files, one after another, in a new file.
fn joined(fixture: &Fixture, name: &str, files: &[&Path]) -> PathBuf {
    let path = fixture.path(name);
    fs::write(&path, files.iter().flat_map(|file| fs::read(file).unwrap()).collect::<Vec<u8>>())
        .unwrap();
    path
}

/// Applies the patches in a file to a copy of `image`, from the file and from a pipe, and returns
/// the copy.
fn applied_both_ways(fixture: &Fixture, image: &Path, patches: &Path) -> PathBuf {
    let copies = ["from-file", "from-pipe"].map(|name| fixture.path(name));
    for (copy, is_pipe) in copies.iter().zip([false, true]) {
        fs::copy(image, copy).unwrap();
        let apply = ferofs!("patch apply", copy);
        match is_pipe {
            false => apply.arg(patches).success(),
            true => apply.arg("-").input(fs::File::open(patches).unwrap()).success(),
        };
    }
    let [copy, piped] = copies;
    assert!(fs::read(&copy).unwrap() == fs::read(&piped).unwrap());
    copy
}

#[test]
fn of_a_file_with_several_patches_those_that_fit_are_applied() {
    let Chain { fixture, base, patches, trees, last } = chain("-z lz4", 3, 30_000);
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
    ferofs!("patch apply", &image, &all).failure(1).says("applied already");
    assert_shows(&fixture, &image, &trees[3]);
    // In the wrong order, one pass applies only what fits.
    let wrong = joined(&fixture, "wrong", &[second, first]);
    image = applied_both_ways(&fixture, &base, &wrong);
    assert_shows(&fixture, &image, &trees[1]);
    // If none fits, the message says for which images they are, and nothing changes.
    let others = joined(&fixture, "others", &[second, third]);
    let before = fs::read(&base).unwrap();
    for arguments in [vec![base.as_path(), &others], vec![base.as_path(), Path::new("-")]] {
        let apply = ferofs!("patch apply").args(arguments).input(fs::File::open(&others).unwrap());
        let refused = apply.failure(1);
        for expected in ["none of the 2 patches", "state 1 of", "state 2 of"] {
            refused.says(expected);
        }
    }
    // Nor if the file has other bytes at its end, or is cut off there.
    let bytes = fs::read(&all).unwrap();
    for (name, end, problem) in [
        ("longer", [&bytes[..], b"x"].concat(), "other bytes after the patch"),
        ("cut", bytes[..bytes.len() - 1].to_vec(), "the file should have"),
    ] {
        let path = fixture.path(name);
        fs::write(&path, end).unwrap();
        for patches in [path.as_path(), Path::new("-")] {
            let apply = ferofs!("patch apply", &base, patches);
            apply.input(fs::File::open(&path).unwrap()).failure(1).says(problem);
        }
    }
    assert!(fs::read(&base).unwrap() == before);
    // In memory, too: a mount, and the input of compose.
    let composed = fixture.path("composed");
    ferofs!("patch compose", &base, &all, "-o", &composed).success();
    super::apply(&base, &composed);
    assert_shows(&fixture, &base, &trees[3]);
    let shown = ferofs!("patch show --json", &all).success().text();
    assert!(
        shown.starts_with("{\"patches\":[") && shown.matches("\"patch_bytes\"").count() == 3,
        "{shown}"
    );
    let shown = ferofs!("patch show", &all).success();
    assert!(shown.text().contains("patch 3 of 3"));
}

#[test]
fn one_patch_file_is_for_several_bases() {
    let Chain { fixture, base, patches, trees, .. } = chain("-z lz4", 2, 30_000);
    // Another image of the first tree: stored instead of compressed.
    let stored = fixture.build_from(&trees[0], "stored", ["-z", "none"]);
    let mut middle = fixture.path("middle");
    fs::copy(&base, &middle).unwrap();
    ferofs!("patch apply", &middle, &patches[0]).success();
    let file = fixture.path("for-all");
    let create = ferofs!("patch create --json -T 9");
    let created =
        create.args([&base, &stored, &middle, &trees[2]]).arg("-o").arg(&file).success().text();
    assert!(
        created.starts_with("{\"patches\":[") && created.matches("\"patch_bytes\"").count() == 3,
        "{created}"
    );
    for image in [&base, &stored, &middle] {
        let copy = applied_both_ways(&fixture, image, &file);
        assert_shows(&fixture, &copy, &trees[2]);
        assert_eq!(states(&copy).1, 9);
        ferofs!("patch apply", &copy, &file).failure(1).says("applied already");
    }
    let stranger = fixture.build_from(&trees[1], "stranger", ["-z", "lz4hc"]);
    ferofs!("patch apply", &stranger, &file).failure(1).says("none of the 3 patches");
    // The same superblock, but other content: the digest decides.
    middle = fixture.path("other");
    let mut bytes = fs::read(&base).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&middle, &bytes).unwrap();
    let refused = ferofs!("patch apply", &middle, &file).failure(1);
    assert!(
        refused.stderr.contains("none of the 3 patches") && fs::read(&middle).unwrap() == bytes
    );
    // A base that has the tree already is named, and no file is left.
    let none = fixture.path("none");
    let create = ferofs!("patch create", &base, &stored, &trees[0], "-o", &none);
    let refused = create.failure(1);
    assert!(
        refused.stderr.contains("base: there is nothing to patch") && !none.exists(),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_damaged_file_of_several_patches_is_refused() {
    let Chain { fixture, base, patches, .. } = chain("-z lz4", 2, 30_000);
    let all = joined(&fixture, "all", &[&patches[0], &patches[1]]);
    let (bytes, before) = (fs::read(&all).unwrap(), fs::read(&base).unwrap());
    let middle = size(&patches[0]) as usize;
    let bad = fixture.path("bad");
    let apply = |is_pipe: bool, bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        fs::write(&base, &before).unwrap();
        let apply = ferofs!("patch apply", &base);
        let apply = if is_pipe {
            apply.arg("-").input(fs::File::open(&bad).unwrap())
        } else {
            apply.arg(&bad)
        };
        (apply.failure(1).stderr, states(&base).0)
    };
    // All starts and lengths are checked first; a pipe is stored for that.
    for (is_pipe, name) in [(false, "bad: "), (true, "standard input: ")] {
        for cut in [middle + 1, middle + 23, middle + 300, bytes.len() - 1] {
            let (message, count) = apply(is_pipe, &bytes[..cut]);
            assert!(count == 1 && message.contains(name), "{cut}: {message}");
        }
        let more = b"trailing bytes, which are not a patch at all, but many";
        let (message, count) = apply(is_pipe, &[&bytes[..], more].concat());
        assert!(count == 1 && message.contains("other bytes after the patch"), "{message}");
    }
    // A patch with a wrong byte is not used, nor passed over.
    for is_pipe in [false, true] {
        for (at, expected) in [(middle - 40, 1), (middle + 1000, 2)] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            let (message, count) = apply(is_pipe, &wrong);
            assert!(count == expected && message.contains("damaged"), "{at}: {message}");
        }
    }
    // One signature is for one patch.
    let (key, cert, signature) =
        (fixture.path("key"), fixture.path("cert"), fixture.path("signature"));
    fs::write(&signature, b"not read").unwrap();
    let signed = ferofs!("patch apply", &base, &all, "--signature", &signature);
    signed.arg("--cert").arg(&cert).failure(1).says("a signature is for one patch");
    // Nor may one come after it in a pipe, or anything else.
    for (file, reason) in
        [(&all, "a signature is for one patch"), (&bad, "the file has other bytes after the patch")]
    {
        fs::write(
            &bad,
            [&bytes[..middle], b"something else, which is long enough to be the start of a patch"]
                .concat(),
        )
        .unwrap();
        let signed = ferofs!("patch apply", &base, "-", "--signature", &signature);
        signed
            .arg("--cert")
            .arg(&cert)
            .input(fs::File::open(file).unwrap())
            .failure(1)
            .says(reason);
    }
    let sign = ferofs!("patch sign", &all, "--key", &key, "--cert", &cert);
    sign.arg("-o").arg(&signature).failure(1).says("several patches");
}
