//! One object of a server, fetched by ranges.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use ureq::http::{HeaderMap, Response};
use ureq::{Body, BodyReader};
use url::Url;

use super::client::{Client, kind_of_io};
use super::range::{Tags, content_range, header, retry_after, validator};
use crate::error::{Error, FetchError, FetchErrorKind, Result};
use crate::object::{Answer, RemoteObject, Validator};
use ferofs_format::units::{to_u64, to_usize};

/// The URL of an object, and the headers of requests for it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address.
    pub url: String,
    /// Headers with credentials. They are sent to the host of the address only.
    pub headers: Vec<(String, String)>,
    /// The number of these credentials: later ones have a higher number.
    pub credentials: u64,
}

/// Finds the URL of an object, for a protocol over HTTP.
pub trait Access: Send + Sync {
    /// The target of the next request.
    ///
    /// # Errors
    /// When there are no credentials, or the server that gives them fails.
    fn target(&self, deadline: Instant) -> Result<Target, FetchErrorKind>;

    /// Called when the server did not accept a target. Returns whether the next one has other
    /// credentials, which another thread may have got meanwhile. `challenge` is the header
    /// `WWW-Authenticate`.
    fn refused(&self, target: &Target, status: u16, challenge: Option<&str>) -> bool;

    /// The location without passwords, for messages.
    fn location(&self) -> &str;
}

/// An object, and what came with the first answer.
pub struct Opened {
    /// The object.
    pub object: HttpObject,
    /// Its first bytes.
    pub first_bytes: Vec<u8>,
}

/// An object on a web server.
pub struct HttpObject {
    client: Client,
    access: Arc<dyn Access>,
    size: u64,
    validator: Validator,
    /// The tags of the first answer. None if a document vouches for the object: each server that
    /// has it may give tags of its own.
    tags: Tags,
    /// The URL that the server redirected to.
    redirected: Mutex<Option<String>>,
}

/// Bytes that are fetched to learn the size, with the superblock: with their headers, as many as a
/// new connection brings in its first round trip (RFC 6928: 10 segments).
const FIRST: u64 = 12 << 10;
/// Redirects that are followed for one request.
const REDIRECTS: usize = 10;

impl HttpObject {
    /// Opens an object: asks for its first bytes, which tells its size and what identifies it.
    ///
    /// # Errors
    /// [`Error::Fetch`].
    pub fn open(client: Client, access: Arc<dyn Access>, deadline: Instant) -> Result<Opened> {
        let location = access.location().to_owned();
        let failed = |kind: FetchErrorKind| Error::fetch(&location, kind);
        let mut object = Self::with_identity(client, access, 0, Validator::None);
        let answer = object.request(0..FIRST, deadline).map_err(failed)?;
        let headers = answer.headers();
        let (range, size) = content_range(headers)
            .filter(|(range, size)| range.start == 0 && range.end == FIRST.min(*size))
            .ok_or_else(|| failed(wrong_range(headers)))?;
        object.size = size;
        object.validator = validator(headers);
        object.tags = Tags::of(headers);
        let mut first_bytes = vec![0; to_usize(range.end)];
        HttpAnswer::new(answer, range.end)
            .fill(&mut first_bytes)
            .map_err(|error| failed(error.kind))?;
        Ok(Opened { object, first_bytes })
    }

    /// The size and the validator are those of a document that vouches for the object.
    #[must_use]
    pub fn with_identity(
        client: Client,
        access: Arc<dyn Access>,
        size: u64,
        validator: Validator,
    ) -> Self {
        Self {
            client,
            access,
            size,
            validator,
            tags: Tags::default(),
            redirected: Mutex::default(),
        }
    }

    /// Asks for `range`. Returns an answer with status 206.
    fn request(
        &self,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Response<Body>, FetchErrorKind> {
        let mut renewed = false;
        loop {
            let target = self.access.target(deadline)?;
            let redirected = self.redirected.lock().clone();
            let (answer, is_own) =
                match self.ask_at(&target, redirected.as_deref(), &range, deadline) {
                    Ok(answered) => answered,
                    Err(error) => {
                        // The next request asks the first server again: it may name a server that
                        // works.
                        self.redirected.lock().take();
                        return Err(error);
                    }
                };
            let status = answer.status().as_u16();
            if status == 206 {
                return Ok(answer);
            }
            let error = match error_of(status, answer.headers()) {
                FetchErrorKind::Unauthorized if is_own && target.headers.is_empty() => {
                    FetchErrorKind::NoCredentials
                }
                error => error,
            };
            if renewed || !matches!(status, 400 | 401 | 403 | 404 | 410) {
                return Err(error);
            }
            renewed = true;
            // A signed address has expired, or the credentials have: both are asked for once again.
            // Other requests find out at the same time: the first of them forgets the address, and
            // all ask again.
            let mut known = self.redirected.lock();
            if *known == redirected {
                *known = None;
            }
            drop(known);
            // Another server must not say where credentials are sent.
            let challenge = header(answer.headers(), "www-authenticate").filter(|_| is_own);
            if !self.access.refused(&target, status, challenge) && redirected.is_none() {
                return Err(error);
            }
        }
    }

    /// Asks at the target, or where its server has redirected to, and follows redirects. Returns
    /// the answer, and whether the server of the target gave it: no other one gets credentials.
    fn ask_at(
        &self,
        target: &Target,
        redirected: Option<&str>,
        range: &Range<u64>,
        deadline: Instant,
    ) -> Result<(Response<Body>, bool), FetchErrorKind> {
        let wrong = |problem: url::ParseError| {
            FetchErrorKind::Protocol(format!("wrong address: {problem}"))
        };
        let first = Url::parse(&target.url).map_err(wrong)?;
        let mut url = redirected.map_or_else(|| Ok(first.clone()), Url::parse).map_err(wrong)?;
        for _ in 0..REDIRECTS {
            let mut headers = vec![(
                "Range".to_owned(),
                format!("bytes={}-{}", range.start, range.end.saturating_sub(1)),
            )];
            if let Validator::ETag(tag) = &self.validator {
                headers.push(("If-Match".to_owned(), tag.clone()));
            }
            let is_own = url.origin() == first.origin();
            if is_own {
                headers.extend(target.headers.iter().cloned());
            }
            let answer = self.client.get(url.as_str(), &headers, deadline)?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                if url != first && answer.status().as_u16() == 206 {
                    *self.redirected.lock() = Some(url.into());
                }
                return Ok((answer, is_own));
            }
            let to = header(answer.headers(), "location");
            let to =
                to.ok_or_else(|| FetchErrorKind::Protocol(redirect_to_nowhere(answer.headers())))?;
            let next = url.join(to).map_err(wrong)?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(FetchErrorKind::Protocol("a redirect from https to http".into()));
            }
            url = next;
        }
        Err(FetchErrorKind::Protocol("too many redirects".into()))
    }
}

impl RemoteObject for HttpObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn validator(&self) -> &Validator {
        &self.validator
    }

    fn location(&self) -> &str {
        self.access.location()
    }

    fn ask(
        &self,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Box<dyn Answer + '_>, FetchErrorKind> {
        let answer = self.request(range.clone(), deadline)?;
        let headers = answer.headers();
        match content_range(headers) {
            Some((_, size)) if size != self.size => return Err(FetchErrorKind::Changed),
            Some((got, _)) if got == range => {}
            _ => return Err(wrong_range(headers)),
        }
        // A server that ignores If-Match, or that has no strong ETag.
        if self.tags.prove_change(&Tags::of(headers)) {
            return Err(FetchErrorKind::Changed);
        }
        Ok(Box::new(HttpAnswer::new(answer, range.end.saturating_sub(range.start))))
    }
}

/// The body of an answer.
struct HttpAnswer {
    reader: BodyReader<'static>,
    /// Bytes that have not been read.
    left: u64,
}

impl HttpAnswer {
    fn new(answer: Response<Body>, len: u64) -> Self {
        Self { reader: answer.into_body().into_reader(), left: len }
    }
}

impl Answer for HttpAnswer {
    fn fill(&mut self, buf: &mut [u8]) -> Result<(), FetchError> {
        let mut received = 0usize;
        while let Some(unread) = buf.get_mut(received..).filter(|unread| !unread.is_empty()) {
            match self.reader.read(unread) {
                Ok(0) => return Err(FetchError { kind: FetchErrorKind::Short, received }),
                Ok(len) => received = received.saturating_add(len),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FetchError { kind: kind_of_io(error), received }),
            }
        }
        self.left = self.left.saturating_sub(to_u64(received));
        if self.left == 0 {
            // The end of the body lets the connection be used again. More bytes than announced
            // cannot come.
            let _ = self.reader.read(&mut [0]);
        }
        Ok(())
    }
}

/// The error of a redirect without an address.
fn redirect_to_nowhere(headers: &HeaderMap) -> String {
    match header(headers, "x-amz-bucket-region") {
        Some(region) => format!("the bucket is in another region: {region}"),
        None => "a redirect to nowhere".into(),
    }
}

fn wrong_range(headers: &HeaderMap) -> FetchErrorKind {
    FetchErrorKind::WrongRange(
        header(headers, "content-range").unwrap_or("no Content-Range").to_owned(),
    )
}

/// The kind of an answer that has no bytes of the object.
pub(crate) fn error_of(status: u16, headers: &HeaderMap) -> FetchErrorKind {
    match status {
        200 => FetchErrorKind::NoRanges,
        401 => FetchErrorKind::Unauthorized,
        403 => FetchErrorKind::Forbidden,
        404 | 410 => FetchErrorKind::NotFound(status),
        412 => FetchErrorKind::Changed,
        416 => FetchErrorKind::WrongRange(
            header(headers, "content-range").unwrap_or("status 416").to_owned(),
        ),
        429 => FetchErrorKind::Throttled { retry_after: retry_after(headers) },
        500..=599 => FetchErrorKind::Server { status, retry_after: retry_after(headers) },
        _ => FetchErrorKind::Status(status),
    }
}
