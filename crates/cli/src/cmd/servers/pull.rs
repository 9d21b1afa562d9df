//! `ferofs pull`: fetches a complete image into a file.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ferofs::verity::Digest;
use ferofs_remote::pull::{PullOptions, pull};
use serde_json::json;

use super::transfer::Transfer;
use crate::args::remote::{RemoteArgs, location};
use crate::cmd::threads;
use crate::exit::{Failure, Outcome};
use crate::print::output::message;

/// Fetch an image from a web server, an S3 store or a registry into a file
///
/// The file gets its name when all bytes have arrived and are verified: against the digest in the registry's manifest, and against the root hash
/// if there is one. After an interruption, the same command continues with what has arrived.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the image is: https://, http://, s3://BUCKET/KEY, oci://HOST/REPOSITORY:TAG[@DIGEST]
    #[arg(value_name = "LOCATION")]
    from: PathBuf,

    /// The file, which is replaced
    file: PathBuf,

    /// Root hash that the image must have: 64 or 128 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    roothash: Option<Digest>,

    /// Position of the hash tree's superblock, in bytes [default: after the image's last block]
    #[arg(long, value_name = "BYTES", requires = "roothash")]
    hash_offset: Option<u64>,

    /// Requests that are in flight at the same time
    #[arg(long, value_name = "N", default_value = "4")]
    connections: NonZeroUsize,

    /// Seconds after which the command fails if a part of the image does not arrive
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,

    /// Threads that verify the image [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// The time for the first requests.
const OPEN_TIME: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> Outcome {
    let from = location(&args.from)?;
    let connected =
        from.open(&args.remote.options()?, Instant::now() + OPEN_TIME).map_err(Failure::complete)?;
    let mut options = PullOptions::default();
    (options.root, options.hash_offset) = (args.roothash, args.hash_offset);
    options.connections = args.connections.get();
    options.threads = threads(args.threads);
    options.patience = Duration::from_secs(args.timeout.into());
    let size = connected.object.size();
    let transfer = Transfer::start("fetched");
    let pulled = pull(&connected, &args.file, &options, &|done| transfer.set(done, size));
    drop(transfer);
    let pulled = pulled.map_err(Failure::complete)?;
    if args.json {
        let object = json!({
            "location": from.to_string(),
            "manifest": connected.manifest,
            "sha256": pulled.sha256,
            "size": pulled.size,
            "resumed": pulled.resumed,
            "verified": pulled.is_verified,
        });
        writeln!(std::io::stdout().lock(), "{object}")?;
    } else if !pulled.is_verified {
        message!("{}: nothing tells whether the bytes are right: --roothash does", args.file.display());
    }
    Ok(0)
}
