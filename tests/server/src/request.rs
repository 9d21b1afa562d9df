//! Reads requests from a connection.

use std::io::{self, BufRead, Read};
use std::ops::Range;

/// Lines and headers beyond this size end the connection: no client of the tests sends more.
const HEAD_MAX: u64 = 64 << 10;
/// The largest body that is kept.
const BODY_MAX: u64 = 64 << 20;

/// A request of a client.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method, in upper case.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query without the question mark.
    pub query: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header; the name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter of the query, as it is written there.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|part| part.split_once('='))
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// The range that is asked for, of an object of `size` bytes. `None`: no range, or a header
    /// that a server ignores. `Some(Err(()))`: a range beyond the end.
    pub(crate) fn range(&self, size: u64) -> Option<Result<Range<u64>, ()>> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let (start, end) = match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => (first, size.min(last.saturating_add(1))),
            (Ok(first), Err(_)) if last.is_empty() => (first, size),
            (Err(_), Ok(len)) if first.is_empty() => (size.saturating_sub(len), size),
            _ => return None,
        };
        Some(if start < end { Ok(start..end) } else { Err(()) })
    }

    /// Whether the client wants the connection to stay open.
    pub(crate) fn keeps_open(&self) -> bool {
        !self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The next request; `None` at the end of the connection. `before_body` is called before the
    /// body is read.
    pub(crate) fn read(
        input: &mut impl BufRead,
        before_body: impl FnOnce(&Self) -> io::Result<()>,
    ) -> io::Result<Option<Self>> {
        let mut head = Read::take(&mut *input, HEAD_MAX);
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(invalid("request line"));
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            query: query.to_owned(),
            ..Self::default()
        };
        loop {
            let mut line = String::new();
            if head.read_line(&mut line)? == 0 {
                return Err(invalid("headers"));
            }
            if line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("header"))?;
            request.headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        before_body(&request)?;
        request.body = request.read_body(input)?;
        Ok(Some(request))
    }

    fn read_body(&self, input: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self
            .header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
        {
            loop {
                let mut line = String::new();
                Read::take(&mut *input, HEAD_MAX).read_line(&mut line)?;
                let len = u64::from_str_radix(line.trim(), 16).map_err(|_| invalid("chunk"))?;
                if len > BODY_MAX || body.len() as u64 > BODY_MAX {
                    return Err(invalid("body: too long"));
                }
                Read::take(&mut *input, len).read_to_end(&mut body)?;
                let mut end = String::new();
                Read::take(&mut *input, HEAD_MAX).read_line(&mut end)?;
                if len == 0 {
                    return Ok(body);
                }
            }
        }
        let Some(len) = self.header("content-length") else { return Ok(body) };
        let len: u64 = len.parse().map_err(|_| invalid("Content-Length"))?;
        if len > BODY_MAX {
            return Err(invalid("body: too long"));
        }
        Read::take(&mut *input, len).read_to_end(&mut body)?;
        if body.len() as u64 == len { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("wrong {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_bodies_are_read_one_after_the_other() {
        let text = b"PUT /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc\
            post /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n1\r\nz\r\n0\r\n\r\n";
        let mut input = &text[..];
        let first = Request::read(&mut input, |_| Ok(())).unwrap().unwrap();
        assert_eq!(
            (first.method.as_str(), first.path.as_str(), first.parameter("b")),
            ("PUT", "/a", Some("c"))
        );
        assert_eq!(first.body, b"abc");
        let second = Request::read(&mut input, |_| Ok(())).unwrap().unwrap();
        assert_eq!((second.method.as_str(), second.body.as_slice()), ("POST", &b"xyz"[..]));
        assert!(Request::read(&mut input, |_| Ok(())).unwrap().is_none());
    }
}
