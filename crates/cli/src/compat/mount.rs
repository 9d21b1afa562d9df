//! `mount.erofs [OPTIONS] IMAGE DIR`.
//!
//! Installed as `/sbin/mount.erofs`, this is what mount(8) starts for `-t erofs`, `-t erofs.fuse` and `-t erofs.ferofs`
//! (mount(8), "external helpers"): `mount.erofs SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]`. So
//! nothing here may start mount(8).

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use clap::Parser;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::args::image::ImageArgs;
use crate::cmd::mount;
use crate::exit::{Failure, Outcome};

/// Mount an EROFS image.
#[derive(Parser, Debug)]
#[command(name = "mount.erofs", version = super::version::PLAIN)]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount on
    dir: std::path::PathBuf,

    /// `erofs` for the kernel, `erofs.fuse` or `erofs.ferofs` for FUSE; else the kernel where it can
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,

    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,

    /// Unmount DIR
    #[arg(short = 'u')]
    unmount: bool,

    /// Given by mount(8): accepted
    #[arg(short = 'n')]
    no_mtab: bool,

    /// Leave out options that the kernel does not know
    #[arg(short = 's')]
    sloppy: bool,

    /// Do everything but mount
    #[arg(short = 'f')]
    fake: bool,

    /// Mount in the mount namespace that this file stands for
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<std::path::PathBuf>,

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
    if let Some(namespace) = &args.namespace {
        enter(namespace).map_err(|e| Failure::about(namespace, e))?;
    }
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
        helper: mount::Helper { fake: args.fake, sloppy: args.sloppy },
    })
}

/// Moves this process into a mount namespace. The FUSE daemon, which this process starts with the same arguments, comes
/// to the same one.
fn enter(namespace: &Path) -> io::Result<()> {
    if mount::is_daemon() {
        return Ok(());
    }
    let namespace = std::fs::File::open(namespace)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}
