//! The guide's tables for users of squashfs-tools, erofs-utils and DwarFS: they have each option of
//! the other tool, and name only options of ferofs that exist.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Run, ferofs, need};

/// The pages.
const PAGES: [&str; 3] = ["squashfs-tools.md", "erofs-utils.md", "dwarfs.md"];
/// Commands of ferofs whose options the tables may name.
const COMMANDS: [&[&str]; 13] = [
    &[],
    &["build"],
    &["mount"],
    &["check"],
    &["extract"],
    &["inspect"],
    &["diff"],
    &["ls"],
    &["cat"],
    &["patch", "create"],
    &["patch", "add"],
    &["pull"],
    &["push"],
];

#[test]
fn the_table_has_each_option_of_mksquashfs() {
    let Some(mksquashfs) = peer("mksquashfs") else { return };
    let help = Run::new(mksquashfs).arg("-help-all").try_run().unwrap();
    let help = help.text();
    // Options begin a line; further lines of a text are indented.
    let options: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word[1..].chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
        .collect();
    assert!(options.len() > 80, "{options:?}");
    assert_all_are_in("squashfs-tools.md", &options);
}

/// Words that the parser would take for several short options.
#[test]
fn each_option_of_mksquashfs_gets_a_tip() {
    let text = fs::read_to_string(guide().join("squashfs-tools.md")).unwrap();
    let mut count = 0;
    for option in first_cells(&text).filter(|option| option.len() > 2) {
        // `-h...` show the help.
        if !option.starts_with("-h") && !["-version", "-no-pager", "-cols"].contains(&option) {
            let refused = ferofs!("build SOURCE IMAGE", option).run();
            refused.fails(2, "tip: ");
            count += 1;
        }
    }
    assert!(count > 90, "{count}");
}

#[test]
fn the_table_has_each_option_of_mkfs_erofs() {
    let Some(mkfs) = peer("mkfs.erofs") else { return };
    let help = Run::new(mkfs).arg("--help").try_run().unwrap();
    let help = help.text();
    let mut options = Vec::new();
    for line in help.lines().filter(|line| line.starts_with(' ')) {
        let word = line.split_whitespace().next().unwrap_or_default().trim_end_matches(',');
        let indent = line.len() - line.trim_start().len();
        if let Some(long) = word.strip_prefix("--").filter(|_| indent < 8) {
            let end =
                long.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(long.len());
            options.push(&word[..end + 2]);
        } else if word.starts_with('-') && word.len() > 1 && indent < 3 {
            options.push(&word[..2]);
        }
    }
    assert!(options.len() > 45, "{options:?}");
    assert_all_are_in("erofs-utils.md", &options);
}

#[test]
fn the_counterparts_are_options_of_ferofs() {
    let help: String =
        COMMANDS.iter().map(|words| ferofs().args(*words).arg("--help").run().text()).collect();
    let known: BTreeSet<&str> =
        help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let mut unknown = Vec::new();
    let mut count = 0;
    for page in PAGES {
        let text = fs::read_to_string(guide().join(page)).unwrap();
        for row in text.lines().filter(|line| line.starts_with("| `-")) {
            let cell = row.split(" | ").nth(1).unwrap_or_default();
            for flag in cell.split('`').skip(1).step_by(2).flat_map(str::split_whitespace) {
                let end = flag
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                    .unwrap_or(flag.len());
                let flag = &flag[..end];
                if flag.starts_with('-') && flag.len() > 1 {
                    count += 1;
                    let is_level = flag.len() == 2 && flag.as_bytes()[1].is_ascii_digit();
                    if !is_level && !known.contains(flag) {
                        unknown.push(format!("{page}: {flag}"));
                    }
                }
            }
        }
    }
    assert!(count > 60, "{count}");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn an_option_without_a_counterpart_has_a_reason() {
    let mut count = 0;
    for page in PAGES {
        let text = fs::read_to_string(guide().join(page)).unwrap();
        for row in
            text.lines().filter(|line| line.starts_with("| `-") && line.contains(" | none | "))
        {
            count += 1;
            let reason = row.split(" | none | ").nth(1).unwrap().trim_matches(['|', ' ']);
            assert!(!reason.is_empty(), "{page}: {row}");
        }
    }
    assert!(count > 30, "{count}");
}

fn assert_all_are_in(page: &str, options: &[&str]) {
    let text = fs::read_to_string(guide().join(page)).unwrap();
    let named: BTreeSet<&str> = first_cells(&text).collect();
    // erofs-utils writes a value directly after a short option: `-zX`.
    let has_value = |name: &&&str, option: &str| {
        name.strip_prefix(option).is_some_and(|value| {
            option.len() == 2 && value.starts_with(|c: char| c.is_ascii_uppercase())
        })
    };
    let is_named =
        |option: &str| named.contains(option) || named.iter().any(|name| has_value(&name, option));
    let missing: Vec<&&str> = options.iter().filter(|option| !is_named(option)).collect();
    assert!(missing.is_empty(), "{page}: {missing:?}");
}

/// The options in the first column of the tables.
fn first_cells(text: &str) -> impl Iterator<Item = &str> {
    let cells = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(|code| {
        let end = code.find([' ', '[', '=', '#', '<']).unwrap_or(code.len());
        &code[..end]
    })
}

/// The newest version of another tool, which `cargo xtask peers` installs: older ones do not have
/// all options, and other help texts.
fn peer(name: &str) -> Option<PathBuf> {
    let path = env::var_os("FEROFS_PEERS").map(|bin| Path::new(&bin).join(name));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        need::lacks(need::PEERS);
    }
    path
}

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/guide")
}
