//! Excludes and other selections that match nothing are told, and --strict makes warnings errors.

use std::fs;

use ferofs_tests::run::Outcome;
use ferofs_tests::tar::{archive, file};
use ferofs_tests::{ferofs, ferofs_path, run};

use crate::common::fixture::Fixture;

const ALL: [&str; 7] =
    ["#x#", "a.o", "deep/c.o", "deep/share/doc/b", "etc/hosts", "etc/shadow", "share/doc/a"];

/// A source with some files.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for path in ALL {
        fixture.write(path, "content");
    }
    fixture
}

/// The files of an image, and what the command that extracted them with these options said.
fn extracted(fixture: &Fixture, image: &str, options: &[&str]) -> (Vec<String>, String) {
    let _ = fs::remove_dir_all(fixture.path("listed"));
    let run = fixture.line("extract").args(options);
    let told = run.args(fixture.words(&format!("@{image} @listed"))).success().stderr;
    let found = run!("find", fixture.path("listed"), "-type", "f", "-printf", "%P\\n").success();
    let mut files: Vec<_> = found.text().lines().map(str::to_owned).collect();
    files.sort();
    (files, told)
}

fn files(fixture: &Fixture, image: &str) -> Vec<String> {
    extracted(fixture, image, &[]).0
}

fn build(fixture: &Fixture, options: &[&str]) -> Outcome {
    let run = ferofs!("build -z none").args(options);
    run.args(fixture.words("@source @image")).run()
}

#[test]
fn build_diff_extract_and_patch_exclude_by_the_same_rule() {
    let fixture = fixture();
    fixture.build("all", ["-T", "1"]);
    fixture.directory("nothing");
    fixture.line("build -z none -T 1 @nothing @base").success();
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
        let options: Vec<_> = patterns.iter().map(|name| format!("--exclude={name}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let expected: Vec<_> = ALL.into_iter().filter(|name| !left_out.contains(name)).collect();
        assert_eq!(build(&fixture, &options).success().stderr, "", "{patterns:?}");
        assert_eq!(files(&fixture, "image"), expected, "build {patterns:?}");
        let said = |line: &str| {
            let run = fixture.line(line).args(&options);
            assert_eq!(run.success().stderr, "", "{line} {patterns:?}");
        };
        said("diff @all @image");
        let (found, told) = extracted(&fixture, "all", &options);
        assert_eq!((found.as_slice(), &*told), (&*files(&fixture, "image"), ""), "{patterns:?}");
        said("patch create -o @patch @base @source");
        fs::copy(fixture.path("base"), fixture.path("patched")).unwrap();
        fixture.line("patch apply @patched @patch").success();
        assert_eq!(files(&fixture, "patched"), expected, "patch {patterns:?}");
    }
}

#[test]
fn an_exclude_that_matches_nothing_is_told() {
    let fixture = fixture();
    let patterns = fixture.path("patterns");
    fs::write(&patterns, "# comment\n*.o\n*.so\n").unwrap();
    let from = format!("--exclude-from={}", patterns.display());
    for (options, told) in [
        (&["--exclude=/etc/shadw"][..], "/etc/shadw"),
        (&["--quiet", "--exclude=none", "--exclude=etc"], "none"),
        (&["--exclude-regex=^no$", "--exclude-regex=shadow"], "^no$"),
        (&[&from], "*.so"),
        // The directory is left out, so that nothing below it is kept.
        (&["--exclude=/etc", "--exclude=!/etc/hosts"], "!/etc/hosts"),
    ] {
        let stderr = build(&fixture, options).success().stderr;
        let is_told = stderr.starts_with(&format!("ferofs: {told}: excludes nothing"));
        assert!(is_told && stderr.lines().count() == 1, "{options:?}: {stderr}");
        fs::remove_file(fixture.path("image")).unwrap();
        let strict = build(&fixture, &[options, &["--strict"]].concat()).failure(1);
        strict.says(told);
        strict.says("--strict");
        assert!(!fixture.path("image").exists(), "{options:?}");
    }
    build(&fixture, &["--strict", "--exclude=etc"]).success();
}

#[test]
fn a_selection_of_extract_that_matches_nothing_is_told() {
    let fixture = fixture();
    fixture.build("image", ["-T", "1"]);
    let message = "ferofs: /no: no name in the image matches it\n";
    let outcome = fixture.line("extract -q --include=etc --include=/no @image @tree");
    assert_eq!(outcome.success().stderr, message);
    // A file that is named must exist, as for `ls` and `cat`; the others are extracted.
    let outcome = fixture.line("extract @image @named /no /etc").failure(1);
    assert_eq!(outcome.stderr, message);
    assert!(fixture.path("named/etc").is_dir());
    let strict = fixture.line("extract --strict --exclude=no --tar @tar @image").failure(1);
    strict.says("no: no name in the image matches it; --strict");
    assert!(!fixture.path("tar").exists());
    fixture.line("extract --path=/no @image @none").failure(1).says("/no");
}

#[test]
fn other_selections_of_nothing_are_told() {
    let fixture = fixture();
    let told = fixture.line("diff --exclude nothing @source @source").success().stderr;
    assert_eq!(told, "ferofs: nothing: no name in the trees matches it\n");
    assert_eq!(fixture.line("diff --strict --exclude nothing @source @source").run().code, 2);
    for (option, text, told) in [
        (
            "--sort",
            "./etc/hosts 5\n/etc 4\nno/such 3\n",
            "no/such: has a priority, but the image has no such file",
        ),
        (
            "--compress-hints",
            "65536 ^etc/\n4096 \\.so$\n0 hosts\n",
            "\\.so$: the compress hint is for no file: no path in the image matches it",
        ),
    ] {
        fs::write(fixture.path("list"), text).unwrap();
        let build = format!("build -z lz4 -C 64K {option}=@list @source @image");
        let outcome = fixture.line(&build).arg("--quiet").success();
        assert_eq!(outcome.stderr, format!("ferofs: {told}\n"));
        fs::remove_file(fixture.path("image")).unwrap();
        fixture.line(&build).arg("--strict").failure(1).says(told);
        assert!(!fixture.path("image").exists());
    }
    let mkfs = fixture.tool("mkfs.erofs -zlz4 --compress-hints=@list @other @source").success();
    assert!(!mkfs.stderr.contains("hint"), "as erofs-utils");
}

/// The tree does not contain the image that is written.
#[test]
fn an_image_below_its_source_is_told() {
    let fixture = fixture();
    let build = |options: &str| {
        fixture.line(&format!("build -q -z none {options} @source @source/image")).run()
    };
    assert_eq!(build("").success().stderr, "", "a new one is not in the tree");
    let image = fixture.path("source/image");
    let message =
        format!("ferofs: {}: left out of the tree: this command writes it\n", image.display());
    assert_eq!(build("").success().stderr, message);
    build("--strict").failure(1).says("left out of the tree");
    assert_eq!(build("--strict --exclude=/image").success().stderr, "", "it is excluded");
    fixture.write("new", "new");
    let add =
        |options: &str| fixture.line(&format!("patch add {options} @source/image @source")).run();
    add("--strict").failure(1).says("left out of the tree");
    assert_eq!(add("").success().stderr, message);
    assert_eq!(files(&fixture, "source/image").len(), ALL.len() + 1);
}

/// Nor any other file that the command writes.
#[test]
fn no_output_below_the_source_is_in_the_image() {
    let fixture = fixture();
    let below = |name: &str| fixture.source().join(name);
    let told = |names: &[&str]| -> String {
        let line = |name: &&str| {
            let path = below(name);
            format!("ferofs: {}: left out of the tree: this command writes it\n", path.display())
        };
        names.iter().map(line).collect()
    };
    let twice = |line: &str, outputs: &[&str]| {
        assert_eq!(fixture.line(line).success().stderr, "");
        assert_eq!(fixture.line(line).success().stderr, told(outputs), "{line}");
        outputs.iter().for_each(|name| fs::remove_file(below(name)).unwrap());
    };
    let seal = "--verity=@source/tree --roothash-file=@source/roothash";
    twice(&format!("build -q -z none {seal} @source @image"), &["roothash", "tree"]);
    assert_eq!(files(&fixture, "image"), ALL);
    let chunks = "--chunk-size=4096 --chunk-device=@source/chunks";
    twice(&format!("build -q --force {chunks} @source @image"), &["chunks"]);
    // Standard output.
    let script = "\"$0\" build -q -z none \"$1\" - > \"$1/stdout\"";
    let written = run!("sh -c", script, ferofs_path(), fixture.source()).run();
    assert_eq!(written.success().stderr, told(&["stdout"]));
    assert_eq!(files(&fixture, "source/stdout"), ALL);
    fs::remove_file(below("stdout")).unwrap();
    for _ in 0..2 {
        fixture
            .tool("mkfs.erofs --quiet --block-list-file=@source/blocks @image @source")
            .success();
    }
    assert_eq!(files(&fixture, "image"), ALL);
    twice("patch create -o @source/patch @image @source", &["patch"]);
}

#[test]
fn strict_makes_every_warning_of_a_build_an_error() {
    let fixture = fixture();
    let message = "no end of archive";
    let write = |bytes| fs::write(fixture.path("tar"), bytes).unwrap();
    write(file("file", b"without an end"));
    fixture.line("build @tar @image").success().says(message);
    fs::remove_file(fixture.path("image")).unwrap();
    fixture.line("build --strict @tar @image").failure(1).says(message);
    assert!(!fixture.path("image").exists());
    fixture.line("build --estimate --strict @tar").failure(1).says(message);
    write(archive(&[file("file", b"complete")]));
    fixture.line("build --strict @tar @image").success();
    let before = fs::read(fixture.path("image")).unwrap();
    write(file("file", b"another"));
    for line in ["patch create --strict -o @patch @image @tar", "patch add --strict @image @tar"] {
        fixture.line(line).failure(1).says(message);
    }
    assert!(!fixture.path("patch").exists());
    assert_eq!(fs::read(fixture.path("image")).unwrap(), before);
}

/// Files of procfs have content, and a size of 0.
#[test]
fn files_that_do_not_tell_their_size_are_told() {
    let fixture = Fixture::empty();
    let build =
        |strict: &str| fixture.line(&format!("build -q /proc/sys/vm @image {strict}")).run();
    let told = build("").success().stderr;
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("/proc/sys/vm: ") && told.contains("--one-file-system"), "{told}");
    build("--strict").failure(1);
}
