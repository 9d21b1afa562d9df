//! The memory for applying that `ferofs patch show` states, compared with what applying takes.

use std::fs;

use ferofs_tests::content::Content;
use ferofs_tests::rng::Rng;
use ferofs_tests::run::ferofs_path;
use ferofs_tests::{Run, ferofs, need};

use crate::common::fixture::Fixture;

/// The first number of this name in the JSON text.
fn number(json: &str, name: &str) -> u64 {
    let rest = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}: no {name}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn the_stated_memory_is_enough_for_applying() {
    let Some(time) = need::tool("time", "the memory of applying a patch") else { return };
    for options in [
        "-z none",
        "-z lz4",
        "-z lz4hc,12 -C 64K",
        "-z deflate,12 -C 64K",
        "-z lzma,6 -C 64K",
        "-z zstd,19 -C 128K -E fragments",
        "-z zstd,9 -C 64K -E 48bit -m 64K",
        "--preset backup",
    ] {
        let fixture = Fixture::empty();
        let (source, next) = (fixture.source(), fixture.directory("next"));
        for name in 0..6u64 {
            let mut bytes = Content::Mixed.bytes(2_000_000, &mut Rng::new(name));
            fs::write(source.join(format!("file{name}")), &bytes).unwrap();
            for at in (0..bytes.len()).step_by(70_000) {
                bytes[at] ^= 0x55;
            }
            fs::write(next.join(format!("file{name}")), &bytes).unwrap();
        }
        fs::write(next.join("new"), Content::Text.bytes(3_000_000, &mut Rng::new(77))).unwrap();
        let (image, patch, memory) =
            (fixture.build("image", options.split(' ')), fixture.path("patch"), fixture.path("memory"));
        super::create(&image, &next, &patch);
        let shown = ferofs().args(["patch", "show", "--json"]).arg(&patch).run().success();
        let shown = String::from_utf8(shown.stdout).unwrap();
        Run::new(&time)
            .args(["--format", "%M", "--output"])
            .arg(&memory)
            .arg(ferofs_path())
            .args(["patch", "apply"])
            .args([&image, &patch])
            .run()
            .success();
        let peak = fs::read_to_string(&memory).unwrap().trim().parse::<u64>().unwrap() << 10;
        let bound = number(&shown, "memory");
        assert!(peak <= bound, "{options}: {peak} bytes, but {bound} are stated");
        assert!(bound < 3 * peak, "{options}: {peak} bytes, and {bound} are stated");
        // LZMA, and the largest pclusters with a high level of Zstandard, take more.
        if !options.contains("lzma") && !options.contains("backup") {
            assert!(bound < 64_000_000, "{options}: {bound}");
        }
        let text = ferofs().args(["patch", "show"]).arg(&patch).run().success();
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("applying       takes up to"), "{text}");
    }
}
