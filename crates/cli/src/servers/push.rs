//! `ferofs push`: stores an image in a registry.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs::build::Whiteouts;
use ferofs::read::{Cancel, FileSource, Hex, Image, OpenOptions};
use ferofs_serve::Location;
use ferofs_serve::http::Client;
use ferofs_serve::oci::{ImageConfig, LayerKind, PushOptions, RegistryImage};
use ferofs_serve::pull::PullOptions;
use serde_json::json;

use super::form::FormArgs;
use super::layers::{Target, build, build_with, fetch};
use super::scratch::{Scratch, cancel_on_signals};
use super::transfer::{deadline, store};
use super::upper_layer;
use crate::args::text_file;
use crate::args::threads;
use crate::exit::{About, Concerning, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs};
use crate::servers::args::CacheArgs;
use crate::servers::args::remote::{RemoteArgs, location};

/// Store an image in an OCI registry
///
/// The image becomes the only layer of an image in the registry, which `ferofs mount oci://...`
/// reads without fetching all of it, and which containerd mounts with its EROFS snapshotter. The
/// root hash of a sealed image (`ferofs verity format`, `ferofs build --verity`) becomes an
/// annotation, so that a name with the printed digest is enough to verify each block. What the
/// registry has already is not sent.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The image
    image: PathBuf,

    /// Where to: oci://HOST/REPOSITORY:TAG
    #[arg(value_name = "LOCATION")]
    to: PathBuf,

    /// Store this access profile with the image
    ///
    /// `ferofs mount --record-profile` writes it.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Add an annotation to the manifest; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = annotation)]
    annotation: Vec<(String, String)>,

    /// Store only what differs from this image
    ///
    /// It is in the same registry: oci://HOST/REPOSITORY:TAG[@DIGEST]. Its layers, which must be
    /// EROFS images, come first and are not sent; a layer with new and changed files and with
    /// overlayfs' whiteouts follows. The base is fetched to compare it.
    #[arg(long, value_name = "LOCATION")]
    base: Option<PathBuf>,

    /// Take program and platform from this configuration
    ///
    /// Also environment and user: the configuration of an image (JSON).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Take the layer from this repository of the same registry if it is there; may be given
    /// several times
    #[arg(long, hide_short_help = true, value_name = "REPOSITORY")]
    mount_from: Vec<String>,

    /// Threads that hash the image [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    form: FormArgs,

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

fn annotation(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("is not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.shown.apply();
    let Location::Oci(reference) = location(&args.to)? else {
        return Err(Failure::about(
            &args.to,
            "images are pushed to registries: oci://HOST/REPOSITORY:TAG",
        ));
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
    let mut layers = vec![args.image.clone()];
    let mut difference = None;
    if let Some(name) = &args.base {
        let name = match location(name)? {
            // Another registry must not get the password of this one.
            Location::Oci(base) if base.host == reference.host => base,
            _ => {
                let problem = "a base is in the same registry: oci://HOST/REPOSITORY:TAG";
                return Err(Failure::about(name, problem));
            }
        };
        let base = RegistryImage::open(client.clone(), &name, &options.oci, deadline());
        let base = Arc::new(base.map_err(Failure::complete)?);
        let made = Difference::make(args, &base)?;
        layers = made.file.iter().cloned().collect();
        options.base = Some(base);
        difference = Some(made);
    }
    let stored = store(
        client,
        &layers,
        &reference,
        &options,
        args.json,
        |pushed| json!({ "layer": pushed.layers.last(), "mounted": pushed.is_mounted }),
    );
    // Its file is sent.
    drop(difference);
    stored
}

/// The layer with what differs from the base.
struct Difference {
    /// `None` if nothing differs.
    file: Option<PathBuf>,
    /// The folder of the file.
    _scratch: Scratch,
}

impl Difference {
    fn make(args: &Args, base: &RegistryImage) -> Result<Self, Failure> {
        let location = PathBuf::from(format!("oci://{}", base.reference()));
        if !base.layers().all(|layer| layer.kind == LayerKind::Erofs) || base.layers().len() == 0 {
            let problem =
                "a base has EROFS images as layers: `ferofs convert` makes it of other images";
            return Err(Failure::about(&location, problem));
        }
        let cancel = Cancel::default();
        cancel_on_signals(&cancel)?;
        let config = base.config(deadline()).map_err(Failure::complete)?;
        let scratch = Scratch::new(args.cache.open()?.folder())?;
        let mut pulled = PullOptions::default();
        pulled.threads = threads(args.threads);
        let files = fetch(base, &config, scratch.path(), &pulled, &cancel)?;
        let base = match files.as_slice() {
            [only] => only.path.clone(),
            files => {
                let path = scratch.path().join("base.erofs");
                let target =
                    Target { path: &path, whiteouts: Whiteouts::Apply, identity: base.digest() };
                build(files, &target, &FormArgs::uncompressed(), &cancel)?;
                path
            }
        };
        let open = |path: &Path| {
            let mut options = OpenOptions::default();
            options.cancel = cancel.clone();
            let file = FileSource::open(path, 0).without_subject()?;
            Image::open_with(Box::new(file), Vec::new(), &options).about(path)
        };
        let (base, image) = (open(&base)?, open(&args.image)?);
        let path = scratch.path().join("difference.erofs");
        let identity = Hex(&image.superblock().uuid).to_string();
        let target = Target { path: &path, whiteouts: Whiteouts::Keep, identity: &identity };
        let mut is_different = false;
        build_with(&target, &args.form, &cancel, |builder| {
            is_different = upper_layer::add(&base, &image, &args.image, builder)?;
            Ok(())
        })?;
        Ok(Self { file: is_different.then_some(path), _scratch: scratch })
    }
}

/// Reads a configuration of an image.
fn read_config(path: &Path) -> Result<ImageConfig, Failure> {
    let bytes = text_file::read(path).concerning(path)?;
    ImageConfig::parse(bytes).concerning(path)
}
