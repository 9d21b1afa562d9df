//! The fetcher of a mount: a process that has the network, and no files but the cache.
//!
//! The daemon decodes the image, and has neither. Before it mounts, it starts this program again
//! with the same arguments as the supervisor: a process that starts the fetcher, and starts another
//! one when the fetcher has been killed. The fetcher opens the image on the server and reports what
//! it knows of it, so that the daemon finds the entry in the cache. Then it serves the daemon's
//! requests at the other end of a socket, its standard input, until the daemon closes its end.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_serve::cache::Entry;
use ferofs_serve::channel::{self, Client};
use ferofs_serve::open::{Known, RemoteImage};

use crate::args::hidden;
use crate::args::image::ImageArgs;
use crate::cmd::mount::args::Args;
use crate::cmd::mount::daemon;
use crate::exit::{FAILURE, Failure, Outcome};
use crate::print::output::message;
use crate::servers::mount::prefetch::Prefetch;
use ferofs::escape::Escaped;
use ferofs::read::Source;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Tells this program that it is the supervisor or the fetcher.
const ROLE: &str = "FEROFS_MOUNT_FETCHER";
const SUPERVISOR: &str = "supervisor";
const FETCHER: &str = "fetcher";
/// What the first fetcher has found out, for the next ones.
const KNOWN: &str = "FEROFS_MOUNT_KNOWN";
/// The directory in which the command was started: names of files in arguments start there.
const DIRECTORY: &str = "FEROFS_MOUNT_DIRECTORY";

/// The pause before another fetcher is started: shortest, and after many that ended at once.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// A fetcher that ran for so long could open what it needs.
const WORKED: Duration = Duration::from_millis(200);

/// How long the access profile of an image may delay the mount.
const PROFILE_TIME: Duration = Duration::from_secs(2);

/// An image on a server, as the daemon has it.
pub(crate) struct Fetched {
    /// The bytes, and whether they are verified.
    pub(crate) source: (Arc<dyn Source>, bool),
    /// The entry in the cache.
    pub(crate) entry: Arc<Entry>,
    pub(crate) client: Arc<Client>,
}

/// What a fetcher reports when it has opened the image, or has failed: a line of JSON.
#[derive(serde::Serialize, serde::Deserialize)]
enum Report {
    Opened(Known),
    Failed(String),
}

/// Runs the supervisor or the fetcher if this process is one of them.
pub(crate) fn run_role(args: &Args, confined: bool) -> Option<Outcome> {
    let role = std::env::var(ROLE).ok()?;
    Some(if role == SUPERVISOR { supervise(args) } else { fetch(args, confined) })
}

/// Starts a fetcher for the daemon.
pub(crate) fn start(image: &ImageArgs) -> Result<Fetched, Failure> {
    image.check_remote()?;
    let (own, other) = channel::pair()?;
    let directory = hidden::current_dir();
    let mut supervisor = again(image, &directory, SUPERVISOR)?
        .stdin(other)
        .stdout(Stdio::piped())
        // Ctrl-C in the terminal must reach only the daemon.
        .process_group(0)
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = supervisor.stdout.take() {
        BufReader::new(stdout.take(1 << 20)).read_line(&mut line)?;
    }
    let failed = |reason: String| Failure::about(&image.path, reason);
    let known = match serde_json::from_str(&line) {
        Ok(Report::Opened(known)) => known,
        Ok(Report::Failed(reason)) => return Err(Failure::complete(reason)),
        Err(_) => return Err(failed("the fetcher ended before it had opened the image".into())),
    };
    let cache = image.servers.cache.open()?;
    let entry = known.open_entry(&cache, &image.servers.name(&image.path.given)?);
    let entry = entry.map_err(Failure::complete)?;
    let client = Arc::new(Client::new(own));
    // Nothing is read before the daemon has given up its rights.
    let source = known.source(&entry, Arc::clone(&client) as _, image.servers.patience());
    Ok(Fetched { source: source.map_err(Failure::complete)?, entry, client })
}

/// This command again, in another role.
fn again(image: &ImageArgs, directory: &Path, role: &str) -> io::Result<Command> {
    let mut command = hidden::again([image.path.as_os_str(), OsStr::new(role)])?;
    command.env(ROLE, role).env(DIRECTORY, directory).current_dir("/");
    if let Some(root) = image.seal.root() {
        command.env(hidden::ROOT_HASH, root.to_string());
    }
    Ok(command)
}

/// Starts fetchers until one ends because the daemon has ended.
fn supervise(args: &Args) -> Outcome {
    let image = &args.image;
    let directory = std::env::var_os(DIRECTORY).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let (mut known, mut pause) = (None, PAUSES.0);
    loop {
        let started = Instant::now();
        let mut command = again(image, &directory, FETCHER)?;
        command.stdin(socket.try_clone()?).stdout(Stdio::piped());
        if let Some(known) = &known {
            command.env(KNOWN, known);
        }
        let mut fetcher = command.spawn()?;
        let mut line = String::new();
        if let Some(stdout) = fetcher.stdout.take() {
            BufReader::new(stdout.take(1 << 20)).read_line(&mut line)?;
        }
        if known.is_none() && !line.is_empty() {
            let mut out = io::stdout();
            out.write_all(line.as_bytes())?;
            out.flush()?;
            if matches!(serde_json::from_str(&line), Ok(Report::Opened(_))) {
                known = Some(line);
                Streams::open(args, &directory)?.replace()?;
            }
        }
        let status = fetcher.wait()?;
        if status.success() {
            return Ok(0);
        }
        if known.is_none() {
            // It was killed, or it could not open the image and has said why.
            return Ok(FAILURE);
        }
        pause = if started.elapsed() > WORKED { PAUSES.0 } else { (pause * 2).min(PAUSES.1) };
        if has_closed(&socket, pause)? {
            return Ok(0);
        }
    }
}

/// Waits for this time, or until the daemon has closed its end of the socket: then there is nobody
/// to fetch for.
fn has_closed(socket: &OwnedFd, time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, PollFlags::empty())], Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What replaces the standard streams when the image is open. The sandbox forbids opening it.
struct Streams {
    null: File,
    /// `None`: standard error stays.
    log: Option<OwnedFd>,
}

impl Streams {
    /// Names of files start at `directory`.
    fn open(args: &Args, directory: &Path) -> Result<Self, Failure> {
        let null = File::options().write(true).open("/dev/null")?;
        let log = args.log_file.as_ref().map(|file| directory.join(file));
        Ok(Self { null, log: daemon::open_log(log.as_deref(), daemon::is_daemon())? })
    }

    /// Lets the daemon see the end of the report, and the user's terminal see the end of messages:
    /// further ones go to the log.
    fn replace(self) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.null)?;
        Ok(self.log.map_or(Ok(()), rustix::stdio::dup2_stderr)?)
    }
}

/// The fetcher: opens the image, gives up what it does not need, and serves the daemon.
fn fetch(args: &Args, confined: bool) -> Outcome {
    let (image, prefetch) = (&args.image, args.memory.servers.prefetch.as_ref());
    if let Some(directory) = std::env::var_os(DIRECTORY)
        && let Err(error) = std::env::set_current_dir(&directory)
        && image.servers.needs_directory()
    {
        return Err(Failure::about(Path::new(&directory), error));
    }
    let known = std::env::var(KNOWN).ok().and_then(|text| match serde_json::from_str(&text) {
        Ok(Report::Opened(known)) => Some(known),
        _ => None,
    });
    let is_next = known.is_some();
    let opened = match known {
        Some(known) => image.servers.open_known(&image.path.given, &image.seal, known),
        None => image.servers.open_image(&image.path.given, &image.seal),
    };
    match opened {
        Ok(opened) => {
            if Prefetch::wants_profile_of_image(prefetch)
                && let Err(error) = opened.keep_profile(Instant::now() + PROFILE_TIME)
            {
                message!("{}: access profile: {error}", Escaped::path(&image.path));
            }
            serve(args, &opened, confined, Prefetch::wants_metadata(prefetch))
        }
        // The log gets it.
        Err(failure) if is_next => Err(failure),
        Err(failure) => {
            report(&Report::Failed(failure.to_string()))?;
            Ok(FAILURE)
        }
    }
}

fn serve(args: &Args, opened: &RemoteImage, confined: bool, prefetch_metadata: bool) -> Outcome {
    let image = &args.image;
    let streams = Streams::open(args, Path::new(""))?;
    let folder = std::path::absolute(image.servers.cache.folder())?;
    std::env::set_current_dir("/")?;
    if confined {
        let confined = ferofs_serve::confine::confine(&folder, &image.servers.credential_files());
        confined.map_err(|e| Failure::about(&folder, format!("sandbox of the fetcher: {e}")))?;
    }
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let fetcher = image.servers.fetcher(opened, prefetch_metadata)?;
    report(&Report::Opened(opened.known().clone()))?;
    streams.replace()?;
    channel::serve(socket, &fetcher)?;
    Ok(0)
}

fn report(report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = io::stdout();
    out.write_all(&line)?;
    out.flush()
}
