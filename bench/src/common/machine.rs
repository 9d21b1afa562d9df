//! Where, when and with which versions was measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use ferofs_devtools::page;

use crate::published::{self, COSTS};

/// Facts by name.
pub(crate) type Facts = BTreeMap<String, String>;

/// What every page says first, in this order.
const FIRST: [&str; 5] = ["date", "commit", "kernel", "processor", "load at the start"];

/// Date, commit, kernel, processor, the load when this program first asked for it, the versions of
/// `programs`, and the accepted costs that the page of `bench` is compared with.
pub(crate) fn describe<P: AsRef<Path>>(bench: &str, programs: &[(&str, P, &str)]) -> Result<Facts> {
    let mut facts = versions(programs)?;
    let processor = "n=$(grep -c '^processor' /proc/cpuinfo); echo \"$n x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)\"";
    for (name, script) in
        [("date", "date -u +%F"), ("kernel", "uname -sr"), ("processor", processor)]
    {
        facts.insert(name.into(), first_line(Command::new("sh").args(["-c", script]))?);
    }
    facts.insert("commit".into(), page::commit()?);
    facts.insert("load at the start".into(), load()?.to_owned());
    facts.insert(COSTS.into(), published::costs(bench)?);
    Ok(facts)
}

/// The line with the version that each program prints with an option: the first that has a number
/// with a point.
pub(crate) fn versions<P: AsRef<Path>>(programs: &[(&str, P, &str)]) -> Result<Facts> {
    programs
        .iter()
        .map(|(name, program, option)| {
            let line = first_line(Command::new(program.as_ref()).arg(option));
            Ok(((*name).to_owned(), line.with_context(|| (*name).to_owned())?))
        })
        .collect()
}

/// The lines of a page about the facts, then the accepted costs as a comment.
pub(crate) fn list(facts: &Facts) -> String {
    let mut text = String::new();
    let others =
        facts.keys().map(String::as_str).filter(|name| !FIRST.contains(name) && *name != COSTS);
    for name in FIRST.into_iter().chain(others) {
        let value = facts.get(name).map_or("not recorded", String::as_str);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {name}: {value}");
    }
    let costs = facts.get(COSTS).map(String::as_str).unwrap_or_default();
    let _ = writeln!(text, "\n<!-- {COSTS}: {costs} -->");
    text
}

/// Averages of the runnable processes in 1, 5 and 15 minutes, when this program first asked for
/// them.
pub(crate) fn load() -> Result<&'static str> {
    static LOAD: OnceLock<String> = OnceLock::new();
    let text = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    Ok(LOAD.get_or_init(|| text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")))
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // Some programs print their help, too.
    let has_version = |line: &&str| {
        line.as_bytes().windows(3).any(|part| matches!(part, [b'0'..=b'9', b'.', b'0'..=b'9']))
    };
    let line = text.lines().find(has_version).or_else(|| text.lines().next());
    Ok(line.unwrap_or_default().trim().to_owned())
}
