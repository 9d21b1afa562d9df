//! A test that the search uses all options of the commands.

#![cfg(test)]

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use ferofs_tests::{Run, run, scratch};

use crate::options::generate::case::{Case, settings_of};
use crate::options::generate::sequence::Step;
use crate::options::generate::settings::Interface;

/// Options that a step uses, not its settings.
const OF_STEPS: &[(&str, &str)] = &[
    ("build", "--from"),
    ("build", "--platform"),
    ("build", "--image-name"),
    ("build", "--index-only"),
    ("build", "--aufs"),
    ("mkfs.erofs", "--aufs"),
    ("mkfs.erofs", "--tar"),
    ("mkfs.erofs", "--ungzip"),
    ("mkfs.erofs", "--unxz"),
    ("mkfs.erofs", "--oci"),
    ("mkfs.erofs", "--sort"),
    ("mkfs.erofs", "--ovlfs-strip"),
    ("mkfs.erofs", "--incremental"),
    ("patch create", "--output"),
    ("patch show", "--files"),
    ("patch log", "--json"),
    ("patch rollback", "--to"),
    ("extract", "--offset"),
    ("extract", "--device"),
    ("extract", "--tar"),
    ("extract", "--metadata"),
    ("extract", "--overwrite"),
    ("extract", "--skip-existing"),
    ("check", "--offset"),
    ("check", "--device"),
    ("check", "--deep"),
    ("check", "--json"),
    ("check", "--workers"),
];

/// Options that the search does not use, with the reason.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("patch apply", "--signature", "the tests of seals use it"),
    ("patch apply", "--cert", "the tests of seals use it"),
    ("build", "--verity", "the tests of seals use it"),
    ("build", "--roothash-file", "the tests of seals use it"),
    ("check", "--roothash", "the tests of seals use it"),
    ("check", "--roothash-file", "tests/it/mount/options.rs"),
    ("extract", "--roothash-file", "tests/it/mount/options.rs"),
    ("check", "--hash-file", "the tests of seals use it"),
    ("check", "--hash-offset", "the tests of seals use it"),
    ("extract", "--roothash", "the tests of seals use it"),
    ("extract", "--hash-file", "the tests of seals use it"),
    ("extract", "--hash-offset", "the tests of seals use it"),
    ("mkfs.erofs", "--gzinfo", "refused always"),
    ("mkfs.erofs", "--s3", "refused always"),
    ("mkfs.erofs", "--vmdk-desc", "describes an image, does not change it"),
    ("mkfs.erofs", "--fs-config-file", "tests/it/write/mkfs.rs has its forms"),
    ("mkfs.erofs", "--product-out", "goes with --fs-config-file"),
    ("build", "--archive-limits", "tests/it/archives/limits.rs: a limit, changes no image"),
    ("mkfs.erofs", "--archive-limits", "tests/it/archives/limits.rs: a limit, changes no image"),
    (
        "patch create",
        "--ignore",
        "tests/it/patch/update.rs: the image then shows neither of the two trees",
    ),
    ("patch add", "--grow-over", "tests/it/patch/faults.rs: needs data after the image"),
    ("patch apply", "--grow-over", "tests/it/patch/faults.rs: needs data after the image"),
    ("patch rollback", "--grow-over", "tests/it/patch/faults.rs: needs data after the image"),
    ("extract", "--work-limit", "tests/it/hostile/huge.rs: a limit, changes no tree"),
    ("check", "--work-limit", "tests/it/hostile/huge.rs: a limit, changes no finding"),
    ("build", "--one-file-system", "tests/it/write/definitions.rs: needs a mount"),
    ("build", "--estimate", "builds nothing: tests/it/write/estimate.rs"),
    ("build", "--pseudo-file", "tests/it/write/definitions.rs"),
    ("build", "--sort", "tests/it/write/definitions.rs"),
    ("build", "--like", "tests/it/write/like.rs: needs an earlier image"),
    ("build", "--like-waste", "goes with --like"),
    ("build", "--versions", "tests/it/write/versions.rs: takes several directories"),
    ("build", "--exclude-from", "tests/it/write/definitions.rs"),
    ("build", "--force", "tests/it/cli/overwrite.rs: no output replaces another kind of file"),
    ("patch create", "--force", "tests/it/cli/overwrite.rs"),
    ("extract", "--force", "tests/it/cli/overwrite.rs"),
    ("patch squash", "--force", "tests/it/cli/overwrite.rs"),
    ("patch create", "--exclude-from", "the same as of build"),
    ("patch create", "--exclude-regex", "the same as of build"),
    ("patch apply", "--json", "tests/it/patch/resume.rs"),
    ("patch squash", "--in-place", "tests/it/patch/squash.rs: gives the same image"),
    ("patch show", "--json", "tests/it/patch/update.rs"),
    ("extract", "--mount-point", "changes only what --metadata writes"),
    ("extract", "--path", "tests/it/read/extract.rs: gives a part of the tree"),
    ("extract", "--nid", "tests/it/read/extract.rs: gives a part of the tree"),
    ("extract", "--include", "tests/it/read/extract.rs: gives a part of the tree"),
    (
        "extract",
        "--no-preserve-owner",
        "tests/it/read/extract.rs: what comes out depends on who extracts",
    ),
    (
        "extract",
        "--no-preserve-perms",
        "tests/it/read/extract.rs: what comes out depends on who extracts",
    ),
];

/// Options of `check` and `extract` that the search does not use: they are only for images on
/// servers.
const OF_SERVERS: &[&str] = &[
    "--cache-dir",
    "--cache-size",
    "--insecure-no-verify",
    "--offline",
    "--reuse",
    "--on-error",
    "--connections",
    "--user",
    "--password-file",
    "--token-file",
    "--netrc",
    "--header",
    "--cacert",
    "--client-cert",
    "--client-key",
    "--insecure-tls",
    "--s3-endpoint",
    "--s3-region",
    "--s3-profile",
    "--s3-passwd-file",
    "--s3-bucket-in",
    "--s3-anonymous",
    "--plain-http",
    "--auth-file",
    "--oci-platform",
    "--oci-layer",
];

/// The options on each line of a command's help: short and long of one option are on one line.
fn options(help: &str) -> Vec<Vec<String>> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-') && indent(line) <= 6);
    let of_line = |line: &str| {
        let column = line.trim_start().split("  ").next().unwrap_or_default();
        let words = column.split([' ', ',', '=', '[', '<']);
        let names = words.filter(|word| word.len() > 1 && word.starts_with('-'));
        // mkfs.erofs writes `-b#` and `-zX` for short options with a value.
        let name = |word: &str| {
            if word.starts_with("--") { word.to_owned() } else { word.chars().take(2).collect() }
        };
        names.map(name).collect::<Vec<_>>()
    };
    lines.map(of_line).filter(|words| !words.is_empty()).collect()
}

fn command(step: &Step) -> &'static str {
    match step {
        Step::Build { interface: Interface::Build, .. } => "build",
        Step::Build { interface: Interface::Mkfs, .. } => "mkfs.erofs",
        Step::Add { .. } => "patch add",
        Step::Patch { .. } => "patch create",
        Step::Rollback { .. } => "patch rollback",
        Step::Squash { .. } => "patch squash",
        Step::Extract { .. } => "extract",
    }
}

#[test]
fn every_option_occurs() {
    let mut used: BTreeSet<(&str, String)> = BTreeSet::new();
    for number in 0..6_000 {
        for mut step in Case::new(1, number).script().steps.into_iter().flatten() {
            let command = command(&step);
            for word in settings_of(&mut step).map(|settings| settings.words()).unwrap_or_default()
            {
                let word = word.to_string_lossy().into_owned();
                let option = word.split('=').next().unwrap_or_default();
                used.insert((command, option.to_owned()));
                // The value of a short option may stand after it without a space.
                if option.starts_with('-') && !option.starts_with("--") {
                    used.insert((command, option.chars().take(2).collect()));
                }
            }
        }
    }
    used.extend(OF_STEPS.iter().map(|(command, option)| (*command, (*option).to_owned())));
    used.extend(LEFT_OUT.iter().map(|(command, option, _)| (*command, (*option).to_owned())));
    for command in ["check", "extract"] {
        used.extend(OF_SERVERS.iter().map(|option| (command, (*option).to_owned())));
    }
    let dir = scratch();
    let mkfs = dir.path().join("mkfs.erofs");
    symlink(run::ferofs_path(), &mkfs).unwrap();
    let mut missing = Vec::new();
    let commands = [
        "build",
        "mkfs.erofs",
        "patch create",
        "patch add",
        "patch apply",
        "patch rollback",
        "patch squash",
        "patch log",
        "patch show",
        "extract",
        "check",
    ];
    for command in commands {
        let run = if command == "mkfs.erofs" {
            Run::new(&mkfs)
        } else {
            Run::new(run::ferofs_path()).args(command.split(' '))
        };
        let help = run.arg("--help").success().stdout;
        let lines = options(&String::from_utf8_lossy(&help));
        for line in &lines {
            let own = ["--help", "--version", "--color", "--strict", "--quiet", "--verbose"];
            if !line.iter().any(|option| {
                own.contains(&option.as_str()) || used.contains(&(command, option.clone()))
            }) {
                missing.push(format!("{command} {line:?}"));
            }
        }
        assert!(!lines.is_empty(), "{command}");
    }
    assert_eq!(missing, [""; 0]);
}
