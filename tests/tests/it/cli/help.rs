//! Help of each command: `-h` fits on a screen, a command's own options come first, and manual
//! pages and completions have the same.

use std::fs;
use std::os::unix::fs::symlink;

use ferofs_tests::{Run, ferofs, ferofs_path};

use crate::common::fixture::Fixture;

/// The most lines of `-h`.
const LINES: usize = 40;
/// Groups that several commands have, in the order of help. Those of a command itself come before
/// them.
const GROUPS: [&str; 4] = ["Image:", "Images on servers:", "Servers:", "Output:"];

fn help(words: &[String], option: &str, columns: &str) -> String {
    let run = ferofs().args(words).arg(option).env("COLUMNS", columns);
    run.success().text()
}

/// All commands and their subcommands, as the help lists them.
fn commands() -> Vec<Vec<String>> {
    let (mut all, mut pending) = (Vec::new(), vec![Vec::new()]);
    while let Some(command) = pending.pop() {
        let text = help(&command, "-h", "100");
        let list = text.split("Commands:\n").nth(1).unwrap_or_default();
        let names = list.lines().take_while(|line| !line.is_empty());
        let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        for name in
            names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
        {
            pending.push([&command[..], &[name.to_owned()]].concat());
        }
        all.push(command);
    }
    all
}

#[test]
fn the_short_help_of_each_command_fits_on_a_screen() {
    let commands = commands();
    assert!(commands.len() > 30, "{commands:?}");
    for words in &commands {
        for columns in ["80", "100"] {
            let text = help(words, "-h", columns);
            let lines = text.lines().count();
            assert!(lines <= LINES, "{words:?} has {lines} lines at {columns} columns:\n{text}");
        }
        // It says how to see the rest.
        let rest = ["ferofs"]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ");
        assert!(help(words, "-h", "200").contains(&format!("`{rest} --help`")), "{words:?}");
    }
    let fixture = Fixture::empty();
    // Scripts search the help of mkfs.erofs for options, so its `-h` is complete.
    for name in ["fsck.erofs", "dump.erofs", "erofsfuse", "mount.erofs"] {
        let program = fixture.path(name);
        symlink(ferofs_path(), &program).unwrap();
        let text = Run::new(program).arg("-h").env("COLUMNS", "80").success().stdout;
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().count() <= LINES, "{name}:\n{text}");
    }
}

#[test]
fn own_options_come_first_and_those_of_output_last() {
    for words in commands() {
        let text = help(&words, "--help", "100");
        let is_title =
            |line: &&str| line.ends_with(':') && !line.starts_with(' ') && *line != "Examples:";
        let titles: Vec<&str> = text.lines().filter(is_title).collect();
        let shared = |title: &str| GROUPS.iter().position(|group| *group == title);
        let order: Vec<usize> = titles.iter().filter_map(|title| shared(title)).collect();
        assert!(order.is_sorted(), "{words:?}: {titles:?}");
        if let Some(first) = titles.iter().position(|title| shared(title).is_some()) {
            assert!(
                titles[first..].iter().all(|title| shared(title).is_some()),
                "{words:?}: {titles:?}"
            );
        }
        // Each option is in the group to which it belongs.
        for (option, group) in [
            ("--offset <BYTES>\n", "Image:"),
            ("--work-limit <", "Image:"),
            ("--cache-size <", "Images on servers:"),
            ("--insecure-tls\n", "Servers:"),
            ("--strict\n", "Output:"),
            ("--json\n", "Output:"),
            ("--deep\n", "Options:"),
            ("--sums\n", "Options:"),
            ("--lazy\n", "Options:"),
            ("--recursive\n", "Options:"),
            ("--patch <", "Options:"),
            ("--skip-existing\n", "Options:"),
        ] {
            let Some(at) = text.find(option).filter(|_| words != ["build"]) else { continue };
            let title = text[..at].lines().rfind(is_title);
            assert_eq!(title, Some(group), "{words:?}: {option}");
        }
    }
}

#[test]
fn a_short_option_of_sizes_asks_for_help_if_it_is_alone() {
    for command in ["ls", "du"] {
        let text = ferofs().args([command, "-h"]).success().text();
        assert!(text.contains("Usage: ferofs") && text.contains("--human-readable"), "{text}");
    }
}

#[test]
fn manual_pages_have_examples_exit_codes_and_other_pages() {
    let fixture = Fixture::empty();
    let dir = fixture.path("man");
    ferofs!("man", &dir).success();
    let mut pages = 0;
    for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
        let (name, page) = (entry.file_name(), fs::read_to_string(entry.path()).unwrap());
        pages += 1;
        // Nothing is printed before the first section.
        let start = page.split(".SH NAME").next().unwrap();
        assert!(start.lines().all(|line| line.starts_with('.')), "{name:?}: {start}");
        let order: Vec<Option<usize>> =
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "\"SEE ALSO\""]
                .map(|title| page.find(&format!("\n.SH {title}\n")))
                .to_vec();
        let order: Vec<usize> = order.into_iter().flatten().collect();
        assert!(order.len() >= 5 && order.is_sorted(), "{name:?}: {order:?}");
    }
    assert!(pages > 35, "{pages}");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let build = read("ferofs-build.1");
    for title in ["EXAMPLES", "FILES", "SOURCES", "OUTPUT", "\"METADATA AND LAYOUT\""] {
        assert!(build.contains(&format!("\n.SH {title}\n")), "{title}");
    }
    assert!(read("ferofs-check.1").contains("damaged"));
    assert!(
        read("ferofs-check.1").contains("Make warnings errors"),
        "options that -h does not show have a text"
    );
    assert!(read("mkfs.erofs.1").contains("\n.SH EXAMPLES\n"));
}

#[test]
fn completions_know_values_and_the_names_of_erofs_utils() {
    let script = |args: &[&str]| ferofs!("completions").args(args).success().text();
    for shell in ["bash", "zsh", "fish"] {
        let text = script(&[shell]);
        for value in ["lz4hc", "smallest", "ztailpacking"] {
            assert!(text.contains(value), "{shell}: {value}");
        }
        for name in ["mkfs.erofs", "fsck.erofs", "dump.erofs", "erofsfuse", "mount.erofs"] {
            let text = script(&[shell, name]);
            assert!(text.contains(name) && text.contains("offset"), "{shell} {name}");
        }
    }
    assert!(script(&["bash", "mkfs.erofs"]).contains("lz4 lz4hc"));
    assert_eq!(ferofs!("completions bash other").run().code, 2);
}
