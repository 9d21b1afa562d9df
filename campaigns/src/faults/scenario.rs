//! The commands to test, each on a small tree, and what must hold after any failure.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ferofs_tests::compare::Options;
use ferofs_tests::{Content, Rng, compare, ferofs, ferofs_path, scratch_in_memory, xattr};
use tempfile::TempDir;

use super::syscalls::Fault;
use super::tracer::Traced;

/// A fixed UUID and time, so that images can be compared byte for byte.
const IDENTITY: [&str; 4] = ["-T", "1700000000", "-U", "0123abcd-0123-4567-89ab-0123456789ab"];

/// The files that all scenarios start from.
pub(crate) struct Fixture {
    dir: TempDir,
}

/// A directory for one run.
pub(crate) struct Attempt<'a> {
    fixture: &'a Fixture,
    dir: TempDir,
}

/// A command, and the kind of its result.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Writes a file, and has the same bytes each time it succeeds.
    Writes { words: &'static [&'static str], over: bool },
    /// Changes an image in place.
    Updates { words: &'static [&'static str], from: &'static str, to: &'static str },
    /// Writes a file, which the command with the option `--resume` completes after a failure.
    Resumes { words: &'static [&'static str] },
    /// Makes a tree.
    Extracts,
    /// Prints, and changes nothing.
    Prints { words: &'static [&'static str] },
}

/// `@NAME` is a file of the fixture, `%NAME` one of the attempt.
pub(crate) const SCENARIOS: &[Scenario] = &[
    writes("build", &["build", "-q", "-z", "lz4", "--workers", "2", "@old", "%out"]),
    writes(
        "build-dedupe",
        &["build", "-q", "-z", "lz4hc", "-E", "dedupe,fragments", "--workers", "2", "@old", "%out"],
    ),
    writes(
        "build-verify",
        &["build", "-q", "-z", "zstd", "-m", "4096", "--verify", "--workers", "2", "@old", "%out"],
    ),
    writes(
        "build-chunks",
        &["build", "-q", "--chunk-size", "4096", "--workers", "2", "@old", "%out"],
    ),
    writes("build-tar", &["build", "-q", "-z", "lz4", "--workers", "2", "@old.tar", "%out"]),
    writes(
        "build-tar-compressed",
        &["build", "-q", "-z", "lz4", "--workers", "2", "@old.tar.gz", "%out"],
    ),
    writes("build-erofs", &["build", "-q", "-z", "lz4", "--workers", "2", "@old.erofs", "%out"]),
    Scenario {
        name: "build-over",
        kind: Kind::Writes {
            words: &["build", "--force", "-q", "-z", "lz4", "--workers", "2", "@old", "%out"],
            over: true,
        },
    },
    writes(
        "patch-create",
        &[
            "patch",
            "create",
            "-T",
            "1700000000",
            "--workers",
            "2",
            "-o",
            "%out",
            "@old.erofs",
            "@new.erofs",
        ],
    ),
    writes("patch-squash", &["patch", "squash", "@patched.erofs", "%out"]),
    writes("extract-tar", &["extract", "-q", "--tar", "%out", "@old.erofs"]),
    writes(
        "delta-create",
        &["delta", "create", "-q", "--workers", "2", "-o", "%out", "@old.erofs", "@new.erofs"],
    ),
    Scenario {
        name: "delta-apply",
        kind: Kind::Resumes { words: &["delta", "apply", "-q", "@old.erofs", "@delta", "%out"] },
    },
    updates("patch-apply", &["patch", "apply", "%image", "@patch"], "old", "new"),
    updates("patch-add", &["patch", "add", "%image", "@more"], "old", "added"),
    updates("patch-rollback", &["patch", "rollback", "%image"], "patched", "old"),
    updates(
        "patch-squash-in-place",
        &["patch", "squash", "--in-place", "%image"],
        "patched",
        "new",
    ),
    Scenario { name: "extract", kind: Kind::Extracts },
    prints("check", &["check", "--deep", "@old.erofs"]),
    prints("inspect", &["inspect", "--json", "@old.erofs"]),
    prints("ls", &["ls", "-l", "-R", "@old.erofs"]),
    prints("cat", &["cat", "@old.erofs", "/text", "/dir/noise"]),
    prints("diff", &["diff", "@old.erofs", "@new.erofs"]),
    prints("patch-log", &["patch", "log", "@patched.erofs"]),
];

const fn writes(name: &'static str, words: &'static [&'static str]) -> Scenario {
    Scenario { name, kind: Kind::Writes { words, over: false } }
}

const fn updates(
    name: &'static str,
    words: &'static [&'static str],
    from: &'static str,
    to: &'static str,
) -> Scenario {
    Scenario { name, kind: Kind::Updates { words, from, to } }
}

const fn prints(name: &'static str, words: &'static [&'static str]) -> Scenario {
    Scenario { name, kind: Kind::Prints { words } }
}

impl Fixture {
    /// Makes trees, archives, images and a patch.
    pub(crate) fn new() -> Result<Self> {
        let fixture = Self { dir: scratch_in_memory() };
        let at = |name: &str| fixture.dir.path().join(name);
        write_tree(&at("old"), 1)?;
        write_tree(&at("new"), 2)?;
        fs::create_dir(at("more"))?;
        fs::write(at("more/added"), Content::Text.bytes(20_000, &mut Rng::new(7)))?;
        write_tree(&at("added"), 1)?;
        fs::copy(at("more/added"), at("added/added"))?;
        for dir in ["old", "new", "more", "added"] {
            same_times(&at(dir))?;
        }
        for name in ["old", "new"] {
            let image = at(&format!("{name}.erofs"));
            ferofs!("build -q -z lz4").args(IDENTITY).args([&at(name), &image]).success();
        }
        for (tar, option) in [("old.tar", "-cf"), ("old.tar.gz", "-czf")] {
            let mut command = Command::new("tar");
            command
                .args(["--xattrs", "--format=posix", option])
                .arg(at(tar))
                .arg("-C")
                .arg(at("old"))
                .arg(".");
            if !command.status()?.success() {
                bail!("tar fails");
            }
        }
        ferofs!("patch create -o", at("patch"), at("old.erofs"), at("new.erofs")).success();
        ferofs!("delta create -q -o", at("delta"), at("old.erofs"), at("new.erofs")).success();
        fs::copy(at("old.erofs"), at("patched.erofs"))?;
        ferofs!("patch apply", at("patched.erofs"), at("patch")).success();
        // The output of each command without a failure.
        fs::create_dir(at("good"))?;
        for scenario in SCENARIOS {
            let attempt = fixture.attempt(scenario)?;
            let outcome = scenario.command(&attempt, &at("good").join(scenario.name))?.status()?;
            if !matches!(outcome.code(), Some(0 | 1)) {
                bail!("{} fails by itself: {outcome}", scenario.name);
            }
            if let Kind::Writes { .. } = scenario.kind {
                fs::copy(attempt.path("out"), at("good").join(scenario.name))?;
            }
        }
        Ok(fixture)
    }

    pub(crate) fn attempt(&self, scenario: &Scenario) -> Result<Attempt<'_>> {
        let attempt = Attempt { fixture: self, dir: TempDir::new_in(self.dir.path())? };
        match scenario.kind {
            Kind::Writes { over: true, .. } => {
                fs::write(attempt.path("out"), b"what was there before")?
            }
            Kind::Updates { from, .. } => {
                fs::copy(self.dir.path().join(format!("{from}.erofs")), attempt.path("image"))?;
            }
            _ => {}
        }
        Ok(attempt)
    }
}

impl Attempt<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fixture(&self, name: &str) -> PathBuf {
        self.fixture.dir.path().join(name)
    }

    /// The files that a command leaves beside its output.
    fn left_beside(&self, output: &str) -> Result<Vec<String>> {
        let names = fs::read_dir(self.dir.path())?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<Result<Vec<_>>>()?;
        let left = names.into_iter().filter(|name| name != output);
        Ok(left.map(|name| format!("it leaves {}", name.display())).collect())
    }

    /// The words of a command with the paths of the files that they name.
    fn arguments(&self, words: &[&str]) -> Vec<PathBuf> {
        let argument = |word: &&str| match word.as_bytes().first() {
            Some(b'@') => self.fixture(&word[1..]),
            Some(b'%') => self.path(&word[1..]),
            _ => PathBuf::from(word),
        };
        words.iter().map(argument).collect()
    }
}

impl Scenario {
    /// The command, whose standard output goes to `stdout`.
    pub(crate) fn command(&self, attempt: &Attempt<'_>, stdout: &Path) -> Result<Command> {
        let mut command = Command::new(ferofs_path());
        match self.kind {
            Kind::Writes { words, .. }
            | Kind::Updates { words, .. }
            | Kind::Resumes { words }
            | Kind::Prints { words } => {
                command.args(attempt.arguments(words));
                if words[0] == "build" {
                    command.args(IDENTITY);
                }
            }
            Kind::Extracts => {
                command.args(["extract", "-q", "--workers", "2"]);
                command.args([attempt.fixture("old.erofs"), attempt.path("tree")]);
            }
        }
        command.stdin(Stdio::null()).stdout(File::create(stdout).context("the output's file")?);
        Ok(command)
    }

    /// Returns the defect after the end of the command, if there is one.
    pub(crate) fn judge(
        &self,
        attempt: &Attempt<'_>,
        stdout: &Path,
        traced: &Traced,
        fault: Fault,
    ) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let code = traced.status.code();
        if traced.hung {
            wrong.push("it hangs".to_owned());
        }
        if traced.stderr.contains("panicked") || traced.stderr.contains("internal error") {
            wrong.push("it panics".to_owned());
        }
        if code.is_none() && fault != Fault::Kill && !traced.hung {
            wrong.push(format!("it ends with {}", traced.status));
        }
        if code.is_some_and(|code| code != 0)
            && !traced.stderr.contains("ferofs: ")
            && !self.may_differ(code)
        {
            wrong.push(format!("exit code {code:?} without a message"));
        }
        let good = code == Some(0);
        match self.kind {
            Kind::Writes { over, .. } => wrong.extend(self.judge_file(attempt, good, over, fault)?),
            Kind::Updates { words, from, to } => {
                // A killed program cannot remove its temporary file.
                if fault != Fault::Kill {
                    wrong.extend(attempt.left_beside("image")?);
                }
                wrong.extend(judge_update(attempt, words, good, [from, to])?);
            }
            Kind::Resumes { words } => wrong.extend(judge_resumed(attempt, words, good)?),
            Kind::Extracts => wrong.extend(judge_tree(attempt, good)?),
            Kind::Prints { .. } => {
                let same = fs::read(stdout)? == fs::read(attempt.fixture("good").join(self.name))?;
                if (good || self.may_differ(code)) && !same {
                    wrong.push(format!("exit code {code:?}, and another output"));
                }
            }
        }
        // A program must repeat a call that did less, or was interrupted.
        if fault.is_harmless() && !good && !self.may_differ(code) && !traced.hung {
            wrong.push(format!("it gives up, exit code {code:?}"));
        }
        Ok(wrong)
    }

    /// Whether exit code 1 is not a failure of the command: `diff` returns it for trees that
    /// differ.
    fn may_differ(&self, code: Option<i32>) -> bool {
        self.name == "diff" && code == Some(1)
    }

    fn judge_file(
        &self,
        attempt: &Attempt<'_>,
        good: bool,
        over: bool,
        fault: Fault,
    ) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let out = attempt.path("out");
        let expected = fs::read(attempt.fixture("good").join(self.name))?;
        match fs::read(&out) {
            Ok(bytes) if bytes == expected => {}
            Ok(bytes) if over && !good && bytes == b"what was there before" => {}
            Ok(_) => wrong.push("the file has wrong content".to_owned()),
            Err(_) if good || over => wrong.push("the file does not exist".to_owned()),
            Err(_) => {}
        }
        // A killed program cannot remove its temporary file.
        if fault != Fault::Kill {
            wrong.extend(attempt.left_beside("out")?);
        }
        Ok(wrong)
    }
}

/// The image must be the old or the new one, and a command that failed can be repeated.
fn judge_update(
    attempt: &Attempt<'_>,
    words: &[&str],
    good: bool,
    states: [&str; 2],
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let trees = states.map(|state| attempt.fixture(if state == "patched" { "new" } else { state }));
    let image = attempt.path("image");
    let found = shows(&image, &attempt.path("shown"))?;
    let is =
        |tree: &Path| -> Result<bool> { Ok(found.is_ok() && same(tree, &attempt.path("shown"))?) };
    let (old, new) = (is(&trees[0])?, is(&trees[1])?);
    if let Err(why) = &found {
        wrong.push(format!("the image is neither old nor new: {why}"));
    } else if good && !new {
        wrong.push("it succeeds, and the image does not show the new tree".to_owned());
    } else if !old && !new {
        wrong.push("the image shows neither the old nor the new tree".to_owned());
    }
    if old && !new {
        let outcome = ferofs().args(attempt.arguments(words)).run();
        let shown = attempt.path("shown-again");
        if outcome.code != 0 {
            wrong.push(format!("the command cannot be repeated: {}", outcome.stderr.trim()));
        } else if shows(&image, &shown)?.is_err() || !same(&trees[1], &shown)? {
            wrong.push("repeated, it gives another tree".to_owned());
        }
    }
    Ok(wrong)
}

/// After success the file is the new image; after a failure the command with `--resume` completes
/// it.
fn judge_resumed(attempt: &Attempt<'_>, words: &[&str], good: bool) -> Result<Vec<String>> {
    let (new, out) = (fs::read(attempt.fixture("new.erofs"))?, attempt.path("out"));
    if good {
        let same = fs::read(out)? == new;
        return Ok(if same { Vec::new() } else { vec!["it succeeds with other bytes".to_owned()] });
    }
    let again = ferofs().args(attempt.arguments(words)).arg("--resume").run();
    match again.code {
        0 if fs::read(out)? == new => Ok(Vec::new()),
        0 => Ok(vec!["completed by --resume, it has other bytes".to_owned()]),
        _ => Ok(vec![format!("--resume does not complete it: {}", again.stderr.trim())]),
    }
}

/// After success the tree is complete; after a failure a further run with `--skip-existing`
/// completes it.
fn judge_tree(attempt: &Attempt<'_>, good: bool) -> Result<Vec<String>> {
    let (source, tree) = (attempt.fixture("old"), attempt.path("tree"));
    if good {
        let same = same(&source, &tree)?;
        return Ok(if same {
            Vec::new()
        } else {
            vec!["it succeeds with another tree".to_owned()]
        });
    }
    let again = ferofs!("extract -q --skip-existing", attempt.fixture("old.erofs"), &tree).run();
    match again.code {
        0 if same(&source, &tree)? => Ok(Vec::new()),
        0 => Ok(vec!["completed by --skip-existing, it is another tree".to_owned()]),
        _ => Ok(vec![format!("--skip-existing does not complete it: {}", again.stderr.trim())]),
    }
}

/// Extracts `image` into `dir`; the inner error says why it is not sound.
fn shows(image: &Path, dir: &Path) -> Result<Result<(), String>> {
    let checked = ferofs!("check --deep", image).run();
    if checked.code != 0 {
        return Ok(Err(checked.stderr + &String::from_utf8_lossy(&checked.stdout)));
    }
    let extracted = ferofs!("extract -q", image, dir).run();
    Ok(if extracted.code == 0 { Ok(()) } else { Err(extracted.stderr) })
}

fn same(left: &Path, right: &Path) -> Result<bool> {
    Ok(compare(left, right, &Options { threads: 1, ..Options::default() })?.count == 0)
}

/// A tree with files of several sizes, a hole, links and attributes.
fn write_tree(dir: &Path, version: u64) -> Result<()> {
    fs::create_dir_all(dir.join("dir/empty"))?;
    let rng = |name: &[u8]| Rng::new(3).fork(name);
    let text = Content::Text.bytes(300_000, &mut rng(b"text"));
    fs::write(dir.join("text"), &text)?;
    fs::write(dir.join("version"), Content::Text.bytes(30_000, &mut Rng::new(version)))?;
    fs::write(dir.join("dir/copy"), &text)?;
    fs::write(dir.join("dir/shifted"), &text[1000..200_000])?;
    let mut noise = vec![0; 20_000];
    rng(b"noise").fill(&mut noise);
    fs::write(dir.join("dir/noise"), &noise)?;
    fs::write(dir.join("dir/none"), b"")?;
    File::create(dir.join("holes"))?.set_len(500_000)?;
    for n in 0..12 {
        fs::write(
            dir.join(format!("dir/small{n}")),
            Content::Text.bytes(100 * n, &mut rng(&[n as u8])),
        )?;
    }
    fs::hard_link(dir.join("text"), dir.join("dir/linked"))?;
    symlink("../text", dir.join("dir/symlink"))?;
    xattr::set(&File::open(dir)?, b"text", b"user.key", b"a value")?;
    Ok(())
}

fn same_times(dir: &Path) -> Result<()> {
    let touched = Command::new("find")
        .arg(dir)
        .args(["-exec", "touch", "-h", "-d", "@1600000000", "{}", "+"])
        .status()?;
    if touched.success() { Ok(()) } else { bail!("touch fails") }
}
