//! Sends requests, and translates errors. Redirects, credentials and retries are the callers'
//! matter.

use std::io;
use std::time::{Duration, Instant};

use ureq::http::{Request, Response};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector};
use ureq::{Agent, AsSendBody, Body};
use url::{Host, Url};

use super::tls::{TlsConnector, TlsOptions};
use crate::error::{FetchErrorKind, Result};

/// A client with its connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
}

/// Connections that stay open for the next requests: more than a fetcher uses at a time.
const IDLE: usize = 64;

impl Client {
    /// Reads the files that `options` names.
    ///
    /// # Errors
    /// [`Error::Credentials`](crate::Error::Credentials).
    pub fn new(options: &TlsOptions) -> Result<Self> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(IDLE)
            .max_idle_connections_per_host(IDLE)
            .max_idle_age(Duration::from_secs(50))
            .user_agent(concat!("ferofs/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build();
        let connector =
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(TlsConnector::new(options)?);
        Ok(Self { agent: Agent::with_parts(config, connector, DefaultResolver::default()) })
    }

    /// Sends a request; the answer with its body must be complete at `deadline`. Any status is an
    /// answer.
    ///
    /// # Errors
    /// The kinds of connections: [`FetchErrorKind::Timeout`], [`FetchErrorKind::Connection`],
    /// [`FetchErrorKind::Name`], [`FetchErrorKind::Tls`].
    fn send(
        &self,
        request: Request<impl AsSendBody>,
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(FetchErrorKind::Timeout);
        }
        let is_near = Url::parse(&request.uri().to_string()).is_ok_and(|url| is_this_machine(&url));
        let mut config = self.agent.configure_request(request).timeout_global(Some(left));
        if is_near {
            // A proxy is another machine, which must not get what is sent without TLS.
            config = config.proxy(None);
        }
        self.agent.run(config.build()).map_err(kind_of)
    }

    /// Sends a GET request with these headers.
    ///
    /// # Errors
    /// Errors of the server and of the connection; [`FetchErrorKind::Protocol`] for headers and
    /// URLs that cannot be sent.
    pub fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        self.send_with("GET", url, headers, None, deadline)
    }

    /// Sends a request with these headers, and a body if there is one.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn send_with(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Option<&[u8]>,
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        let request = Request::builder().method(method).uri(url);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        // The reason would have the header's value.
        let wrong = |_| FetchErrorKind::Protocol("a wrong address or header".into());
        match body {
            Some(body) => self.send(request.body(body).map_err(wrong)?, deadline),
            None => self.send(request.body(()).map_err(wrong)?, deadline),
        }
    }
}

/// Whether the host of an address is this machine, so that nobody on a network reads what is sent
/// there. Names that only look like that, as `127.0.0.1.example.org`, are not.
pub(crate) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        // `::ffff:127.0.0.1` is 127.0.0.1.
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

/// The kind of an error of the client.
pub(crate) fn kind_of(error: ureq::Error) -> FetchErrorKind {
    match error {
        ureq::Error::Timeout(_) => FetchErrorKind::Timeout,
        ureq::Error::HostNotFound => FetchErrorKind::Name("no such host".into()),
        ureq::Error::Io(error) => kind_of_io(error),
        ureq::Error::ConnectionFailed => {
            FetchErrorKind::Connection(io::ErrorKind::NotConnected.into())
        }
        ureq::Error::Other(error) if error.is::<rustls::Error>() => {
            error.downcast_ref().map_or_else(|| FetchErrorKind::Tls(error.to_string()), tls_problem)
        }
        ureq::Error::Tls(problem) => FetchErrorKind::Tls(problem.into()),
        // Its message would have the address, perhaps with a signature.
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            FetchErrorKind::Protocol("a wrong address or header".into())
        }
        other => FetchErrorKind::Protocol(other.to_string()),
    }
}

/// A failure of TLS. What a server without TLS answers is not a message of TLS.
fn tls_problem(error: &rustls::Error) -> FetchErrorKind {
    let is_other =
        matches!(error, rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
    let hint = if is_other { "; the server may speak http:// instead of https://" } else { "" };
    FetchErrorKind::Tls(format!("{error}{hint}"))
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
            return tls_problem(inner);
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
