//! `ferofs-device`: what a device does with its images. It applies patches, goes back, checks,
//! verifies and mounts, and builds nothing, so that a static program is small enough for an
//! initramfs. The commands and exit codes are those of `ferofs`.

#![forbid(unsafe_code)]

mod args;
mod change;
mod check;
mod delta;
mod failure;
mod mount;

use std::process::ExitCode;

use crate::args::Command;
use crate::failure::{Failure, Outcome, USAGE, message, print};

const HELP: &str = "\
ferofs-device: patches, checks, verifies and mounts EROFS images

ferofs-device apply IMAGE PATCH      apply a patch, or those of a file that fit; - is standard input
    --grow-over                      let the image grow over data after it
    --signature FILE --cert FILE     change nothing without this signature by a certificate; needs openssl
ferofs-device rollback IMAGE         make the state before the current one current again
    --to N                           make this state current again
    --grow-over                      as above
ferofs-device repair IMAGE           restore a damaged superblock, remove the remains of an interrupted change
ferofs-device delta OLD DELTA NEW    make an exact new image; DELTA and NEW can be -
    --resume                         keep the right bytes at the start of NEW
    --force                          replace other data than an EROFS image
    --signature FILE --cert FILE     as above
ferofs-device delta-show DELTA       digests of both images, the root hash, the memory for applying
ferofs-device check IMAGE            check an image against the rules of the format
    --deep                           decode all data, too
ferofs-device verify IMAGE ROOTHASH  check each block against the root hash of dm-verity
    --hash-file FILE                 file with the hash tree; without it, the image itself
    --hash-offset BYTES              position of the hash tree's superblock
ferofs-device mount IMAGE DIR        mount with FUSE, and answer requests until the unmount or SIGTERM
    --patch PATCH                    show the tree of this patch; may be given several times
    --roothash HEX                   verify each block when it is read
    --hash-file, --hash-offset       as above
    --low-memory                     use less memory, and read more slowly
";

#[global_allocator]
static ALLOCATOR: ferofs_threads::ReportingAllocator =
    ferofs_threads::ReportingAllocator { program: "ferofs-device", code: failure::OUT_OF_MEMORY };

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    // fsck(8) defines another code for wrong usage.
    let usage =
        if words.first().is_some_and(|word| word == "check") { check::USAGE } else { USAGE };
    let outcome = match args::parse(words) {
        Ok(command) => run(command),
        Err(error) => Err(Failure::without_subject(error.to_string()).with_code(usage)),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(failure) => {
            message(&failure);
            failure.code().into()
        }
    }
}

fn run(command: Command) -> Outcome {
    // As in `ferofs`: not for mounts, which last.
    if !matches!(command, Command::Mount(_) | Command::Serve(_)) {
        ferofs_threads::refuse_memory_beyond_cgroup(25);
    }
    ferofs_threads::reserve_less_if_limited();
    match command {
        Command::Help => print(HELP.trim_end()),
        Command::Version => print(concat!("ferofs-device ", env!("CARGO_PKG_VERSION"))),
        Command::Apply { image, patch, grow_over, signature } => {
            change::apply(&image, &patch, grow_over, signature.as_ref())
        }
        Command::Rollback { image, to, grow_over } => change::rollback(&image, to, grow_over),
        Command::Repair { image } => change::repair(&image),
        Command::Delta(args) => delta::apply(&args),
        Command::DeltaShow { delta } => delta::show(&delta),
        Command::Check { image, deep } => check::run(&image, deep),
        Command::Verify { image, seal } => check::verify(&image, &seal),
        Command::Mount(args) => mount::run(&args),
        Command::Serve(args) => mount::serve(&args),
    }
}
