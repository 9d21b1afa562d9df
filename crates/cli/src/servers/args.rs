//! Arguments of images on servers: the cache, and how long readers wait.

pub(crate) mod remote;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::{OsStringValueParser, TypedValueParser};
use ferofs_serve::cache::Cache;
use ferofs_serve::fetch::{FetchOptions, Fetcher};
use ferofs_serve::open::{Connect, Known, OpenRemote, RemoteImage};
use ferofs_serve::{Error, Location};

use self::remote::RemoteArgs;
use crate::args::byte_size;
use crate::args::other_format::other_format;
use crate::args::seal::SealArgs;
use crate::exit::{Failure, warn};

/// The help of the argument that names an image.
pub(crate) const IMAGE_HELP: &str = "A file, a device, or an address (https://, s3://, oci://)";

/// The group of these options in help.
const SERVER_IMAGES: &str = "Images on servers";

#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) cache: CacheArgs,

    /// Read an image that has no root hash: nobody notices wrong bytes
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long)]
    pub(crate) insecure_no_verify: bool,

    /// Use only what the cache has; never ask a server
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long)]
    pub(crate) offline: bool,

    /// What a read does when the server does not answer: `eio` fails after 3 seconds,
    /// `wait=SECONDS` tries for that time [default: wait=60]
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long, value_name = "ACTION")]
    pub(crate) on_error: Option<OnError>,

    /// Copy blocks of this file, for example an older version of the image, instead of fetching
    /// them; may be given several times. What the cache has of other images is always used
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long, value_name = "FILE")]
    pub(crate) reuse: Vec<PathBuf>,

    /// Requests that are in flight at the same time
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long, value_name = "N", default_value = "16")]
    pub(crate) connections: Option<std::num::NonZeroUsize>,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// Takes an empty value, too: an empty variable is one that is not set.
pub(crate) fn cache_dir() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Where the cache is.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct CacheArgs {
    /// Keep what is fetched in this directory [default: /var/cache/ferofs for root, otherwise
    /// ~/.cache/ferofs]
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long, value_name = "DIR", env = "FEROFS_CACHE_DIR", value_parser = cache_dir())]
    pub(crate) cache_dir: Option<PathBuf>,

    /// Keep at most this many bytes in the cache [default: no limit]
    #[arg(help_heading = SERVER_IMAGES, hide_short_help = true, long, value_name = "BYTES", value_parser = byte_size::argument::<u64>)]
    pub(crate) cache_size: Option<u64>,
}

/// How long readers wait for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnError(Duration);

/// With `eio`: one retry of a lost packet and of a closed connection is possible.
const EIO_TIME: Duration = Duration::from_secs(3);
/// The time for the first requests without `--on-error`.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// Without the option.
const WAIT_TIME: Duration = Duration::from_secs(60);

impl std::str::FromStr for OnError {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "eio" {
            return Ok(Self(EIO_TIME));
        }
        let seconds = text.strip_prefix("wait=").and_then(|seconds| seconds.parse::<u32>().ok());
        let seconds = seconds.ok_or("neither eio nor wait=SECONDS")?;
        Ok(Self(Duration::from_secs(seconds.into())))
    }
}

impl CacheArgs {
    /// The directory of the cache.
    pub(crate) fn folder(&self) -> PathBuf {
        let home = |variable: &str| {
            std::env::var_os(variable).filter(|dir| !dir.is_empty()).map(PathBuf::from)
        };
        let default = || {
            if rustix::process::geteuid().is_root() {
                return PathBuf::from("/var/cache/ferofs");
            }
            let cache =
                home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|home| home.join(".cache")));
            // Without a home, the system's folder for temporary files: `Cache::open` refuses what
            // others can write to.
            let fallback = || {
                std::env::temp_dir().join(format!("ferofs-{}", rustix::process::geteuid().as_raw()))
            };
            cache.map_or_else(fallback, |cache| cache.join("ferofs"))
        };
        self.cache_dir.clone().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(default)
    }

    pub(crate) fn open(&self) -> Result<Cache, Failure> {
        let folder = self.folder();
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Cache::open(&folder, self.cache_size).map_err(Failure::complete)
    }
}

impl ServerArgs {
    /// How long a read waits.
    pub(crate) fn patience(&self) -> Duration {
        self.on_error.map_or(WAIT_TIME, |OnError(time)| time)
    }

    /// The given options about the cache, and about what readers of a mount wait for.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        // The variable holds for all commands.
        let of_environment = std::env::var_os("FEROFS_CACHE_DIR").map(PathBuf::from);
        let given = [
            (
                self.cache.cache_dir.is_some() && self.cache.cache_dir != of_environment,
                "--cache-dir",
            ),
            (self.cache.cache_size.is_some(), "--cache-size"),
            (self.insecure_no_verify, "--insecure-no-verify"),
            (self.offline, "--offline"),
            (self.on_error.is_some(), "--on-error"),
            (!self.reuse.is_empty(), "--reuse"),
        ];
        given.into_iter().filter_map(|(is_given, name)| is_given.then_some(name))
    }

    fn options(&self) -> FetchOptions {
        let mut options = FetchOptions::default();
        if let Some(connections) = self.connections {
            options.connections = connections.get();
        }
        options
    }

    /// Opens the image `location`: with what the cache knows of it, or else by asking the server.
    pub(crate) fn open_image(
        &self,
        location: &Path,
        seal: &SealArgs,
    ) -> Result<RemoteImage, Failure> {
        let name = self.name(location)?;
        let connect = self.connect(location)?;
        let options = self.open_options(seal);
        let image = RemoteImage::open(&name, connect, self.cache.open()?, &options);
        let image = image.map_err(|error| {
            let hint = match &error {
                Error::NoImage { first_bytes, .. } => other_format(first_bytes),
                _ => None,
            };
            let failure = Failure::complete(error);
            hint.into_iter().fold(failure, Failure::with_hint)
        })?;
        if !image.notices_changes() {
            let problem = "the server sends no strong ETag and no Last-Modified, and there is no root hash: if the image changes while it is read, this may not be noticed, and bytes of both versions are mixed";
            warn(format_args!("{name}: {problem}"))?;
        }
        Ok(image)
    }

    /// As [`Self::open_image`], for an image that another process has opened.
    pub(crate) fn open_known(
        &self,
        location: &Path,
        seal: &SealArgs,
        known: Known,
    ) -> Result<RemoteImage, Failure> {
        let (name, connect) = (self.name(location)?, self.connect(location)?);
        let options = self.open_options(seal);
        RemoteImage::open_known(&name, connect, self.cache.open()?, known, &options)
            .map_err(Failure::complete)
    }

    /// Files that hold credentials, which the fetcher of a mount reads when it connects.
    pub(crate) fn credential_files(&self) -> Vec<PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let of_home = [".aws", ".netrc"];
        let mut files: Vec<PathBuf> =
            home.iter().flat_map(|home| of_home.map(|name| home.join(name))).collect();
        let variables = [
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REGISTRY_AUTH_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
            "AWS_CONFIG_FILE",
            "NETRC",
        ];
        files.extend(self.remote.files().cloned());
        files.extend(variables.iter().filter_map(std::env::var_os).map(PathBuf::from));
        // Folders: a login replaces the file.
        let of_logins = ferofs_serve::oci::credential_files();
        files.extend(of_logins.iter().filter_map(|file| file.parent()).map(Path::to_owned));
        files
    }

    /// Whether files of these options have names that start at the current directory.
    pub(crate) fn needs_directory(&self) -> bool {
        let given = self.remote.files().chain(&self.cache.cache_dir);
        given.into_iter().any(|path| path.is_relative() && !path.as_os_str().is_empty())
    }

    fn open_options(&self, seal: &SealArgs) -> OpenRemote {
        let mut options = OpenRemote::default();
        (options.root, options.hash_offset) = (seal.root(), seal.hash_offset);
        (options.allow_unverified, options.offline) = (self.insecure_no_verify, self.offline);
        options.reuse.clone_from(&self.reuse);
        options
    }

    /// The location without passwords, and what of it is meant: the cache knows images by this
    /// name.
    pub(crate) fn name(&self, location: &Path) -> Result<String, Failure> {
        let location = remote::location(location)?;
        Ok(match location {
            Location::Oci(_) => format!("{location}{}", self.remote.choice()),
            _ => location.to_string(),
        })
    }

    fn connect(&self, location: &Path) -> Result<Connect, Failure> {
        let (location, options) = (remote::location(location)?, self.remote.options()?);
        let time = self.on_error.map_or(CONNECT_TIME, |OnError(time)| time);
        Ok(Box::new(move || location.open(&options, Instant::now() + time)))
    }

    /// Starts to fetch `image` in this process, at first the metadata near its root if that is
    /// wanted.
    pub(crate) fn fetcher(
        &self,
        image: &RemoteImage,
        prefetch_metadata: bool,
    ) -> Result<Fetcher, Failure> {
        let mut options = self.options();
        options.prefetch_metadata = prefetch_metadata;
        image.fetcher(options).map_err(Failure::complete)
    }
}
