//! Everyday work with an image, without a mount: lists, patterns, sums, sizes; and messages that say what to do next.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Run, ferofs, need};

use crate::common::fixture::Fixture;

/// A small tree that is easy to see through.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for (name, len) in
        [("etc/a.conf", 10), ("etc/b.conf", 20), ("etc/.hidden", 1), ("usr/lib/x.so", 3 << 20)]
    {
        let path = fixture.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "0123456789".repeat(len / 10 + 1).split_at(len).0).unwrap();
    }
    fs::hard_link(fixture.source().join("etc/a.conf"), fixture.source().join("etc/again")).unwrap();
    fixture
}

fn output(words: &[&str], image: &Path, paths: &[&str]) -> String {
    String::from_utf8(ferofs().args(words).arg(image).args(paths).run().success().stdout).unwrap()
}

#[test]
fn lists_take_the_options_of_ls_and_patterns() {
    let fixture = fixture();
    let image = fixture.build("image", ["-T0"]);
    assert_eq!(output(&["ls"], &image, &["/etc"]), ".hidden\na.conf\nagain\nb.conf\n");
    assert_eq!(output(&["ls", "-a"], &image, &["etc"]), output(&["ls"], &image, &["etc"]));
    assert_eq!(output(&["ls", "-1a"], &image, &["etc"]), output(&["ls"], &image, &["etc"]));
    let long = output(&["ls", "-la"], &image, &["/usr/lib/x.so"]);
    assert!(long.starts_with("-rw") && long.contains(" 3145728 "), "{long}");
    for words in
        [&["ls", "-lh"][..], &["ls", "-l", "-h"], &["ls", "-lah"], &["ls", "-la", "-lh", "-a"]]
    {
        let long = output(words, &image, &["/usr/lib/x.so"]);
        assert!(long.contains(" 3.00 MiB "), "{words:?}: {long}");
    }
    assert_eq!(output(&["ls"], &image, &["/etc/*.conf"]), "/etc/a.conf\n/etc/b.conf\n");
    assert_eq!(output(&["ls", "-d"], &image, &["/*"]), "/etc\n/usr\n");
    assert_eq!(
        output(&["ls"], &image, &["/usr/l*", "etc/b.conf"]),
        "etc/b.conf\n\n/usr/lib:\nx.so\n"
    );
    let json = output(&["ls", "--json"], &image, &["/us*", "/etc"]);
    assert!(
        json.contains(r#""name":"/usr/lib""#) && json.contains(r#""name":"/etc/a.conf""#),
        "{json}"
    );
    let none = ferofs().arg("ls").arg(&image).arg("/etc/*.so").run().failure(1);
    assert!(none.stderr.contains("/etc/*.so: no file of the image matches it"), "{}", none.stderr);
}

#[test]
fn files_that_match_are_written_and_extracted() {
    let fixture = fixture();
    let image = fixture.build("image", ["-T0"]);
    let text = output(&["cat"], &image, &["/etc/*.conf"]);
    assert_eq!(text, "012345678901234567890123456789");
    let target = fixture.path("target");
    ferofs().arg("extract").args([&image, &target]).args(["/etc/*.conf", "lib"]).run().success();
    let files = Run::new("find")
        .arg(&target)
        .args(["-type", "f", "-printf", "%P\n"])
        .run()
        .success()
        .stdout;
    let files = String::from_utf8(files).unwrap();
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    assert_eq!(files, ["etc/a.conf", "etc/b.conf", "usr/lib/x.so"]);
}

#[test]
fn sums_are_those_of_sha256sum() {
    let fixture = fixture();
    let odd = "odd \\ name\nwith a line";
    fs::write(fixture.source().join(odd), "odd").unwrap();
    let image = fixture.build("image", ["-z", "lz4"]);
    let tool = need::tool("sha256sum", "the sums of a tree");
    let check = |sums: &str, dir: &Path| {
        let file = fixture.path("sums");
        fs::write(&file, sums).unwrap();
        let tool = tool.as_ref()?;
        Some(Run::new(tool).args(["--quiet", "--strict", "-c"]).arg(&file).dir(dir).run())
    };
    let sums = output(&["cat", "--sums"], &image, &[]);
    assert_eq!(sums.lines().count(), 6, "{sums}");
    let Some(checked) = check(&sums, &fixture.source()) else { return };
    checked.success();
    // The files that match, and those below a directory.
    let sums = output(&["cat", "--sums"], &image, &["/etc/*.conf", "usr"]);
    assert_eq!(sums.lines().count(), 3, "{sums}");
    check(&sums, &fixture.source()).unwrap().success();
    fs::write(fixture.source().join("etc/a.conf"), "9876543210").unwrap();
    assert_ne!(check(&sums, &fixture.source()).unwrap().code, 0);
}

#[test]
fn sizes_of_directories_are_summed_up() {
    let fixture = fixture();
    std::os::unix::fs::symlink("usr/lib", fixture.source().join("link")).unwrap();
    let image = fixture.build("image", ["-T0"]);
    let json = output(&["du", "--json"], &image, &[]);
    let lines: Vec<&str> = json.lines().collect();
    let has = |line: &str, text: &str| assert!(line.contains(text), "{line}: {text}");
    assert_eq!(lines.len(), 3, "{json}");
    // A file with two names counts once.
    has(lines[0], r#""path":"/","#);
    has(lines[0], r#""files":5"#);
    has(lines[1], r#""path":"/etc","#);
    has(lines[1], r#""files":3"#);
    has(lines[2], r#""path":"/usr","#);
    let text = output(&["du", "-h"], &image, &["/usr"]);
    assert!(
        text.lines().nth(1).unwrap().ends_with("  /usr") && text.contains("3.00 MiB"),
        "{text}"
    );
    assert_eq!(output(&["du", "-s"], &image, &["/etc", "/u*"]).lines().count(), 3);
    // As in du(1), -a shows the files of all levels, unless -d says otherwise.
    for (words, lines) in
        [(&["du", "-a"][..], 4), (&["du", "-ad9"], 4), (&["du", "-ad1"], 3), (&["du", "-as"], 2)]
    {
        assert_eq!(output(words, &image, &["/usr"]).lines().count(), lines, "{words:?}");
    }
    let bytes = output(&["du", "-b"], &image, &["/usr/lib/x.so"]);
    assert!(bytes.contains(" 3145728 "), "{bytes}");
    // Other names of a file, and paths through links.
    assert_eq!(output(&["du", "-b"], &image, &["/etc/../usr/lib/x.so"]), bytes);
    assert_eq!(output(&["du", "-b"], &image, &["/link/x.so"]), bytes);
    assert_eq!(output(&["du"], &image, &["/etc/again"]).lines().count(), 2);
    ferofs().arg("du").arg(&image).arg("/missing").run().failure(1);
}

#[test]
fn messages_say_what_to_do_next() {
    let fixture = fixture();
    let image = fixture.build("image", ["-T0"]);
    let told = |words: &[&str], paths: &[&PathBuf]| {
        ferofs().args(words).args(paths).run().failure(1).stderr
    };
    let has = |text: &str, hint: &str| assert!(text.contains(hint), "{text}: {hint}");
    // What is no image.
    let source = fixture.source();
    has(&told(&["ls"], &[&source]), "is a directory: use ferofs build DIR IMAGE");
    let (squashfs, archive) = (fixture.path("squashfs"), fixture.path("archive.tar"));
    fs::write(&squashfs, [&b"hsqs"[..], &[0; 4096]].concat()).unwrap();
    ferofs().args(["extract", "--tar"]).args([&archive, &image]).run().success();
    let text = told(&["ls"], &[&squashfs]);
    has(&text, "not an EROFS image");
    has(&text, "this is a squashfs image; use ");
    has(&text, "ferofs build ");
    has(
        &told(&["cat"], &[&archive, &"x".into()]),
        "this is an archive: use ferofs build FILE IMAGE",
    );
    assert_eq!(
        ferofs().arg("check").arg(&squashfs).run().code,
        4,
        "a hint does not change the exit code"
    );
    has(&told(&["convert"], &[&archive, &fixture.path("new")]), "use ferofs build SOURCE IMAGE");
    // Names of other tools.
    let new = fixture.path("new");
    has(&told(&["build", "-z", "xz"], &[&source, &new]), "xz is called lzma here");
    has(&told(&["build", "-z", "gzip"], &[&source, &new]), "gzip is called deflate here");
    has(&told(&["build"], &[&new, &source]), "is a directory: the image comes last");
    // Updates and images in the wrong order, and one kind of update for the other.
    let [delta, patch] = ["delta", "patch"].map(|name| fixture.path(name));
    ferofs().args(["delta", "create", "-o"]).args([&delta, &image, &image]).run().success();
    fs::write(fixture.source().join("etc/b.conf"), "changed").unwrap();
    ferofs().args(["patch", "create", "-o"]).args([&patch, &image, &source]).run().success();
    has(&told(&["patch", "apply"], &[&patch, &image]), "it is an image, which comes before");
    has(&told(&["delta", "apply"], &[&delta, &image, &new]), "it is an image, which comes before");
    has(&told(&["patch", "apply"], &[&image, &delta]), "it is a delta: ferofs delta apply");
    has(&told(&["patch", "show"], &[&delta]), "it is a delta: ferofs delta apply");
    has(&told(&["delta", "apply"], &[&image, &patch, &new]), "it is a patch: ferofs patch apply");
    // A pipe is not opened a second time, which would wait for a writer.
    let pipe = fixture.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, [7; 5000])
    });
    has(&told(&["delta", "apply"], &[&image, &pipe, &new]), "not a delta");
    // The reader may end first.
    let _ = writer.join().unwrap();
    // Files that exist: once, not for each of them.
    let target = fixture.extract(&image, "target");
    let text = told(&["extract"], &[&image, &target]);
    assert_eq!(text.matches("--overwrite replaces files that exist").count(), 1, "{text}");
    let many = fixture.directory("many");
    for number in 0..20 {
        fs::write(many.join(number.to_string()), "x").unwrap();
    }
    let (of_many, target) = (fixture.path("of-many"), fixture.path("target-of-many"));
    ferofs().arg("build").args([&many, &of_many]).run().success();
    ferofs().arg("extract").args([&of_many, &target]).run().success();
    let text = told(&["extract"], &[&of_many, &target]);
    assert_eq!(text.lines().count(), 11, "{text}");
    has(&text, "target-of-many: 10 more files exist already");
    has(&told(&["mount"], &[&image, &fixture.path("missing")]), "mkdir makes it");
    // `unmount` is understood.
    let text = ferofs().arg("unmount").arg(&source).run().stderr;
    assert!(!text.contains("unrecognized"), "{text}");
}

#[test]
fn programs_of_erofs_utils_suggest_nothing_unrelated() {
    let fixture = fixture();
    let run = |name: &str, words: &[&str]| {
        let program = fixture.path(name);
        if !program.exists() {
            std::os::unix::fs::symlink(ferofs_tests::run::ferofs_path(), &program).unwrap();
        }
        Run::new(program).args(words).dir(fixture.source()).run().stderr
    };
    for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs", "erofsfuse", "mount.erofs"] {
        let text = run(name, &["--zzz", "A", "B"]);
        assert!(text.contains("'--zzz'") && !text.contains("tip:"), "{name}: {text}");
    }
    let text = run("fsck.erofs", &["--extrac", "A"]);
    assert!(text.contains("a similar argument exists: '--extract'"), "{text}");
    let text = run("mkfs.erofs", &["usr", "image"]);
    assert!(text.contains("usr: is a directory: the image comes first"), "{text}");
}

#[test]
fn a_summary_has_one_number_of_files() {
    let fixture = fixture();
    let image = fixture.path("image");
    let summary = |words: &[&str], paths: &[&PathBuf]| {
        String::from_utf8(ferofs().args(words).args(paths).run().success().stdout).unwrap()
    };
    let number = "4 files in 4 directories";
    let built = summary(&["build", "-v"], &[&fixture.source(), &image]);
    let extracted = summary(&["extract", "-v"], &[&image, &fixture.path("target")]);
    let checked = summary(&["check", "--deep"], &[&image]);
    for text in [&built, &extracted, &checked] {
        assert!(text.contains(number), "{text}");
    }
    let inspected = summary(&["inspect"], &[&image]);
    assert!(inspected.contains("files         4 in 4 directories (9 names)"), "{inspected}");
    // Sizes have the same unit and the same digits.
    for text in [&built, &extracted, &checked] {
        assert!(text.contains("3.00 MiB"), "{text}");
    }
}

#[test]
fn a_new_patch_tells_its_parts_only_if_asked() {
    let fixture = fixture();
    let (image, patch) = (fixture.build("image", ["-T0"]), fixture.path("patch"));
    fs::write(fixture.source().join("etc/new"), "new").unwrap();
    let create = |option: &str| {
        let run = ferofs().args(["patch", "create", option, "-o"]).args([
            &patch,
            &image,
            &fixture.source(),
        ]);
        String::from_utf8(run.run().success().stdout).unwrap()
    };
    assert_eq!(create("-q"), "");
    let verbose = create("-v");
    assert!(verbose.starts_with("patch of ") && verbose.lines().count() > 1, "{verbose}");
    let Some(script) = need::tool("script", "the summary of a patch on a terminal") else { return };
    let line = format!(
        "{} patch create -o {} {} {}",
        ferofs_tests::run::ferofs_path().display(),
        patch.display(),
        image.display(),
        fixture.source().display()
    );
    let shown = Run::new(script).args(["-qec", &line, "/dev/null"]).run().success().stdout;
    let shown = String::from_utf8(shown).unwrap();
    let lines: Vec<&str> =
        shown.lines().filter(|line| line.contains("the image grows by")).collect();
    assert!(
        lines.len() == 1 && verbose.lines().skip(1).all(|part| !shown.contains(part)),
        "{shown}"
    );
}

#[test]
fn several_images_are_checked_and_the_worst_counts() {
    let fixture = fixture();
    let good = fixture.build("good", ["-T0"]);
    let [damaged, missing] = ["damaged", "missing"].map(|name| fixture.path(name));
    let mut bytes = fs::read(&good).unwrap();
    // A byte of the superblock that only its checksum covers.
    bytes[1024 + 64] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let check =
        |images: &[&Path], options: &[&str]| ferofs().arg("check").args(images).args(options).run();
    for (images, code) in [
        (&[&*good, &*good][..], 0),
        (&[&*damaged, &*good][..], 4),
        (&[&*missing, &*damaged, &*good][..], 8),
        (&[&*good, &*damaged, &*missing, &*good][..], 8),
    ] {
        let checked = check(images, &[]);
        let text = String::from_utf8(checked.stdout).unwrap();
        let sound = images.iter().filter(|image| **image == good).count();
        assert_eq!((checked.code, text.matches("metadata sound").count()), (code, sound), "{text}");
        let json = check(images, &["--json"]);
        let text = String::from_utf8(json.stdout).unwrap();
        assert_eq!((json.code, text.lines().count()), (code, images.len()), "{text}");
        for (line, image) in text.lines().zip(images) {
            assert!(line.contains(&format!("\"image\":\"{}\"", image.display())), "{line}");
            assert!(line.contains(&format!("\"sound\":{}", *image == good)), "{line}");
        }
    }
}
