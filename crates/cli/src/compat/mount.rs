//! `mount.erofs [OPTIONS] IMAGE DIR`.
//!
//! mount(8) starts `/sbin/mount.erofs` for `-t erofs`, `-t erofs.fuse` and `-t erofs.ferofs` (mount(8), "external
//! helpers"): `mount.erofs SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]`. This program
//! must never start mount(8): mount(8) would start this program again, without end.

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

    /// How to mount: `erofs` with the kernel's driver, `erofs.fuse` or `erofs.ferofs` through FUSE [default: the kernel's
    /// driver if possible, otherwise FUSE]
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,

    /// Mount options of mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,

    /// Unmount DIR
    #[arg(short = 'u')]
    unmount: bool,

    /// Accepted without effect: mount(8) gives this option
    #[arg(short = 'n')]
    no_mtab: bool,

    /// Ignore options that the kernel does not know
    #[arg(short = 's')]
    sloppy: bool,

    /// Do everything except the mount itself
    #[arg(short = 'f')]
    fake: bool,

    /// Mount in the mount namespace of this file, for example /proc/PID/ns/mnt
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<std::path::PathBuf>,

    /// Print how the image was mounted, and why
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
        prefetch: None,
        log_file: None,
        pid_file: None,
        no_sandbox: false,
        patches: Vec::new(),
        verbose: args.verbose,
        helper: mount::HelperOptions { fake: args.fake, sloppy: args.sloppy },
    })
}

/// Moves this process into a mount namespace. The FUSE daemon is a child with the same arguments: it inherits the
/// namespace and must not enter it again, because its path may mean another file there.
fn enter(namespace: &Path) -> io::Result<()> {
    if mount::is_daemon() {
        return Ok(());
    }
    let namespace = std::fs::File::open(namespace)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}
