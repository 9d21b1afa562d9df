//! `ferofs mount` and `ferofs umount`.
//!
//! Without `-f` the command starts itself again as the FUSE daemon, in a new session. The daemon writes a line to its
//! standard output when it has mounted; then the command returns.

mod args;
mod daemon;
mod dm_verity;
mod fetcher;
mod kernel;
mod loop_device;
pub(crate) mod memory;
pub(crate) mod options;
mod prefetch;
pub(crate) mod stats;
mod umount;
pub(crate) mod unmount_helper;
mod written_files;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;

pub(crate) use crate::cmd::mount::args::{Args, FEROFS, HelperOptions};
pub(crate) use crate::cmd::mount::daemon::is_daemon;
pub(crate) use crate::cmd::mount::umount::{UmountArgs, umount};

use crate::args::hidden;
use crate::cmd::mount::daemon::record::Record;
use crate::cmd::mount::dm_verity::VerityDevice;
use crate::cmd::mount::kernel::Request;
use crate::cmd::mount::options::SortedOptions;
use crate::exit::{FAILURE, Failure, Outcome, warn};
use crate::print::output::{is_strict, message};
use ferofs::escape::Escaped;

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
    args.threads = args.threads.or(options.max_threads);
    args.foreground |= options.debug;
    args.verbose |= options.debug;
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
    check_directory(&args.dir)?;
    let daemon = is_daemon();
    if !daemon {
        written_files::check(args)?;
    }
    let patched = !args.patches.is_empty();
    let sealed = args.image.seal.root.is_some();
    let remote = args.image.is_remote();
    let fuse = args.fuse || args.foreground || daemon || patched || remote || args.memory.needs_fuse();
    let mut kernel_error = None;
    let try_kernel = args.kernel || !fuse;
    if try_kernel && (args.kernel || rustix::process::geteuid().is_root()) {
        let unused = args.only_for_fuse(&options);
        let unused = (!unused.is_empty()).then(|| {
            let text =
                "only FUSE has these options; the kernel mounts the image without them (--fuse avoids this)";
            format!("{}: {}: {text}", Escaped::path(&args.image.path), unused.join(", "))
        });
        if let (true, Some(warning)) = (is_strict(), &unused) {
            // Before there is a mount.
            warn(warning)?;
        }
        match mount_with_kernel(args, &options) {
            Ok(how) => {
                let verified = if sealed { ", which verifies with dm-verity" } else { "" };
                args.print_verbose(&format!("mounted by the kernel, {how}{verified}"));
                if let Some(warning) = &unused {
                    message!("{warning}");
                }
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
        return daemon::serve(args, options, daemon);
    }
    let code = daemon::start(args)?;
    if let Some(text) = kernel_error.filter(|_| code != 0 && !args.verbose) {
        message!("{}: {text}", Escaped::path(&args.image.path));
    }
    Ok(code)
}

/// Fails if the path is not a directory: FUSE would cover a file with a directory, which nobody can open. Mounting reports other errors, as the
/// directory can be a mount that has lost its daemon.
fn check_directory(dir: &Path) -> Result<(), Failure> {
    match std::fs::metadata(dir) {
        Ok(metadata) if !metadata.is_dir() => Err(Failure::about(dir, "not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::about(dir, error)),
        _ => Ok(()),
    }
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

/// Mounts again on `dir` what has lost its daemon, with the same arguments.
pub(crate) fn reattach(dir: &Path) -> Outcome {
    let fail = |reason: &str| Err(Failure::about(dir, reason));
    if std::fs::symlink_metadata(dir).is_ok_and(|metadata| !metadata.is_dir()) {
        return fail("not a directory; ferofs has no NBD devices");
    }
    if !ferofs_fuse::has_no_daemon(dir) {
        return fail("no mount that has lost its daemon");
    }
    let absolute = umount::absolute(dir)?;
    let Some(record) = Record::take(&absolute) else {
        return fail("nothing is known of how it was mounted; ferofs umount removes it");
    };
    let code = unmount_helper::detach(&absolute)?;
    if code != 0 {
        return Ok(code);
    }
    let mut again = hidden::with(&record.args, ["mount".as_ref(), absolute.as_os_str()])?;
    let status = again.envs(record.variables).current_dir(&record.current).status();
    let status = status.map_err(|e| Failure::about(&record.current, e))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILURE))
}
