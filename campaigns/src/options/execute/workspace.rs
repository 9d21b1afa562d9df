//! The directory (in memory) in which the commands of a case run, and the log of the commands.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use ferofs_tests::{Outcome, Run, run, scratch_in_memory};
use tempfile::TempDir;

/// A command that takes longer hangs: the slowest takes much less, even on a busy machine.
const HANG: Duration = Duration::from_secs(150);
/// The limit on a command's processor time: the trees have a few MB.
const CPU: Duration = Duration::from_secs(60);

/// A defect: the oracle that found it, and its message.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) oracle: &'static str,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(oracle: &'static str, message: impl Into<String>) -> Self {
        Self { oracle, message: message.into() }
    }

    /// A key for findings with the same cause: the message without names and numbers.
    pub(crate) fn key(&self) -> String {
        let plain =
            |word: &&str| !word.contains(|c: char| c.is_ascii_digit() || "/\\\"'".contains(c));
        let words: Vec<&str> = self.message.split_whitespace().filter(plain).take(12).collect();
        format!("{}: {}", self.oracle, words.join(" "))
    }
}

/// The reason why a case ends early.
pub(crate) enum Stop {
    Found(Finding),
    /// An error of the machine, not of ferofs.
    Failed(anyhow::Error),
}

impl From<Finding> for Stop {
    fn from(finding: Finding) -> Self {
        Self::Found(finding)
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The directory of one worker.
pub(crate) struct Workspace {
    dir: TempDir,
    /// The commands of this case, as shell command lines.
    pub(crate) log: Vec<String>,
    allowed: BTreeSet<OsString>,
}

impl Workspace {
    pub(crate) fn new() -> Result<Self> {
        let dir = scratch_in_memory();
        fs::create_dir(dir.path().join("bin"))?;
        std::os::unix::fs::symlink(run::ferofs_path(), dir.path().join("bin/mkfs.erofs"))?;
        Ok(Self { dir, log: Vec::new(), allowed: BTreeSet::new() })
    }

    /// The directory in which commands run.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    /// Starts a case: removes everything, and creates the mount point.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let work = self.work();
        if work.exists() {
            fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
        }
        fs::create_dir(&work)?;
        self.log.clear();
        self.allowed.clear();
        self.directory("mnt")?;
        Ok(())
    }

    /// Creates an empty directory of this name.
    pub(crate) fn directory(&mut self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        self.allow(name);
        Ok(path)
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.allow(name);
        Ok(fs::write(self.path(name), content)?)
    }

    /// Allows a file of this name from now on.
    pub(crate) fn allow(&mut self, name: &str) {
        self.allowed.insert(name.into());
    }

    /// Runs `ferofs`, or `mkfs.erofs` where that is the first word, with standard input from
    /// `input`. A crash, a hang, a missing error message or a leftover file is a finding.
    pub(crate) fn ferofs(
        &mut self,
        words: &[OsString],
        input: Option<&str>,
    ) -> Result<Outcome, Stop> {
        let (program, words) = match words {
            [first, rest @ ..] if first == "mkfs.erofs" => {
                (self.dir.path().join("bin/mkfs.erofs"), rest)
            }
            words => (run::ferofs_path().to_owned(), words),
        };
        let outcome = self.call(&program, words, input)?;
        let said = || {
            let lines: Vec<&str> = outcome.stderr.lines().collect();
            format!("exit {}: {}", outcome.code, lines[lines.len().saturating_sub(3)..].join(" | "))
        };
        if outcome.stderr.contains("panicked") || outcome.code == 101 {
            return Err(Finding::new("panic", said()).into());
        }
        if outcome.code == 137 || outcome.cpu > CPU {
            return Err(Finding::new(
                "hang",
                format!("{} s of processor time", outcome.cpu.as_secs()),
            )
            .into());
        }
        if outcome.code >= 128 {
            return Err(Finding::new("signal", said()).into());
        }
        // The argument parser prints errors in its own format.
        let explained = outcome.has_error_message() || outcome.stderr.starts_with("error: ");
        if outcome.code != 0
            && !explained
            && words.first().is_none_or(|word| word != "check" && word != "diff")
        {
            return Err(Finding::new("message", said()).into());
        }
        if let Some(left) = self.leftover()? {
            return Err(
                Finding::new("leftover", format!("{left} is left behind, {}", said())).into()
            );
        }
        Ok(outcome)
    }

    /// Runs any program, and adds it to the log.
    pub(crate) fn call(
        &mut self,
        program: &Path,
        words: &[OsString],
        input: Option<&str>,
    ) -> Result<Outcome, Stop> {
        let mut line = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for word in words {
            line = format!("{line} {}", quoted(word));
        }
        let mut run = Run::limited(program, None, HANG).args(words).dir(self.work());
        if let Some(input) = input {
            line = format!("{line} < {input}");
            run = run.input(fs::File::open(self.path(input))?);
        }
        self.log.push(line);
        Ok(run.try_run()?)
    }

    /// Runs a tool that must succeed.
    pub(crate) fn tool(
        &mut self,
        program: &str,
        words: &[&str],
        input: Option<&str>,
    ) -> Result<Outcome, Stop> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let outcome = self.call(Path::new(program), &words, input)?;
        if outcome.code != 0 {
            return Err(
                anyhow::anyhow!("{program}: exit {}: {}", outcome.code, outcome.stderr).into()
            );
        }
        Ok(outcome)
    }

    fn leftover(&self) -> Result<Option<String>> {
        for entry in fs::read_dir(self.work())? {
            let name = entry?.file_name();
            if !self.allowed.contains(&name) {
                return Ok(Some(name.to_string_lossy().into_owned()));
            }
        }
        Ok(None)
    }
}

/// A word in the syntax of a shell.
fn quoted(word: &OsStr) -> String {
    let bytes = word.as_encoded_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./,=:+@".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.to_string_lossy().into_owned();
    }
    let escaped: String = bytes
        .iter()
        .map(|byte| {
            if plain(byte) || *byte == b' ' {
                char::from(*byte).to_string()
            } else {
                format!("\\x{byte:02x}")
            }
        })
        .collect();
    format!("$'{escaped}'")
}
