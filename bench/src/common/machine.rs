//! Where and with which versions was measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Facts by name: the date, the kernel, the processor, the load, and the first line with a number that each program prints with an
/// option.
pub(crate) fn describe(programs: &[(&str, &Path, &str)]) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, command: &mut Command| -> Result<()> {
        let output = command.output().with_context(|| name.to_owned())?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        // Some programs print their help, too.
        let line = text.lines().find(|line| line.contains(|char: char| char.is_ascii_digit()));
        all.insert(name.to_owned(), line.unwrap_or_default().trim().to_owned());
        Ok(())
    };
    let processor = "n=$(grep -c '^processor' /proc/cpuinfo); echo \"$n cores of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)\"";
    for (name, script) in [
        ("date", "date -u +%F"),
        ("kernel", "uname -sr"),
        ("processor", processor),
        ("load at the start", "cut -d' ' -f1-3 /proc/loadavg"),
    ] {
        add(name, Command::new("sh").args(["-c", script]))?;
    }
    for (name, program, option) in programs {
        add(name, Command::new(program).arg(option))?;
    }
    Ok(all)
}
