//! `mount.erofs [OPTIONS] SOURCE DIR`, `mount.erofs -u DIR` and `mount.erofs --reattach DIR`.
//!
//! mount(8) starts `/sbin/mount.erofs` for `-t erofs`, `-t erofs.fuse`, `-t erofs.ferofs` and the
//! other subtypes (mount(8), "external helpers"): `mount.erofs SOURCE DIR [-sfnv] [-N NAMESPACE]
//! [-o OPTIONS] [-t TYPE.SUBTYPE]`. This program must never start mount(8): mount(8) would start
//! this program again, without end.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Parser;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::args::image::ImageArgs;
use crate::cmd::mount;
use crate::exit::{Concerning, Failure, Outcome};
use crate::print::output::message;
use ferofs::escape::Escaped;

/// From this level of messages on (erofs-utils: information), the program says how it mounted.
const VERBOSE_LEVEL: u8 = 3;

/// Mount an EROFS image.
#[derive(Parser, Debug)]
#[command(
    name = "mount.erofs",
    version = super::version::PLAIN,
    after_help = "mount.erofs -u DIR unmounts, and mount.erofs --reattach DIR mounts again what has lost its daemon."
)]
#[cfg_attr(feature = "remote", command(after_help = crate::servers::mount::erofs_utils::HELP))]
struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The directory to mount on
    dir: PathBuf,

    /// How to mount: `erofs` and `erofs.local` with the kernel's driver; `erofs.fuse` and
    /// `erofs.ferofs` through FUSE, and `erofs.nbd`, `erofs.ublk` and `erofs.fanotify` too, with a
    /// message [default: the kernel's driver if possible, otherwise FUSE]
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<Kind>,

    /// Mount options of mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,

    /// Level of messages, 0 to 9; from 3 on the same as -v
    #[arg(short = 'd', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=9))]
    level: Option<u8>,

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
    namespace: Option<PathBuf>,

    /// Print how the image was mounted, and why
    #[arg(short = 'v')]
    verbose: bool,
}

/// Values of `-t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Erofs,
    #[value(name = "erofs.local")]
    Local,
    #[value(name = "erofs.fuse", aliases = ["fuse.ferofs", "fuse.erofsfuse"])]
    Fuse,
    #[value(name = "erofs.ferofs")]
    Ferofs,
    #[value(name = "erofs.nbd")]
    Nbd,
    #[value(name = "erofs.ublk")]
    Ublk,
    #[value(name = "erofs.fanotify")]
    Fanotify,
}

impl Kind {
    fn is_kernel(self) -> bool {
        matches!(self, Self::Erofs | Self::Local)
    }

    /// The way of erofs-utils that ferofs does not have.
    fn missing(self) -> Option<&'static str> {
        match self {
            Self::Nbd => Some("NBD"),
            Self::Ublk => Some("ublk"),
            Self::Fanotify => Some("fanotify"),
            _ => None,
        }
    }
}

/// The commands for an existing mount.
#[derive(Parser, Debug)]
#[command(name = "mount.erofs", version = super::version::PLAIN)]
struct TargetArgs {
    /// Unmount DIR
    #[arg(short = 'u', conflicts_with_all = ["reattach", "disconnect"])]
    unmount: bool,

    /// Mount again on DIR what has lost its daemon
    #[arg(long, conflicts_with = "disconnect")]
    reattach: bool,

    /// Refused: ferofs has no NBD devices
    #[arg(long)]
    disconnect: bool,

    /// The directory on which an image is mounted
    dir: PathBuf,
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs `mount.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let is_target =
        |arg: &OsString| ["-u", "--reattach", "--disconnect"].iter().any(|name| arg == name);
    if args.iter().skip(1).take_while(|arg| *arg != "--").any(is_target) {
        return run_target(&super::parse(args));
    }
    run_with(super::parse(args), mount::FEROFS)
}

/// Runs `mount.fuse.SUBTYPE SOURCE DIR [-o OPTIONS]`, and `ferofs SOURCE DIR -o OPTIONS`: with
/// these arguments mount.fuse(8) starts the program that the type `fuse.ferofs` names, also to
/// change the options of a mount.
pub(crate) fn run_fuse(args: &[OsString], subtype: &'static str) -> Outcome {
    let mut args: Args = super::parse(args);
    args.kind = Some(Kind::Fuse);
    run_with(args, subtype)
}

fn run_with(args: Args, subtype: &'static str) -> Outcome {
    let is_kernel = args.kind.is_some_and(Kind::is_kernel);
    #[cfg(feature = "remote")]
    let args = {
        let mut args = args;
        crate::servers::mount::erofs_utils::take(&mut args.options, &mut args.image, is_kernel)?;
        args
    };
    if let Some(missing) = args.kind.and_then(Kind::missing)
        && !mount::is_daemon()
    {
        message!(
            "{}: ferofs has no {missing}; mounting through FUSE",
            Escaped::path(&args.image.path)
        );
    }
    if let Some(namespace) = &args.namespace {
        enter(namespace).concerning(namespace)?;
    }
    mount::run(&mount::Args {
        image: args.image,
        dir: args.dir,
        fuse: args.kind.is_some_and(|kind| !kind.is_kernel()),
        kernel: is_kernel,
        foreground: false,
        options: args.options,
        threads: None,
        low_memory: false,
        memory: Default::default(),
        log_file: None,
        pid_file: None,
        no_sandbox: false,
        over: true,
        patches: Vec::new(),
        verbose: args.verbose || args.level.is_some_and(|level| level >= VERBOSE_LEVEL),
        helper: mount::HelperOptions {
            fake: args.fake,
            sloppy: args.sloppy,
            is_helper: true,
            ignores_checksum: subtype == super::erofsfuse::NAME,
        },
        subtype,
    })
}

fn run_target(args: &TargetArgs) -> Outcome {
    if args.disconnect {
        let reason = "ferofs has no NBD device to disconnect; mount.erofs -u unmounts a directory";
        return Err(Failure::about(&args.dir, reason));
    }
    if args.reattach {
        return mount::reattach(&args.dir);
    }
    mount::umount(&mount::UmountArgs { dir: args.dir.clone(), lazy: false })
}

/// Moves this process into a mount namespace. The FUSE daemon is a child with the same arguments:
/// it inherits the namespace and must not enter it again, because its path may mean another file
/// there.
fn enter(namespace: &Path) -> io::Result<()> {
    if mount::is_daemon() {
        return Ok(());
    }
    let namespace = std::fs::File::open(namespace)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}
