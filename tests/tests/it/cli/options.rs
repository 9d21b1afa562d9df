//! Options, exit codes, errors, and the files that a failed command leaves.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use ferofs_tests::{Run, ferofs, ferofs_path, need};

use crate::common::fixture::{Fixture, chmod};
use crate::common::image_editor::{I_XATTR_ICOUNT, ImageEditor};

/// Offset of the superblock, and fields in it (FORMAT.md 1).
const SUPER: usize = 1024;
const BLKSZBITS: usize = SUPER + 0x0C;
const UUID: std::ops::Range<usize> = SUPER + 0x30..SUPER + 0x40;
const LABEL: std::ops::Range<usize> = SUPER + 0x40..SUPER + 0x50;

#[test]
fn wrong_values_are_told_with_what_is_taken() {
    let fixture = Fixture::empty();
    fixture.write("file", "content");
    for (options, expected) in [
        ("--offset 1", "--offset: 1 is not a multiple of the block size, 4096"),
        ("--offset 512 -b 1024", "--offset: 512 is not a multiple of the block size, 1024"),
        ("-C 1T", "too large: at most 1M"),
        ("-C -1", "not a number of bytes"),
        ("--workers x", "'--workers <N>': not a whole number, for example 4"),
        ("--workers 0", "'--workers <N>': must be 1 or more"),
        ("--workers 99999999999999999999", "'--workers <N>': the number is too large"),
        ("-m 0", "pcluster size of metadata (-m): not a multiple of the block size"),
        ("-E fragments=5", "pcluster size of fragments (-E): not a multiple of the block size"),
        ("--max-extent-bytes 1T", "too large: at most 4294967295"),
        ("-z zstd,dictsize=1T", "dictsize=1T: zstd takes"),
        ("-z none --compress-directories", "--compress-directories: needs a compressor"),
        ("-z lz4 --compress-large none", "zstd, not none"),
        ("--estimate", "--estimate writes no image: leave this path out"),
        // The value is not an option of its own.
        ("-b -1", "invalid value '-1' for '--block-size <SIZE>': "),
        ("--workers -1", "invalid value '-1' for '--workers <N>': "),
    ] {
        let outcome = fixture.line(&format!("build {options} @source @image")).run();
        assert!(outcome.code != 0 && !fixture.path("image").exists(), "{options}");
        outcome.says(expected);
    }
    for (options, expected) in [
        ("-b -1", "invalid value '-1' for '-b <#>': "),
        ("-C -1", "invalid value '-1' for '-C <#>': "),
        ("--force-uid -1", "'--force-uid <#>': not a number from 0 to 4294967295"),
        ("-T x", "'-T <#>': not a number from -9223372036854775808 to 9223372036854775807"),
    ] {
        fixture.tool(&format!("mkfs.erofs {options} @image @source")).fails(1, expected);
    }
    fixture.line("build --offset 8K @source @image").success();
    let missing = format!("{}: create a file in this directory", fixture.path("none").display());
    fixture.line("build @source @none/image").fails(1, missing);
    // Wrong usage has an exit code of its own.
    let root = "0a".repeat(32);
    for (line, code) in [
        ("build --offset 1 @source @new", 2),
        ("build --all-time @source @new", 2),
        ("build --exclude [a @source @new", 2),
        ("build -C 5000 @source @new", 2),
        ("extract @image -", 2),
        (&*format!("ls --roothash {root} --device @image @image"), 2),
        (&*format!("check --roothash {root} --device @image @image"), 16),
    ] {
        let run = fixture.line(line).run();
        assert_eq!(run.code, code, "{line}: {}", run.stderr);
    }
}

#[test]
fn options_set_the_fields_of_the_superblock() {
    let fixture = Fixture::small();
    let uuid = "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71";
    let image = fixture.build("image", ["-U", uuid, "-L", "sixteen-letters!", "-b", "1024"]);
    let image = fs::read(image).unwrap();
    let hex: String = image[UUID].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, uuid.replace('-', ""));
    assert_eq!(&image[LABEL], b"sixteen-letters!");
    assert_eq!(image[BLKSZBITS], 10);
}

#[test]
fn output_to_a_pipe_is_quiet() {
    let fixture = Fixture::small();
    let outcome = ferofs!("build", fixture.source(), fixture.path("image")).success();
    assert_eq!(outcome.stderr, "");
    assert!(
        !outcome.stdout.iter().any(|byte| b"\r\x1b".contains(byte)),
        "no progress bar in a pipe"
    );
}

/// Commands that write results to standard output, and their exit codes if writing fails.
fn commands_with_output(fixture: &Fixture) -> Vec<(Run, i32)> {
    fs::create_dir_all(fixture.path("other")).unwrap();
    [
        ("ferofs check @image", 8),
        ("ferofs check --json @image", 8),
        ("ferofs ls -R @image", 2),
        ("ferofs ls --json @image", 2),
        ("ferofs cat @image files/text/4097", 2),
        ("ferofs inspect @image", 2),
        ("ferofs inspect --json @image", 2),
        ("ferofs diff @image @other", 2),
        ("ferofs extract --tar - @image", 2),
        ("ferofs patch log @image", 2),
        ("dump.erofs @image", 2),
        ("dump.erofs --path=/ --ls @image", 2),
        ("ferofs completions bash", 2),
        ("ferofs links --force @other", 2),
    ]
    .map(|(line, code)| (fixture.tool(line), code))
    .into()
}

#[test]
fn a_closed_pipe_ends_a_command_without_a_message() {
    let fixture = Fixture::small();
    // `extract --tar` would print a message about a socket.
    fs::remove_file(fixture.source().join("kinds/socket")).unwrap();
    fixture.build("image", ["--compress", "lz4"]);
    for (run, _) in commands_with_output(&fixture) {
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
    let (fixture, image) = Fixture::small_image();
    for (run, code) in commands_with_output(&fixture) {
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
    for words in [["--version"].as_slice(), &["--help"], &["build", "-h"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(ferofs_path());
        let output = command.args(words).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr.starts_with("ferofs: standard output: "), "{words:?}: {stderr}");
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
    ferofs!("extract", &image, fixture.path("target")).success();
    let again = ferofs!("extract", &image, fixture.path("target")).failure(1);
    let missing = ferofs!("cat", &image, name).failure(1);
    let mut forged = ImageEditor::new(fs::read(&image).unwrap());
    let dir = forged
        .dirents(forged.root())
        .into_iter()
        .find(|d| forged.bytes[d.name.clone()] == *name.as_bytes());
    let inode = forged.inode(dir.unwrap().nid);
    forged.put(inode + I_XATTR_ICOUNT, 0xffff, 2);
    let damaged = fixture.path(OsStr::from_bytes(b"image\x1b]0;").to_str().unwrap());
    fs::write(&damaged, &forged.bytes).unwrap();
    let found = ferofs!("check", &damaged).failure(4);
    for outcome in [&again, &missing, &found] {
        outcome.says(shown);
        assert!(!outcome.stderr.contains(['\x1b', '\u{202e}']), "{}", outcome.stderr);
    }
    // Only a terminal gets escaped names; a program gets the exact bytes.
    let listed = ferofs!("ls", &image).success().stdout;
    assert_eq!(listed, [name.as_bytes(), b"\n"].concat());
    let json = ferofs!("ls --json", &image).success().stdout;
    assert!(!String::from_utf8(json).unwrap().contains(['\x1b', '\u{202e}']));
    let Some(script) = need::tool("script") else { return };
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
        let listed = Run::new(&script).args(["-qec", &line, "/dev/null"]).success().stdout;
        let listed = String::from_utf8(listed).unwrap();
        assert!(
            listed.contains(shown.strip_suffix("\\xff").unwrap())
                && !listed.contains(['\x1b', '\u{202e}']),
            "{words}: {listed:?}"
        );
    }
}

#[test]
fn an_unreadable_file_leaves_no_image() {
    let fixture = Fixture::small();
    let secret = fixture.source().join("files/secret");
    fs::write(&secret, "secret").unwrap();
    let build = || ferofs!("build", fixture.source(), fixture.path("image"));
    if need::is_root() {
        // Root may read every file, so the file is in a mounted image that is damaged.
        fs::remove_file(&secret).unwrap();
        require!(need::fuse());
        fs::create_dir(&secret).unwrap();
        let (words, damaged) = (fixture.directory("words"), fixture.path("damaged"));
        fs::write(words.join("file"), "many words ".repeat(10_000)).unwrap();
        ferofs!("build --compress lz4", &words, &damaged).success();
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[4096..8192].fill(0xff);
        fs::write(&damaged, bytes).unwrap();
        ferofs!("mount --fuse", &damaged, &secret).success();
        let outcome = build().run();
        let lenient = fixture.path("lenient");
        for options in
            [&["-z", "lz4"][..], &["--chunk-size", "4096"], &["--inode-digests", "--verify"]]
        {
            let run = ferofs!("build --skip-unreadable").args(options);
            let skipped = run.args([&fixture.source(), &lenient]).run();
            let is_reported = skipped.code == 0
                && skipped.stderr.contains("left out")
                && skipped.stderr.contains("secret/file");
            assert!(is_reported, "{}", skipped.stderr);
            ferofs!("check", &lenient).success();
            let listing = ferofs!("ls", &lenient, "files/secret").success().stdout;
            assert_eq!(String::from_utf8_lossy(&listing).trim(), "");
            fs::remove_file(&lenient).unwrap();
        }
        ferofs!("umount", &secret).success();
        let outcome = outcome.failure(1);
        outcome.says("files/secret/file");
        outcome.says("; --skip-unreadable leaves out");
        assert_eq!(fixture.names(), ["damaged", "source", "words"]);
    } else {
        chmod(&secret, 0o000);
        let outcome = build().failure(1);
        outcome.says("files/secret");
        outcome.says("; --skip-unreadable leaves out");
        assert_eq!(fixture.names(), ["source"]);
    }
}

#[test]
fn a_verified_build_reports_what_it_did() {
    let fixture = Fixture::small();
    for options in ["-z lz4", "--chunk-size 4096", "--inodes compact --all-root"] {
        let build = fixture.line(&format!("build --verify --json {options} @source @image"));
        let json = build.success().text();
        let size = fs::metadata(fixture.path("image")).unwrap().len();
        let fields = "uuid inodes files bytes_in bytes_shared bytes_kept files_kept seconds verify \
                      timings warnings";
        for field in fields.split(' ').filter(|field| !field.is_empty()) {
            assert!(json.contains(&format!("\"{field}\":")), "{field}: {json}");
        }
        let out = format!("\"bytes_out\":{size},");
        assert!(json.starts_with('{') && json.contains(&out), "{json}");
        fixture.line("check @image").success();
    }
}

#[test]
fn source_date_epoch_replaces_the_current_time() {
    let fixture = Fixture::small();
    let build = |name: &str| {
        let image = fixture.path(name);
        let run = ferofs!("build -U clear").env("SOURCE_DATE_EPOCH", "1000000000");
        run.args([&fixture.source(), &image]).success();
        fs::read(image).unwrap()
    };
    assert!(build("one") == build("two"));
    let outcome = ferofs!("build")
        .env("SOURCE_DATE_EPOCH", "now")
        .args([&fixture.source(), &fixture.path("x")]);
    outcome.failure(1).says("SOURCE_DATE_EPOCH");
}

#[test]
fn the_summary_of_an_image_in_chunks_tells_what_it_has() {
    let fixture = Fixture::small();
    let json = |options: &[&str]| {
        let build = ferofs!("build --json --preset small --chunk-size 64K").args(options);
        build.args([fixture.source(), fixture.path("image")]).success().text()
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
    let fixture = Fixture::small();
    for (preset, options) in [
        ("default", "-z lz4"),
        ("fast", "-z lz4 -C 4K -E ^fragments"),
        ("small", "-z zstd,level=12 -C 1M"),
        (
            "smallest",
            "-z lzma,6 -C 1M -E all-fragments -m 64K --compress-directories --order similar",
        ),
        ("android", "-z lz4hc,9 -C 4K -E ^fragments"),
    ] {
        let fixed = "-T1 -Uclear @source";
        fixture.line(&format!("build --preset {preset} {fixed} @preset")).success();
        fixture.line("check @preset").success();
        fixture.line(&format!("build {options} {fixed} @options")).success();
        let [one, other] = ["preset", "options"].map(|name| fs::read(fixture.path(name)).unwrap());
        assert!(one == other, "{preset}");
    }
    let help = ferofs!("build --help").success().text();
    for preset in ["default", "fast", "small", "smallest", "android", "backup"] {
        assert!(help.contains(&format!("- {preset}")), "{help}");
    }
}

#[test]
fn timings_list_every_activity_of_a_build() {
    let fixture = Fixture::empty();
    let text = "text to be compressed ".repeat(300_000);
    for name in ["a", "b"] {
        fixture.write(name, &text);
    }
    let image = fixture.path("image");
    let build = |options: &[&str]| {
        let run = ferofs!("build --preset fast -Ededupe").args(options);
        run.args([&fixture.source(), &image]).success().text()
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
