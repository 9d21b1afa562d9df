//! `ferofs pull`: fetches a complete image into a file. Layers that are not EROFS images become
//! one.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ferofs::build::{SourceFormat, Whiteouts};
use ferofs::escape::Escaped;
use ferofs::read::Cancel;
use ferofs::verity::Digest;
use ferofs_serve::cache::Cache;
use ferofs_serve::http::Client;
use ferofs_serve::oci::{LayerKind, Reference, RegistryImage};
use ferofs_serve::open::Connected;
use ferofs_serve::pull::{PullOptions, pull, replace, verify};
use ferofs_serve::{Error, Location, Validator};
use serde_json::json;

use super::form::FormArgs;
use super::layers::{LayerFile, Target, build, fetch};
use super::scratch::{Scratch, cancel_on_signals};
use super::transfer::Transfer;
use crate::args::byte_size;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::args::threads;
use crate::exit::{Concerning, Failure, Outcome, warn};
use crate::print::output::{OUTPUT, OutputArgs};
use crate::print::output::{is_strict, json_text};
use crate::servers::args::remote::{RemoteArgs, location};
use crate::servers::args::{CacheArgs, cache_dir};

/// Fetch an image from a server into a file
///
/// From a web server, an S3 store or a registry.
///
/// The file gets its name when all bytes have arrived and are verified: against the digest in the
/// registry's manifest, and against the root hash if there is one. After an interruption, the same
/// command continues with what has arrived.
///
/// Layers of an image in a registry that are tar archives, or several EROFS images, become one
/// sealed EROFS image, with whiteouts applied. A layer that is compressed as a whole (`+zstd`) is
/// decompressed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// https://, s3://BUCKET/KEY or oci://HOST/NAME:TAG
    ///
    /// Where the image is: https://, http://, s3://BUCKET/KEY, oci://HOST/REPOSITORY:TAG[@DIGEST].
    #[arg(value_name = "LOCATION")]
    from: PathBuf,

    /// The file. An older image is replaced
    file: PathBuf,

    /// Root hash that the image must have
    ///
    /// 64 or 128 hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    roothash: Option<Digest>,

    /// Position of the hash tree's superblock, in bytes [default: after the image's last block]
    #[arg(long, hide_short_help = true, value_name = "BYTES", requires = "roothash", value_parser = byte_size::argument::<u64>)]
    hash_offset: Option<u64>,

    /// Copy blocks of this file instead of fetching them
    ///
    /// For example an older version of the image; may be given several times. This needs a root
    /// hash. What the cache and the file to replace have is always used.
    #[arg(long, value_name = "FILE")]
    reuse: Vec<PathBuf>,

    /// Directory with what other commands fetched [default: /var/cache/ferofs for root, otherwise
    /// ~/.cache/ferofs]
    #[arg(long, hide_short_help = true, value_name = "DIR", env = "FEROFS_CACHE_DIR", value_parser = cache_dir())]
    cache_dir: Option<PathBuf>,

    /// Requests that are in flight at the same time
    #[arg(long, hide_short_help = true, value_name = "N", default_value = "4")]
    connections: NonZeroUsize,

    /// Seconds after which the command fails if the server does not answer, or a part of the image
    /// does not arrive
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,

    /// Threads that verify a decompressed layer [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    form: FormArgs,

    #[command(flatten)]
    remote: RemoteArgs,

    #[command(flatten)]
    overwrite: OverwriteArgs,

    /// Print the result as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.shown.apply();
    let from = location(&args.from)?;
    if args.file == Path::new("-")
        || std::fs::metadata(&args.file).is_ok_and(|metadata| !metadata.is_file())
    {
        return Err(Failure::about(
            &args.file,
            "not a regular file: pull into a file, and copy it from there",
        ));
    }
    args.overwrite.check(&args.file, OutputKind::Image { offset: 0 })?;
    if let Location::Oci(reference) = &from
        && args.remote.chosen_layer().is_none()
    {
        let remote = args.remote.options()?;
        let client = Client::new(&remote.tls).map_err(Failure::complete)?;
        let image = RegistryImage::open(client, reference, &remote.oci, args.deadline());
        let image = image.map_err(Failure::complete)?;
        let kinds: Vec<LayerKind> = image.layers().map(|layer| layer.kind).collect();
        let is_used = |kind: &LayerKind| *kind != LayerKind::Other;
        return match kinds.iter().position(is_used) {
            // The only layer, perhaps beside others that are not layers of a tree.
            Some(number)
                if kinds.get(number) == Some(&LayerKind::Erofs)
                    && !kinds.iter().skip(number + 1).any(is_used) =>
            {
                args.fetch(&from, &image.open_layer(number).map_err(Failure::complete)?)
            }
            Some(_) => args.assemble(reference, &image),
            None => Err(Failure::about(
                &args.from,
                "has no layer that is an EROFS image or a tar archive",
            )),
        };
    }
    let connected =
        from.open(&args.remote.options()?, args.deadline()).map_err(Failure::complete)?;
    args.fetch(&from, &connected)
}

impl Args {
    fn options(&self) -> PullOptions {
        let mut options = PullOptions::default();
        options.connections = self.connections.get();
        options.threads = threads(self.threads);
        options.patience = Duration::from_secs(self.timeout.into());
        (options.root, options.hash_offset) = (self.roothash, self.hash_offset);
        options.reuse.clone_from(&self.reuse);
        options.cache = self.cache();
        options.replace_image = self.overwrite.is_forced();
        options
    }

    /// When an answer to a request that starts now must be complete.
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.timeout.into())
    }

    /// The cache, if it is there and belongs to this user: otherwise all is fetched.
    fn cache(&self) -> Option<Cache> {
        let cache = CacheArgs { cache_dir: self.cache_dir.clone(), cache_size: None };
        if cache.folder().is_dir() { cache.open().ok() } else { None }
    }

    /// Fetches an object that is an image.
    fn fetch(&self, from: &Location, connected: &Connected) -> Outcome {
        let options = self.options();
        let is_certain = options.root.or(connected.root).is_some()
            || matches!(connected.object.validator(), Validator::Sha256(_));
        let unverified = || {
            format!(
                "{}: nothing tells whether the bytes are right{}: --roothash does",
                Escaped::path(&self.file),
                if matches!(connected.object.validator(), Validator::None) {
                    ", nor whether they are of one version (the server sends no strong ETag and no Last-Modified)"
                } else {
                    ""
                }
            )
        };
        if is_strict() && !is_certain {
            // Before the file gets its name.
            warn(unverified())?;
        }
        let size = connected.object.size();
        let transfer = Transfer::start("fetched");
        let pulled = pull(connected, &self.file, &options, &|done| transfer.set(done, size));
        drop(transfer);
        let pulled = pulled.map_err(|error| match error {
            // It names no file.
            Error::Verity(error) => Failure::about(&self.file, error),
            error => Failure::complete(error),
        })?;
        if self.json {
            let object = json!({
                "location": from.to_string(),
                "manifest": connected.manifest,
                "sha256": pulled.sha256,
                "size": pulled.size,
                "resumed": pulled.resumed,
                "reused": pulled.reused,
                "verified": pulled.is_verified,
            });
            writeln!(std::io::stdout().lock(), "{}", json_text(&object))?;
        } else if !pulled.is_verified {
            warn(unverified())?;
        }
        if !pulled.is_image {
            let file = Escaped::path(&self.file);
            warn(format_args!(
                "{file}: has no superblock of EROFS: unless it is data of chunks, it cannot be mounted"
            ))?;
        }
        Ok(0)
    }

    /// Fetches all layers, and makes one image of them.
    fn assemble(&self, reference: &Reference, image: &RegistryImage) -> Outcome {
        let cancel = Cancel::default();
        cancel_on_signals(&cancel)?;
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let scratch = Scratch::new(folder.unwrap_or(Path::new(".")))?;
        let config = image.config(self.deadline()).map_err(Failure::complete)?;
        // The root hash is that of the result, and not of a layer.
        let mut options = self.options();
        (options.root, options.hash_offset) = (None, None);
        let layers = fetch(image, &config, scratch.path(), &options, &cancel)?;
        let (file, root) = match layers.as_slice() {
            // It was compressed as a whole.
            [LayerFile { path, format: SourceFormat::Image, .. }] => {
                let named = image.open_layer(0).map_err(Failure::complete)?;
                verify(&named, path, &self.options()).map_err(Failure::complete)?;
                (path.clone(), self.roothash.or(named.root))
            }
            layers => {
                let path = scratch.path().join("merged.erofs");
                let identity = image.config_digest();
                let target = Target { path: &path, whiteouts: Whiteouts::Apply, identity };
                let root = build(layers, &target, &self.form, &cancel)?;
                if self.roothash.is_some() && self.roothash != root {
                    return Err(Failure::about(
                        &self.from,
                        "the image made of its layers has another root hash",
                    ));
                }
                (path, root)
            }
        };
        replace(&file, scratch.path(), &self.file).map_err(Failure::complete)?;
        if self.json {
            let size = std::fs::metadata(&self.file).concerning(&self.file)?.len();
            let object = json!({
                "location": format!("oci://{reference}"),
                "manifest": image.digest(),
                "layers": layers.len(),
                "size": size,
                "roothash": root.map(|root| root.to_string()),
                "verified": true,
            });
            writeln!(std::io::stdout().lock(), "{}", json_text(&object))?;
        }
        Ok(0)
    }
}
