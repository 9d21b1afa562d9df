//! `ferofs push`: stores an image in a registry.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use ferofs_remote::Location;
use ferofs_remote::http::Client;
use ferofs_remote::oci::{ImageConfig, PushOptions, push};
use serde_json::json;

use super::transfer::Transfer;
use crate::args::remote::{RemoteArgs, location};
use crate::cmd::threads;
use crate::exit::{Failure, Outcome};

/// Store an image in an OCI registry
///
/// The image becomes the only layer of an image in the registry, which `ferofs mount oci://...` reads without fetching all of it, and which
/// containerd mounts with its EROFS snapshotter. The root hash of a sealed image (`ferofs verity format`, `ferofs build --verity`) becomes an
/// annotation, so that a name with the printed digest is enough to verify each block. What the registry has already is not sent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The image
    image: PathBuf,

    /// Where to: oci://HOST/REPOSITORY:TAG
    #[arg(value_name = "LOCATION")]
    to: PathBuf,

    /// Store this access profile (`ferofs mount --record-profile`) with the image
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Add an annotation to the manifest; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = annotation)]
    annotation: Vec<(String, String)>,

    /// Take over program, environment, user and platform from this configuration of an image (JSON)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Take the layer from this repository of the same registry if it is there; may be given several times
    #[arg(long, value_name = "REPOSITORY")]
    mount_from: Vec<String>,

    /// Threads that hash the image [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

fn annotation(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("is not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(args: &Args) -> Outcome {
    let Location::Oci(reference) = location(&args.to)? else {
        return Err(Failure::about(&args.to, "images are pushed to registries: oci://HOST/REPOSITORY:TAG"));
    };
    let remote = args.remote.options()?;
    let mut options = PushOptions::default();
    options.oci = remote.oci;
    options.profile.clone_from(&args.profile);
    options.annotations = args.annotation.iter().cloned().collect();
    options.mount_from.clone_from(&args.mount_from);
    options.threads = threads(args.threads);
    options.config = args.config.as_deref().map(read_config).transpose()?;
    let client = Client::new(&remote.tls).map_err(Failure::complete)?;
    let transfer = Transfer::start("sent");
    let layers = std::slice::from_ref(&args.image);
    let pushed = push(client, layers, &reference, &options, &|done, size| transfer.set(done, size));
    drop(transfer);
    let pushed = pushed.map_err(Failure::complete)?;
    let name = format!("oci://{}/{}@{}", reference.host, reference.repository, pushed.manifest);
    let mut out = std::io::stdout().lock();
    if args.json {
        let object = json!({
            "location": name,
            "manifest": pushed.manifest,
            "layer": pushed.layers.last(),
            "size": pushed.size,
            "sent": pushed.sent,
            "mounted": pushed.is_mounted,
            "roothash": pushed.root.map(|root| root.to_string()),
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "{name}")?;
    }
    Ok(0)
}

/// Reads a configuration of an image.
fn read_config(path: &Path) -> Result<ImageConfig, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::about(path, error))?;
    ImageConfig::parse(bytes).map_err(|problem| Failure::about(path, problem))
}
