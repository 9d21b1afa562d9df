//! Options, exit codes, errors, and the files that a failed command leaves.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Run, ferofs, need, tree};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::erofs_utils::mkfs_command;
use crate::common::fixture::Fixture;
use crate::common::image_editor::{I_XATTR_ICOUNT, ImageEditor};

/// Offset of the superblock, and fields in it (FORMAT.md 1).
const SUPER: usize = 1024;
const BLKSZBITS: usize = SUPER + 0x0C;
const UUID: std::ops::Range<usize> = SUPER + 0x30..SUPER + 0x40;
const LABEL: std::ops::Range<usize> = SUPER + 0x40..SUPER + 0x50;

#[test]
fn help_and_version_end_with_success() {
    for arg in ["--help", "--version", "-h", "-V"] {
        let outcome = ferofs().arg(arg).run().success();
        assert!(outcome.stdout.starts_with(b"ferofs") || arg.contains('h'), "{arg}");
    }
    let help = ferofs().arg("--help").run().success().stdout;
    let help = String::from_utf8(help).unwrap();
    for command in ["build", "mount", "check", "ls", "cat", "extract", "links"] {
        assert!(help.contains(command), "{command}: {help}");
        ferofs().args([command, "--help"]).run().success();
    }
}

#[test]
fn wrong_arguments_are_reported() {
    for args in [&["nonsense"][..], &["build"], &["build", "--nonsense", "a", "b"], &["check"]] {
        let outcome = ferofs().args(args).run();
        assert_ne!(outcome.code, 0, "{args:?}");
        assert!(!outcome.stderr.is_empty(), "{args:?}");
    }
    // The exit codes of fsck(8).
    assert_eq!(ferofs().arg("check").run().code, 16);
    assert_eq!(ferofs().args(["check", "--help"]).run().code, 0);
}

#[test]
fn wrong_values_are_told_with_what_is_taken() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("file"), "content").unwrap();
    let image = fixture.path("image");
    let cases: [(&[&str], &str); 11] = [
        (&["--offset", "1"], "--offset: 1 is not a multiple of the block size, 4096"),
        (
            &["--offset", "512", "-b", "1024"],
            "--offset: 512 is not a multiple of the block size, 1024",
        ),
        (&["-C", "1T"], "too large: at most 1M"),
        (&["-C", "-1"], "not a number of bytes"),
        (&["-m", "0"], "pcluster size of metadata (-m): not a multiple of the block size"),
        (
            &["-E", "fragments=5"],
            "pcluster size of fragments (-E): not a multiple of the block size",
        ),
        (&["--max-extent-bytes", "1T"], "too large: at most 4294967295"),
        (&["-z", "zstd,dictsize=1T"], "dictsize=1T: too large"),
        (&["-z", "none", "--compress-directories"], "--compress-directories: needs a compressor"),
        (&["-z", "lz4", "--compress-large", "none"], "zstd, not none"),
        (&["--estimate"], "--estimate writes no image: leave this path out"),
    ];
    for (args, expected) in cases {
        let outcome =
            ferofs().arg("build").args(args).args([fixture.source(), image.clone()]).run();
        assert!(
            outcome.code != 0 && outcome.stderr.contains(expected),
            "{args:?}: {}",
            outcome.stderr
        );
        assert!(!image.exists(), "{args:?}");
    }
    // The value is not an option of its own.
    for (args, name) in
        [(&["-b", "-1"], "'--block-size <SIZE>'"), (&["--workers", "-1"], "'--workers <N>'")]
    {
        let outcome =
            ferofs().arg("build").args(args).args([fixture.source(), image.clone()]).run();
        let expected = format!("invalid value '-1' for {name}: ");
        assert!(
            outcome.code == 2 && outcome.stderr.contains(&expected),
            "{args:?}: {}",
            outcome.stderr
        );
    }
    let mkfs = |option: &str, value: &str| {
        let outcome = mkfs_command(&fixture)
            .args([option, value])
            .args([image.clone(), fixture.source()])
            .run();
        assert_eq!(outcome.code, 1);
        outcome.stderr
    };
    for (option, value, expected) in [
        ("-b", "-1", "invalid value '-1' for '-b <#>': "),
        ("-C", "-1", "invalid value '-1' for '-C <#>': "),
        ("--force-uid", "-1", "'--force-uid <#>': not a number from 0 to 4294967295"),
        ("-T", "x", "'-T <#>': not a number from -9223372036854775808 to 9223372036854775807"),
    ] {
        let told = mkfs(option, value);
        assert!(told.contains(expected), "{option} {value}: {told}");
    }
    ferofs().args(["build", "--offset", "8K"]).args([fixture.source(), image]).run().success();
    let missing = fixture.path("no-directory");
    let outcome = ferofs().arg("build").args([fixture.source(), missing.join("image")]).run();
    let expected = format!("{}: create a file in", missing.display());
    assert!(outcome.code == 1 && outcome.stderr.contains(&expected), "{}", outcome.stderr);
}

#[test]
fn unmounting_what_is_not_mounted_says_so() {
    require!(need::root("unmounting"));
    let fixture = Fixture::empty();
    let outcome = ferofs().arg("umount").arg(fixture.source()).run();
    assert!(
        outcome.code == 1 && outcome.stderr.contains("not a mount point"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn options_set_the_fields_of_the_superblock() {
    let fixture = Fixture::new(&tree::Options::small());
    let uuid = "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
    let image =
        fs::read(fixture.build("image", ["-U", uuid, "-L", "sixteen-letters!", "-b", "1024"]))
            .unwrap();
    let hex: String = image[UUID].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, uuid.replace('-', ""));
    assert_eq!(&image[LABEL], b"sixteen-letters!");
    assert_eq!(image[BLKSZBITS], 10);
}

#[test]
fn output_to_a_pipe_is_quiet() {
    let fixture = Fixture::new(&tree::Options::small());
    let outcome =
        ferofs().arg("build").args([fixture.source(), fixture.path("image")]).run().success();
    assert_eq!(outcome.stderr, "");
    assert!(
        !outcome.stdout.iter().any(|byte| b"\r\x1b".contains(byte)),
        "no progress bar in a pipe"
    );
}

/// Commands that write results to standard output, and their exit codes if writing fails.
fn commands_with_output(fixture: &Fixture, image: &Path) -> Vec<(Run, i32)> {
    let line = |name: &str, args: &[&str]| {
        let program = fixture.path(name);
        if !program.exists() {
            symlink(ferofs_path(), &program).unwrap();
        }
        Run::new(program).args(args).arg(image)
    };
    let other = fixture.path("other");
    fs::create_dir_all(&other).unwrap();
    vec![
        (line("ferofs", &["check"]), 8),
        (line("ferofs", &["check", "--json"]), 8),
        (line("ferofs", &["ls", "-R"]), 2),
        (line("ferofs", &["ls", "--json"]), 2),
        (line("ferofs", &["cat"]).arg("files/text/4097"), 2),
        (line("ferofs", &["inspect"]), 2),
        (line("ferofs", &["inspect", "--json"]), 2),
        (line("ferofs", &["diff"]).arg(&other), 2),
        (line("ferofs", &["extract", "--tar", "-"]), 2),
        (line("ferofs", &["patch", "log"]), 2),
        (line("dump.erofs", &[]), 2),
        (line("dump.erofs", &["--path=/", "--ls"]), 2),
        (Run::new(ferofs_path()).args(["completions", "bash"]), 2),
        (Run::new(ferofs_path()).args(["links", "--force"]).arg(&other), 2),
    ]
}

#[test]
fn a_closed_pipe_ends_a_command_without_a_message() {
    let fixture = Fixture::new(&tree::Options::small());
    // `extract --tar` would print a message about a socket.
    fs::remove_file(fixture.source().join("kinds/socket")).unwrap();
    let image = fixture.build("image", ["--compress", "lz4"]);
    for (run, _) in commands_with_output(&fixture, &image) {
        let mut command = run.command();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{command:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command:?}");
    }
}

#[test]
fn a_full_standard_output_is_an_error() {
    let (fixture, image) = Fixture::with_image(&tree::Options::small());
    for (run, code) in commands_with_output(&fixture, &image) {
        let mut command = run.command();
        let full = || fs::File::options().write(true).open("/dev/full").unwrap();
        let output =
            command.stdin(Stdio::null()).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {stderr}");
        assert!(
            stderr.contains("No space left on device") && !stderr.contains("panicked"),
            "{command:?}: {stderr}"
        );
        let is_named =
            ["standard output: ", "-: write archive: "].iter().any(|name| stderr.contains(name));
        assert!(is_named, "{command:?}: {stderr}");
    }
    // If messages cannot be written, the exit code stays the same.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let empty = image.with_extension("empty");
    fs::write(&empty, "").unwrap();
    let status = Command::new(ferofs_path()).arg("check").arg(empty).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(4));
}

#[test]
fn control_characters_in_names_are_escaped() {
    let fixture = Fixture::empty();
    let name = OsStr::from_bytes(b"a\x1b[31m\xe2\x80\xaeb\n\xff");
    let shown = "a\\x1b[31m\\xe2\\x80\\xaeb\\x0a\\xff";
    fs::create_dir(fixture.source().join(name)).unwrap();
    fs::write(fixture.source().join(name).join("file"), "content").unwrap();
    let image = fixture.build("image", ["-T0"]);
    // In messages of the library and of commands.
    ferofs().arg("extract").args([&image, &fixture.path("target")]).run().success();
    let again = ferofs().arg("extract").args([&image, &fixture.path("target")]).run().failure(1);
    let missing = ferofs().arg("cat").arg(&image).arg(name).run().failure(1);
    let mut forged = ImageEditor::new(fs::read(&image).unwrap());
    let dir = forged
        .dirents(forged.root())
        .into_iter()
        .find(|d| forged.bytes[d.name.clone()] == *name.as_bytes());
    let inode = forged.inode(dir.unwrap().nid);
    forged.put(inode + I_XATTR_ICOUNT, 0xffff, 2);
    let damaged = fixture.path(OsStr::from_bytes(b"image\x1b]0;").to_str().unwrap());
    fs::write(&damaged, &forged.bytes).unwrap();
    let found = ferofs().arg("check").arg(&damaged).run().failure(4);
    for outcome in [&again, &missing, &found] {
        assert!(outcome.stderr.contains(shown), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains(['\x1b', '\u{202e}']), "{}", outcome.stderr);
    }
    // Only a terminal gets escaped names; a program gets the exact bytes.
    let listed = ferofs().arg("ls").arg(&image).run().success().stdout;
    assert_eq!(listed, [name.as_bytes(), b"\n"].concat());
    let json = ferofs().args(["ls", "--json"]).arg(&image).run().success().stdout;
    assert!(!String::from_utf8(json).unwrap().contains(['\x1b', '\u{202e}']));
    let Some(script) = need::tool("script", "the output of commands on a terminal") else { return };
    let empty = Fixture::empty();
    let empty = empty.build("empty", ["-T0"]).display().to_string();
    for words in [
        "ls",
        "ls -lR",
        "du -a",
        "cat --sums",
        "inspect",
        &format!("inspect --compare {empty}"),
        &format!("diff {empty}"),
    ] {
        let line =
            format!("{} {words} {} 2>/dev/null; true", ferofs_path().display(), image.display());
        let listed = Run::new(&script).args(["-qec", &line, "/dev/null"]).run().success().stdout;
        let listed = String::from_utf8(listed).unwrap();
        assert!(
            listed.contains(shown.strip_suffix("\\xff").unwrap())
                && !listed.contains(['\x1b', '\u{202e}']),
            "{words}: {listed:?}"
        );
    }
}

#[test]
fn a_missing_source_leaves_no_image() {
    let fixture = Fixture::empty();
    let outcome = ferofs()
        .arg("build")
        .args([fixture.path("missing"), fixture.path("image")])
        .run()
        .failure(1);
    assert!(outcome.stderr.contains("missing"), "{}", outcome.stderr);
    assert_eq!(names(&fixture), ["source"]);
}

#[test]
fn an_unreadable_file_leaves_no_image() {
    let fixture = Fixture::new(&tree::Options::small());
    let secret = fixture.source().join("files/secret");
    fs::write(&secret, "secret").unwrap();
    let build = || ferofs().arg("build").args([fixture.source(), fixture.path("image")]);
    if need::is_root() {
        // Root may read every file, so the file is in a mounted image that is damaged.
        fs::remove_file(&secret).unwrap();
        require!(need::fuse("an unreadable file, for root"));
        fs::create_dir(&secret).unwrap();
        let (words, damaged) = (fixture.directory("words"), fixture.path("damaged"));
        fs::write(words.join("file"), "many words ".repeat(10_000)).unwrap();
        ferofs().args(["build", "--compress", "lz4"]).args([&words, &damaged]).run().success();
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[4096..8192].fill(0xff);
        fs::write(&damaged, bytes).unwrap();
        ferofs().args(["mount", "--fuse"]).args([&damaged, &secret]).run().success();
        let outcome = build().run();
        let lenient = fixture.path("lenient");
        for options in
            [&["-z", "lz4"][..], &["--chunk-size", "4096"], &["--inode-digests", "--verify"]]
        {
            let run = ferofs().args(["build", "--skip-unreadable"]).args(options);
            let skipped = run.args([&fixture.source(), &lenient]).run();
            let is_reported = skipped.code == 0
                && skipped.stderr.contains("left out")
                && skipped.stderr.contains("secret/file");
            assert!(is_reported, "{}", skipped.stderr);
            ferofs().arg("check").arg(&lenient).run().success();
            let listing =
                ferofs().arg("ls").arg(&lenient).arg("files/secret").run().success().stdout;
            assert_eq!(String::from_utf8_lossy(&listing).trim(), "");
            fs::remove_file(&lenient).unwrap();
        }
        ferofs().arg("umount").arg(&secret).run().success();
        let outcome = outcome.failure(1);
        assert!(outcome.stderr.contains("files/secret/file"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("; --skip-unreadable leaves out"), "{}", outcome.stderr);
        assert_eq!(names(&fixture), ["damaged", "source", "words"]);
    } else {
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o000)).unwrap();
        let outcome = build().run().failure(1);
        assert!(outcome.stderr.contains("files/secret"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("; --skip-unreadable leaves out"), "{}", outcome.stderr);
        assert_eq!(names(&fixture), ["source"]);
    }
}

#[test]
fn a_full_disk_leaves_no_image() {
    require!(need::root("a full disk: a tmpfs"));
    let fixture = Fixture::new(&tree::Options { largest: 9_000_000, ..tree::Options::small() });
    let disk = fixture.directory("disk");
    rustix::mount::mount("tmpfs", &disk, "tmpfs", rustix::mount::MountFlags::empty(), c"size=2m")
        .unwrap();
    let outcome = ferofs().arg("build").args([fixture.source(), disk.join("image")]).run();
    let left = fs::read_dir(&disk).unwrap().count();
    rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
    outcome.failure(1);
    assert_eq!(left, 0, "files left on the full disk");
}

#[test]
fn a_signal_leaves_no_image() {
    let fixture = Fixture::new(&tree::Options { largest: 60_000_000, ..tree::Options::small() });
    for signal in [Signal::INT, Signal::TERM] {
        let image = fixture.path("image");
        let mut child = Command::new(ferofs_path())
            .args(["build", "--compress", "lz4", "--workers", "1"])
            .args([fixture.source(), image.clone()])
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(100));
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
        let done = child.wait().unwrap();
        // On a fast machine the build may be complete before the signal. Then the image must be valid.
        if done.success() {
            ferofs().args(["check", "--deep"]).arg(&image).run().success();
            fs::remove_file(&image).unwrap();
        }
        assert_eq!(names(&fixture), ["source"], "{signal:?}");
    }
}

#[test]
fn an_old_image_stays_until_the_new_one_is_complete() {
    let fixture = Fixture::new(&tree::Options::small());
    let image = fixture.build("image", ["-L", "old"]);
    let old = fs::read(&image).unwrap();
    ferofs().arg("build").args([fixture.path("missing"), image.clone()]).run().failure(1);
    assert!(fs::read(&image).unwrap() == old);
    fixture.build("image", ["-L", "new"]);
    assert!(fs::read(&image).unwrap() != old);
    assert_eq!(names(&fixture), ["image", "source"]);
}

#[test]
fn extraction_does_not_follow_symlinks_out_of_its_target() {
    let fixture = Fixture::empty();
    symlink("../outside", fixture.source().join("link")).unwrap();
    fs::write(fixture.source().join("file"), "new").unwrap();
    let image = fixture.build("image", ["--compress", "lz4"]);
    // The target has a symlink to the outside with the name of the file.
    let target = fixture.directory("target");
    fs::write(fixture.path("outside"), "old").unwrap();
    symlink("../outside", target.join("file")).unwrap();
    ferofs().arg("extract").args([&image, &target]).run();
    assert_eq!(fs::read(fixture.path("outside")).unwrap(), b"old");
}

#[test]
fn files_that_are_not_images_are_refused() {
    let fixture = Fixture::empty();
    fs::write(fixture.path("text"), "not an image\n".repeat(1_000)).unwrap();
    fs::write(fixture.path("empty"), "").unwrap();
    for file in ["text", "empty", "missing", "source"] {
        for command in ["check", "ls"] {
            let outcome = ferofs().arg(command).arg(fixture.path(file)).run();
            assert_ne!(outcome.code, 0, "{command} {file}");
            assert!(outcome.has_error_message(), "{command} {file}: {}", outcome.stderr);
        }
    }
}

#[test]
fn the_names_of_erofs_utils_select_their_command_lines() {
    let fixture = Fixture::new(&tree::Options::small());
    let links = fixture.directory("links");
    for _ in 0..2 {
        // Links that are right already stay.
        ferofs().arg("links").arg(&links).run().success();
    }
    for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs", "erofsfuse", "mount.erofs"] {
        assert!(fs::symlink_metadata(links.join(name)).unwrap().is_symlink(), "{name}");
        Run::new(links.join(name)).arg("--help").run().success();
    }
    let (image, extracted) = (fixture.path("image"), fixture.path("extracted"));
    let mkfs = || Run::new(links.join("mkfs.erofs"));
    mkfs().args(["-zlz4", "-T0", "--quiet"]).args([&image, &fixture.source()]).run().success();
    Run::new(links.join("fsck.erofs")).arg(&image).run().success();
    // Options may follow the paths, with or without a space before the value.
    mkfs()
        .args([&image, &fixture.source()])
        .args(["-z", "lz4", "-b4096", "-L", "label", "--quiet"])
        .run()
        .success();
    let mut extract = std::ffi::OsString::from("--extract=");
    extract.push(&extracted);
    Run::new(links.join("fsck.erofs")).arg(extract).arg("--xattrs").arg(&image).run().success();
    fixture.assert_same_as_source(&extracted);
    let dump = Run::new(links.join("dump.erofs")).arg("-s").arg(&image).run().success();
    assert!(String::from_utf8(dump.stdout).unwrap().contains("Filesystem UUID:"));
    assert_ne!(
        mkfs().args(["-znonsense", "--quiet"]).args([&image, &fixture.source()]).run().code,
        0
    );
}

fn names(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.source().parent().unwrap()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_verified_build_reports_what_it_did() {
    let fixture = Fixture::new(&tree::Options::small());
    for options in
        [&["-z", "lz4"][..], &["--chunk-size", "4096"], &["--inodes", "compact", "--all-root"]]
    {
        let image = fixture.path("image");
        let run = || ferofs().args(["build", "--verify", "--json"]).args(options);
        let outcome = run().args([&fixture.source(), &image]).run().success();
        let json = String::from_utf8(outcome.stdout).unwrap();
        let size = fs::metadata(&image).unwrap().len();
        assert!(
            json.starts_with('{') && json.contains(&format!("\"bytes_out\":{size},")),
            "{json}"
        );
        for field in [
            "uuid",
            "inodes",
            "files",
            "bytes_in",
            "bytes_shared",
            "bytes_kept",
            "seconds",
            "verify",
            "timings",
            "warnings",
        ] {
            assert!(json.contains(&format!("\"{field}\":")), "{field}: {json}");
        }
        ferofs().arg("check").arg(&image).run().success();
    }
}

#[test]
fn source_date_epoch_replaces_the_current_time() {
    let fixture = Fixture::new(&tree::Options::small());
    let build = |name: &str| {
        let image = fixture.path(name);
        let run = ferofs().args(["build", "-U", "clear"]).env("SOURCE_DATE_EPOCH", "1000000000");
        run.args([&fixture.source(), &image]).run().success();
        fs::read(image).unwrap()
    };
    assert!(build("one") == build("two"));
    let outcome = ferofs()
        .arg("build")
        .env("SOURCE_DATE_EPOCH", "now")
        .args([&fixture.source(), &fixture.path("x")]);
    assert!(outcome.run().failure(1).stderr.contains("SOURCE_DATE_EPOCH"));
}

#[test]
fn the_summary_of_an_image_in_chunks_tells_what_it_has() {
    let fixture = Fixture::new(&tree::Options::small());
    let json = |options: &[&str]| {
        let build = ferofs()
            .args(["build", "--json", "--preset", "small", "--chunk-size", "64K"])
            .args(options);
        String::from_utf8(
            build.args([fixture.source(), fixture.path("image")]).run().success().stdout,
        )
        .unwrap()
    };
    let plain = json(&[]);
    assert!(plain.contains(r#""linux":"5.15""#), "{plain}");
    assert!(plain.contains(r#""options":"-z none --chunk-size 64K""#), "{plain}");
    // These are compressed.
    assert!(json(&["--compress-directories"]).contains(r#""linux":"6.10""#));
    assert!(json(&["-m", "4K"]).contains(r#""linux":"6.17""#));
    assert!(plain.contains(r#""linux_page_size":4096"#), "{plain}");
    assert!(json(&["-b", "16K"]).contains(r#""linux_page_size":16384"#));
}

#[test]
fn presets_give_the_same_images_as_their_options() {
    let fixture = Fixture::new(&tree::Options::small());
    let fixed = ["-T1", "-Uclear"];
    for (preset, options) in [
        ("default", &["-z", "lz4"][..]),
        ("fast", &["-z", "lz4", "-C", "4K", "-E", "^fragments"]),
        ("small", &["-z", "zstd,level=12", "-C", "1M"]),
        (
            "smallest",
            &[
                "-z",
                "lzma,6",
                "-C",
                "1M",
                "-E",
                "all-fragments",
                "-m",
                "64K",
                "--compress-directories",
                "--order",
                "similar",
            ],
        ),
        ("android", &["-z", "lz4hc,9", "-C", "4K", "-E", "^fragments"]),
    ] {
        let image = fixture.build("preset", ["--preset", preset].iter().chain(&fixed));
        ferofs().args(["check"]).arg(&image).run().success();
        let other = fixture.path("options");
        ferofs()
            .arg("build")
            .args(options)
            .args(fixed)
            .args([&fixture.source(), &other])
            .run()
            .success();
        assert!(fs::read(image).unwrap() == fs::read(other).unwrap(), "{preset}");
    }
    let help =
        String::from_utf8(ferofs().args(["build", "--help"]).run().success().stdout).unwrap();
    for preset in ["default", "fast", "small", "smallest", "android", "backup"] {
        assert!(help.contains(&format!("- {preset}")), "{help}");
    }
}

#[test]
fn timings_list_every_activity_of_a_build() {
    let fixture = Fixture::empty();
    let text = "text to be compressed ".repeat(300_000);
    for name in ["a", "b"] {
        std::fs::write(fixture.source().join(name), &text).unwrap();
    }
    let image = fixture.path("image");
    let build = |options: &[&str]| {
        let run = ferofs().args(["build", "--preset", "fast", "-Ededupe"]).args(options);
        String::from_utf8(run.args([&fixture.source(), &image]).run().success().stdout).unwrap()
    };
    let table = build(&["--timings"]);
    for activity in ["read", "hash", "dedupe", "compress", "order", "write", "sync", "idle"] {
        assert!(table.lines().any(|line| line.starts_with(activity)), "{activity}: {table}");
    }
    // Both files are read to hash them, and one of them again to encode it.
    let json = build(&["--json"]);
    let bytes = |activity: &str| {
        let rest = json.split(&format!("\"{activity}\":{{")).nth(1).unwrap();
        let digits = rest.split("\"bytes\":").nth(1).unwrap();
        digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap()
    };
    assert!(bytes("read") >= 3 * text.len() && bytes("hash") >= 2 * text.len(), "{json}");
    assert_eq!((bytes("compress"), bytes("dedupe")), (text.len(), text.len()));
    assert!(bytes("write") > 0 && bytes("write") < text.len());
}
