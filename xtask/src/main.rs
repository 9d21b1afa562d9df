//! The commands that developers of ferofs type: `cargo xtask COMMAND`. Each command has its own
//! file. `bench` has its own crate, which this program builds and starts, so that other commands do
//! not compile the benchmarks.
#![forbid(unsafe_code)]

mod api;
mod demo;
mod dist;
mod fuzz;
mod processor;
mod soak;
mod test;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use ferofs_devtools::{c_library, peers, shell};
use ferofs_tests::scratch;
use test::Scope;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  demo [DIR]                 make an image of DIR (/usr/share), mount it, compare each file, and show the result
  test [--quick|--full]      run every check and test, and print the time of each stage; --quick leaves out mounts, other tools,
                             campaigns, and most settings; --full adds the slow tests (/usr, 200,000 names, 5 GiB); it says first
                             what it installs, how long it takes, and how much disk it needs
  test --containers [MODE]...
                             pull images and run containers with containerd's EROFS snapshotter and our mkfs.erofs;
                             needs Go, root and EROFS in the kernel; modes: default, tar-index, merged, pushed, converted, layers, difference (all)
  test --vm                  in virtual machines, mount with dm-verity and by systemd, and build within a cgroup; needs root
  test --kernels [OPTIONS]   let Linux 5.10 to 7.3 read images of all layouts, and of random options, in virtual machines, also on
                             ARM with pages of 4 and 16 KiB; --help prints its options; needs rustup; half an hour
  test --processors [--publish] [NAME]...
                             run the unit tests and the command for aarch64, armv7, riscv64, i686, powerpc64le and s390x (all) under
                             QEMU, and compare the images with those of this machine; needs rustup; 40 minutes
  test --systems [--publish] let the command for Windows read images under Wine, and compare its output with that of this machine's; compile
                             the command for macOS; needs rustup and pip
  test --packages            make the packages as `dist` does, install them in a new Debian, use them there, and remove them; compare what
                             the programs for other processors make, under QEMU; needs root
  dist [--for PROCESSOR]... [DIR]
                             make the source archive, and for x86_64 and aarch64 (both) static programs (ferofs, ferofs-device), and
                             Debian and rpm packages, of the last commit in DIR (target/dist)
  dist --check               make them twice, with different paths, and compare the bytes
  api                        list the public items of the libraries in docs/api, which `test` compares; needs rustup
  api --since REVISION       say which version number a release needs after this one, by cargo-semver-checks; half a minute for each library
  c-library DIR              build libferofs for C programs, and install it below DIR: libraries, header, file for pkg-config
  peers                      install the newest erofs-utils and squashfs-tools under target/peers, for test and bench
  soak [--minutes N] [--memory MIB]
                             24 processes read FUSE mounts of nine layouts and compare each byte; one is killed each second; as
                             root, a control group limits the memory of all: MIB (512), then four times as much, each for a minute
  bench COMMAND [OPTIONS]    measure speed, size and memory: all, build, charts, codec, fleet, gate, kernel, like, paper, patch, random,
                             redundant, scale, terminal; `bench --help` prints their options
  fuzz [TARGET] [--seconds N]
                             fuzz a parser, a codec or whole images (all of them) for N seconds (60) each; needs nightly
  fuzz options|faults|hostile [OPTIONS]
                             long searches: random settings and sequences of commands; failing system calls and kills; images
                             with false fields; each prints its options with --help, and repeats a failure from its seed
  fuzz mutants [PART]... [--shard K/N]
                             changes the code of a part in many small ways, and lists those that no unit test notices; needs
                             cargo-mutants; parts: format, verity, metadata, output, dedupe, image, apply, target, check (all);
                             a shard is every N-th change, from K (0 to N - 1) on

Each command installs missing programs with apt-get.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] | ["help" | "--help" | "-h"] => println!("{USAGE}"),
        ["demo"] => demo::demo("/usr/share".as_ref())?,
        ["demo", dir] if !dir.starts_with('-') => demo::demo(dir.as_ref())?,
        ["test", "--help" | "-h"] => println!("{}", usage_of("test")),
        ["test"] => test::test(Scope::Normal)?,
        ["test", "--quick"] => test::test(Scope::Quick)?,
        ["test", "--full"] => test::test(Scope::Full)?,
        ["test", "--containers", modes @ ..] => test::containers(modes)?,
        ["test", "--vm"] => test::virtual_machine()?,
        ["test", "--kernels", options @ ..] => fuzz::kernels(options)?,
        ["test", "--processors", options @ ..] => test::processors::run(options)?,
        ["test", "--systems"] => test::systems::run(false)?,
        ["test", "--systems", "--publish"] => test::systems::run(true)?,
        ["test", "--packages"] => test::packages()?,
        ["dist", arguments @ ..] => dist::run(arguments)?,
        ["api"] => api::write()?,
        ["api", "--since", revision] => api::compare(revision)?,
        ["c-library", prefix] if !prefix.starts_with('-') => install_c_library(prefix.as_ref())?,
        ["peers"] => peers::install_peers()?,
        ["soak", options @ ..] => soak::soak(options)?,
        ["bench", "gate", options @ ..] => gate(options)?,
        ["bench", arguments @ ..] => bench(arguments)?,
        ["fuzz", campaign @ ("options" | "faults" | "hostile"), options @ ..] => {
            fuzz::campaign(campaign, options)?;
        }
        ["fuzz", "mutants", parts @ ..] => fuzz::mutants(parts)?,
        ["fuzz", options @ ..] => fuzz::fuzz(options)?,
        _ => bail!("no such command: {}\n\n{USAGE}", args.join(" ")),
    }
    Ok(())
}

/// The lines of the usage about one command.
fn usage_of(command: &str) -> String {
    let mut shown = false;
    let is_about = |line: &&str| {
        let starts = line.starts_with("  ") && !line.starts_with("   ");
        if starts || line.is_empty() {
            shown = line.split_whitespace().next() == Some(command);
        }
        shown
    };
    USAGE.lines().filter(is_about).collect::<Vec<_>>().join("\n")
}

/// Builds the crate `ferofs-bench` with optimisation, and starts it with the same arguments.
fn bench(arguments: &[&str]) -> Result<()> {
    let program = ["run", "--release", "--package", "ferofs-bench", "--"];
    shell::run(shell::cargo().args(program).args(arguments).current_dir(std::env::current_dir()?))
}

/// `cargo xtask bench gate`: the program that it measures is the one that the tests run, so that
/// `cargo xtask test` builds no other.
fn gate(options: &[&str]) -> Result<()> {
    shell::run(&mut fuzz::build_command())?;
    run_gate(options)
}

/// Starts the gate when ferofs is built. The benchmarks need no optimisation here: they only start
/// ferofs.
pub(crate) fn run_gate(options: &[&str]) -> Result<()> {
    // The whole workspace selects the features that the tests were compiled with.
    shell::run(shell::cargo().args(["build", "--workspace", "--bin", "ferofs-bench"]))?;
    let mut gate = Command::new(scratch::target_dir().join("debug/ferofs-bench"));
    shell::run(gate.arg("gate").args(options).env("FEROFS_BIN", fuzz::ferofs()))
}

fn install_c_library(prefix: &Path) -> Result<()> {
    shell::run(shell::cargo().args(["build", "--release", "--package", "ferofs-capi"]))?;
    let source = shell::repository().join("crates/capi");
    c_library::install(&source, &scratch::target_dir().join("release"), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_a_command_has_its_lines_alone() {
        let help = usage_of("test");
        assert!(
            help.starts_with("  test [--quick|--full]") && help.contains("test --vm"),
            "{help}"
        );
        assert!(
            help.contains("needs root") && !help.contains("  dist ") && !help.contains("demo"),
            "{help}"
        );
    }
}
