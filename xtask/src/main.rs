//! What a person types while developing: `cargo xtask COMMAND`. One file a command.
#![forbid(unsafe_code)]

mod bench;
mod campaigns;
mod demo;
mod fuzz;
mod group;
mod install;
mod peers;
mod picture;
mod shell;
mod soak;
mod test;

use std::process::ExitCode;

use anyhow::{Result, bail};
use test::Extent;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  demo [DIR]                 make an image of DIR (/usr/share), mount it, compare each file, show what came of it
  test [--quick|--full]      run every check and test, and print what each stage took; --quick leaves out mounts, other tools and
                             campaigns; --full adds the slow tests (/usr, 200,000 names, 5 GiB)
  test --containers [MODE]...
                             pull an image and run a container with containerd's EROFS snapshotter and our mkfs.erofs;
                             needs Go, root and EROFS in the kernel; modes: default, tar-index, merged (all)
  peers                      install the newest erofs-utils and squashfs-tools under target/peers, for test and bench
  soak [--minutes N] [--memory MIB]
                             24 readers on FUSE mounts of nine layouts, comparing each byte, one killed each second; as root, with all
                             of it in a control group whose limit on memory goes down to MIB (512) and up again each minute
  bench build [DIR] [--into DIR] [--rounds N] [--contest lz4|lz4hc|zstd|48bit|dedupe]
                             time building an image of DIR (/usr) against mksquashfs and mkfs.erofs; into DIR, best in
                             memory (/dev/shm), as only ferofs waits for the disk
  bench codec                time the codecs alone
  bench mount [--quick] [--erofs-only] [--pattern sequential|random|stride] [--rounds N]
                             time reading through mounts against erofsfuse, the kernel's EROFS, squashfs and ext4; most of
                             an hour, or 15 minutes without squashfs and ext4
  bench paper [--quick] [--only EXPERIMENT]... [--data FILE|DIR]... [--out DIR] [--report] [--publish]
                             make the EROFS paper's evaluation anew, in 84 minutes (or 5), with a report to look at; an
                             interrupted run goes on; --publish puts its summary into docs, --report measures nothing
  bench extract [--rounds N] [--target DIR]
                             time extracting 2 GB in 60,000 files, one file of 1 GiB, and the files again in fragments,
                             against the peers' fsck.erofs and unsquashfs; into DIR, best in memory (/dev/shm/...)
  bench patch [DIR] [--files N]
                             weigh patches against deltas by xdelta3 and bsdiff, and against images built anew: a byte in
                             100 MB, an update of N (50,000) files of DIR (/usr), a directory of 10,000 files renamed
  bench read [FILE] [--tree IMAGE | --no-tree]
                             measure reading: FILE (512 MiB of Debian's linux-source) in an LZ4 image of 4 KiB
                             clusters, and every file of IMAGE (50,000 of the same in LZMA fragments)
  fuzz [TARGET] [--seconds N]
                             fuzz a parser, a codec or whole images (all of them) for N seconds (60) each; needs nightly
  fuzz options|faults|hostile [OPTIONS]
                             long searches: random settings and sequences of commands, failing system calls and kills, and
                             images whose fields lie; each prints its options with --help, and repeats a failure from its seed

Each command installs what it needs and is missing, with apt-get.";

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
        ["test"] => test::test(Extent::Usual)?,
        ["test", "--quick"] => test::test(Extent::Quick)?,
        ["test", "--full"] => test::test(Extent::Full)?,
        ["test", "--containers", modes @ ..] => test::containers(modes)?,
        ["peers"] => peers::peers()?,
        ["soak", options @ ..] => soak::soak(options)?,
        ["bench", "build", options @ ..] => bench::build(options)?,
        ["bench", "extract", options @ ..] => bench::extract(options)?,
        ["bench", "read", options @ ..] => bench::read(options)?,
        ["bench", "mount", options @ ..] => bench::mount(options)?,
        ["fuzz", campaign @ ("options" | "faults" | "hostile"), options @ ..] => {
            campaigns::campaign(campaign, options)?;
        }
        ["fuzz", options @ ..] => fuzz::fuzz(options)?,
        ["bench", "patch", options @ ..] => bench::patch(options)?,
        ["bench", "paper", options @ ..] => bench::paper(options)?,
        ["bench", "codec", options @ ..] => bench::codec(options)?,
        _ => bail!("no such command: {}\n\n{USAGE}", args.join(" ")),
    }
    Ok(())
}
