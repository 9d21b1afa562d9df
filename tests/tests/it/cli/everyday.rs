//! Everyday work with an image, without a mount: lists, patterns, sums, sizes; and messages that
//! say what to do next.

use std::fs;
use std::path::Path;

use ferofs_tests::{Run, ferofs, ferofs_path, need, run};

use crate::common::fixture::{Fixture, tree_names, write};

/// A small tree that is easy to see through, and its image.
fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    for (name, len) in
        [("etc/a.conf", 10), ("etc/b.conf", 20), ("etc/.hidden", 1), ("usr/lib/x.so", 3 << 20)]
    {
        fixture.write(name, "0123456789".repeat(len / 10 + 1).split_at(len).0);
    }
    fs::hard_link(fixture.source().join("etc/a.conf"), fixture.source().join("etc/again")).unwrap();
    fixture.build("image", ["-T0"]);
    fixture
}

fn output(fixture: &Fixture, line: &str) -> String {
    fixture.line(line).success().text()
}

#[test]
fn lists_take_the_options_of_ls_and_patterns() {
    let fixture = fixture();
    let output = |line: &str| output(&fixture, line);
    for (line, shown) in [
        ("ls @image /etc", ".hidden\na.conf\nagain\nb.conf\n"),
        ("ls -a @image etc", ".hidden\na.conf\nagain\nb.conf\n"),
        ("ls -1a @image etc", ".hidden\na.conf\nagain\nb.conf\n"),
        ("ls @image /etc/*.conf", "/etc/a.conf\n/etc/b.conf\n"),
        ("ls -d @image /*", "/etc\n/usr\n"),
        ("ls @image /usr/l* etc/b.conf", "etc/b.conf\n\n/usr/lib:\nx.so\n"),
    ] {
        assert_eq!(output(line), shown, "{line}");
    }
    let long = output("ls -la @image /usr/lib/x.so");
    assert!(long.starts_with("-rw") && long.contains(" 3145728 "), "{long}");
    for options in ["-lh", "-l -h", "-lah", "-la -lh -a"] {
        let long = output(&format!("ls {options} @image /usr/lib/x.so"));
        assert!(long.contains(" 3.00 MiB "), "{options}: {long}");
    }
    let json = output("ls --json @image /us* /etc");
    let has = |name: &str| json.contains(&format!("\"name\":\"{name}\""));
    assert!(has("/usr/lib") && has("/etc/a.conf"), "{json}");
    let nothing = fixture.line("ls @image /etc/*.so").failure(1);
    nothing.says("/etc/*.so: no file of the image matches it");
}

#[test]
fn files_that_match_are_written_and_extracted() {
    let fixture = fixture();
    let text = output(&fixture, "cat @image /etc/*.conf");
    assert_eq!(text, "012345678901234567890123456789");
    fixture.line("extract @image @target /etc/*.conf lib").success();
    let files = tree_names(&fixture.path("target"));
    assert_eq!(files.join(" "), "etc etc/a.conf etc/b.conf usr usr/lib usr/lib/x.so");
}

#[test]
fn sums_are_those_of_sha256sum() {
    let fixture = fixture();
    let odd = "odd \\ name\nwith a line";
    fixture.write(odd, "odd");
    fixture.build("image", ["-z", "lz4"]);
    let tool = need::tool("sha256sum");
    let check = |sums: &str, dir: &Path| {
        let file = fixture.path("sums");
        fs::write(&file, sums).unwrap();
        let tool = tool.as_ref()?;
        Some(Run::new(tool).args(["--quiet", "--strict", "-c"]).arg(&file).dir(dir).run())
    };
    let sums = output(&fixture, "cat --sums @image");
    assert_eq!(sums.lines().count(), 6, "{sums}");
    let Some(checked) = check(&sums, &fixture.source()) else { return };
    checked.success();
    // The files that match, and those below a directory.
    let sums = output(&fixture, "cat --sums @image /etc/*.conf usr");
    assert_eq!(sums.lines().count(), 3, "{sums}");
    check(&sums, &fixture.source()).unwrap().success();
    fixture.write("etc/a.conf", "9876543210");
    assert_ne!(check(&sums, &fixture.source()).unwrap().code, 0);
}

#[test]
fn sizes_of_directories_are_summed_up() {
    let fixture = fixture();
    std::os::unix::fs::symlink("usr/lib", fixture.source().join("link")).unwrap();
    fixture.build("image", ["-T0"]);
    let output = |line: &str| output(&fixture, line);
    let json = output("du --json @image");
    let lines: Vec<&str> = json.lines().collect();
    // A file with two names counts once.
    for (line, path, files) in
        [(0, "/", r#""files":5"#), (1, "/etc", r#""files":3"#), (2, "/usr", "")]
    {
        let path = format!("\"path\":\"{path}\",");
        assert!(lines[line].contains(&path) && lines[line].contains(files), "{json}");
    }
    let text = output("du -h @image /usr");
    assert!(text.lines().nth(1).unwrap().ends_with("  /usr"), "{text}");
    assert!(text.contains("3.00 MiB"), "{text}");
    // As in du(1), -a shows the files of all levels, unless -d says otherwise.
    for (line, lines) in [
        ("du --json @image", 3),
        ("du -s @image /etc /u*", 3),
        ("du -a @image /usr", 4),
        ("du -ad9 @image /usr", 4),
        ("du -ad1 @image /usr", 3),
        ("du -as @image /usr", 2),
        ("du @image /etc/again", 2),
    ] {
        assert_eq!(output(line).lines().count(), lines, "{line}");
    }
    let bytes = output("du -b @image /usr/lib/x.so");
    assert!(bytes.contains(" 3145728 "), "{bytes}");
    // Other names of a file, and paths through links.
    assert_eq!(output("du -b @image /etc/../usr/lib/x.so"), bytes);
    assert_eq!(output("du -b @image /link/x.so"), bytes);
    fixture.line("du @image /missing").failure(1);
}

#[test]
fn messages_say_what_to_do_next() {
    let fixture = fixture();
    let told = |line: &str| fixture.line(line).failure(1).stderr;
    fs::write(fixture.path("squashfs"), [&b"hsqs"[..], &[0; 4096]].concat()).unwrap();
    fixture.line("extract --tar @archive.tar @image").success();
    fixture.line("delta create -o @delta @image @image").success();
    fixture.write("etc/b.conf", "changed");
    fixture.line("patch create -o @patch @image @source").success();
    for (line, hint) in [
        // What is not an image.
        ("ls @source", "is a directory: use ferofs build DIR IMAGE"),
        ("ls @squashfs", "not an EROFS image"),
        ("ls @squashfs", "this is a squashfs image; use "),
        ("ls @squashfs", "ferofs build "),
        ("cat @archive.tar x", "this is an archive: use ferofs build FILE IMAGE"),
        ("convert @archive.tar @new", "use ferofs build SOURCE IMAGE"),
        ("build @new @source", "is a directory: the image comes last"),
        // Updates and images in the wrong order, and one kind of update for the other.
        ("patch apply @patch @image", "it is an image, which comes before"),
        ("delta apply @delta @image @new", "it is an image, which comes before"),
        ("patch apply @image @delta", "it is a delta: ferofs delta apply"),
        ("patch show @delta", "it is a delta: ferofs delta apply"),
        ("delta apply @image @patch @new", "it is a patch: ferofs patch apply"),
        ("mount @image @missing", "mkdir makes it"),
    ] {
        let told = told(line);
        assert!(told.contains(hint), "{line}: {told}");
    }
    // Names of other tools.
    let wrong = |line: &str| fixture.line(line).failure(2);
    wrong("build -z xz @source @new").says("xz is called lzma here");
    wrong("build -z gzip @source @new").says("gzip is called deflate here");
    let code = fixture.line("check @squashfs").run().code;
    assert_eq!(code, 4, "a hint does not change the exit code");
    // A pipe is not opened a second time, which would wait for a writer.
    let pipe = fixture.path("pipe");
    run!("mkfifo", &pipe).success();
    let writer = std::thread::spawn(move || fs::write(pipe, [7; 5000]));
    fixture.line("delta apply @image @pipe @new").failure(1).says("not a delta");
    // The reader may end first.
    let _ = writer.join().unwrap();
    // Files that exist: once, not for each of them.
    fixture.line("extract @image @target").success();
    let text = told("extract @image @target");
    assert_eq!(text.matches("--overwrite replaces files that exist").count(), 1, "{text}");
    for number in 0..20 {
        write(&fixture.path("many").join(number.to_string()), "x");
    }
    fixture.line("build @many @of-many").success();
    fixture.line("extract @of-many @target-of-many").success();
    let text = told("extract @of-many @target-of-many");
    assert_eq!(text.lines().count(), 11, "{text}");
    assert!(text.contains("target-of-many: 10 more files exist already"), "{text}");
    // `unmount` is understood.
    let text = fixture.line("unmount @source").run().stderr;
    assert!(!text.contains("unrecognized"), "{text}");
}

#[test]
fn programs_of_erofs_utils_suggest_nothing_unrelated() {
    let fixture = fixture();
    let told = |line: &str| fixture.tool(line).dir(fixture.source()).run().stderr;
    for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs", "erofsfuse", "mount.erofs"] {
        let text = told(&format!("{name} --zzz A B"));
        assert!(text.contains("'--zzz'") && !text.contains("tip:"), "{name}: {text}");
    }
    let text = told("fsck.erofs --extrac A");
    assert!(text.contains("a similar argument exists: '--extract'"), "{text}");
    let text = told("mkfs.erofs usr image");
    assert!(text.contains("usr: is a directory: the image comes first"), "{text}");
}

#[test]
fn a_summary_has_one_number_of_files() {
    let fixture = fixture();
    for line in ["build -v @source @new", "extract -v @image @target", "check --deep @image"] {
        let text = output(&fixture, line);
        // Sizes have the same unit and the same digits.
        assert!(text.contains("4 files in 4 directories") && text.contains("3.00 MiB"), "{text}");
    }
    let inspected = output(&fixture, "inspect @image");
    assert!(inspected.contains("files         4 in 4 directories (9 names)"), "{inspected}");
}

#[test]
fn a_new_patch_tells_its_parts_only_if_asked() {
    let fixture = fixture();
    fixture.write("etc/new", "new");
    let line = "patch create -o @patch @image @source";
    assert_eq!(output(&fixture, &format!("{line} -q")), "");
    let verbose = output(&fixture, &format!("{line} -v"));
    assert!(verbose.starts_with("patch of ") && verbose.lines().count() > 1, "{verbose}");
    let Some(script) = need::tool("script") else { return };
    let line = format!("{} {}", ferofs_path().display(), fixture.words(line).join(" "));
    let shown = Run::new(script).args(["-qec", &line, "/dev/null"]).success().text();
    let grows = shown.lines().filter(|line| line.contains("the image grows by")).count();
    let has_parts = verbose.lines().skip(1).any(|part| shown.contains(part));
    assert!(grows == 1 && !has_parts, "{shown}");
}

#[test]
fn several_images_are_checked_and_the_worst_counts() {
    let fixture = fixture();
    let [good, damaged, missing] = ["image", "damaged", "missing"].map(|name| fixture.path(name));
    let mut bytes = fs::read(&good).unwrap();
    // A byte of the superblock that only its checksum covers.
    bytes[1024 + 64] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let check =
        |images: &[&Path], options: &[&str]| ferofs!("check").args(images).args(options).run();
    for (images, code) in [
        (&[&*good, &*good][..], 0),
        (&[&*damaged, &*good][..], 4),
        (&[&*missing, &*damaged, &*good][..], 8),
        (&[&*good, &*damaged, &*missing, &*good][..], 8),
    ] {
        let checked = check(images, &[]);
        let text = checked.text();
        let sound = images.iter().filter(|image| **image == good).count();
        assert_eq!((checked.code, text.matches("metadata sound").count()), (code, sound), "{text}");
        let json = check(images, &["--json"]);
        let text = json.text();
        assert_eq!((json.code, text.lines().count()), (code, images.len()), "{text}");
        for (line, image) in text.lines().zip(images) {
            assert!(line.contains(&format!("\"image\":\"{}\"", image.display())), "{line}");
            assert!(line.contains(&format!("\"sound\":{}", *image == good)), "{line}");
        }
    }
}
