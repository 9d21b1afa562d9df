//! The benchmarks of ferofs. `cargo xtask bench ...` builds this program with optimisation and
//! starts it. It asserts no figure: figures depend on the machine.
//!
//! - [`write`], [`delta`], [`patch`], [`random`]: one job of the command `ferofs`, compared with
//!   other tools, over [`trees`] that users have.
//! - [`charts`]: the figures and pictures of README.md and of the guide.
//! - [`codec`]: the library alone; starts `crates/codec/benches`.
//! - [`fleet`]: images on servers.
//! - [`front`]: the table of README.md, from the published pages.
//! - [`gate`]: whether a job costs what was accepted; the only benchmark that can fail.
//! - [`kernel`]: Linux's own drivers read images of several programs.
//! - [`published`]: `all`, and whether the published pages are out of date.
//! - [`redundant`]: the size of images of many versions of the same trees.
//! - [`scale`]: many names, cold sources, and large indexes.
//! - [`terminal`]: the picture of a terminal in README.md.
//! - [`like`]: what programs transfer of images like earlier ones.
//! - [`paper`]: the evaluation of the EROFS paper, with a report.
#![forbid(unsafe_code)]

mod charts;
mod codec;
mod write;
/// What several benchmarks share.
mod common {
    pub(crate) mod deltas;
    pub(crate) mod filesystem;
    pub(crate) mod fio;
    pub(crate) mod machine;
    pub(crate) mod options;
    pub(crate) mod programs;
    pub(crate) mod reads;
    pub(crate) mod report;
    pub(crate) mod rounds;
}
mod delta;
mod fleet;
mod front;
mod gate;
mod kernel;
mod like;
mod paper;
mod patch;
mod published;
mod random;
mod redundant;
mod scale;
mod terminal;
mod trees;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use common::options::{PartArgs, SizeArgs};

/// The benchmarks of ferofs
///
/// --publish writes docs/results/COMMAND.md, if nothing else is said. Each command installs missing
/// programs with apt-get.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", max_term_width = 120)]
enum Bench {
    /// Measure and publish every page below docs in 95 minutes
    ///
    /// Only in a checkout without changes and on an idle machine; an interrupted run continues. The
    /// trees are made before.
    All,
    /// Time and size of builds, presets and extracting, over trees that users have
    ///
    /// Compared with mkfs.erofs, mksquashfs, mkdwarfs, fsck.erofs and unsquashfs. The trees need 6
    /// GB in target/bench-trees.
    Build(write::BuildArgs),
    /// Size, build time and random reads of images of a small Debian: the pictures and tables of
    /// README.md and docs/guide
    ///
    /// Compared with erofs-utils and squashfs-tools, and over algorithms, levels and cluster sizes.
    /// Needs root.
    Charts(charts::ChartsArgs),
    /// Time the codecs alone
    Codec(codec::CodecArgs),
    /// Sizes of exact deltas of real updates, and the cost of applying them, compared with bsdiff,
    /// xdelta3, zstd and casync; needs root
    Delta(SizeArgs),
    /// Images on servers, at several latencies: the first file, complete reads compared with
    /// downloads, 200 mounts on one machine
    ///
    /// Needs 8 GB in DIR (target/bench-fleet), and root.
    Fleet(fleet::FleetArgs),
    /// Fail if a build, check, read or patch of generated trees does not cost what bench/gate.tsv
    /// accepts; 4 minutes
    Gate(gate::GateArgs),
    /// Reads, and starts of programs, by Linux's own drivers of images of ferofs, mkfs.erofs and
    /// mksquashfs
    ///
    /// Images are in DIR (target). Needs root.
    Kernel(PartArgs),
    /// Bytes that programs fetch of images of real updates, with `build --like` and without
    Like(SizeArgs),
    /// Repeat the evaluation of the EROFS paper in 14 minutes and write a report; an interrupted
    /// run continues
    Paper(paper::PaperArgs),
    /// Sizes of patches of real updates, compared with bsdiff, xdelta3, zstd and casync
    Patch(SizeArgs),
    // The evaluation of the paper starts it.
    #[command(hide = true)]
    Policy(paper::policy::PolicyArgs),
    /// Random reads of 0.1 to 100 % of a file through mounts, compared with erofsfuse and the
    /// kernel's EROFS
    Random(random::RandomArgs),
    /// Sizes of images of many versions of the same trees, compared with mksquashfs and archives by
    /// zstd
    ///
    /// Also of snapshots that are added one by one. Needs pip, and 2 GB in target.
    Redundant(SizeArgs),
    /// Time and memory of trees of 10,000 to a million names, cold sources, and tiny images
    ///
    /// Compared with mkfs.erofs and mksquashfs. Needs 5 GB in DIR (/dev/shm) for a million names,
    /// and root.
    Scale(scale::ScaleArgs),
    /// Run the commands of the terminal in README.md, and show what they print; needs root
    Terminal(terminal::TerminalArgs),
}

fn main() -> ExitCode {
    match run(Bench::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(bench: Bench) -> Result<()> {
    match bench {
        Bench::All => {
            published::all(|name| run(Bench::try_parse_from(["bench", name, "--publish"])?))
        }
        Bench::Build(args) => write::build(&args),
        Bench::Charts(args) => charts::charts(&args),
        Bench::Codec(args) => codec::codec(&args),
        Bench::Delta(args) => delta::delta(&args),
        Bench::Fleet(args) => fleet::fleet(args),
        Bench::Gate(args) => gate::gate(&args),
        Bench::Kernel(args) => kernel::kernel(&args),
        Bench::Like(args) => like::like(&args),
        Bench::Paper(args) => paper::paper(&args),
        Bench::Patch(args) => patch::patch(&args),
        Bench::Policy(args) => paper::policy::policy(&args),
        Bench::Random(args) => random::random(&args),
        Bench::Redundant(args) => redundant::redundant(&args),
        Bench::Scale(args) => scale::scale(args),
        Bench::Terminal(args) => terminal::terminal(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Bench::command().debug_assert();
        for wrong in [
            &["kernel", "--rounds", "0"][..],
            &["kernel", "--publish", "--only", "zstd 128K"],
            &["fleet", "--publish", "--quick"],
            &["build", "--publish", "--trees", "part"],
            &["gate", "--accept", " "],
            &["gate", "--accept", "a\tb"],
        ] {
            assert!(Bench::try_parse_from([&["bench"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }
}
