//! `erofsfuse [OPTIONS] IMAGE DIR`.

use std::ffi::OsString;

use clap::Parser;

use crate::args::image::ImageArgs;
use crate::cmd::mount::{self, HelperOptions};
use crate::exit::Outcome;

/// The subtype of mounts, and the program that mount(8) starts for them.
pub(super) const NAME: &str = "erofsfuse";

/// Mount an EROFS image through FUSE.
#[derive(Parser, Debug)]
#[command(name = NAME, version = super::version::FUSE)]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount on
    dir: std::path::PathBuf,

    /// Stay in the foreground
    #[arg(short)]
    foreground: bool,

    /// Stay in the foreground, and print how the image was mounted
    #[arg(short)]
    debug: bool,

    /// Use only one thread
    #[arg(short)]
    single: bool,

    /// Mount options of mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,

    /// Accepted without effect: the level of messages
    #[arg(long, value_name = "LEVEL")]
    dbglevel: Option<u8>,
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs `erofsfuse` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args: Args = super::parse(args);
    mount::run(&mount::Args {
        image: args.image,
        dir: args.dir,
        fuse: true,
        kernel: false,
        foreground: args.foreground || args.debug,
        options: args.options,
        threads: if args.single { std::num::NonZeroUsize::new(1) } else { None },
        low_memory: false,
        memory: Default::default(),
        log_file: None,
        pid_file: None,
        no_sandbox: false,
        over: true,
        patches: Vec::new(),
        verbose: args.debug,
        helper: HelperOptions { ignores_checksum: true, ..HelperOptions::default() },
        subtype: NAME,
    })
}
