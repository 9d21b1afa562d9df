//! Requests to a registry about one repository.

use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use ferofs_read::Hex;
use sha2::{Digest as _, Sha256};
use ureq::Body;
use ureq::http::Response;
use url::Url;

use super::auth::Auth;
use super::credentials;
use super::manifest::ACCEPTED;
use super::options::OciOptions;
use super::reference::Reference;
use crate::error::{Error, FetchErrorKind, Result};
use crate::http::{Access, Client, HttpObject, Target, error_of, header, kind_of_io};
use crate::object::Validator;
use ferofs_format::units::to_u64;

/// The largest manifest that is read, in bytes: the limit of most registries.
pub(super) const MANIFEST_MAX: usize = 4 << 20;

/// One repository of a registry.
pub(super) struct Registry {
    pub(super) client: Client,
    base: Url,
    pub(super) reference: Reference,
    auth: Auth,
    /// It is asked by http only because it is on this machine.
    is_assumed_plain: bool,
}

/// A document of a registry, and its digest, which was checked.
pub(super) struct Document {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
}

impl Registry {
    /// The repository of `reference`. `actions` is what will be done: `pull`, or `pull,push`;
    /// `from` are repositories that blobs are mounted from.
    pub(super) fn new(
        client: Client,
        reference: &Reference,
        options: &OciOptions,
        actions: &str,
        from: &[String],
    ) -> Result<Self> {
        let is_plain = options.plain_http.unwrap_or_else(|| reference.is_local());
        let scheme = if is_plain { "http" } else { "https" };
        let base =
            Url::parse(&format!("{scheme}://{}/v2/{}/", reference.server(), reference.repository));
        let base = base.map_err(|_| Error::Location {
            location: format!("oci://{reference}"),
            problem: "the host's name is wrong",
        })?;
        let known = match &options.user {
            Some((user, password)) => {
                Some(credentials::Credentials::User(user.clone(), password.clone()))
            }
            None if options.anonymous || options.token.is_some() => None,
            None => credentials::find(reference, options.auth_file.as_deref())?,
        };
        let scope = format!("repository:{}:{actions}", reference.repository);
        let more = from.iter().map(|name| format!("repository:{name}:pull")).collect();
        let auth =
            Auth::new(client.clone(), known, options.token.clone(), scope, more, base.clone());
        let is_assumed_plain = is_plain && options.plain_http.is_none();
        Ok(Self { client, base, reference: reference.clone(), auth, is_assumed_plain })
    }

    /// The reason of a failed request, with the location.
    pub(super) fn failed(&self, kind: FetchErrorKind) -> Error {
        let kind = match kind {
            FetchErrorKind::Unauthorized if self.auth.is_anonymous() => FetchErrorKind::NoCredentials,
            FetchErrorKind::Status(400) if self.is_assumed_plain => FetchErrorKind::Protocol(
                "the registry refuses http (status 400): --plain-http=false asks a registry on this machine by https".into(),
            ),
            kind => kind,
        };
        Error::fetch(&format!("oci://{}", self.reference), kind)
    }

    /// A document that cannot be used.
    pub(super) fn wrong(&self, document: &'static str, problem: impl Into<String>) -> Error {
        Error::document(&format!("oci://{}", self.reference), document, problem)
    }

    /// The address of `path` below the repository.
    pub(super) fn url(&self, path: &str) -> Result<Url, FetchErrorKind> {
        self.base.join(path).map_err(|_| FetchErrorKind::Protocol("wrong address".into()))
    }

    /// Sends a request, and once more after the registry has asked for other credentials. Any other
    /// status is an answer. Redirects are not followed.
    pub(super) fn send(
        &self,
        method: &str,
        url: &Url,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        if self.base.scheme() == "https" && url.scheme() != "https" {
            return Err(FetchErrorKind::Protocol(
                "the registry wants an upload by http instead of https".into(),
            ));
        }
        let mut is_again = false;
        loop {
            let mut headers: Vec<(String, String)> = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            // An upload's address may be that of another server, which has its own signature. It
            // must not say where credentials are sent.
            let is_own = url.origin() == self.base.origin();
            if is_own && let Some(value) = self.auth.header(deadline)? {
                headers.push(("Authorization".to_owned(), value));
            }
            let answer = self.client.send_with(method, url.as_str(), &headers, body, deadline)?;
            let status = answer.status().as_u16();
            let challenge = header(answer.headers(), "www-authenticate");
            if is_again || !is_own || status != 401 || !self.auth.refused(status, challenge) {
                return Ok(answer);
            }
            is_again = true;
        }
    }

    /// The manifest or index that `name`, a tag or a digest, names.
    ///
    /// # Errors
    /// [`Error::Fetch`]; [`Error::Document`] if it is too large; [`FetchErrorKind::Digest`] if it
    /// does not have the digest that was asked for or that the registry names.
    pub(super) fn manifest(&self, name: &str, deadline: Instant) -> Result<Document> {
        let url = self.url(&format!("manifests/{name}")).map_err(|kind| self.failed(kind))?;
        let answer = self.send("GET", &url, &[("Accept", &ACCEPTED.join(", "))], None, deadline);
        let mut answer = answer.map_err(|kind| self.failed(kind))?;
        if answer.status().as_u16() != 200 {
            return Err(self.failed(unexpected(&answer)));
        }
        let named = header(answer.headers(), "docker-content-digest").map(str::to_owned);
        let mut bytes = Vec::new();
        let limit = to_u64(MANIFEST_MAX + 1);
        let read = answer.body_mut().as_reader().take(limit).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(kind_of_io(error)))?;
        if bytes.len() > MANIFEST_MAX {
            return Err(self.wrong("manifest", format!("has more than {MANIFEST_MAX} bytes")));
        }
        let digest = digest_of(&bytes);
        let expected = if name.starts_with("sha256:") { Some(name) } else { named.as_deref() };
        // Another algorithm of the registry's header says nothing about this one.
        if expected.is_some_and(|expected| expected.starts_with("sha256:") && expected != digest) {
            return Err(self.failed(FetchErrorKind::Digest));
        }
        Ok(Document { bytes, digest })
    }
}

impl Registry {
    /// A blob of the repository with this digest, SHA-256, and this size. `location` is for
    /// messages.
    pub(super) fn blob(
        self: &Arc<Self>,
        digest: String,
        size: u64,
        location: String,
    ) -> HttpObject {
        let hex = digest.trim_start_matches("sha256:").to_owned();
        let client = self.client.clone();
        let access = Arc::new(BlobAccess { registry: Arc::clone(self), digest, location });
        HttpObject::with_identity(client, access, size, Validator::Sha256(hex))
    }
}

/// The kind of an answer with another status than the wanted ones. Here, status 200 is not an error
/// of its own.
pub(super) fn unexpected(answer: &Response<Body>) -> FetchErrorKind {
    match answer.status().as_u16() {
        status @ 200..=399 => FetchErrorKind::Status(status),
        status => error_of(status, answer.headers()),
    }
}

/// The digest of bytes, as registries write it.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", Hex(&Sha256::digest(bytes)))
}

/// A blob of a repository.
struct BlobAccess {
    registry: Arc<Registry>,
    digest: String,
    location: String,
}

impl Access for BlobAccess {
    fn target(&self, deadline: Instant) -> Result<Target, FetchErrorKind> {
        let url = self.registry.url(&format!("blobs/{}", self.digest))?;
        let authorization = self.registry.auth.header(deadline)?;
        let headers = authorization.map(|value| ("Authorization".to_owned(), value));
        Ok(Target { url: url.into(), headers: headers.into_iter().collect(), credentials: 0 })
    }

    fn refused(&self, _: &Target, status: u16, challenge: Option<&str>) -> bool {
        self.registry.auth.refused(status, challenge)
    }

    fn location(&self) -> &str {
        &self.location
    }
}
