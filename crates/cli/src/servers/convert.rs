//! `ferofs convert`: from an image of tar archives in a registry to one of EROFS images.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferofs::build::{SourceFormat, Whiteouts};
use ferofs::read::Cancel;
use ferofs_serve::Location;
use ferofs_serve::http::Client;
use ferofs_serve::oci::{PushOptions, Reference, RegistryImage};
use ferofs_serve::pull::PullOptions;
use serde_json::json;

use super::form::FormArgs;
use super::layers::{LayerFile, Target, build, fetch};
use super::scratch::{Scratch, cancel_on_signals};
use super::transfer::{deadline, store};
use crate::args::threads;
use crate::exit::{Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs};
use crate::servers::args::CacheArgs;
use crate::servers::args::remote::{RemoteArgs, location};

/// Make EROFS layers of a container image in a registry
///
/// Stores the image again, with EROFS images instead of tar archives as layers.
///
/// All layers become one sealed EROFS image, with whiteouts applied, or one for each with --layers.
/// Program, environment, user and platform of the image are taken over. The result can be mounted
/// (`ferofs mount oci://...`), and containerd runs containers of it with its EROFS snapshotter. The
/// same image and the same options always give the same result. If FROM and TO are in different
/// registries, --user and --token-file are for TO only, and those of FROM come from --auth-file or
/// the files of podman and docker.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The image: oci://HOST/REPOSITORY:TAG[@DIGEST]
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Where to: oci://HOST/REPOSITORY:TAG
    #[arg(value_name = "TO")]
    to: PathBuf,

    /// Make an EROFS image of each layer
    ///
    /// So images on the same base share its layers. Layers that are EROFS images already stay as
    /// they are. containerd stacks them; `ferofs mount` mounts one of them.
    #[arg(long)]
    layers: bool,

    #[command(flatten)]
    form: FormArgs,

    /// Seconds after which the command fails if a part of the image does not arrive
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,

    /// Threads that hash and verify [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    remote: RemoteArgs,

    /// Print the result as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.shown.apply();
    if args.from.exists() {
        return Err(Failure::about(
            &args.from,
            "is a file or a directory: use ferofs build SOURCE IMAGE",
        ));
    }
    let (from, to) = (registry_name(&args.from)?, registry_name(&args.to)?);
    if to.digest.is_some() {
        return Err(Failure::about(
            &args.to,
            "an image is pushed to a tag: its digest follows from it",
        ));
    }
    let cancel = Cancel::default();
    cancel_on_signals(&cancel)?;
    let remote = args.remote.options()?;
    let mut reading = remote.oci.clone();
    if from.host != to.host {
        // Another registry must not get the password of this one.
        (reading.user, reading.token) = (None, None);
    }
    let client = Client::new(&remote.tls).map_err(Failure::complete)?;
    let image = RegistryImage::open(client.clone(), &from, &reading, deadline())
        .map_err(Failure::complete)?;
    let config = image.config(deadline()).map_err(Failure::complete)?;
    let scratch = Scratch::new(args.cache.open()?.folder())?;
    let mut pulled = PullOptions::default();
    pulled.threads = threads(args.threads);
    pulled.patience = Duration::from_secs(args.timeout.into());
    let layers = fetch(&image, &config, scratch.path(), &pulled, &cancel)?;
    let files = args.build(&layers, image.config_digest(), scratch.path(), &cancel)?;

    let mut options = PushOptions::default();
    options.oci = remote.oci;
    options.threads = threads(args.threads);
    options.annotations.clone_from(image.annotations());
    options.config = Some(config);
    if from.host == to.host {
        // Layers that stay as they are.
        options.mount_from.push(from.repository);
    }
    store(client, &files, &to, &options, args.json, |_| json!({ "source": image.digest() }))
}

impl Args {
    /// Builds the new layers in `folder`. `identity` is the digest of the image's configuration.
    fn build(
        &self,
        layers: &[LayerFile],
        identity: &str,
        folder: &Path,
        cancel: &Cancel,
    ) -> Result<Vec<PathBuf>, Failure> {
        if !self.layers {
            let path = folder.join("merged.erofs");
            let target = Target { path: &path, whiteouts: Whiteouts::Apply, identity };
            build(layers, &target, &self.form, cancel)?;
            return Ok(vec![path]);
        }
        let mut files = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            if layer.format == SourceFormat::Image {
                files.push(layer.path.clone());
                continue;
            }
            let path = folder.join(format!("built{number}.erofs"));
            let target =
                Target { path: &path, whiteouts: Whiteouts::Overlay, identity: &layer.diff_id };
            build(std::slice::from_ref(layer), &target, &self.form, cancel)?;
            files.push(path);
        }
        Ok(files)
    }
}

fn registry_name(name: &Path) -> Result<Reference, Failure> {
    match location(name)? {
        Location::Oci(reference) => Ok(reference),
        _ => Err(Failure::about(
            name,
            "images are converted from registry to registry: oci://HOST/REPOSITORY:TAG",
        )),
    }
}
