//! The first version of Linux in the summary of a build is that of docs/guide/linux-versions.md.
//! `cargo xtask test --kernels` lets these versions read images.

use std::fs::{self, File};

use ferofs_tests::{ferofs, run};

use crate::common::fixture::Fixture;

/// The version, and the options.
const VERSIONS: [(&str, &str); 33] = [
    ("5.4", "-z none"),
    ("5.4", "--preset fast -z lz4hc"),
    ("5.4", "-z none --label 0123456789abcde"),
    ("6.1", "--preset fast -z lz4 --compress-directories"),
    ("5.13", "--preset fast -z lz4 -C 64K"),
    ("5.15", "--chunk-size 4K"),
    ("5.16", "--preset fast -z lzma"),
    ("5.16", "--chunk-size 4K --chunk-device device"),
    ("5.16", "--preset fast -z lz4:lzma --compress-hints hints"),
    ("5.17", "--preset fast -z lz4 -E ztailpacking"),
    ("6.1", "--preset fast -z lz4 -E fragments"),
    ("6.1", "--preset fast -z lz4 -E all-fragments"),
    ("6.1", "--preset fast -z lz4 -E dedupe"),
    ("6.1", "--preset fast -z lz4 -E holes"),
    ("6.4", "-z none -b 1024"),
    ("6.4", "--preset fast --xattr-prefix user.example."),
    ("6.18", "--xattr-prefix user.example."),
    ("6.4", "--preset fast --inode-digests=user.sha"),
    ("6.18", "--inode-digests=user.sha"),
    ("6.6", "--preset fast -z deflate"),
    ("6.8", "--preset fast -z lz4 -b 1024"),
    ("6.10", "--preset fast -z zstd"),
    ("6.15", "--preset fast -z lz4 -E 48bit"),
    ("6.15", "--preset fast -z lz4 -E dot-omitted"),
    ("6.15", "-z none --label 0123456789abcdef"),
    ("6.17", "--preset fast -z lz4 -m 4K"),
    ("5.4", "--preset fast"),
    ("5.4", "--preset android"),
    ("6.1", "--preset default"),
    ("6.1", "-z lz4hc"),
    ("6.10", "--preset small"),
    ("6.17", "--preset smallest"),
    ("6.17", "--preset backup"),
];

#[test]
fn the_summary_names_the_version_of_the_page() {
    let fixture = Fixture::empty();
    fixture.write("hostname", "name\n".repeat(10_000));
    fs::write(fixture.path("hints"), "4096 1 .*hostname\n").unwrap();
    run!("tar").args(fixture.words("-C @source -cf @tree.tar .")).success();
    let build = || ferofs!("build --force --json").dir(fixture.path(""));
    build().args(["-z", "none", "source", "plain"]).success();
    let check = |version: &str, options: &str, source: &str| {
        let json = build().args(options.split(' ')).args([source, "image"]).success().stdout;
        let json = String::from_utf8(json).unwrap();
        assert!(
            json.contains(&format!("\"linux\":\"{version}\"")),
            "{options} {source}: not {version}: {json}"
        );
    };
    for (version, options) in VERSIONS {
        check(version, options, "source");
        // This source has nothing to deduplicate, no holes and no long directory; and inspect wants
        // the device.
        let is_used =
            !["dedupe", "holes", "device", "directories"].iter().any(|end| options.ends_with(end));
        if is_used {
            let json = ferofs!("inspect --json image").dir(fixture.path("")).success().text();
            assert!(json.contains(&format!("\"linux\":\"{version}\"")), "{options}: {json}");
        }
    }
    check("5.16", "--index-only", "plain");
    check("6.4", "--index-only", "tree.tar");
    File::create(fixture.source().join("hole")).unwrap().set_len(5 << 20).unwrap();
    check("5.15", "-z none", "source");
}

#[test]
fn a_patch_names_the_version_of_the_patched_image() {
    let fixture = Fixture::empty();
    fixture.write("hostname", "name\n".repeat(10_000));
    let run = |arguments: &str| ferofs().args(arguments.split(' ')).dir(fixture.path("")).success();
    run("build --preset fast -q source image");
    File::create(fixture.source().join("hole")).unwrap().set_len(1 << 30).unwrap();
    run("patch create image source -o patch");
    let text = run("patch show patch").text();
    assert!(text.contains("mounted by     Linux 5.15 or newer; the base image by 5.4"), "{text}");
}
