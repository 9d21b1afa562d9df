//! `cargo xtask test --systems [--publish]`: the commands of other systems, which only read images.
//! Those for Windows run under Wine, and must print, and extract, what the commands of this machine
//! do. Those for macOS are compiled. `--publish` writes the table to docs/results/processors.md.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use ferofs_devtools::{install, page, shell};
use ferofs_tests::scratch;
use ferofs_tests::tools::Tool;

use super::processors::{IMAGES, PAGE, build};

const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: &str = "aarch64-apple-darwin";
const TOOLS: [Tool; 2] = [
    Tool { program: "x86_64-w64-mingw32-gcc", package: "gcc-mingw-w64-x86-64" },
    Tool { program: "wine", package: "wine" },
];

/// A library of Windows that gives random bytes to Rust's; the Wine of Debian 12 does not have it.
const RANDOM: &str = "#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T len) { return RtlGenRandom(bytes, len); }
";

/// What is compared for each image.
const COMMANDS: [&[&str]; 7] = [
    &["check", "--deep"],
    &["ls", "-lR"],
    &["ls", "-R", "--json"],
    &["inspect"],
    &["inspect", "--json"],
    &["cat", "/names/a:b?", "/link", "format/Cargo.toml"],
    &["extract", "--tar", "-"],
];

/// Names of the test tree that Windows has, and what they become there.
const NAMES: [(&[u8], &str); 6] = [
    (b"plain", "plain"),
    (b"a:b?", "a\u{f03a}b\u{f03f}"),
    (b"back\\slash", "back\u{f05c}slash"),
    (b"con.txt", "\u{f063}on.txt"),
    (b"dot.", "dot\u{f02e}"),
    ("\u{e4}\u{65e5}".as_bytes(), "\u{e4}\u{65e5}"),
];

pub(crate) fn run(publish: bool) -> Result<()> {
    install::install(&TOOLS)?;
    let target = scratch::target_dir().join("systems");
    compile("build", WINDOWS, &target, |cargo| cargo)?;
    compile_for_macos(&target)?;
    let programs = target.join(WINDOWS).join("debug");
    fs::write(programs.join("random.c"), RANDOM)?;
    let mut library = Command::new(TOOLS[0].program);
    library.args(["-shared", "-o", "bcryptprimitives.dll", "random.c", "-ladvapi32"]);
    shell::run(library.current_dir(&programs))?;
    let own = shell::build_ferofs("checked")?;
    let scratch = scratch::scratch();
    let both = Both { own, windows: programs.join("ferofs.exe"), home: target.join("wine") };
    let tree = scratch.path().join("tree");
    make_tree(&tree)?;
    for options in IMAGES {
        let image = scratch.path().join("image.erofs");
        shell::run(build(&mut Command::new(&both.own), options, &tree, &image))?;
        both.compare(&image, None).context(options)?;
    }
    let sealed = scratch.path().join("sealed.erofs");
    both.compare(&sealed, Some(seal(&both.own, &tree, &sealed)?.as_str()))?;
    both.extract(&sealed, &scratch.path().join("extracted"))?;
    let refused = both.windows().args(["build", "a", "b"]).output()?;
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(1) && text.contains("need Linux"), "build: {refused:?}");
    let row = |command: &str| {
        let all = format!("{} images", IMAGES.len() + 1);
        let images = if command.starts_with("verity") { "1 image" } else { &all };
        [command, images, "compiled"].map(str::to_owned).to_vec()
    };
    let names = COMMANDS.iter().map(|words| words.join(" ")).chain(["verity verify".to_owned()]);
    let mut rows: Vec<Vec<String>> = names.map(|name| row(&name)).collect();
    rows.push(["extract to a directory", "1 image", "compiled"].map(str::to_owned).to_vec());
    rows.push(["all others", "say that they need Linux", "compiled"].map(str::to_owned).to_vec());
    let table = page::table(&["command", "Windows, as on Linux", "macOS"], &rows);
    println!("{table}");
    if publish {
        page::publish(PAGE, &page::begin("test --systems --publish"), &table)?;
    }
    Ok(())
}

/// Builds the command for a system, or only checks that it compiles.
fn compile(
    how: &str,
    target: &str,
    dir: &Path,
    set: impl Fn(&mut Command) -> &mut Command,
) -> Result<()> {
    shell::run(Command::new("rustup").args(["target", "add", target]))?;
    let mut cargo = shell::cargo();
    cargo.args([
        how,
        "--package",
        "ferofs-cli",
        "--no-default-features",
        "--target",
        target,
        "--target-dir",
    ]);
    cargo.arg(dir).env("CARGO_PROFILE_DEV_DEBUG", "0").env("RUSTFLAGS", "-D warnings");
    shell::run(set(&mut cargo))
}

/// Compiles for macOS. The headers for C code are those of the compiler of Zig, which PyPI has.
fn compile_for_macos(dir: &Path) -> Result<()> {
    let (zig, compiler) = (dir.join("zig"), dir.join("zig-cc"));
    if !zig.exists() {
        let mut pip = Command::new("python3");
        shell::run(pip.args(["-m", "pip", "install", "--quiet", "ziglang", "--target"]).arg(&zig))?;
    }
    // The compiler does not know the name that Rust gives to the system.
    let script = format!(
        "#!/bin/sh\nfor word do shift; case $word in --target=*) ;; *) set -- \"$@\" \"$word\";; esac; done\n\
         PYTHONPATH={} exec python3 -m ziglang cc -target aarch64-macos \"$@\"\n",
        zig.display()
    );
    fs::write(&compiler, script)?;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))?;
    compile("check", MACOS, dir, |cargo| cargo.env("CC_aarch64_apple_darwin", &compiler))
}

/// Builds a sealed image, and gives its root hash.
fn seal(ferofs: &Path, tree: &Path, image: &Path) -> Result<String> {
    let file = image.with_extension("roothash");
    let options = format!("--verity --roothash-file {}", file.display());
    shell::run(build(&mut Command::new(ferofs), &options, tree, image))?;
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

fn make_tree(tree: &Path) -> Result<()> {
    fs::create_dir_all(tree.join("names"))?;
    shell::run(
        Command::new("cp").arg("-r").arg(shell::repository().join("crates/format")).arg(tree),
    )?;
    for (name, _) in NAMES {
        fs::write(tree.join("names").join(std::ffi::OsStr::from_bytes(name)), name)?;
    }
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"not \xff text")), "bytes")?;
    fs::hard_link(tree.join("names/plain"), tree.join("other name"))?;
    symlink("names/plain", tree.join("link"))?;
    let sparse = fs::File::create(tree.join("sparse"))?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"the end", 5 << 30)?;
    Ok(())
}

/// The command of this machine, and that for Windows.
struct Both {
    own: PathBuf,
    windows: PathBuf,
    /// Wine keeps its drive C: in it.
    home: PathBuf,
}

impl Both {
    fn windows(&self) -> Command {
        let mut wine = Command::new("wine");
        wine.arg(&self.windows).env("WINEPREFIX", &self.home).env("WINEDEBUG", "-all");
        wine
    }

    /// Both commands print the same about the image, and with the root hash of a sealed one.
    fn compare(&self, image: &Path, root_hash: Option<&str>) -> Result<()> {
        let sealed: &[&str] = &["verity", "verify"];
        for words in COMMANDS.iter().copied().chain(root_hash.map(|_| sealed)) {
            // The words after the image are paths in it.
            let (options, paths): (Vec<&str>, Vec<&str>) =
                words.iter().partition(|word| !word.contains('/'));
            let run = |mut command: Command| {
                let command = command.args(&options).arg(image).args(&paths);
                let command = command.args(root_hash.filter(|_| words == sealed));
                command.output().with_context(|| format!("{command:?}"))
            };
            let (own, windows) = (run(Command::new(&self.own))?, run(self.windows())?);
            ensure!(own.status.success(), "{words:?}: {}", show(&own));
            ensure!(is_same(&own, &windows), "{words:?}: {}\n{}", show(&own), show(&windows));
        }
        Ok(())
    }

    /// The directory that the command for Windows writes has all that Windows has, and the failures
    /// say what is missing.
    fn extract(&self, image: &Path, to: &Path) -> Result<()> {
        let output = self.windows().arg("extract").args([image, to]).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let failures: Vec<&str> = text.lines().filter(|line| line.contains("ferofs: ")).collect();
        ensure!(
            output.status.code() == Some(1) && failures.len() == 2,
            "extract: {}",
            show(&output)
        );
        ensure!(failures[0].contains("link: extract: a symlink"), "{text}");
        // Wine, unlike Windows, has no names of single surrogates.
        ensure!(failures[1].contains("not \\xff text: create"), "{text}");
        for (bytes, name) in NAMES {
            ensure!(
                fs::read(to.join("names").join(name)).is_ok_and(|read| read == bytes),
                "{name}"
            );
        }
        ensure!(fs::read(to.join("other name"))? == b"plain", "the hard link");
        ensure!(fs::metadata(to.join("sparse"))?.len() == (5 << 30) + 7, "the sparse file");
        shell::run(
            Command::new("diff")
                .arg("-r")
                .arg(shell::repository().join("crates/format"))
                .arg(to.join("format")),
        )?;
        let again = self.windows().arg("extract").args([image, to]).output()?;
        ensure!(!again.status.success(), "a directory that is not empty: {}", show(&again));
        Ok(())
    }
}

fn is_same(own: &Output, windows: &Output) -> bool {
    own.status.code() == windows.status.code() && own.stdout == windows.stdout
}

fn show(output: &Output) -> String {
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..2000).unwrap_or(bytes)).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
