//! `cargo xtask test`: every check and test that must pass. CI and developers run the same command.
//!
//! The lint check only compiles, and the tests often wait: both run side by side, which saves the
//! time of the lint check. Stages that use all processors (compiling, campaigns) run one after the
//! other.

pub(crate) mod processors;
pub(crate) mod systems;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, DEBOOTSTRAP, EROFS_UTILS, FUSE, MODPROBE, MOUNT};
use ferofs_devtools::{peers, shell};
use ferofs_tests::tools::{TEST_TOOLS, Tool};
use ferofs_tests::{need, scratch};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::{api, dist, fuzz};

/// The programs that pull and run containers, besides containerd.
const CONTAINER_TOOLS: &[Tool] = &[
    Tool { program: "busybox", package: "busybox-static" },
    Tool { program: "docker-registry", package: "docker-registry" },
    Tool { program: "python3", package: "python3" },
    Tool { program: "runc", package: "runc" },
    Tool { program: "skopeo", package: "skopeo" },
];

/// The programs that run a virtual machine, and make its file system.
pub(crate) const VIRTUAL_MACHINE_TOOLS: &[Tool] = &[
    Tool { program: "busybox", package: "busybox-static" },
    Tool { program: "cpio", package: "cpio" },
    Tool { program: "ldd", package: "libc-bin" },
    Tool { program: "modprobe", package: "kmod" },
    Tool { program: "qemu-system-x86_64", package: "qemu-system-x86" },
    Tool { program: "veritysetup", package: "cryptsetup-bin" },
    Tool { program: "xz", package: "xz-utils" },
];

/// The same with ARM processors.
pub(crate) const ARM64_MACHINE_TOOLS: &[Tool] = &[
    Tool { program: "qemu-system-aarch64", package: "qemu-system-arm" },
    Tool { program: "zstd", package: "zstd" },
];

/// The `faults` campaign lets each fifth system call of each command fail. A prime number, so that
/// the failing calls differ in kind. The commands make about 6,000 calls, and a processor tests 20
/// calls per second: half a minute on two processors.
const FAULTS_STEP: &str = "5";

/// The `options` campaign makes this many images: half a minute on two processors. Longer runs with
/// other seeds find rarer defects.
const OPTIONS_IMAGES: &str = "600";

/// Tests that run longer hang: they take less than a third of this. Commands that they start end
/// after ten minutes.
const TESTS_HANG: Duration = Duration::from_secs(45 * 60);

/// Cases of each property test with `--quick`, a quarter of the usual ones.
const QUICK_CASES: &str = "64";

/// The processor for which the example in a browser is compiled.
const WASM: &str = "wasm32-unknown-unknown";

/// Time and disk of a first run, where cargo has compiled nothing yet.
const COST: &str = "The first run takes about 20 minutes on two idle processors, and up to 20 GB of disk below target; later ones take 15 minutes";

/// The crates that can be published, each after those that it needs.
const PUBLIC_CRATES: [&str; 12] = [
    "ferofs-format",
    "ferofs-codec",
    "ferofs-threads",
    "ferofs-read",
    "ferofs-host",
    "ferofs-verity",
    "ferofs-update",
    "ferofs-write",
    "ferofs",
    "ferofs-fuse",
    "ferofs-serve",
    "ferofs-cli",
];

/// The crates that a program needs at most to read images, this library's own ones included.
const MAX_CRATES: usize = 25;

/// Crates for images on servers, and those for TLS and HTTP that they need: the command for local
/// images has none of them.
const FOR_SERVERS: [&str; 4] = ["ferofs-serve", "http", "rustls", "ureq"];

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For the time between two edits: no mounts, no other tools, no campaigns, small inputs, and
    /// debug builds only.
    Quick,
    /// What must pass.
    Normal,
    /// Also the slow tests.
    Full,
}

/// Cases of the proofs for exact deltas: half a minute on two processors.
const DELTA_CASES: &str = "360";

/// Runs all stages of `scope`, and prints the time of each.
pub(crate) fn test(scope: Scope) -> Result<()> {
    shell::with_private_root()?;
    let stages = Stages::new();
    let result = run_stages(scope, &stages);
    stages.print();
    result
}

fn run_stages(scope: Scope, stages: &Stages) -> Result<()> {
    let is_quick = scope == Scope::Quick;
    let has_kernels = !is_quick && can_run_kernels()?;
    if !is_quick {
        announce(scope);
        stages.run("install", install_tools)?;
    }
    // Rust toolchains from Linux distributions may lack cargo fmt and cargo clippy; the tests run
    // without them.
    if has_subcommand("fmt")? {
        stages.run("fmt", || shell::run(shell::cargo().args(["fmt", "--all", "--check"])))?;
    }
    let ferofs = stages.run("build", || build(is_quick))?;
    let mut tests = shell::cargo();
    tests.args(["test", "--workspace"]).env("FEROFS_BIN", ferofs);
    match scope {
        Scope::Quick => drop(tests.env(need::QUICK, "1").env("PROPTEST_CASES", QUICK_CASES)),
        Scope::Normal => {}
        Scope::Full => drop(tests.env("FEROFS_TEST_FULL", "1")),
    }
    if !is_quick && let Some(bin) = stages.run("peers", newest_peers)? {
        tests.env("FEROFS_PEERS", bin);
    }
    stages
        .run("compile", || shell::run(shell::cargo().args(["test", "--workspace", "--no-run"])))?;
    let limit = if scope == Scope::Full { TESTS_HANG * 2 } else { TESTS_HANG };
    thread::scope(|scope| {
        let lint = scope.spawn(|| {
            if has_subcommand("clippy")? {
                stages.run_silently("clippy", lint)?;
            }
            if is_quick {
                return Ok(());
            }
            stages.run_silently("doc", document)?;
            stages.run_silently("features", check_features)?;
            stages.run_silently("package", package)?;
            stages.run_silently("api", api::check)?;
            stages.run_silently("msrv", check_with_oldest_rust)
        });
        let tests = stages.run("tests", || run_tests(&mut tests, limit));
        let lint = lint.join().unwrap_or_else(|_| bail!("the thread of the stage clippy panicked"));
        tests.and(lint)
    })?;
    if !is_quick {
        stages.run("gate", || crate::run_gate(&[]))?;
        if cfg!(target_arch = "x86_64") {
            let options = ["--every", FAULTS_STEP];
            stages.run("faults", || fuzz::run_campaign("faults", &options, &fuzz::ferofs()))?;
        } else {
            left_out("the campaign of failing system calls", need::X86_64)?;
        }
        stages.run("deltas", || {
            fuzz::run_campaign("hostile", &["--deltas", DELTA_CASES], &fuzz::ferofs())
        })?;
        let options = ["--images", OPTIONS_IMAGES, "--seed", "1"];
        stages.run("options", || fuzz::run_campaign("options", &options, &fuzz::ferofs()))?;
        if has_kernels {
            stages.run("kernels", || fuzz::run_campaign("kernels", &["--few"], &fuzz::ferofs()))?;
        }
    }
    Ok(())
}

/// Runs the tests, and ends them when they hang: Rust's harness has then named each one that runs
/// for more than a minute, but waits for it without end.
fn run_tests(cargo: &mut Command, limit: Duration) -> Result<()> {
    let mut child = cargo.spawn().with_context(|| format!("{cargo:?}"))?;
    let start = Instant::now();
    while start.elapsed() <= limit {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("cargo test: {status}"),
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
    kill_with_descendants(Pid::from_child(&child));
    child.wait()?;
    bail!(
        "the tests have run for {} minutes: one that is named above hangs, or the machine is busy",
        limit.as_secs() / 60
    )
}

/// Kills a process and everything that it has started. Not by process group: in a group of its own,
/// cargo would not get the terminal's Ctrl-C.
fn kill_with_descendants(process: Pid) {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<Pid> = lists
        .flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .filter_map(|number| Pid::from_raw(number.ok()?))
        .collect();
    // An error means that it has ended.
    let _ = kill_process(process, Signal::KILL);
    children.into_iter().for_each(kill_with_descendants);
}

/// Whether Debian's kernels can run in virtual machines; says so if not.
fn can_run_kernels() -> Result<bool> {
    let missing = match peers::debian_mirror() {
        _ if !cfg!(target_arch = "x86_64") => need::X86_64,
        Err(_) => need::DEBIAN_MIRROR,
        Ok(_) => return Ok(true),
    };
    left_out("Debian's kernels in virtual machines", missing)?;
    Ok(false)
}

/// Says what the run changes on this machine, and what it costs.
fn announce(scope: Scope) {
    let mut tools = TEST_TOOLS.to_vec();
    tools.extend(tools_besides_tests());
    let mut packages = install::missing_packages(&tools);
    packages.extend(missing_keys());
    let list = if packages.is_empty() { "nothing".to_owned() } else { packages.join(" ") };
    println!("This run installs with apt-get: {list}. It starts and enables no service.");
    println!("With rustup, if it is there: {WASM}, and the oldest Rust that Cargo.toml promises.");
    let target = scratch::target_dir();
    let mut below = vec!["three of Debian's kernels, for virtual machines"];
    if need::is_root() && peers::installed(&target).is_none() {
        below.push("the newest erofs-utils, in a Debian of its own");
    }
    println!("Below {}: {}.", target.display(), below.join("; "));
    let extra = if scope == Scope::Full { ", and the slow tests half an hour more" } else { "" };
    println!("{COST}{extra}. `cargo xtask test --quick` installs nothing and takes a few minutes.");
}

fn install_tools() -> Result<()> {
    for Tool { program, package } in install::install_existing(TEST_TOOLS)? {
        eprintln!("no source of apt has the package {package}");
        left_out(&format!("tests with {program}"), program)?;
    }
    // Without it, the test that needs it says so.
    if need::find_tool("rustup").is_some() {
        let _ = shell::run_quietly(Command::new("rustup").args(["target", "add", WASM]));
    }
    install::install(&tools_besides_tests())?;
    if cfg!(target_arch = "x86_64") { install_machine_tools() } else { Ok(()) }
}

/// Installs what virtual machines need. Debian's keys verify their kernels.
pub(crate) fn install_machine_tools() -> Result<()> {
    install::install(VIRTUAL_MACHINE_TOOLS)?;
    missing_keys().map_or(Ok(()), install::install_package)
}

/// The package with Debian's keys, if it is missing.
fn missing_keys() -> Option<&'static str> {
    let keys = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
    (!keys.exists()).then_some("debian-archive-keyring")
}

/// The tools that this command needs besides those of the tests.
fn tools_besides_tests() -> Vec<Tool> {
    let mut tools = vec![FUSE, MOUNT, EROFS_UTILS];
    if cfg!(target_arch = "x86_64") {
        tools.extend_from_slice(VIRTUAL_MACHINE_TOOLS);
    }
    if need::is_root() && !need::kernel_has_erofs() {
        tools.push(MODPROBE);
    }
    tools
}

/// Builds the ferofs that the tests run, and returns its path. `--workspace` selects the features
/// of dependencies that the tests also use, so that cargo does not compile the libraries twice.
fn build(is_quick: bool) -> Result<PathBuf> {
    if is_quick {
        shell::run(
            shell::cargo().args("build --workspace --bin ferofs --bin ferofs-device".split(' ')),
        )?;
        return Ok(scratch::target_dir().join("debug/ferofs"));
    }
    shell::run(&mut fuzz::build_command())?;
    Ok(fuzz::ferofs())
}

/// Checks all code with clippy. A warning is an error.
fn lint() -> Result<()> {
    shell::run_quietly(
        shell::cargo().args("clippy --quiet --workspace --all-targets -- -D warnings".split(' ')),
    )
}

/// Makes the documentation of the libraries. A warning, for example of a link that leads nowhere,
/// is an error.
fn document() -> Result<()> {
    let mut cargo = shell::cargo();
    shell::run_quietly(
        cargo
            .args(["doc", "--quiet", "--workspace", "--lib", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// Compiles each library with none and with each of its features, and checks that reading needs few
/// other crates without them.
fn check_features() -> Result<()> {
    let alone = [
        ("ferofs-read", &["", "liblz4", "lzma", "deflate", "zstd", "serde", "comparison"][..]),
        ("ferofs-write", &["", "tar", "patch"]),
        ("ferofs", &["", "build", "extract", "patch", "signature", "build,patch"]),
        ("ferofs-cli", &[""]),
        ("ferofs-device", &[""]),
    ];
    for (package, features) in
        alone.iter().flat_map(|(package, all)| all.iter().map(move |one| (package, one)))
    {
        let mut check = shell::cargo();
        check.args([
            "check",
            "--quiet",
            "--package",
            package,
            "--no-default-features",
            "--features",
            features,
        ]);
        shell::run_quietly(
            check
                .env("RUSTFLAGS", "-D warnings")
                .arg("--target-dir")
                .arg(scratch::target_dir().join("features")),
        )?;
    }
    let reader = crates_of("ferofs-read", "")?;
    if reader.len() > MAX_CRATES || reader.iter().any(|name| is_c_library(name)) {
        bail!(
            "ferofs-read without features needs {} crates (at most {MAX_CRATES}, none in C): {reader:?}",
            reader.len()
        );
    }
    let device = crates_of("ferofs-device", "")?;
    if let Some(large) =
        ["ferofs-write", "regex", "ignore"].into_iter().find(|name| device.contains(*name))
    {
        bail!("ferofs-device needs {large}, which is not for devices");
    }
    let unpacker = crates_of("ferofs", "extract")?;
    if unpacker.contains("ferofs-write") {
        bail!("ferofs with only its feature extract needs ferofs-write, which builds images");
    }
    let command = crates_of("ferofs-cli", "")?;
    if let Some(name) = FOR_SERVERS.into_iter().find(|name| command.contains(*name)) {
        bail!("ferofs-cli without the feature remote needs {name}");
    }
    Ok(())
}

/// The names of the crates that `package` needs with only these features, its own among them.
fn crates_of(package: &str, features: &str) -> Result<BTreeSet<String>> {
    let mut tree = shell::cargo();
    tree.args([
        "tree",
        "--package",
        package,
        "--no-default-features",
        "--features",
        features,
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    let tree = tree.output().context("cargo tree")?;
    let tree = String::from_utf8_lossy(&tree.stdout);
    let crates: BTreeSet<_> =
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    if crates.is_empty() {
        bail!("cargo tree knows no package {package}");
    }
    Ok(crates)
}

/// Makes the packages that could be published: all files are there, and all crates have versions.
fn package() -> Result<()> {
    let mut package = shell::cargo();
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    for name in PUBLIC_CRATES {
        package.args(["--package", name]);
    }
    shell::run_quietly(package.arg("--target-dir").arg(scratch::target_dir().join("package")))
}

/// Whether the name of the crate is that of a library in C. `linux-raw-sys` is Rust: numbers of
/// system calls.
fn is_c_library(name: &str) -> bool {
    name.ends_with("-sys") && name != "linux-raw-sys"
}

/// Compiles the command and the libraries with the oldest Rust that Cargo.toml promises.
fn check_with_oldest_rust() -> Result<()> {
    let manifest = shell::repository().join("Cargo.toml");
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .map(|version| version.trim_matches('"'));
    let version = version.with_context(|| format!("{}: no rust-version", manifest.display()))?;
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", version, "--profile", "minimal"]);
    if need::find_tool("rustup").is_none() || shell::run_quietly(&mut install).is_err() {
        return left_out(&format!("a check with Rust {version}"), "rustup, which can install it");
    }
    let mut check = Command::new("rustup");
    check.args([
        "run",
        version,
        "cargo",
        "check",
        "--quiet",
        "--package",
        "ferofs-cli",
        "--package",
        "ferofs-capi",
    ]);
    // Not beside the other build: the two versions of Rust would wait for each other.
    check
        .arg("--target-dir")
        .arg(scratch::target_dir().join("msrv"))
        .current_dir(shell::repository());
    shell::run_quietly(&mut check)
}

/// The times of the stages.
struct Stages {
    start: Instant,
    times: Mutex<Vec<(&'static str, Duration)>>,
}

impl Stages {
    fn new() -> Self {
        Self { start: Instant::now(), times: Mutex::default() }
    }

    /// Prints the name of the stage, runs it, and records its time.
    fn run<T>(&self, name: &'static str, stage: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("{}", shell::bold(&format!("== {name}")));
        self.run_silently(name, stage)
    }

    fn run_silently<T>(&self, name: &'static str, stage: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = stage();
        self.times.lock().push((name, start.elapsed()));
        result.with_context(|| format!("stage {name}"))
    }

    /// Prints the time of each stage, and the time since the start. The sum is larger than the
    /// total, because some stages run side by side.
    fn print(&self) {
        for (name, time) in self.times.lock().iter() {
            println!("{name:>10} {:6.1} s", time.as_secs_f64());
        }
        println!("{:>10} {:6.1} s", "total", self.start.elapsed().as_secs_f64());
    }
}

/// `cargo xtask test --containers [MODE]...`: runs tests/containerd/run.sh, which describes its
/// modes.
pub(crate) fn containers(modes: &[&str]) -> Result<()> {
    install::install(CONTAINER_TOOLS)?;
    if need::find_tool("go").is_none() {
        bail!(
            "Go is missing; building containerd 2.x needs a newer version than the one in Debian stable"
        );
    }
    let ferofs = shell::build_ferofs("checked")?;
    let script = shell::repository().join("tests/containerd/run.sh");
    let target = scratch::target_dir().join("containerd");
    shell::run(Command::new(script).arg(ferofs).args(modes).env("CONTAINERD_BIN", target))
}

/// In virtual machines, mounts sealed images with dm-verity, and images through automount points of
/// systemd, and builds within limits of cgroups.
pub(crate) fn virtual_machine() -> Result<()> {
    install::install(VIRTUAL_MACHINE_TOOLS)?;
    install::install(&[DEBOOTSTRAP])?;
    let (ferofs, dir) = (shell::build_ferofs("checked")?, scratch::target_dir().join("vm"));
    let script = |name| Command::new(shell::repository().join("tests/vm").join(name));
    shell::run(script("run.sh").arg(&ferofs).arg(&dir))?;
    shell::run(script("systemd.sh").args([&ferofs, &dir]).arg(peers::debian_mirror()?))
}

/// Makes a release, installs its packages in a new Debian, uses them, and removes them. The
/// programs for other processors are compared first.
pub(crate) fn packages() -> Result<()> {
    if !need::root() || !need::kernel_erofs() {
        return Ok(());
    }
    install::install(&[DEBOOTSTRAP])?;
    let release = dist::dist(&dist::released(&[])?, None)?;
    processors::compare(&release)?;
    let mut script = Command::new(shell::repository().join("tests/packages/run.sh"));
    script.arg(scratch::target_dir().join("packages")).arg(peers::debian_mirror()?);
    let (own, other): (Vec<_>, Vec<_>) =
        release.parts.iter().partition(|part| part.processor.is_own());
    for part in own.into_iter().chain(other) {
        script.args([&part.debian, &part.rpm]).args(part.processor.emulator_program());
    }
    shell::run(&mut script)
}

/// The directory of the newest tools of others. Installs them if possible; an error is only
/// printed, because Debian unstable may be unreachable or broken for a day.
fn newest_peers() -> Result<Option<PathBuf>> {
    let target = scratch::target_dir();
    if need::is_root()
        && peers::installed(&target).is_none()
        && let Err(error) = peers::install_peers()
    {
        eprintln!("{error:#}");
        left_out("comparisons with the newest erofs-utils", need::PEERS)?;
    }
    Ok(peers::installed(&target))
}

fn has_subcommand(name: &str) -> Result<bool> {
    let found = shell::cargo()
        .args([name, "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        left_out(&format!("cargo {name}"), &format!("rustup component add {name}"))?;
    }
    Ok(found)
}

/// Says that a check is left out. In CI this is an error, with the exceptions of the tests.
fn left_out(what: &str, missing: &str) -> Result<()> {
    if need::is_ci() && !need::may_lack(missing) {
        bail!("{what} cannot run: needs {missing}");
    }
    eprintln!("left out: {what}: needs {missing}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_tests_are_ended() {
        let run = |script, seconds| {
            run_tests(Command::new("sh").args(["-c", script]), Duration::from_secs(seconds))
                .map_err(|error| error.to_string())
        };
        assert!(run("sleep 1000 & wait", 1).unwrap_err().contains("hangs"));
        assert!(run("exit 3", 600).unwrap_err().contains("exit status: 3"));
        run("true", 600).unwrap();
    }
}
