//! Excludes and other selections that match nothing are told, and --strict makes warnings errors.

use std::fs;

use ferofs_tests::run::{Outcome, ferofs_path};
use ferofs_tests::tar::{archive, file};
use ferofs_tests::{Run, ferofs};

use crate::common::erofs_utils::mkfs_command;
use crate::common::fixture::Fixture;

/// A source with some files.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for path in
        ["etc/shadow", "etc/hosts", "share/doc/a", "deep/share/doc/b", "a.o", "deep/c.o", "#x#"]
    {
        let path = fixture.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "content").unwrap();
    }
    fixture
}

/// The files of an image, without directories.
fn files(fixture: &Fixture, image: &std::path::Path) -> Vec<String> {
    let tree = fixture.path("listed");
    let _ = fs::remove_dir_all(&tree);
    ferofs().arg("extract").arg(image).arg(&tree).run().success();
    let found =
        Run::new("find").arg(&tree).args(["-type", "f", "-printf", "%P\\n"]).run().success();
    let mut files: Vec<_> =
        String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
    files.sort();
    files
}

fn build(fixture: &Fixture, options: &[&str]) -> Outcome {
    ferofs()
        .args(["build", "-z", "none"])
        .args(options)
        .args([fixture.source(), fixture.path("image")])
        .run()
}

const ALL: [&str; 7] =
    ["#x#", "a.o", "deep/c.o", "deep/share/doc/b", "etc/hosts", "etc/shadow", "share/doc/a"];

fn without(left_out: &[&str]) -> Vec<String> {
    ALL.iter().filter(|name| !left_out.contains(name)).map(|name| (*name).to_owned()).collect()
}

#[test]
fn build_diff_extract_and_patch_exclude_by_the_same_rule() {
    let fixture = fixture();
    build(&fixture, &["-T", "1"]).success();
    let all = fixture.path("all");
    fs::rename(fixture.path("image"), &all).unwrap();
    let empty = fixture.directory("nothing");
    let base = fixture.path("base");
    ferofs().args(["build", "-z", "none", "-T", "1"]).args([&empty, &base]).run().success();
    for (patterns, left_out) in [
        (&["/etc/shadow"][..], &["etc/shadow"][..]),
        (&["./etc/shadow"], &["etc/shadow"]),
        (&["etc/shadow"], &["etc/shadow"]),
        (&["./share/doc"], &["share/doc/a"]),
        (&["doc"], &["share/doc/a", "deep/share/doc/b"]),
        (&["etc/*"], &["etc/hosts", "etc/shadow"]),
        (&["*.o", "!/a.o"], &["deep/c.o"]),
        (&["#x#"], &["#x#"]),
        (&["share/"], &["share/doc/a", "deep/share/doc/b"]),
        (&["**/doc/?"], &["share/doc/a", "deep/share/doc/b"]),
    ] {
        let options: Vec<String> =
            patterns.iter().map(|pattern| format!("--exclude={pattern}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let expected = without(left_out);
        let built = build(&fixture, &options).success();
        assert_eq!(built.stderr, "", "{patterns:?}");
        assert_eq!(files(&fixture, &fixture.path("image")), expected, "build {patterns:?}");
        let compared = ferofs()
            .arg("diff")
            .args(&options)
            .args([&all, &fixture.path("image")])
            .run()
            .success();
        assert_eq!(compared.stderr, "", "{patterns:?}");
        let tree = fixture.path("extracted");
        let _ = fs::remove_dir_all(&tree);
        let extracted = ferofs().arg("extract").args(&options).args([&all, &tree]).run().success();
        assert_eq!(extracted.stderr, "", "{patterns:?}");
        let found =
            Run::new("find").arg(&tree).args(["-type", "f", "-printf", "%P\\n"]).run().success();
        let found = String::from_utf8(found.stdout).unwrap();
        let mut found: Vec<_> = found.lines().collect();
        found.sort_unstable();
        assert_eq!(found, expected, "extract {patterns:?}");
        let (patch, image) = (fixture.path("patch"), fixture.path("patched"));
        let output = ["-o".into(), patch.clone()];
        let created = ferofs().args(["patch", "create"]).args(&options).args(output).arg(&base);
        assert_eq!(created.arg(fixture.source()).run().success().stderr, "", "{patterns:?}");
        fs::copy(&base, &image).unwrap();
        ferofs().args(["patch", "apply"]).args([&image, &patch]).run().success();
        assert_eq!(files(&fixture, &image), expected, "patch {patterns:?}");
    }
}

#[test]
fn an_exclude_that_matches_nothing_is_told() {
    let fixture = fixture();
    let patterns = fixture.path("patterns");
    fs::write(&patterns, "# comment\n*.o\n*.so\n").unwrap();
    let from = format!("--exclude-from={}", patterns.display());
    for (options, told) in [
        (&["--exclude=/etc/shadw"][..], &["/etc/shadw"][..]),
        (&["--quiet", "--exclude=none", "--exclude=etc"], &["none"]),
        (&["--exclude-regex=^no$", "--exclude-regex=shadow"], &["^no$"]),
        (&[&from], &["*.so"]),
        // The directory is left out, so that nothing below it is kept.
        (&["--exclude=/etc", "--exclude=!/etc/hosts"], &["!/etc/hosts"]),
    ] {
        let built = build(&fixture, options).success();
        let expected: Vec<String> =
            told.iter().map(|pattern| format!("ferofs: {pattern}: excludes nothing")).collect();
        let lines: Vec<&str> = built.stderr.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{options:?}: {}", built.stderr);
        for (line, expected) in lines.iter().zip(&expected) {
            assert!(line.starts_with(expected), "{options:?}: {line}");
        }
        fs::remove_file(fixture.path("image")).unwrap();
        let strict = build(&fixture, &[options, &["--strict"]].concat()).failure(1);
        assert!(
            strict.stderr.contains(told[0]) && strict.stderr.contains("--strict"),
            "{}",
            strict.stderr
        );
        assert!(!fixture.path("image").exists(), "{options:?}");
    }
    build(&fixture, &["--strict", "--exclude=etc"]).success();
}

#[test]
fn a_selection_of_extract_that_matches_nothing_is_told() {
    let fixture = fixture();
    let image = fixture.build("image", ["-T", "1"]);
    let tree = fixture.path("tree");
    let outcome = ferofs()
        .args(["extract", "-q", "--include=etc", "--include=/no"])
        .args([&image, &tree])
        .run();
    assert_eq!(outcome.success().stderr, "ferofs: /no: no name in the image matches it\n");
    // A file that is named must exist, as for `ls` and `cat`; the others are extracted.
    let named = fixture.path("named");
    let outcome = ferofs().arg("extract").args([&image, &named]).args(["/no", "/etc"]).run();
    assert_eq!(outcome.failure(1).stderr, "ferofs: /no: no name in the image matches it\n");
    assert!(named.join("etc").is_dir());
    let tar = fixture.path("tar");
    let strict =
        ferofs().args(["extract", "--strict", "--exclude=no", "--tar"]).args([&tar, &image]).run();
    assert!(strict.failure(1).stderr.contains("no: no name in the image matches it; --strict"));
    assert!(!tar.exists());
    let missing =
        ferofs().args(["extract", "--path=/no"]).args([&image, &fixture.path("none")]).run();
    assert!(missing.failure(1).stderr.contains("/no"));
}

#[test]
fn an_exclude_of_diff_that_matches_nothing_is_told() {
    let fixture = fixture();
    let diff = |options: &[&str]| {
        ferofs().arg("diff").args(options).args([fixture.source(), fixture.source()]).run()
    };
    let told = diff(&["--exclude", "nothing"]).success().stderr;
    assert_eq!(told, "ferofs: nothing: no name in the trees matches it\n");
    assert_eq!(diff(&["--strict", "--exclude", "nothing"]).code, 2);
}

#[test]
fn a_priority_of_no_file_is_told() {
    let fixture = fixture();
    let sort = fixture.path("sort");
    fs::write(&sort, "./etc/hosts 5\n/etc 4\nno/such 3\n").unwrap();
    let option = format!("--sort={}", sort.display());
    let told = build(&fixture, &[&option]).success().stderr;
    assert_eq!(told, "ferofs: no/such: has a priority, but the image has no such file\n");
    build(&fixture, &["--strict", &option]).failure(1);
}

#[test]
fn a_compress_hint_of_no_file_is_told() {
    let fixture = fixture();
    let hints = fixture.path("hints");
    fs::write(&hints, "65536 ^etc/\n4096 \\.so$\n0 hosts\n").unwrap();
    let option = format!("--compress-hints={}", hints.display());
    let build = |options: &[&str]| {
        let compressed = ferofs().args(["build", "-z", "lz4", "-C", "64K", &option]).args(options);
        compressed.args([fixture.source(), fixture.path("image")]).run()
    };
    let told = build(&["--quiet"]).success().stderr;
    assert_eq!(
        told,
        "ferofs: \\.so$: the compress hint is for no file: no path in the image matches it\n"
    );
    fs::remove_file(fixture.path("image")).unwrap();
    assert!(build(&["--strict"]).failure(1).stderr.contains("\\.so$"));
    assert!(!fixture.path("image").exists());
    let mkfs = mkfs_command(&fixture)
        .args(["-zlz4", &option])
        .args([fixture.path("other"), fixture.source()])
        .run();
    assert!(!mkfs.success().stderr.contains("hint"), "as erofs-utils");
}

/// The tree does not contain the image that is written.
#[test]
fn an_image_below_its_source_is_told() {
    let fixture = fixture();
    let image = fixture.source().join("image");
    let build = |options: &[&str]| {
        ferofs()
            .args(["build", "-q", "-z", "none"])
            .args(options)
            .args([fixture.source(), image.clone()])
            .run()
    };
    assert_eq!(build(&[]).success().stderr, "", "a new one is not in the tree");
    let message =
        format!("ferofs: {}: left out of the tree: this command writes it\n", image.display());
    assert_eq!(build(&[]).success().stderr, message);
    assert!(build(&["--strict"]).failure(1).stderr.contains("left out of the tree"));
    assert_eq!(build(&["--strict", "--exclude=/image"]).success().stderr, "", "it is excluded");
    fs::write(fixture.source().join("new"), "new").unwrap();
    let add = |options: &[&str]| {
        ferofs()
            .args(["patch", "add"])
            .args(options)
            .args([&image, &fixture.source().to_owned()])
            .run()
    };
    assert!(add(&["--strict"]).failure(1).stderr.contains("left out of the tree"));
    assert_eq!(add(&[]).success().stderr, message);
    assert_eq!(files(&fixture, &image).len(), ALL.len() + 1);
}

/// Nor any other file that the command writes.
#[test]
fn no_output_below_the_source_is_in_the_image() {
    let fixture = fixture();
    let below = |name: &str| fixture.source().join(name);
    let told = |names: &[&str]| -> String {
        let line = |name: &&str| {
            format!(
                "ferofs: {}: left out of the tree: this command writes it\n",
                below(name).display()
            )
        };
        names.iter().map(line).collect()
    };
    let (image, seal) =
        (fixture.path("image"), |name: &str| format!("--verity={}", below(name).display()));
    let sealed = || {
        let roothash = format!("--roothash-file={}", below("roothash").display());
        ferofs()
            .args(["build", "-q", "-z", "none", &seal("tree"), &roothash])
            .arg(fixture.source())
            .arg(&image)
    };
    assert_eq!(sealed().run().success().stderr, "");
    assert_eq!(sealed().run().success().stderr, told(&["roothash", "tree"]));
    assert_eq!(files(&fixture, &image), ALL);
    for name in ["roothash", "tree"] {
        fs::remove_file(below(name)).unwrap();
    }
    let chunks = || {
        let device = format!("--chunk-device={}", below("chunks").display());
        let options = ["build", "-q", "--force", "--chunk-size=4096", &device];
        ferofs().args(options).arg(fixture.source()).arg(&image)
    };
    assert_eq!(chunks().run().success().stderr, "");
    assert_eq!(chunks().run().success().stderr, told(&["chunks"]));
    fs::remove_file(below("chunks")).unwrap();
    // Standard output.
    let script = "\"$0\" build -q -z none \"$1\" - > \"$1/stdout\"";
    let written =
        Run::new("sh").args(["-c", script]).arg(ferofs_path()).arg(fixture.source()).run();
    assert_eq!(written.success().stderr, told(&["stdout"]));
    assert_eq!(files(&fixture, &below("stdout")), ALL);
    fs::remove_file(below("stdout")).unwrap();
    let blocks = || {
        let list = format!("--block-list-file={}", below("blocks").display());
        mkfs_command(&fixture).args(["--quiet", &list]).arg(&image).arg(fixture.source())
    };
    blocks().run().success();
    blocks().run().success();
    assert_eq!(files(&fixture, &image), ALL);
    fs::remove_file(below("blocks")).unwrap();
    fs::write(below("new"), "new").unwrap();
    let patch = || {
        let patch = below("patch");
        ferofs().args(["patch", "create", "-o"]).arg(patch).arg(&image).arg(fixture.source())
    };
    patch().run().success();
    assert_eq!(patch().run().success().stderr, told(&["patch"]));
}

#[test]
fn strict_makes_every_warning_of_a_build_an_error() {
    let fixture = fixture();
    let (tar, image) = (fixture.path("archive.tar"), fixture.path("image"));
    fs::write(&tar, file("file", b"without an end")).unwrap();
    let build = |options: &[&str]| ferofs().arg("build").args(options).args([&tar, &image]).run();
    assert!(build(&[]).success().stderr.contains("no end of archive"));
    fs::remove_file(&image).unwrap();
    assert!(build(&["--strict"]).failure(1).stderr.contains("no end of archive"));
    assert!(!image.exists());
    let estimate = ferofs().args(["build", "--estimate", "--strict"]).arg(&tar).run();
    assert!(estimate.failure(1).stderr.contains("no end of archive"));
    fs::write(&tar, archive(&[file("file", b"complete")])).unwrap();
    build(&["--strict"]).success();
    let old = fixture.path("old");
    fs::copy(&image, &old).unwrap();
    fs::write(&tar, file("file", b"another")).unwrap();
    let (patch, before) = (fixture.path("patch"), fs::read(&old).unwrap());
    for args in [&["patch", "create", "--strict", "-o"][..], &["patch", "add", "--strict"]] {
        let command = ferofs().args(args);
        let command = if args[1] == "create" { command.arg(&patch) } else { command };
        let outcome = command.args([&old, &tar]).run().failure(1);
        assert!(outcome.stderr.contains("no end of archive"), "{args:?}: {}", outcome.stderr);
    }
    assert!(!patch.exists());
    assert_eq!(fs::read(&old).unwrap(), before);
}

/// Files of procfs have content, and a size of 0.
#[test]
fn files_that_do_not_tell_their_size_are_told() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let build = |strict: &[&str]| {
        ferofs().args(["build", "-q", "/proc/sys/vm"]).arg(&image).args(strict).run()
    };
    let told = build(&[]).success().stderr;
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("/proc/sys/vm: ") && told.contains("--one-file-system"), "{told}");
    build(&["--strict"]).failure(1);
}
