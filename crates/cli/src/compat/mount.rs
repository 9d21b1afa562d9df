//! `mount.erofs [OPTIONS] IMAGE DIR`: also what mount(8) calls for `-t erofs.ferofs`.

use std::ffi::OsString;

use clap::Parser;

use crate::cmd::image::ImageArgs;
use crate::cmd::mount;
use crate::exit::Outcome;

/// Mount an EROFS image.
#[derive(Parser, Debug)]
#[command(name = "mount.erofs", version)]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount on
    dir: std::path::PathBuf,

    /// `erofs` for the kernel, `erofs.fuse` or `erofs.ferofs` for FUSE; else the kernel where it can
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,

    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,

    /// Unmount DIR
    #[arg(short = 'u')]
    unmount: bool,

    /// Given by mount(8): accepted
    #[arg(short = 'n')]
    no_mtab: bool,

    /// Given by mount(8): unknown options are for the kernel to judge
    #[arg(short = 's')]
    sloppy: bool,

    /// Say which way was taken
    #[arg(short = 'v')]
    verbose: bool,
}

/// Runs `mount.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    if let [_, flag, dir] = args
        && flag == "-u"
    {
        return mount::umount(&mount::UmountArgs { dir: dir.into() });
    }
    let args = Args::try_parse_from(args).unwrap_or_else(|error| error.exit());
    mount::run(&mount::Args {
        image: args.image,
        dir: args.dir,
        fuse: matches!(args.kind.as_deref(), Some("erofs.fuse" | "erofs.ferofs")),
        kernel: args.kind.as_deref() == Some("erofs"),
        foreground: false,
        options: args.options,
        threads: None,
        low_memory: false,
        memory: Default::default(),
        log_file: None,
        pid_file: None,
        no_sandbox: false,
        patches: Vec::new(),
        verbose: args.verbose,
    })
}
