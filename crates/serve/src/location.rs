//! Names of remote images, and how each kind is opened.
//!
//! | name | what it is |
//! |---|---|
//! | `https://HOST/PATH`, `http://HOST/PATH` | an object of a web server |
//! | `s3://BUCKET/KEY` | an object of an S3 store |
//! | `oci://HOST/REPOSITORY:TAG[@DIGEST]` | the EROFS layer of an image in a registry |

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::http::{
    Access, Client, HttpObject, S3Access, S3Options, TlsOptions, WebAccess, WebOptions,
    without_password,
};
use crate::oci::{self, OciOptions, Reference};
use crate::open::Connected;

/// The location of a remote image. Its text for messages ([`fmt::Display`]) has no password and no
/// signature.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// An object of a web server.
    Web {
        /// The address, which may have a password and a signature.
        address: String,
        /// The address without them.
        shown: String,
    },
    /// An object of an S3 store.
    S3 {
        /// The bucket.
        bucket: String,
        /// The name of the object in it.
        key: String,
    },
    /// An image in a registry.
    Oci(Reference),
}

/// Credentials and other settings for all kinds of locations. Each kind uses its own.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// How servers and this client identify themselves.
    pub tls: TlsOptions,
    /// Web servers.
    pub web: WebOptions,
    /// S3 stores.
    pub s3: S3Options,
    /// Registries.
    pub oci: OciOptions,
}

impl Location {
    /// Parses a name.
    ///
    /// # Errors
    /// [`Error::Location`].
    pub fn parse(name: &str) -> Result<Self> {
        let wrong = |problem| Error::Location { location: without_password(name), problem };
        if let Some(path) = name.strip_prefix("s3://") {
            return match path.split_once('/') {
                Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
                    Ok(Self::S3 { bucket: bucket.to_owned(), key: key.to_owned() })
                }
                _ => Err(wrong("is not of the form s3://BUCKET/KEY")),
            };
        }
        if let Some(image) = name.strip_prefix("oci://") {
            return Reference::parse(image).map(Self::Oci).map_err(wrong);
        }
        if ["https://", "http://"].iter().any(|scheme| name.starts_with(scheme)) {
            let shown = WebAccess::new(name, &WebOptions::default())?.location().to_owned();
            return Ok(Self::Web { address: name.to_owned(), shown });
        }
        Err(wrong(
            "is not a remote image: names begin with https://, http:// or s3://, and those of registries with oci://",
        ))
    }

    /// Opens the image by its first requests, which end at `deadline`.
    ///
    /// # Errors
    /// [`Error::Fetch`] if the server fails; [`Error::Credentials`]; for registries also
    /// [`Error::Document`] and [`Error::TarLayers`].
    pub fn open(&self, options: &Options, deadline: Instant) -> Result<Connected> {
        let client = Client::new(&options.tls)?;
        let access: Arc<dyn Access> = match self {
            Self::Web { address, .. } => Arc::new(WebAccess::new(address, &options.web)?),
            Self::S3 { bucket, key } => Arc::new(S3Access::new(bucket, key, &options.s3)?),
            Self::Oci(reference) => return oci::open(client, reference, &options.oci, deadline),
        };
        let opened = HttpObject::open(client, access, deadline)?;
        Ok(Connected::new(Arc::new(opened.object), opened.first_bytes))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Web { shown, .. } => f.write_str(shown),
            Self::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let shown = |name: &str| Location::parse(name).unwrap().to_string();
        assert_eq!(shown("https://me:secret@h/a?sig=secret"), "https://h/a?...");
        assert_eq!(shown("s3://b/a/b c.erofs"), "s3://b/a/b c.erofs");
        assert_eq!(shown("oci://h.x/app"), "oci://h.x/app:latest");
        assert!(
            !format!("{:?}", Location::parse("http://me:secret@h/a").unwrap()).contains("secret")
        );
    }

    #[test]
    fn wrong_names_are_reported_without_secrets() {
        for wrong in [
            "s3://b",
            "s3://b/",
            "s3:///k",
            "oci://A",
            "https://",
            "http://me:secret@/x",
            "/file",
            "ftp://me:secret@h/",
        ] {
            let error = Location::parse(wrong).unwrap_err();
            assert!(matches!(error, Error::Location { .. }), "{wrong}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
