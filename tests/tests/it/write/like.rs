//! `build --like`: images like earlier ones, with the kernel, with a seal, and with what does not
//! go together.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use ferofs_tests::{Content, Rng, ferofs};

use crate::common::fixture::Fixture;

const SETTINGS: &[&str] = &["-T", "1700000000", "-U", "clear"];

/// One file of thirty changes, in each kind of form; the whole image is smaller than one large
/// pcluster.
#[test]
fn a_small_image_keeps_most_and_says_it() {
    let fixture = Fixture::small();
    let source = fixture.directory("texts");
    let mut rng = Rng::new(7);
    let mut text =
        |name: &str| fs::write(source.join(name), Content::Text.bytes(30_000, &mut rng)).unwrap();
    (0..30).for_each(|number| text(&format!("file{number}")));
    let (old, new) = (fixture.path("old"), fixture.path("new"));
    let build = |form: &str, like: &[&OsStr], image: &Path| {
        let options = form.split(' ').chain(SETTINGS.iter().copied());
        let build = ferofs!("build").args(options).args(like);
        build.args(["--all-time", "--json", "--force"]).arg(&source).arg(image).run()
    };
    let forms = [
        "--preset default",
        "--preset fast",
        "--preset small",
        "--preset backup",
        "-z lz4 -E dedupe",
        "-z zstd -E fragments,dedupe",
        "-z zstd -E 48bit",
        "-z zstd -E ^fragments",
    ];
    let like = [OsStr::new("--like"), old.as_os_str()];
    let with_waste = |waste| [like[0], like[1], OsStr::new("--like-waste"), OsStr::new(waste)];
    for form in forms {
        build(form, &[], &old).success();
        text("file7");
        let run = build(form, &like, &new).success();
        let summary = run.text();
        let field = |name: &str| {
            let value = summary.split_once(&format!("\"{name}\":")).unwrap().1;
            value.split([',', '}']).next().unwrap().trim().parse::<u64>().unwrap()
        };
        let [kept, size, files] = ["bytes_kept", "bytes_out", "files_kept"].map(field);
        assert!(kept * 10 > size * 7 && files == 29, "{form}: {kept} of {size}: {files} files");
        run.says("of this earlier image, the content of 29 files");
        ferofs!("check --deep", &new).success();
    }
    build(forms[2], &[], &old).success();
    text("file7");
    build(forms[2], &with_waste("0"), &new).success().says("a larger --like-waste keeps more");
    (0..30).for_each(|number| text(&format!("file{number}")));
    build(forms[2], &like, &new).success().says("no file of the source has the same content there");
}

#[test]
fn a_sealed_image_of_the_same_source_is_the_same() {
    let fixture = Fixture::small();
    let build = |name: &str, like: &[&str]| {
        let options: Vec<&OsStr> =
            ["-z", "lz4"].iter().chain(SETTINGS).chain(like).map(OsStr::new).collect();
        fixture.build_sealed(name, &options)
    };
    let (old, root) = build("old", &[]);
    let like = ["--like", old.to_str().unwrap()];
    let (same, same_root) = build("same", &like);
    assert!(fs::read(&old).unwrap() == fs::read(&same).unwrap() && root == same_root);
    fixture.write("files/text/4097", "changed");
    let (new, root) = build("new", &like);
    ferofs!("check --deep --roothash", &root, &new).success();
}

#[test]
fn what_does_not_go_together_is_refused() {
    let fixture = Fixture::small();
    let old = fixture.build("old", ["--compress", "lz4"]);
    let archive = fixture.path("no-image");
    let build = |options: &[&str], old: &Path, image: &Path| {
        ferofs!("build").args(options).arg("--like").arg(old).arg(fixture.source()).arg(image).run()
    };
    let new = fixture.path("new");
    let refused = |options: &[&str], message: &str| {
        let run = build(options, &old, &new);
        assert!(run.code != 0 && run.stderr.contains(message), "{options:?}: {}", run.stderr);
        assert!(!new.exists());
    };
    refused(&["-z", "none"], "the earlier image: is compressed (-z)");
    refused(&["-z", "zstd"], "the earlier image: has other algorithms");
    refused(&["-b", "16K"], "the earlier image: has another block size (-b)");
    refused(&["--chunk-size", "4096"], "cannot be used with");
    refused(&["--like-waste", "101"], "not a number of percent");
    let run = build(&["-z", "lz4"], &old, &old);
    run.failure(1).says("is also an input");
    fs::write(&archive, "no image").unwrap();
    let run = build(&["-z", "lz4"], &archive, &new);
    run.failure(1).says("no-image: ");
}
