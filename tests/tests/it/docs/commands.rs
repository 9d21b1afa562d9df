//! The commands of README.md and of the guide run as they stand there, in a copy of this machine
//! that is thrown away.
//!
//! A page is Markdown; comments, which readers do not see, say what the test does with its blocks:
//!
//! - A block `sh` is run. Its exit code must be 0.
//! - `<!-- not run: REASON -->` before a block: it is not run.
//! - `<!-- run: COMMANDS -->`: commands that readers need not see: preparations and checks.
//! - `<!-- message of: COMMAND -->` before a block `text`: the command fails, and prints each line
//!   of the block. `...` stands for anything.
//! - `<!-- output of the last block -->` before a block `text`: the same for the block `sh` before
//!   it, which does not fail.
//! - `<!-- file: NAME -->` before any block: the block becomes this file.
//! - `<!-- needs: PROGRAM... -->`: the page is skipped where one is missing.
//!
//! All blocks of a page run in one folder, in their order. The root directory is an overlay in
//! memory over this machine's, so that commands may write to /etc and mount on /mnt.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{ferofs_path, need, run, scratch_in_memory};

/// What each page finds in its folder, besides the command ferofs.
const PREPARATION: &str = r#"
mkdir -p rootfs/etc rootfs/usr/bin rootfs/usr/lib rootfs/usr/share/doc rootfs/dev rootfs/proc rootfs/sbin home/documents home/pictures
echo 'PRETTY_NAME="Example 1"' > rootfs/etc/os-release
echo example > rootfs/etc/hostname
printf 'root:x:0:0:root:/root:/bin/sh\n' > rootfs/etc/passwd
cp /bin/sh /bin/ls rootfs/usr/bin/
ln -s usr/bin rootfs/bin
seq 200000 > rootfs/usr/share/doc/numbers
for i in $(seq 50); do seq $i $((i + 500)) > rootfs/usr/lib/module-$i; done
cp -a rootfs rootfs-2
echo 'PRETTY_NAME="Example 2"' > rootfs-2/etc/os-release
seq 1000 > home/documents/numbers.txt
head -c 100000 /dev/urandom > home/pictures/holiday.jpg
"#;

/// The root directory of the commands: an overlay over this machine's. $1 is a folder in memory, $2
/// the program ferofs.
const SANDBOX: &str = r#"
set -eu
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
for dir in proc sys dev; do mount --rbind "/$dir" "$1/root/$dir"; done
for dir in mnt run tmp; do mount -t tmpfs tmpfs "$1/root/$dir"; done
mkdir -p "$1/root/usr/local/bin" "$1/root/page"
cp "$2" "$1/root/usr/local/bin/ferofs"
cp "$1/script" "$1/root/page/script"
cd /
chroot "$1/root" env -i PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root LANG=C.UTF-8 sh /page/script
"#;

/// What a page has the test do.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Commands that succeed.
    Run(String),
    /// Commands that fail.
    Fail(String),
    /// Lines that the step before printed.
    Printed(String),
    File(String, String),
}

#[test]
fn the_commands_of_the_front_page_run() {
    run_page("README.md");
}

#[test]
fn the_commands_of_the_guide_run() {
    let mut pages: Vec<String> = fs::read_dir(repository().join("docs/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .collect();
    pages.sort();
    assert!(pages.len() >= 16, "{pages:?}");
    pages.iter().for_each(|page| run_page(&format!("docs/guide/{page}")));
}

#[test]
fn failed_commands_and_missing_messages_are_noticed() {
    require!(need::root());
    let run = |page: &str| run_steps(&steps(page).unwrap());
    let prepared = "```sh\nferofs build rootfs a.erofs\ntest -s a.erofs\n```\n";
    assert_eq!(run(prepared), Vec::<String>::new());
    assert_eq!(run("```sh\nferofs check missing.erofs\n```\n").len(), 1);
    let message = "<!-- message of: ferofs check missing.erofs -->\n```text\nferofs: missing.erofs: ...\n```\n";
    assert_eq!(run(message), Vec::<String>::new());
    assert_eq!(run(&message.replace("ferofs: missing", "ferofs: other")).len(), 1);
    assert_eq!(
        run("<!-- message of: true -->\n```text\n\n```\n").len(),
        1,
        "the command does not fail"
    );
    let output =
        "```sh\necho one two\n```\n<!-- output of the last block -->\n```text\none ...\n```\n";
    assert_eq!(run(output), Vec::<String>::new());
    assert_eq!(run(&output.replace("one ...", "two ...")).len(), 1);
    assert_eq!(
        run("<!-- file: a -->\n```ini\n[a]\n```\n<!-- run: grep -q a a -->\n"),
        Vec::<String>::new()
    );
    assert!(steps("<!-- not run: -->\n```sh\ntrue\n```\n").is_err(), "no reason");
    assert!(steps("<!-- output of the last block -->\n\ntext\n").is_err(), "no block");
    assert_eq!(steps("<!-- not run: needs a phone -->\n```sh\nfalse\n```\n").unwrap(), []);
}

fn run_page(name: &str) {
    require!(need::root() && need::fuse() && need::kernel_erofs());
    let text = fs::read_to_string(repository().join(name)).unwrap();
    let needed =
        text.lines().filter_map(|line| line.strip_prefix("<!-- needs: ")?.strip_suffix(" -->"));
    if !needed.flat_map(str::split_whitespace).all(|program| need::tool(program).is_some()) {
        return;
    }
    let failures = run_steps(&steps(&text).unwrap_or_else(|error| panic!("{name}: {error}")));
    assert!(failures.is_empty(), "{name}:\n{}", failures.join("\n"));
}

/// The steps of a page, or what is wrong with its comments.
fn steps(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut comment: Option<String> = None;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(start) = line.strip_prefix("<!-- ") {
            let mut text = start.to_owned();
            while !text.ends_with("-->") {
                let next =
                    lines.next().ok_or_else(|| format!("the comment {start:?} does not end"))?;
                write!(text, "\n{next}").unwrap();
            }
            let text = text.trim_end_matches("-->").trim().to_owned();
            match text.split_once(": ") {
                Some(("run", commands)) => steps.push(Step::Run(commands.to_owned())),
                Some(("not run" | "message of" | "file", _)) => comment = Some(text),
                _ if text == "output of the last block" => comment = Some(text),
                _ if text.starts_with("not run") => return Err(format!("no reason: {text}")),
                _ => {}
            }
        } else if let Some(language) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let block = block.join("\n");
            let comment = comment.take().unwrap_or_default();
            match (comment.split_once(": "), language) {
                (Some(("not run", _)), _) => {}
                (Some(("message of", command)), "text") => {
                    steps.extend([Step::Fail(command.to_owned()), Step::Printed(block)]);
                }
                (Some(("file", name)), _) => steps.push(Step::File(name.to_owned(), block + "\n")),
                (None, "text") if comment == "output of the last block" => {
                    steps.push(Step::Printed(block))
                }
                (None, "sh") if comment.is_empty() => steps.push(Step::Run(block)),
                (None, "") => return Err(format!("a block without a language: {block}")),
                (None, _) if comment.is_empty() => {}
                _ => return Err(format!("{comment:?} before a block {language:?}")),
            }
        } else if !line.is_empty() && comment.is_some() {
            return Err(format!("{comment:?} is not before a block"));
        }
    }
    Ok(steps)
}

/// Runs the steps, and lists what did not happen as the page says.
fn run_steps(steps: &[Step]) -> Vec<String> {
    let dir = scratch_in_memory();
    let mut script = format!(
        "mkdir /page/results /page/folder; cd /page/folder; (set -e; {PREPARATION}) || exit 9\n"
    );
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Run(text) | Step::Fail(text) => {
                let file = format!("/page/results/{number}");
                // In a shell of its own: `set -e` holds, and variables end with the block.
                writeln!(script, "cat > {file}.sh <<'END-OF-STEP'\nset -eu\n{text}\nEND-OF-STEP")
                    .unwrap();
                writeln!(
                    script,
                    "sh {file}.sh > {file}.out 2>&1 < /dev/null; echo $? > {file}.code"
                )
                .unwrap();
            }
            Step::File(name, text) => {
                writeln!(script, "cat > '{name}' <<'END-OF-FILE'\n{text}END-OF-FILE").unwrap();
            }
            Step::Printed(_) => {}
        }
    }
    // What a page leaves mounted has daemons, which would stay.
    script += "cd /; for dir in $(tac /proc/self/mounts | cut -d' ' -f2 | grep -E '^/(page|mnt|opt|srv|usr)(/|$)'); do umount -l \"$dir\"; done\n";
    fs::write(dir.path().join("script"), script).unwrap();
    let outcome = run!(
        "unshare --mount --propagation private sh -c",
        SANDBOX,
        "sh",
        dir.path(),
        ferofs_path()
    )
    .try_run()
    .unwrap();
    let results = dir.path().join("changes/page/results");
    let read = |name: String| fs::read_to_string(results.join(name)).unwrap_or_default();
    let mut failures = Vec::new();
    if outcome.code != 0 {
        failures.push(format!("the sandbox: {} {}", outcome.code, outcome.stderr));
    }
    let mut printed = String::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Run(text) | Step::Fail(text) => {
                printed = read(format!("{number}.out"));
                let code = read(format!("{number}.code"));
                if code.is_empty() || (code.trim() == "0") == matches!(step, Step::Fail(_)) {
                    failures.push(format!("{text}\nexit code {}: {printed}", code.trim()));
                }
            }
            Step::Printed(lines) => {
                let missing = lines
                    .lines()
                    .filter(|line| !printed.lines().any(|other| matches_line(other, line)));
                failures.extend(missing.map(|line| format!("{line:?} is not in:\n{printed}")));
            }
            Step::File(..) => {}
        }
    }
    failures
}

/// Whether a line is what the page shows; `...` stands for anything.
fn matches_line(line: &str, shown: &str) -> bool {
    let mut rest = line;
    for (number, part) in shown.split("...").enumerate() {
        let at = if number == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        match at {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || shown.ends_with("...")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
