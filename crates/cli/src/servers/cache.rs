//! `ferofs cache`: what was fetched from servers.

use std::io::{self, Write};
use std::path::Path;

use ferofs::escape::Escaped;
use ferofs_serve::cache::{Cache, Usage};
use ferofs_serve::open::verify_entry;
use serde_json::json;

use crate::args::byte_size;
use crate::exit::{Failure, Outcome, warn};
use crate::print::output::{OUTPUT, json_text};
use crate::servers::args::CacheArgs;

/// List, verify or remove what was fetched from servers
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(clap::Subcommand)]
enum CacheCommand {
    /// List the images in the cache, the least recently used first
    Ls {
        #[command(flatten)]
        cache: CacheArgs,

        /// Print JSON
        #[arg(help_heading = OUTPUT, long)]
        json: bool,
    },
    /// Remove images that no mount uses
    ///
    /// The least recently used first, until the cache has at most --cache-size bytes.
    #[command(mut_arg("cache_size", |arg| arg.hide_short_help(false)))]
    Gc {
        #[command(flatten)]
        cache: CacheArgs,

        /// Remove all images that no mount uses
        #[arg(long, conflicts_with = "cache_size")]
        all: bool,
    },
    /// Check what is stored against the root hashes
    ///
    /// Removes what is wrong: it is fetched again when it is read.
    Verify {
        #[command(flatten)]
        cache: CacheArgs,
    },
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.command {
        CacheCommand::Ls { cache, json } => list(&cache.open()?, *json),
        CacheCommand::Gc { cache, all } => collect(&cache.open()?, *all),
        CacheCommand::Verify { cache } => verify(&cache.open()?),
    }
}

fn list(cache: &Cache, as_json: bool) -> Outcome {
    let usage = cache.usage().map_err(Failure::complete)?;
    let mut out = io::stdout().lock();
    if as_json {
        let entries: Vec<_> = usage.iter().map(entry_json).collect();
        writeln!(out, "{}", json_text(&json!({ "directory": cache.folder(), "images": entries })))?;
        return Ok(0);
    }
    for entry in &usage {
        let size = entry.info.as_ref().map_or(0, |info| info.size);
        let (stored, size) = (byte_size::human(entry.stored), byte_size::human(size));
        let location = entry.info.as_ref().map_or("?", |info| info.location.as_str());
        let state = if entry.in_use { "in use" } else { "unused" };
        writeln!(out, "{stored:>10} of {size:>10}  {state}  {location}  {}", entry.key)?;
    }
    Ok(0)
}

fn entry_json(entry: &Usage) -> serde_json::Value {
    let seconds =
        entry.last_use.duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    json!({
        "key": entry.key,
        "location": entry.info.as_ref().map(|info| &info.location),
        "size": entry.info.as_ref().map(|info| info.size),
        "roothash": entry.info.as_ref().and_then(|info| info.roothash.as_ref()),
        "stored": entry.stored,
        "last_use": seconds,
        "in_use": entry.in_use,
    })
}

fn collect(cache: &Cache, all: bool) -> Outcome {
    if !all && cache.limit().is_none() {
        let reason = "give the size that the cache may have with --cache-size, or --all";
        return Err(Failure::usage(cache.folder(), reason));
    }
    let target = if all { 0 } else { cache.limit().unwrap_or(0) };
    let collected = cache.collect_to(target).map_err(Failure::complete)?;
    let freed = byte_size::human(collected.before.saturating_sub(collected.after));
    writeln!(
        io::stdout(),
        "removed {} images, {freed}; {} left",
        collected.entries,
        byte_size::human(collected.after)
    )?;
    if !all && collected.after > target {
        let usage = cache.usage().map_err(Failure::complete)?;
        let in_use: Vec<_> = usage.iter().filter(|entry| entry.in_use).collect();
        let stored = byte_size::human(in_use.iter().map(|entry| entry.stored).sum());
        warn(format_args!(
            "{}: still larger than {}: {} images in use have {stored}. `ferofs umount` frees them; a mount with --cache-size evicts parts of its own",
            Escaped::path(cache.folder()),
            byte_size::human(target),
            in_use.len(),
        ))?;
    }
    Ok(0)
}

fn verify(cache: &Cache) -> Outcome {
    let mut code = 0;
    for entry in cache.usage().map_err(Failure::complete)? {
        let verified = verify_entry(cache, &entry.key).map_err(Failure::complete)?;
        let name = Path::new(&entry.key);
        match verified {
            None => {
                warn(format_args!(
                    "{}: has no root hash: nothing to verify it against",
                    name.display()
                ))?;
            }
            Some(verified) => {
                let right = byte_size::human(verified.right);
                writeln!(
                    io::stdout(),
                    "{}: {right} right, {} wrong and removed",
                    name.display(),
                    byte_size::human(verified.wrong)
                )?;
                code |= u8::from(verified.wrong > 0);
            }
        }
    }
    Ok(code)
}
