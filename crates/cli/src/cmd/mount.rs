//! `ferofs mount` and `ferofs umount`.
//!
//! Without `-f` the FUSE daemon is this program once more, in a session of its own: it mounts, says so on
//! its standard output, and only then does the command return.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferofs::read::OpenOptions;
use ferofs_fuse::MountOptions;

use super::image::ImageArgs;
use crate::exit::{Failure, Outcome};

/// Tells the daemon that somebody waits for its word.
const READY_VARIABLE: &str = "FEROFS_TELL_WHEN_MOUNTED";
const READY: &[u8] = b"mounted\n";
/// Options that mean something to mount(8) alone, or that hold anyway.
const IGNORED_OPTIONS: [&str; 12] = [
    "ro",
    "loop",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "nofail",
    "_netdev",
    "defaults",
    "default_permissions",
    "x-gvfs-hide",
];

/// Mount an image, through the kernel where it can, else through FUSE
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// The directory to mount on
    pub(crate) dir: PathBuf,

    /// Mount through FUSE
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) fuse: bool,

    /// Mount through the kernel's own driver
    #[arg(long)]
    pub(crate) kernel: bool,

    /// Stay in the foreground until unmounted; implies --fuse
    #[arg(short, long, conflicts_with = "kernel")]
    pub(crate) foreground: bool,

    /// Mount options, separated by commas, as of mount(8)
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,

    /// Threads of the FUSE daemon [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,

    /// Say which way was taken, and why
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Unmount an image
#[derive(clap::Args)]
pub(crate) struct UmountArgs {
    /// The directory that it is mounted on
    pub(crate) dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // Whatever way is taken, a bad superblock or root is told before anything appears.
    let image = args.image.open_with(&OpenOptions::default())?;
    image.root().map_err(|e| Failure::about(&args.image.path, e))?;
    let daemon = std::env::var_os(READY_VARIABLE).is_some();
    let try_kernel = args.kernel || !(args.fuse || args.foreground || daemon);
    if try_kernel && (args.kernel || rustix::process::geteuid().is_root()) {
        match mount_in_kernel(args) {
            Ok(()) => {
                args.say("mounted by the kernel");
                return Ok(0);
            }
            Err(error) if args.kernel => {
                return Err(Failure::about(&args.image.path, error));
            }
            Err(error) => args.say(&format!("the kernel does not mount it ({error}); using FUSE")),
        }
    }
    if args.foreground || daemon {
        return serve(args, image, daemon);
    }
    drop(image);
    start_daemon()
}

pub(crate) fn umount(args: &UmountArgs) -> Outcome {
    let unmounted = rustix::mount::unmount(&args.dir, rustix::mount::UnmountFlags::NOFOLLOW);
    let Err(error) = unmounted else { return Ok(0) };
    // Without root, fusermount3 takes away what it mounted.
    if error == rustix::io::Errno::PERM {
        let status = Command::new("fusermount3").arg("-u").arg(&args.dir).status();
        match status.map_err(|e| Failure::about(Path::new("fusermount3"), e))?.code() {
            Some(0) => return Ok(0),
            _ => return Ok(crate::exit::FAILURE),
        }
    }
    Err(Failure::about(&args.dir, io::Error::from(error)))
}

impl Args {
    fn say(&self, what: &str) {
        if self.verbose {
            eprintln!("ferofs: {}: {what}", self.image.path.display());
        }
    }

    /// Options that are passed on.
    fn passed_options(&self) -> impl Iterator<Item = &String> {
        self.options.iter().filter(|option| !IGNORED_OPTIONS.contains(&option.as_str()) && !option.is_empty())
    }
}

/// Mounts a file or block device as it is, or through a loop device.
fn mount_in_kernel(args: &Args) -> io::Result<()> {
    let mut command = Command::new("mount");
    command.args(["-t", "erofs", "-o"]);
    let mut options: Vec<OsString> = vec!["ro".into()];
    options.extend(args.passed_options().map(OsString::from));
    if args.image.offset != 0 {
        options.push(format!("loop,offset={}", args.image.offset).into());
    }
    for device in &args.image.devices {
        let mut option = OsString::from("device=");
        option.push(device);
        options.push(option);
    }
    let output = command.arg(options.join(",".as_ref())).arg(&args.image.path).arg(&args.dir).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("mount failed");
    Err(io::Error::other(line.trim_start_matches("mount: ").to_owned()))
}

/// Runs this command again as the daemon, and waits until it has mounted or failed.
fn start_daemon() -> Outcome {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| "ferofs".into());
    let mut daemon = Command::new(std::env::current_exe()?)
        .arg0(name)
        .args(args)
        .env(READY_VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut word = Vec::new();
    if let Some(stdout) = daemon.stdout.take() {
        stdout.take(READY.len() as u64).read_to_end(&mut word)?;
    }
    if word == READY {
        return Ok(0);
    }
    // It has printed why.
    let code = daemon.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.filter(|code| *code != 0).unwrap_or(crate::exit::FAILURE))
}

fn serve(args: &Args, image: ferofs::read::Image, daemon: bool) -> Outcome {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok());
    let options = MountOptions {
        source: args.image.path.to_string_lossy().replace(',', "_"),
        threads: threads.map_or(1, Into::into),
        allow_other: args.options.iter().any(|option| option == "allow_other"),
        extra: args.passed_options().filter(|option| *option != "allow_other").cloned().collect(),
    };
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    // The daemon leaves this directory, and must find the mount again to take it away.
    let dir = std::fs::canonicalize(&args.dir).map_err(|e| Failure::about(&args.dir, e))?;
    let mut mounted = ferofs_fuse::mount(image, &dir, &options).map_err(|e| Failure::about(&args.dir, e))?;
    let mut stopper = mounted.stopper();
    let waiting = signals.handle();
    let stop = std::thread::spawn(move || {
        for _ in signals.forever() {
            // A mount that is in use stays; the next signal tries again.
            if stopper.stop().is_ok() {
                break;
            }
        }
    });
    if daemon {
        detach()?;
    }
    let served = mounted.serve().map_err(|e| Failure::about(&args.dir, e));
    waiting.close();
    // The thread holds nothing that could fail to be released.
    let _ = stop.join();
    served.map(|()| 0)
}

/// Leaves the terminal's session, says that the mount is there, and lets go of standard streams.
fn detach() -> Result<(), Failure> {
    rustix::process::setsid().map_err(io::Error::from)?;
    let mut out = io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(io::Error::from)?;
    rustix::stdio::dup2_stderr(&null).map_err(io::Error::from)?;
    std::env::set_current_dir("/")?;
    Ok(())
}
