//! `ferofs mount` and `ferofs umount`.
//!
//! Without `-f` the FUSE daemon is this program once more, in a session of its own: it mounts, says so on
//! its standard output, and only then does the command return.

mod daemon_log;
mod flags;
mod kernel;
mod loop_device;
pub(crate) mod memory;
mod mount_table;
pub(crate) mod options;
pub(crate) mod unmount_helper;

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::thread::Builder;

use ferofs::read::{Image, LowMemory, OpenOptions, PressureFile};
use ferofs_fuse::{MountOptions, Sandbox};

use crate::args::image::{ImageArgs, OpenFiles};
use crate::cmd::mount::kernel::Request;
use crate::cmd::mount::memory::{MemoryArgs, MemoryFiles, Record};
use crate::cmd::mount::options::Sorted;
use crate::exit::{Failure, Outcome};
use crate::print::output::message;
use ferofs::escape::Escaped;

/// Tells the daemon that somebody waits for its word.
const READY_VARIABLE: &str = "FEROFS_TELL_WHEN_MOUNTED";
const READY: &[u8] = b"mounted\n";
/// Bytes of a cache where memory is short.
const LOW_CACHE: usize = 1 << 20;

/// Mount an image with the kernel's EROFS driver if possible, otherwise through FUSE
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// The directory to mount on
    pub(crate) dir: PathBuf,

    /// Apply this patch in memory; the image file does not change. May be given several times: patches apply in this
    /// order. Implies --fuse
    #[arg(long = "patch", value_name = "FILE", conflicts_with = "kernel")]
    pub(crate) patches: Vec<PathBuf>,

    /// Mount through FUSE
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) fuse: bool,

    /// Mount with the kernel's EROFS driver; fail if this is not possible
    #[arg(long)]
    pub(crate) kernel: bool,

    /// Stay in the foreground until the image is unmounted; implies --fuse
    #[arg(short, long, conflicts_with = "kernel")]
    pub(crate) foreground: bool,

    /// Mount options of mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,

    /// Number of threads of the FUSE daemon, 1 or more [default: one for each processor, at least 2]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,

    /// Use small caches and small buffers in the FUSE daemon
    #[arg(long)]
    pub(crate) low_memory: bool,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Do not confine the FUSE daemon: it keeps privileges that it does not need to serve the image
    #[arg(long)]
    pub(crate) no_sandbox: bool,

    /// Append the messages of the FUSE daemon to this file [default: syslog, or standard error with --foreground]
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// Write the process ID of the FUSE daemon to this file. The file is removed when the daemon ends
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Print how the image was mounted, and why
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Set only when mount(8) calls this program
    #[arg(skip)]
    pub(crate) helper: Helper,
}

/// Options that mount(8) gives to its helper `mount.erofs`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Helper {
    /// Do everything except the mount itself.
    pub(crate) fake: bool,
    /// Ignore options that the kernel does not know.
    pub(crate) sloppy: bool,
}

/// Unmount an image
#[derive(clap::Args)]
pub(crate) struct UmountArgs {
    /// The directory on which the image is mounted
    pub(crate) dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut args = args.clone();
    let options = options::sort(&args.options, &mut args.image).map_err(|e| Failure::about(&args.dir, e))?;
    if options.remount {
        kernel::remount(&args.dir, &options.passed).map_err(|e| Failure::about(&args.dir, e))?;
        return Ok(0);
    }
    args.low_memory |= options.low_memory;
    args.log_file = args.log_file.or_else(|| options.log_file.clone());
    args.pid_file = args.pid_file.or_else(|| options.pid_file.clone());
    let args = &args;
    // Files that are missing are told at once. Nothing of the image is decoded here, where nothing confines it.
    drop(args.image.open_files(&args.patches)?);
    if args.helper.fake {
        return Ok(0);
    }
    let daemon = is_daemon();
    // The kernel's driver neither records nor pins.
    let patched = !args.patches.is_empty();
    let fuse = args.fuse || args.foreground || daemon || patched || args.memory.wants_fuse();
    let mut kernels_refusal = None;
    let try_kernel = args.kernel || !fuse;
    if try_kernel && (args.kernel || rustix::process::geteuid().is_root()) {
        let request = Request {
            image: &args.image.path,
            offset: args.image.offset,
            size_limit: options.size_limit,
            devices: &args.image.devices,
            options: &options.passed,
            force_loop: options.force_loop,
            sloppy: args.helper.sloppy,
            dir: &args.dir,
        };
        match kernel::mount(&request) {
            Ok(how) => {
                args.say(&format!("mounted by the kernel, {how}"));
                return Ok(0);
            }
            Err(error) if args.kernel => {
                return Err(Failure::about(&args.image.path, error));
            }
            Err(error) => {
                let refusal = format!("the kernel does not mount it ({error})");
                args.say(&format!("{refusal}; using FUSE"));
                kernels_refusal = Some(refusal);
            }
        }
    }
    if options.size_limit.is_some() {
        let reason = kernels_refusal.map_or(String::new(), |refusal| format!("; {refusal}"));
        let reason = format!("-o sizelimit is for the kernel: FUSE serves the whole file{reason}");
        return Err(Failure::about(&args.image.path, reason));
    }
    if args.foreground || daemon {
        return serve(args, options, daemon);
    }
    let code = start_daemon()?;
    if let Some(refusal) = kernels_refusal.filter(|_| code != 0 && !args.verbose) {
        message!("{}: {refusal}", Escaped::path(&args.image.path));
    }
    Ok(code)
}

/// Whether this process is the daemon that [`run`] starts.
pub(crate) fn is_daemon() -> bool {
    std::env::var_os(READY_VARIABLE).is_some()
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
    fn open_options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        self.memory.apply(&mut options.engine);
        if self.low_memory {
            options.metadata_cache = LOW_CACHE;
            options.engine.packed_cache = LOW_CACHE;
            options.engine.low_memory = LowMemory::Always;
        }
        options
    }

    /// Decodes what is in these files: the image with its patches and its root, and access profiles.
    fn open(
        &self,
        files: OpenFiles,
        memory_files: MemoryFiles,
        options: &OpenOptions,
    ) -> Result<(Image, Option<Record>), Failure> {
        let mut image = files.decode(options)?;
        let root = image.root().map_err(|e| Failure::about(&self.image.path, e))?;
        if !root.is_dir() {
            return Err(Failure::about(&self.image.path, "the root is not a directory"));
        }
        if let Some(pinned) = memory_files.pin(&mut image)? {
            self.say(&format!(
                "pinned {} ranges, {} bytes; {} are not in the image",
                pinned.ranges, pinned.bytes, pinned.missing
            ));
        }
        let recording = memory_files.record(&image)?;
        Ok((image, recording))
    }

    fn say(&self, what: &str) {
        if self.verbose {
            message!("{}: {what}", Escaped::path(&self.image.path));
        }
    }
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

/// Opens all files and mounts, gives up all rights that this took, and only then decodes the image and serves it.
fn serve(args: &Args, sorted: Sorted, daemon: bool) -> Outcome {
    let files = args.image.open_files(&args.patches)?;
    let memory_files = args.memory.open_files(&args.image)?;
    let open_options = OpenOptions { pressure: PressureFile::open(), ..args.open_options() };
    let confined = !(args.no_sandbox || sorted.no_sandbox);
    let source = std::fs::canonicalize(&args.image.path).unwrap_or_else(|_| args.image.path.clone());
    let options = MountOptions {
        source: source.to_string_lossy().replace(',', "_"),
        threads: args.threads.map_or_else(default_threads, Into::into),
        allow_other: sorted.allow_other,
        confined,
        low_memory: args.low_memory,
        extra: sorted.passed,
    };
    let signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    // The keeper works from another directory.
    let dir = std::fs::canonicalize(&args.dir).map_err(|e| Failure::about(&args.dir, e))?;
    let pid_file = args.pid_file.as_ref().map(std::path::absolute).transpose()?;
    let log = daemon_log::open(args.log_file.as_deref(), daemon)?;
    let null = daemon.then(leave).transpose()?;
    let mut keeper = crate::cmd::mount::unmount_helper::start(&dir, pid_file.as_deref(), daemon)?;
    let mounted = ferofs_fuse::mount(&dir, &options).map_err(|e| Failure::about(&args.dir, e))?;
    crate::cmd::mount::unmount_helper::tell_mounted(&mut keeper)?;
    if let Some(file) = &pid_file {
        std::fs::write(file, format!("{}\n", std::process::id())).map_err(|e| Failure::about(file, e))?;
    }
    if confined {
        let sandbox = ferofs_fuse::restrict().map_err(|e| Failure::about(&args.dir, e))?;
        let Sandbox { landlock, seccomp, user } = sandbox;
        args.say(&format!("Landlock: {landlock}, seccomp: {seccomp}, another user: {user}"));
    }
    let waiting = signals.handle();
    let keepers_input = keeper.stdin.take();
    // When there is no thread, the end of its input makes the keeper unmount.
    let stop = Builder::new().spawn(move || stop_on_signals(signals, keepers_input));
    let stop = stop.map_err(|e| Failure::about(&args.dir, e))?;
    let served = args.open(files, memory_files, &open_options).and_then(|(image, recording)| {
        if let Some(log) = log {
            rustix::stdio::dup2_stderr(&log).map_err(io::Error::from)?;
        }
        if let Some(null) = null {
            let_go(&null)?;
        }
        mounted.serve(image).map_err(|e| Failure::about(&args.dir, e))?;
        Ok(recording)
    });
    // The keeper takes away the mount, if it is still there.
    waiting.close();
    // The thread holds nothing that could fail to be released.
    let _ = stop.join();
    keeper.wait()?;
    served?.map_or(Ok(()), Record::finish)?;
    Ok(0)
}

/// One for each processor; and never one alone, which could not store into the page cache.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |threads| threads.get().max(2))
}

/// The first signal takes the mount away, so that the daemon ends with its last user; the second one ends
/// it at once.
fn stop_on_signals(mut signals: signal_hook::iterator::Signals, keepers_input: Option<ChildStdin>) {
    let mut keepers_input = keepers_input;
    for signal in signals.forever() {
        if keepers_input.take().is_none() {
            std::process::exit(128 + signal);
        }
    }
}

/// Leaves the terminal's session and the current directory; opens what stands in for standard streams.
fn leave() -> io::Result<std::fs::File> {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Says that the mount is there, and lets go of standard streams.
fn let_go(null: &std::fs::File) -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    rustix::stdio::dup2_stdin(null).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdout(null).map_err(io::Error::from)?;
    Ok(())
}
