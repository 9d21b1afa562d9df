//! `ferofs mount` and `ferofs umount`.
//!
//! Without `-f` the command starts itself again as the FUSE daemon, in a new session. The daemon
//! writes a line to its standard output when it has mounted; then the command returns.

pub(crate) mod args;
pub(crate) mod daemon;
mod daemon_end;
mod dm_verity;
pub(crate) mod kernel;
mod loop_device;
pub(crate) mod memory;
pub(crate) mod mount_table;
pub(crate) mod options;
mod passed_device;
pub(crate) mod remount;
pub(crate) mod stats;
mod umount;
pub(crate) mod unmount_helper;
mod users;
pub(crate) mod written_files;

use std::path::Path;

pub(crate) use crate::cmd::mount::args::{Args, FEROFS, HelperOptions};
pub(crate) use crate::cmd::mount::daemon::is_daemon;
pub(crate) use crate::cmd::mount::umount::{UmountArgs, umount};

use crate::args::hidden;
use crate::cmd::mount::daemon::Served;
use crate::cmd::mount::daemon::record::Record;
use crate::cmd::mount::dm_verity::VerityDevice;
use crate::cmd::mount::kernel::Request;
use crate::cmd::mount::options::SortedOptions;
use crate::exit::{Concerning, FAILURE, Failure, Outcome, warn};
use crate::print::output::{is_strict, message};
use ferofs::escape::Escaped;

pub(crate) fn run(args: &Args) -> Outcome {
    let mut args = args.clone();
    #[cfg(feature = "remote")]
    if let Some(code) = crate::servers::mount::run(&mut args)? {
        return Ok(code);
    }
    let options = args.sort_options()?;
    let args = &args;
    if options.remount {
        return remount::remount(args, &options);
    }
    // Reports missing files before anything is mounted. Does not decode the image: this process is
    // not confined.
    drop(args.image.open_files(&args.patches)?);
    if args.helper.fake {
        return Ok(0);
    }
    written_files::check(args)?;
    // mount(8) gives `rw` to its helpers unless `ro` is given, and mount.fuse(8) to erofsfuse.
    if !args.helper.is_helper && args.subtype == FEROFS && !is_daemon() && options.asks_to_write {
        let text = "rw has no effect: EROFS is read-only; overlayfs over the mount takes changes";
        warn(format_args!("{}: {text}", Escaped::path(&args.image.path)))?;
    }
    let patched = !args.patches.is_empty();
    let sealed = args.image.seal.root().is_some();
    let is_passed = passed_device::number(&args.dir).is_some();
    let fuse = args.fuse
        || args.foreground
        || is_daemon()
        || patched
        || args.memory.needs_fuse()
        || is_passed;
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
            Err(failure) if args.kernel && rustix::process::geteuid().is_root() => {
                return Err(failure);
            }
            Err(failure) if args.kernel => {
                let hint =
                    "only root mounts by the kernel's driver; without --kernel, FUSE mounts it";
                return Err(Failure::about(
                    &args.image.path,
                    format!("{}; {hint}", failure.reason()),
                ));
            }
            Err(failure) => {
                let text = format!("the kernel does not mount it ({})", failure.reason());
                args.print_verbose(&format!("{text}; using FUSE"));
                kernel_error = Some(text);
            }
        }
    }
    options.check_fuse(&args.image.path, kernel_error.as_deref())?;
    let code = daemon::run(args, options, Served::open)?;
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
    let dir = umount::absolute(&args.dir).concerning(&args.dir)?;
    let request = Request {
        image: device.as_deref().unwrap_or(image),
        offset: args.image.offset,
        size_limit: options.size_limit,
        devices: &args.image.devices,
        options: &options.passed,
        force_loop: options.force_loop,
        sloppy: args.helper.sloppy,
        dir: &dir,
    };
    kernel::mount(&request).concerning(image)
}

/// Mounts again on `dir` what has lost its daemon, with the same arguments.
pub(crate) fn reattach(dir: &Path) -> Outcome {
    let fail = |reason: &str| Err(Failure::about(dir, reason));
    if umount::is_directory(dir).is_ok_and(|is_directory| !is_directory) {
        return fail("not a directory; ferofs has no NBD devices");
    }
    let absolute = umount::absolute(dir).concerning(dir)?;
    if !ferofs_fuse::has_no_daemon(&absolute) {
        return fail("no mount that has lost its daemon");
    }
    let Some(record) = Record::take(&absolute) else {
        return fail("nothing is known of how it was mounted; ferofs umount removes it");
    };
    let code = unmount_helper::detach(&absolute)?;
    if code != 0 {
        return Ok(code);
    }
    let mut again = hidden::with(&record.args, ["mount".as_ref(), absolute.as_os_str()])?;
    let status = again.envs(record.variables).current_dir(&record.current).status();
    let status = status.concerning(&record.current)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILURE))
}
