//! `ferofs inspect` with its HTML page, and `ferofs diff`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ferofs_tests::{ferofs, need, web};

use crate::common::fixture::{Fixture, chmod};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn inspect_shows_features_files_and_blocks() {
    let (_fixture, image) = Fixture::small_image();
    let report = text(&ferofs!("inspect", &image).success().stdout);
    for word in ["uuid", "features", "lz4", "directory", "largest files", "layout", "metadata"] {
        assert!(report.contains(word), "{word}: {report}");
    }
    let json = text(&ferofs!("inspect --json", &image).success().stdout);
    for key in [
        "\"superblock\"",
        "\"extensions\"",
        "\"sharing\"",
        "\"layout\"",
        "\"ratios\"",
        "\"damage\":[]",
    ] {
        assert!(json.contains(key), "{key}: {json}");
    }
    // Block 0 contains the superblock. The block of an inode lists the inode.
    let owner = |block: u64| {
        let block = block.to_string();
        text(&ferofs!("inspect --block", &block, &image).success().stdout)
    };
    assert!(owner(0).starts_with("superblock\n"));
    let file = text(&ferofs!("inspect --path /files", &image).success().stdout);
    let (_, byte) = file.split_once(", byte ").unwrap();
    let (byte, _) = byte.split_once(',').unwrap();
    let block = byte.parse::<u64>().unwrap() / 4096;
    assert!(owner(block).contains("/files inode "), "{}", owner(block));
    let past = fs::metadata(&image).unwrap().len() / 4096 + 1000;
    let blocks = format!("no file uses block {past}: the image has ");
    assert!(owner(past).starts_with(&blocks), "{}", owner(past));
    assert_eq!(ferofs!("inspect --path /missing", &image).run().code, 1);
}

/// Names that try to end the script element with the data of the page.
const HOSTILE: [&str; 5] = [
    "<script>document.documentElement.dataset.owned = 1<",
    "<img src=x onerror=document.documentElement.dataset.owned=1>",
    "a&lt;b&amp;",
    "quote\"'`${7*7}\u{2028}",
    "back\\slash\nline",
];

#[test]
fn the_html_page_shows_hostile_names_as_text() {
    let fixture = Fixture::empty();
    for name in HOSTILE {
        fixture.write(name, name.repeat(100));
    }
    // The path of this file contains the end tag of a script element.
    fs::create_dir(fixture.source().join("<")).unwrap();
    fixture.write("</script><b>bold", "x".repeat(9000));
    fixture.write("text", "words and words, ".repeat(20_000));
    let image = fixture.build("image", ["--compress", "lz4"]);
    let page = fixture.path("page.html");
    ferofs!("inspect --html", &page, &image).success();
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("</script>").count(), 2, "of the data, and of the script");
    assert!(!html.contains("<img") && !html.contains("<b>bold"), "names are escaped");
    for address in ["http://", "https://", "url(", "@import"] {
        let own = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(address), "{address}: the page loads nothing");
    }
    let Some(browser) = need::tool("chromium") else { return };
    let dom = web::page(&browser, &fixture.path("profile"), &format!("file://{}", page.display()));
    // The script of the page ran to its end, and no name was executed as a script.
    assert!(dom.contains("data-drawn=\""), "{dom}");
    assert!(!dom.contains("data-owned"), "a name was executed");
    assert!(dom.contains("&lt;img src=x onerror="), "names are shown as text");
    for id in
        ["id=\"tree\"", "id=\"map\"", "id=\"sizes\"", "class=\"bar\"", "aria-sort=\"descending\""]
    {
        assert!(dom.contains(id), "{id}");
    }
    // The legend of the tree names the largest entry; each bar has its size and its number.
    let (_, legend) = dom.split_once("id=\"tree-legend\"").unwrap();
    let (legend, _) = legend.split_once("</ul>").unwrap();
    assert!(legend.contains("</i>text <span"), "{legend}");
    let (_, sizes) = dom.split_once("id=\"sizes\"").unwrap();
    let (sizes, _) = sizes.split_once("</div>").unwrap();
    let count = |word| sizes.matches(word).count();
    assert!(count("class=\"bar\"") > 0 && count("<span") == 2 * count("class=\"bar\""), "{sizes}");
    assert!(
        dom.contains("id=\"comparison\"") && dom.contains("aria-labelledby=\"h-compare\" hidden"),
        "{dom}"
    );
}

/// The share of a file in the packed inode changes with its neighbours: only files with another
/// content are listed.
#[test]
fn a_comparison_lists_changed_files_only() {
    let fixture = Fixture::empty();
    let write = |name: &str, content: String| fixture.write(name, content);
    let numbers = |count: u32| {
        (0..count).map(|n| n.wrapping_mul(0x9e37_79b9).to_string()).collect::<String>()
    };
    write("same.txt", "the same words ".repeat(1000));
    write("other.txt", "a".repeat(3000));
    write("grows\x1b[31m.txt", numbers(10));
    let old = fixture.build("old", ["-T0"]);
    write("other.txt", "b".repeat(3000));
    write("grows\x1b[31m.txt", numbers(3000));
    let new = fixture.build("new", ["-T0"]);
    let compare = || ferofs!("inspect --compare", &old, &new);
    let text = compare().success().text();
    assert!(text.contains("files  0 added, 0 removed, 2 changed\n"), "{text}");
    let (_, files) = text.split_once("change  file\n").unwrap();
    let first = files.lines().next().unwrap();
    assert!(first.contains(" +") && first.ends_with("/grows\\x1b[31m.txt"), "{text}");
    assert!(!text.contains("same.txt"), "{text}");
    let page = compare().args(["--html", "-"]).success().text();
    let (_, comparison) = page.split_once("\"compare\":{").unwrap();
    let (comparison, _) = comparison.split_once("\"kinds\"").unwrap();
    assert!(comparison.contains("grows") && !comparison.contains("same.txt"), "{comparison}");
    let same = String::from_utf8(ferofs!("inspect --compare", &old, &old).success().stdout);
    assert!(same.unwrap().ends_with("files  0 added, 0 removed, 0 changed\n"));
}

#[test]
fn the_html_page_shows_what_grew() {
    let fixture = Fixture::empty();
    let random = |len: usize| {
        (0..len as u64)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect::<Vec<_>>()
    };
    fs::create_dir_all(fixture.source().join("lib/deep")).unwrap();
    fixture.write("lib/deep/grows.bin", random(10_000));
    fixture.write("<i>removed.txt", random(50_000));
    let old = fixture.build("old", ["--compress", "none"]);
    fixture.write("lib/deep/grows.bin", random(500_000));
    fs::remove_file(fixture.source().join("<i>removed.txt")).unwrap();
    fixture.write("added", random(9000));
    let new = fixture.build("new", ["--compress", "none"]);
    let page = fixture.path("page.html");
    let inspect = || ferofs!("inspect --html", &page, "--compare", &old, &new).run();
    inspect().success();
    let html = fs::read_to_string(&page).unwrap();
    // `lib` is left out: only `lib/deep` changed in it.
    for part in [
        r#""added":1,"changed":1,"#,
        r#""directories":[["/lib/deep",10000,500000],"#,
        r#""extensions":[["bin",10000,500000],"#,
        r#""files":[["lib/deep/grows.bin",10000,500000],["\u003ci\u003eremoved.txt",50000,0],["added",0,9000]]"#,
        r#""kinds":[["stored","#,
        r#""removed":1,"#,
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    // The old image is not an output.
    let refused = ferofs!("inspect --force --html", &old, "--compare", &old, &new).run();
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    refused.says("is also an input");
    let Some(browser) = need::tool("chromium") else { return };
    let dom = web::page(&browser, &fixture.path("profile"), &format!("file://{}", page.display()));
    assert!(dom.contains("data-drawn=\""), "the script ended early: {dom}");
    let (_, shown) = dom.split_once("Compared with old").unwrap();
    for text in [
        "class=\"path\">/lib/deep<",
        "class=\"n grew\">+478.5 KiB<",
        "class=\"path\">/&lt;i&gt;removed.txt<",
        "class=\"n shrank\">−48.8 KiB<",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn diff_has_the_exit_codes_of_diff_1() {
    let (fixture, image) = Fixture::small_image();
    let diff = |args: &[&Path]| ferofs!("diff").args(args).run();
    assert_eq!(diff(&[&image, &image]).success().stdout, b"");
    let ignored: &[&str] = if need::is_root() { &[] } else { &["--ignore=owner,xattrs"] };
    let same = ferofs!("diff").args(ignored).args([&image, &fixture.source()]).run();
    assert_eq!((same.code, text(&same.stdout)), (0, String::new()), "{}", same.stderr);

    let [linked, copied] = ["linked", "copied"].map(|name| fixture.directory(name));
    for dir in [&linked, &copied] {
        fs::write(dir.join("one"), "same").unwrap();
    }
    fs::hard_link(linked.join("one"), linked.join("two")).unwrap();
    fs::write(copied.join("two"), "same").unwrap();
    let links = |options: &[&str]| {
        ferofs!("diff --ignore=times").args(options).args([&linked, &copied]).run()
    };
    assert_eq!((links(&[]).code, text(&links(&[]).stdout).contains("~ /two: links\n")), (1, true));
    assert!(text(&links(&["--json"]).stdout).contains(r#""what":["links"]"#));
    assert_eq!(links(&["--ignore=links"]).code, 0);

    let other = fixture.directory("other");
    fs::write(other.join("added"), "12345").unwrap();
    chmod(other.join("added"), 0o600);
    symlink("a\x1b[31m", other.join("link")).unwrap();
    let second = fixture.path("second");
    ferofs!("build", &other, &second).success();
    let changed = diff(&[&image, &second]);
    assert_eq!(changed.code, 1);
    assert!(text(&changed.stdout).contains("+ /added (5 B)\n"), "{}", text(&changed.stdout));
    let json = ferofs!("diff --json", &second, &image).run();
    assert_eq!(json.code, 1);
    assert!(text(&json.stdout).contains(r#""change":"removed""#));
    let quiet = ferofs!("diff -q", &second, &image).run();
    assert_eq!((quiet.code, quiet.stdout.as_slice()), (1, &b""[..]));
    assert_eq!(diff(&[&image, &fixture.path("missing")]).code, 2);
    assert_eq!(diff(&[&image]).code, 2);
}
