//! Sends requests, and translates errors. Redirects, credentials and retries are the callers' matter.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ureq::http::{Request, Response};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, AsSendBody, Body};

use crate::error::{Error, FetchErrorKind, Result};

/// How servers and this client identify themselves.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TlsOptions {
    /// Certificates (PEM) of authorities that are trusted instead of those of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate and the key (PEM) of this client.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Accept any certificate: anybody on the way can read and change what is sent.
    pub accept_any: bool,
}

/// A client with its connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
}

/// Connections that stay open for the next requests: more than a fetcher uses at a time.
const IDLE: usize = 64;

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::Credentials { path: path.into(), problem: error.to_string() })
}

impl Client {
    /// Reads the files of `options`.
    ///
    /// # Errors
    /// [`Error::Credentials`].
    pub fn new(options: &TlsOptions) -> Result<Self> {
        // If it is installed already, that is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut tls = TlsConfig::builder().disable_verification(options.accept_any);
        tls = tls.root_certs(match &options.authorities {
            None => RootCerts::PlatformVerifier,
            Some(path) => RootCerts::new_with_certs(&certificates(path)?),
        });
        if let Some((certificate, key)) = &options.client {
            let pem = read(key)?;
            let wrong =
                |error: ureq::Error| Error::Credentials { path: key.clone(), problem: error.to_string() };
            let key = PrivateKey::from_pem(&pem).map_err(wrong)?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(certificate)?, key)));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(IDLE)
            .max_idle_connections_per_host(IDLE)
            .max_idle_age(Duration::from_secs(50))
            .user_agent(concat!("ferofs/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build();
        Ok(Self { agent: config.new_agent() })
    }

    /// Sends a request; the answer with its body must be complete at `deadline`. Any status is an answer.
    ///
    /// # Errors
    /// The kinds of connections: [`FetchErrorKind::Timeout`], [`FetchErrorKind::Connection`], [`FetchErrorKind::Name`],
    /// [`FetchErrorKind::Tls`].
    pub fn send(
        &self,
        request: Request<impl AsSendBody>,
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(FetchErrorKind::Timeout);
        }
        let request = self.agent.configure_request(request).timeout_global(Some(left)).build();
        self.agent.run(request).map_err(kind_of)
    }

    /// Sends a GET request with these headers.
    ///
    /// # Errors
    /// As [`Self::send`]; [`FetchErrorKind::Protocol`] for headers and URLs that cannot be sent.
    pub fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        let request =
            headers.iter().fold(Request::get(url), |request, (name, value)| request.header(name, value));
        let request = request.body(()).map_err(|error| FetchErrorKind::Protocol(error.to_string()))?;
        self.send(request, deadline)
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let pem = read(path)?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        let item =
            item.map_err(|error| Error::Credentials { path: path.into(), problem: error.to_string() })?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(Error::Credentials { path: path.into(), problem: "has no certificate in PEM".into() });
    }
    Ok(certificates)
}

/// The kind of an error of the client.
pub(crate) fn kind_of(error: ureq::Error) -> FetchErrorKind {
    match error {
        ureq::Error::Timeout(_) => FetchErrorKind::Timeout,
        ureq::Error::HostNotFound => FetchErrorKind::Name("no such host".into()),
        ureq::Error::Io(error) => kind_of_io(error),
        ureq::Error::ConnectionFailed => FetchErrorKind::Connection(io::ErrorKind::NotConnected.into()),
        ureq::Error::Rustls(error) => FetchErrorKind::Tls(error.to_string()),
        ureq::Error::Tls(problem) => FetchErrorKind::Tls(problem.into()),
        other => FetchErrorKind::Protocol(other.to_string()),
    }
}

/// The kind of an error while a body is read.
pub(crate) fn kind_of_io(error: io::Error) -> FetchErrorKind {
    if let Some(inner) = error.get_ref() {
        if let Some(inner) = inner.downcast_ref::<ureq::Error>() {
            return match inner {
                ureq::Error::Timeout(_) => FetchErrorKind::Timeout,
                other => FetchErrorKind::Connection(io::Error::other(other.to_string())),
            };
        }
        if let Some(inner) = inner.downcast_ref::<rustls::Error>() {
            return FetchErrorKind::Tls(inner.to_string());
        }
    }
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => FetchErrorKind::Timeout,
        io::ErrorKind::UnexpectedEof => FetchErrorKind::Short,
        // Errors of getaddrinfo(3) have no kind of their own.
        _ if text.contains("failed to lookup address") => FetchErrorKind::Name(text),
        _ => FetchErrorKind::Connection(error),
    }
}
