//! `s3://BUCKET/KEY`: objects of AWS S3 and of stores with its protocol, such as MinIO and Ceph.
//!
//! `profile` reads what the AWS command line reads: environment variables, `~/.aws/config` and
//! `~/.aws/credentials`. This module signs requests (rusty-s3 makes the signatures); the objects
//! themselves are [`HttpObject`](super::HttpObject)s.

mod profile;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use url::Url;

use self::profile::{Profile, Variables, variable};
use crate::error::{Error, FetchErrorKind, Result};
use crate::http::object::{Access, Target};

/// The endpoint of a store, and the credentials. Missing values come from the environment and from
/// the profile, as for the AWS command line.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct S3Options {
    /// The address of the store. Otherwise `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile's
    /// `endpoint_url`, or AWS.
    pub endpoint: Option<String>,
    /// The region. Otherwise `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile's, or `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket is part of the path. Otherwise it is part of the host's name for AWS, and
    /// part of the path for other stores.
    pub path_style: Option<bool>,
    /// Send requests without a signature, for public buckets.
    pub anonymous: bool,
    /// The profile. Otherwise `AWS_PROFILE`, or `default`.
    pub profile: Option<String>,
    /// The key and its secret.
    pub keys: Option<(String, String)>,
}

impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = &self.endpoint;
        f.debug_struct("S3Options")
            .field("endpoint", endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// How long a signature is valid. Each request has a new one: it has to be valid for the longest
/// request, and for clocks that differ.
const VALID: Duration = Duration::from_secs(15 * 60);

/// An object of a store.
pub struct S3Access {
    bucket: Bucket,
    key: String,
    location: String,
    options: S3Options,
    /// `None`: without signatures. With their number.
    credentials: Mutex<(Option<Credentials>, u64)>,
}

impl S3Access {
    /// The object `key` in `bucket`.
    ///
    /// # Errors
    /// [`Error::Credentials`] if there are none, or their files cannot be read; [`Error::Location`]
    /// for an endpoint or a bucket that cannot be an address.
    pub fn new(bucket: &str, key: &str, options: &S3Options) -> Result<Self> {
        Self::with_variables(bucket, key, options, &|name| std::env::var(name).ok())
    }

    fn with_variables(
        bucket: &str,
        key: &str,
        options: &S3Options,
        variables: Variables<'_>,
    ) -> Result<Self> {
        let location = format!("s3://{bucket}/{key}");
        let profile = Profile::read(options.profile.as_deref(), variables)?;
        let set = |option: &Option<String>, names: &[&str], key: &str| {
            let variable = || names.iter().find_map(|name| variable(variables, name));
            option.clone().or_else(variable).or_else(|| profile.get(key).map(str::to_owned))
        };
        let region = set(&options.region, &["AWS_REGION", "AWS_DEFAULT_REGION"], "region");
        let region = region.unwrap_or_else(|| "us-east-1".into());
        let endpoint =
            set(&options.endpoint, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "endpoint_url");
        // Names with dots do not match the certificate of AWS.
        let is_path = options.path_style.unwrap_or(endpoint.is_some() || bucket.contains('.'));
        let wrong = |problem| Error::Location { location: location.clone(), problem };
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = Url::parse(&endpoint)
            .map_err(|_| wrong("the endpoint of the store is not an address"))?;
        let style = if is_path { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let bucket = Bucket::new(endpoint, style, bucket.to_owned(), region)
            .map_err(|_| wrong("the bucket's name and the endpoint give no address"))?;
        let credentials = credentials(options, &profile, variables)?;
        Ok(Self {
            bucket,
            key: key.to_owned(),
            location,
            options: options.clone(),
            credentials: Mutex::new((credentials, 0)),
        })
    }

    /// The address with a signature, and the number of the credentials.
    fn url(&self) -> (Url, u64) {
        let known = self.credentials.lock();
        let url = match &known.0 {
            None => self.bucket.object_url(&self.key),
            Some(credentials) => self.bucket.get_object(Some(credentials), &self.key).sign(VALID),
        };
        (url, known.1)
    }
}

/// The credentials: of the options, of the environment, of the profile.
fn credentials(
    options: &S3Options,
    profile: &Profile,
    variables: Variables<'_>,
) -> Result<Option<Credentials>> {
    if options.anonymous {
        return Ok(None);
    }
    let make = |key: String, secret: String, token: Option<String>| match token {
        Some(token) => Credentials::new_with_token(key, secret, token),
        None => Credentials::new(key, secret),
    };
    if let Some((key, secret)) = options.keys.clone() {
        return Ok(Some(make(key, secret, None)));
    }
    let from_environment = || {
        let secret = variable(variables, "AWS_SECRET_ACCESS_KEY")?;
        Some(make(
            variable(variables, "AWS_ACCESS_KEY_ID")?,
            secret,
            variable(variables, "AWS_SESSION_TOKEN"),
        ))
    };
    let from_profile = || {
        let get = |key: &str| profile.get(key).map(str::to_owned);
        Some(make(
            get("aws_access_key_id")?,
            get("aws_secret_access_key")?,
            get("aws_session_token"),
        ))
    };
    // A profile that is asked for has precedence over the environment.
    let found = match &options.profile {
        Some(_) => from_profile(),
        None => from_environment().or_else(from_profile),
    };
    found.map(Some).ok_or_else(|| Error::Credentials {
        path: PathBuf::from("S3"),
        problem: "no key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY and none in the profile; public buckets need --s3-anonymous"
            .into(),
    })
}

impl Access for S3Access {
    fn target(&self, _: Instant) -> Result<Target, FetchErrorKind> {
        let (url, credentials) = self.url();
        Ok(Target { url: url.into(), headers: Vec::new(), credentials })
    }

    /// Keys that are valid for a short time may have been replaced in the profile's files.
    fn refused(&self, target: &Target, status: u16, _: Option<&str>) -> bool {
        if !matches!(status, 400 | 401 | 403) {
            return false;
        }
        let variables = |name: &str| std::env::var(name).ok();
        // Files that cannot be read give no other keys.
        let read = Profile::read(self.options.profile.as_deref(), &variables)
            .and_then(|profile| credentials(&self.options, &profile, &variables));
        let Ok(read) = read else { return false };
        let mut known = self.credentials.lock();
        let parts = |keys: &Option<Credentials>| {
            keys.as_ref().map(|keys| {
                (keys.key().to_owned(), keys.secret().to_owned(), keys.token().map(str::to_owned))
            })
        };
        if parts(&read) != parts(&known.0) {
            *known = (read, known.1.wrapping_add(1));
        }
        known.1 != target.credentials
    }

    fn location(&self) -> &str {
        &self.location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(bucket: &str, options: &S3Options, variables: &[(&str, &str)]) -> Result<S3Access> {
        let variables = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        S3Access::with_variables(bucket, "dir/a b.erofs", options, &variables)
    }

    const KEYS: [(&str, &str); 2] =
        [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    #[test]
    fn addresses_of_aws_and_of_other_stores() {
        let anonymous = S3Options { anonymous: true, ..S3Options::default() };
        let url = |bucket: &str, variables: &[(&str, &str)]| {
            access(bucket, &anonymous, variables).unwrap().url().0.to_string()
        };
        assert_eq!(url("b", &[]), "https://b.s3.us-east-1.amazonaws.com/dir/a%20b.erofs");
        assert_eq!(
            url("b", &[("AWS_REGION", "eu-west-1")]),
            "https://b.s3.eu-west-1.amazonaws.com/dir/a%20b.erofs"
        );
        assert_eq!(url("b.c", &[]), "https://s3.us-east-1.amazonaws.com/b.c/dir/a%20b.erofs");
        let endpoint = ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000");
        assert_eq!(url("b", &[endpoint]), "http://127.0.0.1:9000/b/dir/a%20b.erofs");
        let s3 = ("AWS_ENDPOINT_URL_S3", "http://store:1");
        assert_eq!(url("b", &[endpoint, s3]), "http://store:1/b/dir/a%20b.erofs");
    }

    #[test]
    fn signatures_have_the_token_and_are_never_shown() {
        let variables = [KEYS[0], KEYS[1], ("AWS_SESSION_TOKEN", "tok")];
        let access = access("b", &S3Options::default(), &variables).unwrap();
        let url = access.target(Instant::now()).unwrap().url;
        for part in [
            "X-Amz-Credential=AKIA",
            "X-Amz-Signature=",
            "X-Amz-Security-Token=tok",
            "X-Amz-Expires=900",
        ] {
            assert!(url.contains(part), "{url}");
        }
        assert!(!url.contains("secret"));
        assert_eq!(access.location(), "s3://b/dir/a b.erofs");
    }

    #[test]
    fn without_keys_nothing_is_sent() {
        let missing = access("b", &S3Options::default(), &[]).err().unwrap().to_string();
        assert!(missing.contains("--s3-anonymous"), "{missing}");
        assert!(access("b", &S3Options::default(), &KEYS[..1]).is_err());
        let wrong = S3Options {
            endpoint: Some("no address".into()),
            anonymous: true,
            ..S3Options::default()
        };
        assert!(matches!(access("b", &wrong, &[]), Err(Error::Location { .. })));
    }
}
