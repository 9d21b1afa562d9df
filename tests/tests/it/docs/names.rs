//! The documents name only things that exist: links, paths, commands, options, tests and modules.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::ferofs;

/// Folders of the repository: quoted text that starts with one of them is a path.
const FOLDERS: [&str; 8] =
    ["crates/", "docs/", "tests/", "xtask/", "bench/", "devtools/", "campaigns/", "fuzz/"];

/// Crates whose modules DESIGN.md and READING.md name as `crate::module`, and their folders.
const CRATES: [(&str, &str); 12] = [
    ("format", "crates/format/src"),
    ("codec", "crates/codec/src"),
    ("read", "crates/read/src"),
    ("host", "crates/host/src"),
    ("write", "crates/write/src"),
    ("update", "crates/update/src"),
    ("ferofs", "crates/ferofs/src"),
    ("fuse", "crates/fuse/src"),
    ("cli", "crates/cli/src"),
    ("threads", "crates/threads/src"),
    ("serve", "crates/serve/src"),
    ("verity", "crates/verity/src"),
];

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (target, section) = link.split_once('#').unwrap_or((link, ""));
            let file =
                if target.is_empty() { page.clone() } else { page.parent().unwrap().join(target) };
            let has_section = || {
                section.is_empty()
                    || sections(&fs::read_to_string(&file).unwrap()).contains(section)
            };
            if !file.exists() || !has_section() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(links >= 5, "the search for links finds {links}");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The names by which links reach the headings of a page.
fn sections(page: &str) -> BTreeSet<String> {
    let headings = page
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let name = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

#[test]
fn the_book_has_every_page_and_no_link_leaves_it() {
    let docs = repository().join("docs").canonicalize().unwrap();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut wrong = Vec::new();
    for page in pages().iter().filter(|page| page.starts_with(repository().join("docs"))) {
        let name = page.canonicalize().unwrap().strip_prefix(&docs).unwrap().display().to_string();
        if name != "SUMMARY.md" && !summary.contains(&format!("]({name})")) {
            wrong.push(format!("{name} is not in SUMMARY.md"));
        }
        let text = fs::read_to_string(page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let file = page.parent().unwrap().join(target);
            if !target.contains("://")
                && file.canonicalize().is_ok_and(|file| !file.starts_with(&docs))
            {
                wrong.push(format!("{name}: {target} is not in the book"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_path_exists() {
    let mut paths = 0;
    let mut missing = Vec::new();
    for page in current_pages() {
        let page = Page::read(&page);
        for path in page.quoted.iter().filter_map(|quoted| quoted.split_whitespace().next()) {
            // The name of a folder without a slash may be an ordinary word.
            if !FOLDERS.iter().any(|folder| path.starts_with(folder)) || path.contains(['*', '<']) {
                continue;
            }
            paths += 1;
            if !repository().join(path).exists() {
                missing.push(format!("{}: {path}", page.name));
            }
        }
    }
    assert!(paths > 30, "the search for paths finds {paths}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_module_exists() {
    let mut modules = 0;
    let mut missing = Vec::new();
    for name in ["docs/DESIGN.md", "docs/READING.md"] {
        let text = fs::read_to_string(repository().join(name)).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':' && c != '_');
        for word in words.map(|word| word.trim_end_matches(':')) {
            let Some((krate, rest)) = word.split_once("::") else { continue };
            let Some((_, folder)) = CRATES.iter().find(|(name, _)| *name == krate) else {
                continue;
            };
            // rustdoc checks types and their functions.
            if rest.contains(|c: char| c.is_ascii_uppercase()) {
                continue;
            }
            modules += 1;
            let file = repository().join(folder).join(rest.replace("::", "/"));
            if !file.with_extension("rs").exists() && !file.join("mod.rs").exists() {
                missing.push(format!("{name}: {word}"));
            }
        }
    }
    assert!(modules > 15, "the search for modules finds {modules}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_ferofs_command_is_known() {
    let mut help = Help::default();
    let mut commands = 0;
    let mut unknown = Vec::new();
    for page in current_pages() {
        let page = Page::read(&page);
        for line in page.commands("ferofs ") {
            // What follows is another program.
            let line = [" | ", " && ", " || ", "; "]
                .iter()
                .fold(line, |line, end| line.split(end).next().unwrap_or(line));
            let mut words: Vec<&str> = line.split_whitespace().skip(1).collect();
            let names = words.iter().take_while(|word| is_name(word)).count();
            // Only these have subcommands; a word after another command is an argument.
            let has_subcommands =
                matches!(words.first(), Some(&("cache" | "delta" | "patch" | "verity")));
            let names = if has_subcommands { names.min(2) } else { names.min(1) };
            let flags = words.split_off(names);
            if words.is_empty() {
                continue;
            }
            commands += 1;
            match help.of(&words) {
                None => unknown.push(format!("{}: {line}", page.name)),
                Some(text) => {
                    for flag in flags.iter().filter_map(|word| flag(word)) {
                        if !has_word(text, flag) {
                            unknown.push(format!("{}: {line}: {flag}", page.name));
                        }
                    }
                }
            }
        }
    }
    assert!(commands > 50, "the search for commands finds {commands}");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn every_xtask_command_is_known() {
    let [usage, benches] = ["xtask/src/main.rs", "bench/src/main.rs"]
        .map(|file| fs::read_to_string(repository().join(file)).unwrap());
    let lines: Vec<&str> = usage.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    // A variant of the type that is parsed.
    let is_bench = |name: &str| {
        let (first, rest) = name.split_at(1);
        let variant = format!("    {}{rest}", first.to_uppercase());
        benches.lines().any(|line| {
            line.strip_prefix(&variant).is_some_and(|rest| rest.starts_with(['(', ',']))
        })
    };
    let code = code(&["xtask", "bench", "campaigns", "crates/codec/benches"]);
    let mut commands = 0;
    let mut unknown = Vec::new();
    for page in current_pages() {
        let page = Page::read(&page);
        for line in page.commands("cargo xtask ") {
            let words: Vec<&str> = line.split_whitespace().skip(2).collect();
            // `help` prints the usage, which does not list `help` itself.
            let Some(name) = words.first().filter(|word| is_name(word) && **word != "help") else {
                continue;
            };
            commands += 1;
            let of_name: Vec<&str> =
                lines.iter().copied().filter(|line| line.split(' ').next() == Some(name)).collect();
            let second = words.get(1).filter(|word| is_name(word));
            let known = second.is_none_or(|second| {
                of_name.iter().any(|line| has_word(line, second))
                    || *name == "bench" && is_bench(second)
            });
            if of_name.is_empty() || !known {
                unknown.push(format!("{}: {line}", page.name));
            }
            for flag in words.iter().filter_map(|word| flag(word)) {
                // A literal, or a field of a type that is parsed.
                let field = format!("    {}: ", flag.trim_start_matches('-').replace('-', "_"));
                if !has_word(&code, flag) && !code.contains(&field) {
                    unknown.push(format!("{}: {line}: {flag}", page.name));
                }
            }
        }
    }
    assert!(commands > 20, "the search for commands finds {commands}");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn the_table_of_rules_has_every_name() {
    let code = fs::read_to_string(repository().join("crates/format/src/error.rs")).unwrap();
    let (_, arms) = code.split_once("pub const fn rule(&self)").unwrap();
    let names: BTreeSet<&str> =
        arms.split("\n    }").next().unwrap().split('"').skip(1).step_by(2).collect();
    let page = fs::read_to_string(repository().join("docs/CLI.md")).unwrap();
    let (_, table) = page.split_once("\n| rule | broken if |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let listed = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2));
    assert_eq!(listed.collect::<BTreeSet<_>>(), names);
}

#[test]
fn the_index_lists_every_decision() {
    let index = fs::read_to_string(repository().join("docs/decisions/README.md")).unwrap();
    for entry in fs::read_dir(repository().join("docs/decisions")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "README.md" || index.contains(&format!("({name})")),
            "{name} is not in the index"
        );
    }
}

#[test]
fn every_page_says_who_its_readers_are() {
    for page in current_pages() {
        let name = page.file_name().unwrap();
        // The front page is for everybody, SUMMARY.md is mdBook's list of pages, and a decision has
        // its own form.
        let is_exempt = name == "README.md" && page.parent() == Some(repository())
            || name == "SUMMARY.md"
            || name.to_string_lossy().starts_with(|c: char| c.is_ascii_digit());
        let text = fs::read_to_string(&page).unwrap();
        let first = text.split("\n\n").nth(1).unwrap_or_default();
        assert!(is_exempt || first.starts_with("For "), "{} starts with {first:?}", page.display());
    }
}

/// A page's quoted text: between single backticks, and in code blocks.
struct Page {
    name: String,
    quoted: Vec<String>,
    code: Vec<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let name = path.strip_prefix(repository()).unwrap().display().to_string();
        let (mut prose, mut code) = (String::new(), Vec::new());
        for (number, block) in fs::read_to_string(path).unwrap().split("```").enumerate() {
            if number % 2 == 0 {
                writeln!(prose, "{block}").unwrap();
            } else {
                let lines = block.lines().map(|line| line.split(" # ").next().unwrap_or_default());
                code.extend(lines.map(|line| line.trim().to_owned()));
            }
        }
        let quoted = prose.split('`').skip(1).step_by(2);
        let quoted =
            quoted.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        Self { name, quoted, code }
    }

    /// The quoted commands that start with `start`.
    fn commands<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.quoted
            .iter()
            .chain(&self.code)
            .map(String::as_str)
            .filter(move |text| text.starts_with(start))
    }
}

/// The text that `ferofs COMMAND --help` prints, by command.
#[derive(Default)]
struct Help(HashMap<String, Option<String>>);

impl Help {
    /// `None` for a command that does not exist.
    fn of(&mut self, words: &[&str]) -> Option<&str> {
        let text = self.0.entry(words.join(" ")).or_insert_with(|| {
            let output = ferofs().args(words).arg("--help").run();
            (output.code == 0).then(|| output.text())
        });
        text.as_deref()
    }
}

/// The flag that a word of a command line starts with, without brackets and value.
fn flag(word: &str) -> Option<&str> {
    let word = word.trim_start_matches('[');
    let len = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(word.len());
    let flag = &word[..len];
    let name = flag.trim_start_matches('-');
    (flag.starts_with('-') && name.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(flag)
}

/// Whether `text` contains `word` as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Whether a word is the name of a command: not a placeholder, a path or an option.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// All Rust code below some folders of the repository.
fn code(folders: &[&str]) -> String {
    let mut code = String::new();
    let mut pending: Vec<PathBuf> =
        folders.iter().map(|folder| repository().join(folder)).collect();
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                pending.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                code += &fs::read_to_string(entry).unwrap();
            }
        }
    }
    code
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn pages() -> Vec<PathBuf> {
    let directories = ["", "docs", "docs/decisions", "docs/guide", "docs/pictures", "docs/results"]
        .map(|directory| repository().join(directory));
    let files = directories.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let paths = files.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// All pages except the changelog: its old entries may name things that do not exist any more.
fn current_pages() -> Vec<PathBuf> {
    pages().into_iter().filter(|page| !page.ends_with("CHANGELOG.md")).collect()
}
