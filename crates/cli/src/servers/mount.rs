//! Mounts images on servers, through FUSE.
//!
//! The daemon has no network: it asks another process for what the cache does not have
//! ([`fetcher`]).

mod counters;
pub(crate) mod erofs_utils;
mod fetcher;
mod options;
pub(crate) mod prefetch;

use std::os::unix::process::CommandExt;

use crate::args::hidden;
use crate::cmd::mount::args::Args;
use crate::cmd::mount::daemon::{self, Served};
use crate::cmd::mount::{remount, written_files};
use crate::exit::{Concerning, Failure};
use crate::servers::mount::fetcher::Fetched;
use crate::servers::mount::prefetch::Plan;

/// Takes the options of servers out of `-o`. If the image is on a server, mounts it, or does the
/// work of the process of such a mount that this process is. Returns `None` for an image of this
/// machine.
pub(crate) fn run(args: &mut Args) -> Result<Option<u8>, Failure> {
    options::take(args).concerning(&args.dir)?;
    let prefetch = args.memory.servers.prefetch.clone();
    if !args.image.path.is_remote() {
        if prefetch.is_some() {
            return Err(Failure::usage(
                &args.image.path,
                "--prefetch is for images on servers; `--pin PROFILE` keeps the data of a profile decoded",
            ));
        }
        return Ok(None);
    }
    let sorted = args.sort_options()?;
    if sorted.remount {
        return remount::remount(args, &sorted).map(Some);
    }
    let confined = !(args.no_sandbox || sorted.no_sandbox);
    if let Some(outcome) = fetcher::run_role(args, confined) {
        return outcome.map(Some);
    }
    args.image.check_remote()?;
    if args.kernel {
        let reason = "the kernel cannot mount an image on a server; without --kernel, FUSE can";
        return Err(Failure::usage(&args.image.path, reason));
    }
    if args.helper.fake {
        return Ok(Some(0));
    }
    written_files::check(args)?;
    sorted.check_fuse(&args.image.path, None)?;
    if args.foreground && !hidden::are_hidden() && args.image.has_secrets() {
        // Only if it succeeds it does not return.
        return Err(Failure::about(&args.dir, hidden::again(args.shown())?.exec()));
    }
    daemon::run(args, sorted, open).map(Some)
}

/// Starts a fetcher, and opens the image with it.
fn open(args: &Args) -> Result<Served, Failure> {
    let image = &args.image;
    let Fetched { source, entry, client } = fetcher::start(image)?;
    let files = image.with_source(source.clone().into(), &args.patches)?;
    let memory_files = args.memory.open_files(|| image.with_source(source.into(), &[]))?;
    let prefetch = args.memory.servers.prefetch.as_ref();
    let plan = Plan::open(prefetch, &image.path, &image.servers, &entry)?;
    let is_offline = image.servers.offline;
    let start = move |image: &_| {
        let background = plan.start(image, &client);
        counters::start(&entry, &client, background, is_offline)
    };
    Ok(Served {
        source: image.path.to_path_buf(),
        files,
        memory_files,
        start: Some(Box::new(start)),
    })
}
