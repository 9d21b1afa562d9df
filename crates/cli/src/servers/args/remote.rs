//! Arguments about servers: credentials, certificates, and where stores and registries are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ferofs_serve::oci::LayerChoice;
use ferofs_serve::{Location, Options};

use crate::args::text_file;
use crate::exit::{Concerning, Failure};

/// The group of these options in help.
const SERVERS: &str = "Servers";

/// Credentials and other settings of servers.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct RemoteArgs {
    /// User of a web server or a registry. Until the command ends or has mounted, other users of
    /// this machine see a password that is given here. FEROFS_PASSWORD and --password-file hide it
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "NAME[:PASSWORD]", env = "FEROFS_USER", hide_env_values = true)]
    user: Option<Secret>,

    /// File with the password of --user [default: the password is in FEROFS_PASSWORD]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,

    /// File with a token (Bearer) of a web server or a registry. It is read again when the server
    /// does not accept the token any more
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE", conflicts_with = "user")]
    token_file: Option<PathBuf>,

    /// Take users and passwords of web servers from ~/.netrc
    #[arg(help_heading = SERVERS, hide_short_help = true, long)]
    netrc: bool,

    /// Send this header to a web server, but not to the servers that it redirects to; may be given
    /// several times
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "NAME:VALUE")]
    header: Vec<Header>,

    /// Trust the certificates of these authorities (PEM) instead of the system's. SSL_CERT_FILE
    /// replaces the system's, too
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Certificate of this client, with its chain (PEM)
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,

    /// Key of the client's certificate (PEM)
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,

    /// Accept any certificate: anybody on the way can read and change what is sent
    #[arg(help_heading = SERVERS, hide_short_help = true, long)]
    insecure_tls: bool,

    /// Address of an S3 store [default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, or
    /// AWS]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "URL")]
    s3_endpoint: Option<String>,

    /// Region of an S3 store [default: AWS_REGION, AWS_DEFAULT_REGION, the profile's, or us-east-1]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "NAME")]
    s3_region: Option<String>,

    /// Profile in ~/.aws/config and ~/.aws/credentials [default: AWS_PROFILE, or default]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "NAME")]
    s3_profile: Option<String>,

    /// Where the name of the bucket is: in the path, or in the name of the host (`host`) [default:
    /// host for AWS, path for other stores]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "PLACE", value_parser = ["path", "host"])]
    s3_bucket_in: Option<String>,

    /// File with the key of an S3 store and its secret, as s3fs has it: KEY:SECRET
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE", conflicts_with = "s3_anonymous")]
    s3_passwd_file: Option<PathBuf>,

    /// Send requests to S3 stores without a signature, for public buckets
    #[arg(help_heading = SERVERS, hide_short_help = true, long)]
    s3_anonymous: bool,

    /// Ask a registry by http, or with `=false` by https [default: http for registries on this
    /// machine (localhost)]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    plain_http: Option<bool>,

    /// File with credentials of registries [default: REGISTRY_AUTH_FILE, or the files of podman and
    /// docker]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "FILE")]
    auth_file: Option<PathBuf>,

    /// Platform of an image in a registry: OS/ARCH[/VARIANT] [default: this machine's]
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "PLATFORM")]
    oci_platform: Option<String>,

    /// The layer of an image with several EROFS layers: its number, from 0, or its digest
    #[arg(help_heading = SERVERS, hide_short_help = true, long, value_name = "LAYER")]
    oci_layer: Option<LayerChoice>,
}

/// A text that messages do not show.
#[derive(Clone, Default)]
struct Secret(String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

/// A header of HTTP.
#[derive(Clone)]
struct Header(String, String);

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ...", self.0)
    }
}

impl FromStr for Header {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').ok_or("has no colon")?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err("the name of a header has letters, digits and -");
        }
        if !value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
            return Err("the value of a header is one line of ASCII");
        }
        Ok(Self(name.to_owned(), value.trim().to_owned()))
    }
}

impl RemoteArgs {
    /// The settings for a location.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::default();
        options.tls.authorities.clone_from(&self.cacert);
        options.tls.client = self.client_cert.clone().zip(self.client_key.clone());
        options.tls.accept_any = self.insecure_tls;
        let user = self.user()?;
        options.web.user.clone_from(&user);
        options.web.token_file.clone_from(&self.token_file);
        options.web.netrc = self.netrc;
        options.web.headers =
            self.header.iter().map(|Header(name, value)| (name.clone(), value.clone())).collect();
        options.s3.endpoint.clone_from(&self.s3_endpoint);
        options.s3.region.clone_from(&self.s3_region);
        options.s3.profile.clone_from(&self.s3_profile);
        options.s3.path_style = self.s3_bucket_in.as_deref().map(|place| place == "path");
        options.s3.anonymous = self.s3_anonymous;
        options.s3.keys = self.s3_passwd_file.as_deref().map(s3_keys).transpose()?;
        options.oci.user = user;
        options.oci.token = options.web.token().map_err(Failure::complete)?;
        options.oci.plain_http = self.plain_http;
        options.oci.auth_file.clone_from(&self.auth_file);
        options.oci.platform.clone_from(&self.oci_platform);
        options.oci.layer.clone_from(&self.oci_layer);
        Ok(options)
    }

    /// Which part of an image in a registry the user has chosen, as text: `#layer=1`.
    pub(crate) fn choice(&self) -> String {
        let platform = self.oci_platform.as_ref().map(|platform| format!("#platform={platform}"));
        let layer = self.oci_layer.as_ref().map(|layer| match layer {
            LayerChoice::Index(number) => format!("#layer={number}"),
            LayerChoice::Digest(digest) => format!("#layer={digest}"),
        });
        platform.into_iter().chain(layer).collect()
    }

    /// The layer that the user has chosen.
    pub(crate) const fn chosen_layer(&self) -> Option<&LayerChoice> {
        self.oci_layer.as_ref()
    }

    fn user(&self) -> Result<Option<(String, String)>, Failure> {
        let Some(Secret(user)) = &self.user else { return Ok(None) };
        let (name, password) =
            user.split_once(':').map_or((user.as_str(), None), |(n, p)| (n, Some(p)));
        let password = match (&self.password_file, password) {
            (Some(path), _) => {
                let text = text_file::read_text(path).concerning(path)?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            (None, Some(password)) => password.to_owned(),
            (None, None) => std::env::var("FEROFS_PASSWORD").unwrap_or_default(),
        };
        Ok(Some((name.to_owned(), password)))
    }

    /// Sets the options that erofs-utils has for registries.
    pub(crate) fn set_registry(&mut self, registry: RegistryArgs) {
        if let Some(name) = registry.user {
            let password =
                registry.password.map_or(String::new(), |password| format!(":{password}"));
            (self.user, self.token_file) = (Some(Secret(name + &password)), None);
        }
        self.plain_http = registry.plain_http.then_some(true).or(self.plain_http);
        self.oci_platform = registry.platform.or(self.oci_platform.take());
        self.oci_layer = registry.layer.or(self.oci_layer.take());
    }

    /// Sets the options that erofs-utils has for S3 stores.
    pub(crate) fn set_store(&mut self, store: StoreArgs) {
        self.s3_endpoint = store.endpoint.or(self.s3_endpoint.take());
        self.s3_region = store.region.or(self.s3_region.take());
        self.s3_passwd_file = store.passwd_file.or(self.s3_passwd_file.take());
        self.s3_bucket_in = Some(if store.is_path_style { "path" } else { "host" }.to_owned());
    }

    /// Whether the arguments themselves have a password or a token.
    pub(crate) fn has_secrets(&self) -> bool {
        let is_secret = |Secret(user): &Secret| user.contains(':');
        self.user.as_ref().is_some_and(is_secret) || !self.header.is_empty()
    }

    /// Files that these options name, which are read when the server is asked.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let files = [
            &self.password_file,
            &self.token_file,
            &self.s3_passwd_file,
            &self.cacert,
            &self.client_cert,
            &self.client_key,
            &self.auth_file,
        ];
        files.into_iter().flatten()
    }
}

/// Options of erofs-utils for registries.
#[derive(Default)]
pub(crate) struct RegistryArgs {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) plain_http: bool,
    pub(crate) platform: Option<String>,
    pub(crate) layer: Option<LayerChoice>,
}

/// Options of erofs-utils for S3 stores.
#[derive(Default)]
pub(crate) struct StoreArgs {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) passwd_file: Option<PathBuf>,
    pub(crate) is_path_style: bool,
}

/// Reads the file of `--s3-passwd-file`.
fn s3_keys(path: &Path) -> Result<(String, String), Failure> {
    let text = text_file::read_text(path).concerning(path)?;
    let keys = text.trim_end_matches(['\r', '\n']).split_once(':');
    match keys.filter(|(key, secret)| !key.is_empty() && !secret.contains(['\r', '\n'])) {
        Some((key, secret)) => Ok((key.to_owned(), secret.to_owned())),
        None => Err(Failure::about(path, "is not one line KEY:SECRET")),
    }
}

/// Parses the name of an image on a server.
pub(crate) fn location(name: &Path) -> Result<Location, Failure> {
    Location::parse(&name.to_string_lossy()).map_err(Failure::complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_s3fs_has_one_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let keys = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            s3_keys(file.path())
        };
        assert_eq!(keys("key:sec:ret\r\n").unwrap(), ("key".into(), "sec:ret".into()));
        for wrong in ["", "key", ":secret", "key:secret\nkey:secret\n"] {
            let error = keys(wrong).unwrap_err().to_string();
            assert!(error.ends_with("is not one line KEY:SECRET"), "{error}");
        }
    }

    #[test]
    fn headers_are_one_line() {
        let header = |text: &str| {
            text.parse::<Header>().map(|Header(name, value)| format!("{name}={value}"))
        };
        assert_eq!(header("X-Key: a:b").unwrap(), "X-Key=a:b");
        for wrong in ["X-Key", ": a", "X Key: a", "X-Key: a\r\nHost: b", "X-Key: ä"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            format!("{:?}", "Authorization: secret".parse::<Header>()),
            "Ok(Authorization: ...)"
        );
    }
}
