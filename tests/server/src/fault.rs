//! What a server does wrong, and to which requests.

use std::time::Duration;

use crate::request::Request;

/// What happens instead of the right answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An answer without the bytes: 401, 403, 404, 429, 500, 503.
    Status(u16),
    /// A redirect: the status (301, 302, 303, 307, 308), and where to. The name of a path on this
    /// server, or a complete address.
    Redirect(u16, String),
    /// Status 200 with the complete object, although a range was asked for.
    Complete,
    /// The headers announce the complete body, and the connection ends after this number of its
    /// bytes.
    Short(u64),
    /// Content-Range names a range that starts this number of bytes later. The body is that of the
    /// range asked for.
    WrongRange(u64),
    /// Content-Range names a size of the object that is larger by this number.
    WrongSize(u64),
    /// The lowest bit of this byte of the body is inverted. Bytes are counted from the start of the
    /// object.
    FlippedBit(u64),
    /// Another ETag, whatever If-Match says.
    OtherTag(String),
    /// Nothing happens for this time before the headers.
    StallBeforeHeaders(Duration),
    /// Nothing happens for this time after this number of bytes of the body.
    StallInBody(u64, Duration),
    /// The connection is reset (RST) before the headers.
    Reset,
    /// The connection is reset (RST) after this number of bytes of the body.
    ResetInBody(u64),
    /// A redirect to this address, to which `expires=TIME` is added: it is valid so long (see
    /// [`Auth::Expires`](crate::Auth::Expires)).
    ExpiringRedirect(u16, String, Duration),
    /// This number of bytes a second for this answer.
    SlowBytes(u64),
    /// Bytes that are not an answer of HTTP.
    Garbage,
}

/// A fault, and the requests that meet it.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) fault: Fault,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) method: Option<String>,
    pub(crate) path: String,
    pub(crate) covers: Option<u64>,
    pub(crate) skip: u64,
    pub(crate) times: u64,
    pub(crate) probability: f64,
}

impl Rule {
    /// All requests meet the fault.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self {
            fault,
            headers: Vec::new(),
            method: None,
            path: String::new(),
            covers: None,
            skip: 0,
            times: u64::MAX,
            probability: 1.0,
        }
    }

    /// Adds a header to the answers.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Only requests with this method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_ascii_uppercase());
        self
    }

    /// Only requests whose path starts so.
    #[must_use]
    pub fn path(mut self, prefix: &str) -> Self {
        self.path = prefix.into();
        self
    }

    /// Only requests for ranges with this byte.
    #[must_use]
    pub const fn covering(mut self, byte: u64) -> Self {
        self.covers = Some(byte);
        self
    }

    /// Not the first `count` of these requests.
    #[must_use]
    pub const fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Only this number of requests.
    #[must_use]
    pub const fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }

    /// Only a random part of these requests: 0 none, 1 all.
    #[must_use]
    pub const fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Whether a request meets the fault. Counts it. `random` is at least 0 and less than 1.
    pub(crate) fn meets(&mut self, request: &Request, random: f64) -> bool {
        let covers = self.covers.is_none_or(|byte| {
            request.range(u64::MAX).and_then(Result::ok).is_none_or(|range| range.contains(&byte))
        });
        let is_method = self.method.as_ref().is_none_or(|method| *method == request.method);
        if self.times == 0 || !covers || !is_method || !request.path.starts_with(&self.path) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if random >= self.probability {
            return false;
        }
        self.times -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_choose_requests() {
        let request = |path: &str, range: &str| Request {
            method: "GET".into(),
            path: path.into(),
            headers: vec![("range".into(), range.into())],
            ..Request::default()
        };
        let mut rule = Rule::new(Fault::Reset).path("/a").covering(10).after(1).times(2);
        let mut meets = |path, range| rule.meets(&request(path, range), 0.9);
        assert!(!meets("/b", "bytes=0-20"));
        assert!(!meets("/a", "bytes=0-9"));
        assert!(!meets("/a", "bytes=0-10"), "the first one is skipped");
        assert!(meets("/a", "bytes=10-10"));
        assert!(meets("/abc", "bytes=5-"));
        assert!(!meets("/a", "bytes=0-20"), "two were met");
        assert!(!Rule::new(Fault::Reset).method("put").meets(&request("/", ""), 0.0));
        let mut sometimes = Rule::new(Fault::Reset).probability(0.25);
        assert!(
            sometimes.meets(&request("/", ""), 0.2) && !sometimes.meets(&request("/", ""), 0.25)
        );
    }
}
