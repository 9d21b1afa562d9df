//! `ferofs mount` and `ferofs umount`.
//!
//! Without `-f` the command starts itself again as the FUSE daemon, in a new session. The daemon writes a line to its
//! standard output when it has mounted; then the command returns.

mod daemon_log;
mod dm_verity;
mod fetcher;
mod flags;
mod kernel;
mod loop_device;
pub(crate) mod memory;
mod mount_table;
pub(crate) mod options;
mod prefetch;
pub(crate) mod stats;
pub(crate) mod unmount_helper;

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::thread::Builder;

use ferofs::read::{Image, LowMemory, OpenOptions, PressureFile};
use ferofs_fuse::{MountOptions, Sandbox};

use crate::args::hidden;
use crate::args::image::{ImageArgs, OpenFiles};
use crate::cmd::mount::dm_verity::VerityDevice;
use crate::cmd::mount::fetcher::{Fetched, counters};
use crate::cmd::mount::kernel::Request;
use crate::cmd::mount::memory::{MemoryArgs, MemoryFiles, ProfileRecording};
use crate::cmd::mount::options::SortedOptions;
use crate::cmd::mount::prefetch::{Plan, Prefetch};
use crate::exit::{Failure, Outcome};
use crate::print::output::message;
use ferofs::escape::Escaped;

/// Environment variable that makes this program the daemon.
const DAEMON_VARIABLE: &str = "FEROFS_MOUNT_DAEMON";
/// The line that the daemon writes when it has mounted.
const READY: &[u8] = b"mounted\n";
/// Limit of the cache for metadata, and of the cache for the packed inode, with --low-memory, in bytes.
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

    /// Number of threads of the FUSE daemon, 1 or more [default: one for each processor, at least 4]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,

    /// Use small caches and small buffers in the FUSE daemon
    #[arg(long)]
    pub(crate) low_memory: bool,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Of an image on a server, fetch this in the background: `all`, `none`, or the files of an access profile (--record-profile). `none` still
    /// fetches what follows in sequential reads [default: the files of the access profile that was pushed with the image, and the metadata near
    /// the root]
    #[arg(long, value_name = "all|none|PROFILE")]
    pub(crate) prefetch: Option<Prefetch>,

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
    pub(crate) helper: HelperOptions,
}

/// Options that mount(8) gives to its helper `mount.erofs`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HelperOptions {
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
    args.prefetch = args.prefetch.or_else(|| options.prefetch.clone());
    let args = &args;
    if args.image.is_remote() {
        let confined = !(args.no_sandbox || options.no_sandbox);
        if let Some(outcome) = fetcher::run_role(&args.image, confined, args.prefetch.as_ref()) {
            return outcome;
        }
        args.image.check_remote()?;
        if args.kernel {
            let reason = "the kernel cannot mount an image on a server; without --kernel, FUSE can";
            return Err(Failure::about(&args.image.path, reason));
        }
    } else {
        if args.prefetch.is_some() {
            return Err(Failure::about(&args.image.path, "--prefetch is for images on servers"));
        }
        // Reports missing files before anything is mounted. Does not decode the image: this process is not confined.
        drop(args.image.open_files(&args.patches)?);
    }
    if args.helper.fake {
        return Ok(0);
    }
    let daemon = is_daemon();
    let patched = !args.patches.is_empty();
    let sealed = args.image.seal.root.is_some();
    let remote = args.image.is_remote();
    let fuse = args.fuse || args.foreground || daemon || patched || remote || args.memory.needs_fuse();
    let mut kernel_error = None;
    let try_kernel = args.kernel || !fuse;
    if try_kernel && (args.kernel || rustix::process::geteuid().is_root()) {
        match mount_with_kernel(args, &options) {
            Ok(how) => {
                let verified = if sealed { ", which verifies with dm-verity" } else { "" };
                args.print_verbose(&format!("mounted by the kernel, {how}{verified}"));
                return Ok(0);
            }
            Err(failure) if args.kernel => return Err(failure),
            Err(failure) => {
                let text = format!("the kernel does not mount it ({})", failure.reason());
                args.print_verbose(&format!("{text}; using FUSE"));
                kernel_error = Some(text);
            }
        }
    }
    if options.size_limit.is_some() {
        let reason = kernel_error.map_or(String::new(), |text| format!("; {text}"));
        let reason = format!("only the kernel supports -o sizelimit; FUSE serves the whole file{reason}");
        return Err(Failure::about(&args.image.path, reason));
    }
    if args.foreground || daemon {
        if args.foreground && !hidden::are_hidden() && args.image.has_secrets() {
            // Only if it succeeds it does not return.
            return Err(Failure::about(&args.dir, hidden::again(args.shown())?.exec()));
        }
        return serve(args, options, daemon);
    }
    let code = start_daemon(args)?;
    if let Some(text) = kernel_error.filter(|_| code != 0 && !args.verbose) {
        message!("{}: {text}", Escaped::path(&args.image.path));
    }
    Ok(code)
}

/// Mounts with the kernel's driver; a sealed image through dm-verity. Returns how, for a message.
fn mount_with_kernel(args: &Args, options: &SortedOptions) -> Result<&'static str, Failure> {
    let image = &args.image.path;
    let verity = VerityDevice::open(image, args.image.offset, &args.image.seal)?;
    let device = verity.as_ref().map(VerityDevice::path);
    let request = Request {
        image: device.as_deref().unwrap_or(image),
        offset: args.image.offset,
        size_limit: options.size_limit,
        devices: &args.image.devices,
        options: &options.passed,
        force_loop: options.force_loop,
        sloppy: args.helper.sloppy,
        dir: &args.dir,
    };
    kernel::mount(&request).map_err(|error| Failure::about(image, error))
}

/// Whether this process is the daemon that [`start_daemon`] started.
pub(crate) fn is_daemon() -> bool {
    std::env::var_os(DAEMON_VARIABLE).is_some()
}

pub(crate) fn umount(args: &UmountArgs) -> Outcome {
    let unmounted = rustix::mount::unmount(&args.dir, rustix::mount::UnmountFlags::NOFOLLOW);
    let Err(error) = unmounted else { return Ok(0) };
    // Without root, only fusermount3 can unmount, because it made the mount.
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

    /// Decodes the open files: the image with its patches, and the access profiles.
    fn open(
        &self,
        files: OpenFiles,
        memory_files: MemoryFiles,
        options: &OpenOptions,
    ) -> Result<(Image, Option<ProfileRecording>), Failure> {
        let image = files.decode(options)?;
        let root = image.root().map_err(|e| Failure::about(&self.image.path, e))?;
        if !root.is_dir() {
            return Err(Failure::about(&self.image.path, "the root is not a directory"));
        }
        if let Some(pinned) = memory_files.pin(&image)? {
            self.print_verbose(&format!(
                "pinned {} ranges, {} bytes; {} are not in the image",
                pinned.ranges, pinned.bytes, pinned.missing
            ));
        }
        let recording = memory_files.record(&image)?;
        Ok((image, recording))
    }

    /// What a list of processes shows of the daemon.
    fn shown(&self) -> [&OsStr; 3] {
        [OsStr::new("mount"), self.image.path.as_os_str(), self.dir.as_os_str()]
    }

    fn print_verbose(&self, text: &str) {
        if self.verbose {
            message!("{}: {text}", Escaped::path(&self.image.path));
        }
    }
}

/// Starts this command again as the daemon, and waits until the daemon has mounted or failed.
fn start_daemon(args: &Args) -> Outcome {
    let mut daemon = hidden::again(args.shown())?
        .env(DAEMON_VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut answer = Vec::new();
    if let Some(stdout) = daemon.stdout.take() {
        stdout.take(READY.len() as u64).read_to_end(&mut answer)?;
    }
    if answer == READY {
        return Ok(0);
    }
    // The daemon has printed the reason.
    let code = daemon.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.filter(|code| *code != 0).unwrap_or(crate::exit::FAILURE))
}

/// Opens all files and mounts, then drops all privileges, and only then decodes the image and serves it: a hostile image
/// is decoded without privileges.
fn serve(args: &Args, sorted: SortedOptions, daemon: bool) -> Outcome {
    let fetched = args.image.is_remote().then(|| fetcher::start(&args.image, daemon)).transpose()?;
    let open = |patches: &[PathBuf]| match &fetched {
        Some(fetched) => args.image.open_files_with(fetched.bytes.clone(), patches),
        None => args.image.open_files(patches),
    };
    let files = open(&args.patches)?;
    let memory_files = args.memory.open_files(|| open(&[]))?;
    let plan = fetched.as_ref().map(|fetched| {
        Plan::open(args.prefetch.as_ref(), &args.image.path, &args.image.fetch, &fetched.entry)
    });
    let plan = plan.transpose()?;
    let mut open_options = args.open_options();
    open_options.pressure = PressureFile::open();
    let confined = !(args.no_sandbox || sorted.no_sandbox);
    let source = if args.image.is_remote() {
        args.image.path.to_path_buf()
    } else {
        std::fs::canonicalize(&*args.image.path).unwrap_or_else(|_| args.image.path.to_path_buf())
    };
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
    // The unmount helper has another current directory, so it needs an absolute path.
    let dir = std::fs::canonicalize(&args.dir).map_err(|e| Failure::about(&args.dir, e))?;
    let pid_file = args.pid_file.as_ref().map(std::path::absolute).transpose()?;
    let log = daemon_log::open(args.log_file.as_deref(), daemon)?;
    let null = daemon.then(detach_from_terminal).transpose()?;
    let mut helper = crate::cmd::mount::unmount_helper::start(&dir, pid_file.as_deref(), daemon)?;
    let mounted = ferofs_fuse::mount(&dir, &options).map_err(|e| Failure::about(&args.dir, e))?;
    crate::cmd::mount::unmount_helper::tell_mounted(&mut helper)?;
    if let Some(file) = &pid_file {
        std::fs::write(file, format!("{}\n", std::process::id())).map_err(|e| Failure::about(file, e))?;
    }
    if confined {
        let sandbox = ferofs_fuse::restrict().map_err(|e| Failure::about(&args.dir, e))?;
        let Sandbox { landlock, seccomp, user } = sandbox;
        args.print_verbose(&format!("Landlock: {landlock}, seccomp: {seccomp}, another user: {user}"));
    } else {
        ferofs_fuse::forbid_unmount().map_err(|e| Failure::about(&args.dir, e))?;
    }
    let signals_handle = signals.handle();
    let helper_input = helper.stdin.take();
    // If the thread cannot be started, the pipe closes, and the unmount helper unmounts.
    let stop = Builder::new().spawn(move || stop_on_signals(signals, helper_input));
    let stop = stop.map_err(|e| Failure::about(&args.dir, e))?;
    let served = args.open(files, memory_files, &open_options).and_then(|(image, recording)| {
        if let Some(log) = log {
            rustix::stdio::dup2_stderr(&log).map_err(io::Error::from)?;
        }
        if let Some(null) = null {
            report_mounted(&null)?;
        }
        let more_stats = fetched.zip(plan).map(|(Fetched { entry, client, .. }, plan)| {
            let background = plan.start(&image, &client);
            counters::start(&entry, &client, background, args.image.fetch.offline)
        });
        mounted.serve(image, more_stats).map_err(|e| Failure::about(&args.dir, e))?;
        Ok(recording)
    });
    // Ends the thread. The thread closes the pipe, and the unmount helper removes the mount if it still exists.
    signals_handle.close();
    // A panic of the thread closes the pipe too.
    let _ = stop.join();
    helper.wait()?;
    served?.map_or(Ok(()), ProfileRecording::finish)?;
    Ok(0)
}

/// One thread for each processor, at least four: most of them wait for the device when several programs read.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(4, |threads| threads.get().max(4))
}

/// At the first signal, makes the unmount helper detach the mount; the daemon ends when nobody uses
/// the mount any more. The second signal ends the daemon at once.
fn stop_on_signals(mut signals: signal_hook::iterator::Signals, helper_input: Option<ChildStdin>) {
    let mut helper_input = helper_input;
    for signal in signals.forever() {
        match helper_input.take() {
            Some(input) => unmount_helper::request_unmount(input),
            None => std::process::exit(128 + signal),
        }
    }
}

/// Moves the daemon to its own session and to the root directory, so that it keeps no terminal and no directory in use.
/// Returns the open /dev/null, which replaces the standard streams later.
fn detach_from_terminal() -> io::Result<std::fs::File> {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Tells the waiting command that the image is mounted, and replaces the standard streams by `null`.
fn report_mounted(null: &std::fs::File) -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    rustix::stdio::dup2_stdin(null).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdout(null).map_err(io::Error::from)?;
    Ok(())
}
