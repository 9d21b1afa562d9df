//! `ferofs build --verity` makes the seal that `ferofs verity format` makes of the same image.

use std::fs;

use ferofs_tests::{ferofs, tree};

use crate::common::fixture::Fixture;

const BUILDS: [&[&str]; 8] = [
    &[],
    &["-z", "lz4"],
    &["-z", "lz4hc,9", "-C", "65536", "-E", "ztailpacking,dedupe"],
    &["-z", "zstd,1", "-C", "1M", "-E", "all-fragments"],
    &["-z", "deflate,3", "-E", "48bit", "-m", "4096"],
    &["-z", "lzma,1", "--workers", "1"],
    &["-b", "512"],
    &["--preset", "android"],
];

#[test]
fn an_image_is_sealed_while_it_is_written() {
    let fixture = Fixture::new(&tree::Options { largest: 3_000_000, ..tree::Options::small() });
    for options in BUILDS {
        let fixed = ["-T", "1700000000", "-U", "d2c9a3b4-0000-4000-8000-00000000abcd", "--verify", "--json"];
        let build = |name: &str, more: &[&str]| {
            let image = fixture.path(name);
            let build = ferofs().arg("build").args(fixed).args(options).args(more);
            let build = build.arg(fixture.source()).arg(&image);
            let json = String::from_utf8(build.run().success().stdout).unwrap();
            (image, json)
        };
        let (formatted, _) = build("formatted", &[]);
        let root = ferofs().args(["verity", "format"]).arg(&formatted).run().success().stdout;
        let root = String::from_utf8(root).unwrap().trim().to_owned();
        let (appended, json) = build("appended", &["--verity"]);
        assert!(json.contains(&format!("\"roothash\":\"{root}\"")), "{options:?}: {json}");
        assert!(fs::read(&appended).unwrap() == fs::read(&formatted).unwrap(), "{options:?}: other bytes");
        ferofs().args(["verity", "verify"]).arg(&appended).arg(&root).run().success();

        let (tree, text) = (fixture.path("tree"), fixture.path("root"));
        let files = [format!("--verity={}", tree.display()), format!("--roothash-file={}", text.display())];
        let (plain, _) = build("plain", &[&files[0], &files[1]]);
        let root = fs::read_to_string(text).unwrap();
        ferofs().args(["verity", "verify", "--hash-file"]).args([&tree, &plain]).arg(&root).run().success();
        let same = ferofs().args(["diff", "--quiet", "--roothash", &root, "--hash-file"]).arg(&tree);
        same.arg(&plain).arg(fixture.source()).run().success();
        ferofs()
            .args(["ls", "--roothash", &"0".repeat(64), "--hash-file"])
            .args([&tree, &plain])
            .run()
            .failure(1);
    }
}

#[test]
fn a_sealed_image_is_not_patched() {
    let fixture = Fixture::new(&tree::Options::small());
    let image = fixture.build("image", ["--compress", "lz4"]);
    let (patch, more) = (fixture.path("patch"), fixture.path("more"));
    fs::create_dir(&more).unwrap();
    fs::write(more.join("new"), "content ".repeat(10_000)).unwrap();
    let sealed = fixture.path("sealed");
    fs::copy(&image, &sealed).unwrap();
    ferofs().args(["patch", "create"]).args([&image, &more]).arg("-o").arg(&patch).run().success();
    ferofs().args(["verity", "format"]).arg(&sealed).run().success();
    let before = fs::read(&sealed).unwrap();
    for command in [&["apply"][..], &["add"]] {
        let change = if command[0] == "apply" { &patch } else { &more };
        let refused = ferofs().arg("patch").args(command).args([&sealed, change]).run().failure(1);
        assert!(refused.stderr.contains("a seal follows the image"), "{}", refused.stderr);
        assert!(fs::read(&sealed).unwrap() == before, "{command:?}: the image was changed");
    }
    let file = fs::File::options().write(true).open(&sealed).unwrap();
    file.set_len(fs::metadata(&image).unwrap().len()).unwrap();
    ferofs().args(["patch", "apply"]).args([&sealed, &patch]).run().success();
}

#[test]
fn a_stream_is_sealed_and_wrong_combinations_are_refused() {
    let fixture = Fixture::new(&tree::Options::small());
    let root = fixture.path("root");
    let stream = ferofs()
        .args(["build", "--verity", "--roothash-file"])
        .arg(&root)
        .arg(fixture.source())
        .arg("-")
        .run();
    let (image, root) = (fixture.path("image"), fs::read_to_string(root).unwrap());
    fs::write(&image, &stream.success().stdout).unwrap();
    ferofs().args(["verity", "verify"]).arg(&image).arg(&root).run().success();

    let before = fs::read(&image).unwrap();
    let name = image.display().to_string();
    let tree = fixture.path("tree").display().to_string();
    for wrong in [
        &["--verity", "-E", "offset=4096"][..],
        &[&format!("--verity={name}")],
        &[&format!("--verity={tree}"), "--roothash-file", &tree],
        &["--verity", "--roothash-file", &name],
        &["--roothash-file", "x"],
    ] {
        let outcome = ferofs().arg("build").args(wrong).arg(fixture.source()).arg(&image).run();
        assert_ne!(outcome.code, 0, "{wrong:?}");
        assert!(fs::read(&image).unwrap() == before, "{wrong:?}: the image was changed");
    }
}
