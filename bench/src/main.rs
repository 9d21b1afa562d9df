//! The benchmarks of ferofs. `cargo xtask bench ...` builds this program with optimisation and starts it. It asserts no figure:
//! figures depend on the machine.
//!
//! - [`build`], [`patch`], [`random`]: one job of the command `ferofs`, compared with other tools, over [`trees`] that users have.
//! - [`charts`]: the figures and pictures of README.md and of the guide.
//! - [`codec`]: the library alone; starts `crates/codec/benches`.
//! - [`fleet`]: images on servers.
//! - [`gate`]: whether a job costs more than accepted; the only benchmark that can fail.
//! - [`kernel`]: Linux's own drivers read images of several programs.
//! - [`published`]: `all`, and whether the published pages are out of date.
//! - [`redundant`]: the size of images of many versions of the same trees.
//! - [`scale`]: many names, cold sources, and large indexes.
//! - [`terminal`]: the picture of a terminal in README.md.
//! - [`paper`]: the evaluation of the EROFS paper, with a report.
#![forbid(unsafe_code)]

mod build;
mod charts;
mod codec;
/// What several benchmarks share.
mod common {
    pub(crate) mod filesystem;
    pub(crate) mod fio;
    pub(crate) mod machine;
    pub(crate) mod options;
    pub(crate) mod programs;
    pub(crate) mod reads;
    pub(crate) mod report;
    pub(crate) mod rounds;
}
mod fleet;
mod gate;
mod kernel;
mod paper;
mod patch;
mod published;
mod random;
mod redundant;
mod scale;
mod terminal;
mod trees;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
Usage: cargo xtask bench COMMAND

  all                        measure and publish every page below docs in 90 minutes, besides the making of the trees; only in a checkout
                             without changes and on an idle machine; an interrupted run continues
  build [--only CONTEST]... [--trees NAME]... [--rounds N] [--into DIR] [--publish]
                             time and size of builds, presets and extracting, over trees that users have, compared with mkfs.erofs, mksquashfs,
                             mkdwarfs, fsck.erofs and unsquashfs; images go to --into DIR (/dev/shm); a wrong NAME lists the contests;
                             the trees need 6 GB in target/bench-trees
  charts [--rounds N] [--only peers|settings] [--publish | --draw]
                             size, build time and random reads of images of a small Debian: compared with erofs-utils and
                             squashfs-tools, and over algorithms, levels and cluster sizes; processor time, at least 3 rounds with
                             --publish, which writes the pictures and tables of README.md and docs/guide; --draw makes them from the
                             published figures; needs root
  codec [--publish | [--only CODEC] [--mib N]]
                             time the codecs alone
  fleet [--rounds N] [--quick] [--only PART]... [--dir DIR] [--publish]
                             time images on servers, at several latencies: the first file, complete reads compared with
                             downloads, 200 mounts on one machine; needs 8 GB in DIR (target/bench-fleet), and root; parts:
                             first-file, remount, complete, sequential, many; two minutes with --quick
  gate [--accept WHY] [--only TEXT] [--rounds N]
                             fail if a build, check, read or patch of generated trees needs more instructions, memory, system calls or
                             bytes than bench/gate.tsv accepts; --accept writes what was measured there, with the reason; --only has
                             the cells whose name contains TEXT; --rounds measures N times and prints the spread; 4 minutes
  kernel [--only SETTING]... [--rounds N] [--dir DIR] [--publish]
                             time reads, and starts of programs, by Linux's own drivers of images that ferofs, mkfs.erofs and mksquashfs
                             made of the same trees; images are in DIR (target); needs root
  paper [--only EXPERIMENT]... [--out DIR] [--report] [--publish]
                             repeat the evaluation of the EROFS paper in 14 minutes and write a report; an interrupted run
                             continues; --publish copies the summary to docs/results, --report measures nothing
  patch [--only NAME]... [--publish]
                             compare the size of patches of real updates with xdelta3, zstd and casync: Django, numpy, scipy, ruff,
                             Debian, kernel
  random [--rounds N] [--only TEXT] [--publish]
                             time random reads of 0.1 to 100 % of a file through mounts, compared with erofsfuse and the kernel's EROFS;
                             only cells whose name contains TEXT
  redundant [--only FAMILY]... [--publish]
                             sizes of images of many versions of the same trees, compared with mksquashfs and archives by zstd, and of
                             snapshots that are added one by one; families: python, sqlalchemy (fetched by pip), headers (by apt-get),
                             nightly, layers (generated); needs 2 GB in target
  scale [--names N] [--rounds N] [--only PART]... [--dir DIR] [--publish]
                             time and memory of trees of 10,000 to N (1,000,000) names, compared with mkfs.erofs and mksquashfs, of
                             builds from and onto a disk, and of tiny images; needs 5 GB in DIR
                             (/dev/shm) for a million names, and root; parts: names, cold, output, tiny
  terminal [--publish | --draw]
                             run the commands of the terminal in README.md, and show what they print; --publish writes it and its
                             picture to docs/pictures, --draw makes the picture from what is published; needs root

--publish writes docs/results/COMMAND.md, if nothing else is said. Each command installs missing programs with apt-get.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[&str]) -> Result<()> {
    match args {
        [] | ["help" | "--help" | "-h"] => println!("{USAGE}"),
        ["all"] => published::all(dispatch)?,
        ["build", options @ ..] => build::build(options)?,
        ["charts", options @ ..] => charts::charts(options)?,
        ["codec", options @ ..] => codec::codec(options)?,
        ["fleet", options @ ..] => fleet::fleet(options)?,
        ["gate", options @ ..] => gate::gate(options)?,
        // Not in the list of commands: the evaluation starts it.
        ["policy", options @ ..] => paper::policy::policy(options)?,
        ["kernel", options @ ..] => kernel::kernel(options)?,
        ["paper", options @ ..] => paper::paper(options)?,
        ["patch", options @ ..] => patch::patch(options)?,
        ["random", options @ ..] => random::random(options)?,
        ["redundant", options @ ..] => redundant::redundant(options)?,
        ["scale", options @ ..] => scale::scale(options)?,
        ["terminal", options @ ..] => terminal::terminal(options)?,
        _ => bail!("no such benchmark: {}\n\n{USAGE}", args.join(" ")),
    }
    Ok(())
}
