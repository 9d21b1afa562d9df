use clap::Parser as _;

use super::*;
use crate::cmd::Cli;

fn message(words: &[&str]) -> String {
    let args: Vec<OsString> =
        [&["ferofs"], words].concat().into_iter().map(OsString::from).collect();
    with_tips(Cli::try_parse_from(&args).err().unwrap(), &args).to_string()
}

#[test]
fn words_of_other_tools_get_a_tip() {
    for (command, tip) in COMMANDS {
        let message = message(&[command, "IMAGE"]);
        assert!(message.contains(&format!("tip: {tip}")), "{command}: {message}");
    }
    for (command, options, tip) in OPTIONS {
        for option in options.split(' ') {
            let message = message(&[command, option, "A", "B"]);
            assert!(message.contains(&format!("tip: {tip}")), "{command} {option}: {message}");
        }
    }
}

#[test]
fn words_instead_of_a_command_get_a_tip() {
    for (command, tip) in FIRST_COMMANDS {
        let message = message(&[command, "old.erofs", "new.erofs"]);
        assert!(message.contains(&format!("tip: {tip}")), "{message}");
    }
    for words in [&["delta", "create", "A", "B", "d"][..], &["patch", "apply", "A", "B", "C"]] {
        assert!(message(words).contains("tip: `-o FILE`"), "{words:?}");
    }
    let message = message(&["patch", "aply"]);
    assert!(message.contains("tip: a similar subcommand exists: 'apply'"), "{message}");
}

#[test]
fn values_of_another_kind_get_a_tip() {
    let date = message(&["build", "-T", "2026-01-31", "DIR", "IMAGE"]);
    assert!(date.contains("tip: `date -d 2026-01-31 +%s`"), "{date}");
    for words in
        [&["verity", "verify", "IMAGE", "FILE"][..], &["check", "--roothash", "FILE", "IMAGE"]]
    {
        let message = message(words);
        assert!(message.contains("tip: `--roothash-file FILE`"), "{message}");
    }
    let turned = message(&["verity", "verify", &"0a".repeat(32), "IMAGE"]);
    assert!(turned.contains("tip: the root hash comes last"), "{turned}");
}

#[test]
fn unknown_options_get_only_suggestions_that_help() {
    for words in [
        &["check", "--extrakt", "IMAGE"][..],
        &["inspect", "--katalog", "IMAGE"],
        &["build", "--no-progress", "A", "B"],
        &["build", "-qk", "A", "B"],
        &["extract", "--inputs", "A"],
    ] {
        let message = message(words);
        assert!(message.contains("unexpected argument") && !message.contains("tip:"), "{message}");
        assert!(message.contains(&format!("Usage: ferofs {} [OPTIONS]", words[0])), "{message}");
    }
    for (word, suggested) in [
        ("--verbos", "--verbose"),
        ("--exlude", "--exclude"),
        ("--roothashfile", "--roothash-file"),
    ] {
        let message = message(&["build", word, "A", "B"]);
        assert!(
            message.contains(&format!("a similar argument exists: '{suggested}'")),
            "{message}"
        );
    }
}

#[test]
fn options_with_one_dash_get_a_tip_before_they_are_parsed() {
    let error = |words: &[&str]| {
        let args: Vec<OsString> =
            [&["ferofs"], words].concat().into_iter().map(OsString::from).collect();
        option_of_squashfs_tools(&Cli::command(), &args).map(|error| error.to_string())
    };
    for (command, options, tip) in LONG_OPTIONS {
        for option in options.split(' ') {
            let message = error(&[command, "A", "B", option, "0"]).unwrap();
            assert!(
                message.contains(&format!("unexpected argument '{option}' found")),
                "{message}"
            );
            assert!(message.contains(&format!("tip: {tip}")), "{message}");
            assert!(message.contains(&format!("Usage: ferofs {command} [OPTIONS]")), "{message}");
        }
    }
    for words in [
        &["build", "-z", "zstd,15", "-Efragments", "-T0", "-qv", "A", "B"][..],
        &["build", "--", "-tar", "-comp"],
        &["ls", "-all-root"],
        &["build"],
        &[],
    ] {
        assert_eq!(error(words), None, "{words:?}");
    }
}

#[test]
fn errors_do_not_suggest_a_hidden_option() {
    for command in ["ls", "du"] {
        let message = message(&[command, "--shorthelp", "IMAGE"]);
        assert!(
            message.contains("unexpected argument") && !message.contains("--short-help"),
            "{message}"
        );
    }
}

#[test]
fn errors_do_not_suggest_commands_that_only_ferofs_calls() {
    for (typed, suggested) in [("unmount-x", "'umount'"), ("unmount-helpe", "")] {
        let message = message(&[typed]);
        assert!(!message.contains("unmount-helper"), "{message}");
        assert!(message.contains(suggested), "{message}");
    }
}
