//! The FUSE daemon: mounts, opens its log, gives up its rights, and serves the image.
//!
//! In the background it is started twice: by the command, which waits until it has mounted, and by
//! its [`keeper`], which starts it again when it was killed.

mod keeper;
pub(crate) mod record;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::thread::Builder;

use ferofs::escape::Escaped;
use ferofs::read::{Image, PressureFile};
use ferofs_fuse::{Access, MoreStats, MountOptions, Sandbox};
use rustix::process::WaitOptions;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::hidden;
use crate::args::image::OpenFiles;
use crate::args::overwrite::{OUTPUT_MODE, open_without_waiting};
use crate::cmd::mount::args::Args;
use crate::cmd::mount::daemon::keeper::{Keeper, Role, Start};
use crate::cmd::mount::daemon::record::Record;
use crate::cmd::mount::kernel::fuse::{self, FuseOptions};
use crate::cmd::mount::memory::MemoryFiles;
use crate::cmd::mount::options::SortedOptions;
use crate::cmd::mount::passed_device;
use crate::cmd::mount::umount::absolute;
use crate::cmd::mount::unmount_helper;
use crate::exit::{Concerning, FAILURE, Failure, Outcome};

/// Environment variable that makes this program the daemon.
const DAEMON_VARIABLE: &str = "FEROFS_MOUNT_DAEMON";
/// The line that the daemon writes when it has mounted.
const READY: &[u8] = b"mounted\n";

/// Whether this process is the daemon that [`start`] started.
pub(crate) fn is_daemon() -> bool {
    std::env::var_os(DAEMON_VARIABLE).is_some()
}

/// Starts what works beside the daemon, and returns what it adds to the counters.
type StartBeside = Box<dyn FnOnce(&Image) -> MoreStats>;

/// What the daemon serves.
pub(crate) struct Served {
    /// What the mount table shows as the source, unless an option names another one.
    pub(crate) source: PathBuf,
    pub(crate) files: OpenFiles,
    pub(crate) memory_files: MemoryFiles,
    pub(crate) start: Option<StartBeside>,
}

impl Served {
    /// Opens the files of an image of this machine.
    pub(super) fn open(args: &Args) -> Result<Self, Failure> {
        let path = &*args.image.path;
        Ok(Self {
            files: args.image.open_files(&args.patches)?,
            memory_files: args.memory.open_files(|| args.image.open_files(&[]))?,
            source: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            start: None,
        })
    }
}

/// Mounts through FUSE: serves what `open` opens, or starts the daemon, which does that.
pub(crate) fn run(
    args: &Args,
    sorted: SortedOptions,
    open: impl FnOnce(&Args) -> Result<Served, Failure>,
) -> Outcome {
    if !args.foreground && !is_daemon() {
        return start(args);
    }
    let passed = passed_device::take(&args.dir).concerning(&args.dir)?;
    serve(args, sorted, open(args)?, passed)
}

/// Starts this command again as the daemon, and waits until the daemon has mounted, or has failed
/// and its unmount helper has ended: then the mount no longer exists.
fn start(args: &Args) -> Outcome {
    let fail = |error: io::Error| Failure::about(&args.dir, error);
    // The unmount helper of a daemon that dies becomes a child of this process. Without it, the
    // mount is gone a moment later.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let mut daemon = hidden::again(args.shown()).map_err(fail)?;
    daemon.env(DAEMON_VARIABLE, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut daemon = daemon.spawn().map_err(fail)?;
    let mut answer = Vec::new();
    if let Some(stdout) = daemon.stdout.take() {
        stdout.take(READY.len() as u64).read_to_end(&mut answer)?;
    }
    if answer == READY {
        return Ok(0);
    }
    // The daemon has printed the reason.
    let code = daemon.wait()?.code().and_then(|code| u8::try_from(code).ok());
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::empty()) {}
    Ok(code.filter(|code| *code != 0).unwrap_or(FAILURE))
}

/// Opens all files and mounts, then drops all privileges, and only then decodes the image and
/// serves it: a hostile image is decoded without privileges.
fn serve(args: &Args, sorted: SortedOptions, served: Served, passed: Option<OwnedFd>) -> Outcome {
    let daemon = is_daemon();
    // Then another program has mounted, and unmounts.
    let is_passed = passed.is_some();
    let Served { source, files, memory_files, start: start_beside } = served;
    let mut open_options = args.open_options();
    open_options.pressure = PressureFile::open();
    let is_limited = ferofs_threads::are_threads_limited();
    let confined = !(args.no_sandbox || sorted.no_sandbox);
    let own = FuseOptions::parse(&sorted.passed, args.helper.sloppy).concerning(&args.dir)?;
    let defaults = MountOptions::default();
    let options = MountOptions {
        source: sorted.fsname.unwrap_or_else(|| source.to_string_lossy().into_owned()),
        subtype: sorted.subtype.unwrap_or_else(|| args.subtype.to_owned()),
        threads: args.threads.map_or(defaults.threads, Into::into),
        access: match (sorted.access, rustix::process::geteuid().is_root()) {
            // The owner is root.
            (Access::OwnerAndRoot, true) => Access::Owner,
            // All users can use a mount of root, as with other file systems.
            (_, true) => Access::All,
            (access, false) => access,
        },
        confined,
        low_memory: args.low_memory,
        survives_process: daemon && !is_passed && ferofs_fuse::can_survive_process(),
        extra: own.for_fusermount(),
    };
    // The unmount helper has another current directory, so it needs an absolute path.
    let dir = if is_passed { Ok(args.dir.clone()) } else { absolute(&args.dir) };
    let dir = dir.concerning(&args.dir)?;
    let fail = |error: io::Error| Failure::about(&args.dir, error);
    let pid_file = args.pid_file.as_ref().map(std::path::absolute).transpose().map_err(fail)?;
    let log = open_log(args.log_file.as_deref(), daemon)?;
    let messages =
        log.as_ref().map_or_else(|| Ok(Stdio::inherit()), |log| log.try_clone().map(Stdio::from));
    let profile = args.memory.record_profile().map(|file| {
        // Its symbolic links may be those of this process, as /dev/stdout.
        std::fs::canonicalize(file).or_else(|_| std::path::absolute(file))
    });
    let profile = profile.transpose().map_err(fail)?;
    // Before the current directory changes.
    let is_recorded = daemon && !is_passed;
    let content = is_recorded.then(|| Record::of_this_process(&dir));
    let record = record::file().filter(|_| is_recorded);
    let mut helper = unmount_helper::start(
        &dir,
        pid_file.as_deref(),
        record.as_deref(),
        profile.as_deref(),
        messages.map_err(fail)?,
    )
    .map_err(fail)?;
    let device = match passed {
        None => fuse::mount(&dir, &options, &own).concerning(&args.dir)?,
        passed => passed,
    };
    let mounted = match device {
        Some(device) => ferofs_fuse::attach(device, &options),
        None => ferofs_fuse::mount(&dir, &options),
    };
    let mounted = mounted.concerning(&args.dir)?;
    fuse::set_propagation(&dir, &own).concerning(&args.dir)?;
    unmount_helper::tell_mounted(&mut helper).map_err(fail)?;
    // Not before the mount: autofs lets only its own process group pass a mount point that it is
    // waiting for.
    let null = daemon.then(detach_from_terminal).transpose().map_err(fail)?;
    let helper_input = helper.stdin.take();
    if let Some(file) = &pid_file {
        write_pid_file(file).concerning(file)?;
    }
    if let (Some(file), Some(content)) = (record, content) {
        // Without it, only --reattach does not work.
        if let Err(error) = content.write(&file) {
            args.print_verbose(&format!("{}: {error}", Escaped::path(&file)));
        }
    }
    let mut role = Role::Alone(helper_input);
    let mut has_left_root = false;
    if let (true, Some(null), Role::Alone(helper_input)) =
        (options.survives_process, &null, &mut role)
    {
        if confined {
            has_left_root = ferofs_fuse::restrict_keeper().concerning(&args.dir)?;
        } else {
            ferofs_fuse::forbid_unmount().concerning(&args.dir)?;
        }
        let report = || report_mounted(null);
        let helper_input = helper_input.take();
        role = Keeper { dir: &dir, helper_input, log: log.as_ref(), report: &report }.run()?;
    }
    let (start, helper_input) = match role {
        Role::Alone(helper_input) => (None, helper_input),
        Role::Daemon(start, helper_input) => (Some(start), helper_input),
        Role::Keeper(code) => {
            // Closes the connection to the kernel: the unmount helper asks whether anybody answers.
            drop(mounted);
            helper.wait()?;
            return Ok(code);
        }
    };
    let is_alone = start.is_none();
    let is_first = start.as_ref().is_none_or(Start::is_first);
    let signals = Signals::new([SIGTERM, SIGINT])?;
    if confined {
        let sandbox = ferofs_fuse::restrict().concerning(&args.dir)?;
        let Sandbox { landlock, seccomp, user } = sandbox;
        if is_first {
            let user = user || has_left_root;
            args.print_verbose(&format!(
                "Landlock: {landlock}, seccomp: {seccomp}, another user: {user}"
            ));
        }
    } else if start.is_none() {
        ferofs_fuse::forbid_unmount().concerning(&args.dir)?;
    }
    let signals_handle = signals.handle();
    // If the thread cannot be started, the pipe closes, and the unmount helper unmounts.
    let stop = Builder::new().spawn(move || stop_on_signals(signals, helper_input, is_passed));
    let stop = stop.map_err(ferofs_threads::Error::not_started).concerning(&args.dir)?;
    let served = args.open(files, memory_files, &open_options).and_then(|(image, recording)| {
        // Its line is for who waits for the mount.
        ferofs_fuse::check_memory(options.threads);
        if is_limited {
            // Those that answer, and one that reads around; twice as many, because Linux counts a
            // thread for a moment after its end.
            let threads = options.threads.saturating_add(1).saturating_mul(2);
            ferofs_threads::check_start(threads).concerning(&args.dir)?;
        }
        if let Some(log) = log {
            rustix::stdio::dup2_stderr(&log).map_err(io::Error::from)?;
        }
        match (start, null) {
            (Some(Start::First(keeper)), Some(null)) => {
                replace_streams(&null)?;
                keeper.report()?;
            }
            (Some(Start::Again), _) => mounted.ask_again().concerning(&args.dir)?,
            (None, Some(null)) => report_mounted(&null)?,
            (_, None) => {}
        }
        let more_stats = start_beside.map(|start| start(&image));
        mounted.serve(image, more_stats).concerning(&args.dir)?;
        Ok(recording)
    });
    // Ends the thread, which returns the pipe. A panic of the thread closes it.
    signals_handle.close();
    let mut helper_input = stop.join().ok().flatten();
    // Threads that were started before the one that failed still answer, so that the mount looks as
    // if it was served.
    if let (true, Err(_), Some(input)) = (is_alone && !is_passed, &served, &mut helper_input) {
        unmount_helper::request_unmount(input);
    }
    let sent = served.and_then(|recording| match (recording, &helper_input) {
        (Some(recording), Some(helper_input)) => recording.finish(helper_input),
        _ => Ok(()),
    });
    // Now the unmount helper removes the mount if it still exists.
    drop(helper_input);
    let ended = is_alone.then(|| helper.wait()).transpose()?;
    sent?;
    // The helper has said why it could not store the profile.
    let is_stored = profile.is_none() || ended.is_none_or(|status| status.success());
    Ok(if is_stored { 0 } else { FAILURE })
}

/// Replaces the file, so that neither a symbolic link nor the access rights of an old file count:
/// others could make a program signal another process.
fn write_pid_file(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = File::options().write(true).create_new(true).mode(OUTPUT_MODE).open(file)?;
    writeln!(new, "{}", std::process::id())
}

/// At the first signal, makes the unmount helper detach the mount; the daemon ends when nobody uses
/// the mount any more. The second signal ends the daemon at once, and so does the first if the
/// helper cannot unmount (`is_asked`). Returns the pipe to the helper when `signals` is closed.
fn stop_on_signals(
    mut signals: Signals,
    mut helper_input: Option<ChildStdin>,
    mut is_asked: bool,
) -> Option<ChildStdin> {
    for signal in signals.forever() {
        match &mut helper_input {
            Some(input) if !is_asked => unmount_helper::request_unmount(input),
            _ => std::process::exit(128 + signal),
        }
        is_asked = true;
    }
    helper_input
}

/// Moves the daemon to its own session and to the root directory, so that it keeps no terminal and
/// no directory in use. Returns the open /dev/null, which replaces the standard streams later.
fn detach_from_terminal() -> io::Result<std::fs::File> {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Tells the waiting command that the image is mounted, and replaces the standard streams by
/// `null`.
fn report_mounted(null: &std::fs::File) -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    replace_streams(null)
}

fn replace_streams(null: &std::fs::File) -> Result<(), Failure> {
    rustix::stdio::dup2_stdin(null).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdout(null).map_err(io::Error::from)?;
    Ok(())
}

/// The socket of syslog or journald.
const SYSLOG: &str = "/dev/log";

/// Opens the destination of messages, by which the daemon replaces its standard error: `file`.
/// Without it, a daemon in the background gets syslog, or /dev/null if there is no syslog, and a
/// daemon in the foreground keeps its standard error (`None`).
///
/// Must be called before the sandbox starts: the sandbox forbids opening files.
pub(crate) fn open_log(file: Option<&Path>, background: bool) -> Result<Option<OwnedFd>, Failure> {
    if let Some(path) = file {
        let file = open_without_waiting(File::options().append(true).create(true), path)?;
        return Ok(Some(file.into()));
    }
    if !background {
        return Ok(None);
    }
    Ok(Some(match syslog() {
        Ok(socket) => socket.into(),
        Err(_) => File::options().write(true).open("/dev/null")?.into(),
    }))
}

/// Opens a socket on which each write is one message of syslog.
fn syslog() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SYSLOG)?;
    // The daemon must not block if syslog does not read: it rather loses messages.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
