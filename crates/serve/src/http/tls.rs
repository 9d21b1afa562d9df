//! TLS by rustls: which servers are trusted, and how this client identifies itself.
//!
//! The configuration is made once for a client, with its first connection that needs it, or before
//! if it names files: a process that gives up the file system later still opens connections. The
//! TLS layer of ureq would make a configuration for each connection of a request with a time limit,
//! and read the system's certificates each time.

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ALL_VERSIONS, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use ureq::unversioned::transport::time::{Duration, Instant};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use super::verifiers::Verifier;
use crate::error::{Error, Result};

/// How servers and this client identify themselves.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TlsOptions {
    /// Certificates (PEM) of authorities that are trusted instead of those of the system. The
    /// system's are those of the variables `SSL_CERT_FILE` and `SSL_CERT_DIR`, or else of the
    /// distribution.
    pub authorities: Option<PathBuf>,
    /// The certificate with its chain, and the key (PEM) of this client.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Accept any certificate: anybody on the way can read and change what is sent.
    pub accept_any: bool,
}

impl TlsOptions {
    /// Whether files are named, which may be wrong.
    fn names_files(&self) -> bool {
        self.authorities.is_some() || self.client.is_some()
    }

    /// Reads the files.
    fn config(&self) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(ALL_VERSIONS)
            .map_err(|error| wrong(Path::new("TLS"), error))?;
        let builder = builder.dangerous();
        let builder = if self.accept_any {
            builder.with_custom_certificate_verifier(Arc::new(Verifier::of_any(provider)))
        } else {
            builder.with_custom_certificate_verifier(Arc::new(self.trusted(provider)?))
        };
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let private =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| wrong_pem(key, error))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| wrong(key, error))?
            }
        };
        Ok(Arc::new(config))
    }

    fn trusted(&self, provider: Arc<CryptoProvider>) -> Result<Verifier> {
        let mut roots = RootCertStore::empty();
        let certificates = match &self.authorities {
            Some(path) => {
                let certificates = certificates(path)?;
                for certificate in &certificates {
                    roots.add(certificate.clone()).map_err(|error| wrong(path, error))?;
                }
                certificates
            }
            None => {
                let certificates = rustls_native_certs::load_native_certs().certs;
                roots.add_parsable_certificates(certificates.iter().cloned());
                certificates
            }
        };
        Verifier::of_roots(roots, &certificates, provider)
            .map_err(|error| wrong(Path::new("TLS"), error))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(|error| wrong_pem(path, error))?;
    if found.is_empty() {
        return Err(wrong_pem(path, pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn wrong_pem(path: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(error) => wrong(path, error),
        pem::Error::NoItemsFound => wrong(path, "has no such section in PEM"),
        _ => wrong(path, "is not correct PEM"),
    }
}

fn wrong(path: &Path, problem: impl fmt::Display) -> Error {
    Error::Credentials { path: path.into(), problem: problem.to_string() }
}

/// Makes connections to `https` secure.
pub(super) struct TlsConnector {
    options: TlsOptions,
    /// The certificates of the system are many: they are read when they are needed.
    config: OnceLock<Arc<ClientConfig>>,
}

impl TlsConnector {
    /// Reads the files that the options name.
    pub(super) fn new(options: &TlsOptions) -> Result<Self> {
        let connector = Self { options: options.clone(), config: OnceLock::new() };
        if options.names_files() {
            connector.config()?;
        }
        Ok(connector)
    }

    fn config(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let config = self.options.config()?;
        Ok(Arc::clone(self.config.get_or_init(|| config)))
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name =
            ServerName::try_from(host).map_err(|_| ureq::Error::Tls("wrong name of a server"))?;
        let config = self.config().map_err(|error| ureq::Error::Other(error.into()))?;
        let conn = ClientConnection::new(config, name)
            .map_err(|error| ureq::Error::Other(error.into()))?;
        let mut sock = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        sock.set_timeout(left(details));
        let mut stream = StreamOwned { conn, sock };
        stream.conn.complete_io(&mut stream.sock)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream })))
    }
}

/// The time to connect, without the time that the connection below took.
fn left(details: &ConnectionDetails<'_>) -> NextTimeout {
    let mut timeout = details.timeout;
    if let (Instant::Exact(now), Instant::Exact(started), Duration::Exact(after)) =
        ((details.current_time)(), details.now, timeout.after)
    {
        timeout.after =
            Duration::Exact(after.saturating_sub(now.saturating_duration_since(started)));
    }
    timeout
}

/// A secure connection.
pub(super) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        Ok(self.stream.write_all(output)?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
