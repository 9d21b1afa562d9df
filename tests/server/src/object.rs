//! What is served: bytes in memory, or a file; and the answer with them.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::request::Request;

/// An object with its bytes and validators.
#[derive(Clone, Debug)]
pub struct Object {
    pub(crate) bytes: Bytes,
    /// The ETag with its quotes.
    pub etag: Option<String>,
    /// The time of the last change, as in the header.
    pub last_modified: Option<String>,
}

impl Object {
    /// Bytes with a strong ETag that follows from them.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Vec<u8> = bytes.into();
        let etag = Some(format!("\"{:x}-{:x}\"", bytes.len(), hash(&bytes)));
        Self { bytes: Bytes::from(bytes), etag, last_modified: None }
    }

    /// A file; the ETag follows from its size and time.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    pub fn file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let time = meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let etag = Some(format!("\"{:x}-{:x}\"", meta.len(), time.as_nanos()));
        let last_modified = Some(http_date(time.as_secs()));
        Ok(Self { bytes: Bytes::File(Arc::new(file), meta.len()), etag, last_modified })
    }

    /// With this ETag, or none.
    #[must_use]
    pub fn with_etag(mut self, etag: Option<&str>) -> Self {
        self.etag = etag.map(str::to_owned);
        self
    }

    /// With this time of the last change.
    #[must_use]
    pub fn with_last_modified(mut self, time: &str) -> Self {
        self.last_modified = Some(time.to_owned());
        self
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Memory(Arc<[u8]>),
    File(Arc<File>, u64),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes.into())
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    /// Sends up to `len` bytes without copying them, and returns how many were sent. The range must
    /// be within the object.
    pub(crate) fn send(&self, mut to: &TcpStream, at: u64, len: usize) -> io::Result<usize> {
        match self {
            Self::File(file, _) => {
                let mut at = at;
                match rustix::fs::sendfile(to, file, Some(&mut at), len)? {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    sent => Ok(sent),
                }
            }
            Self::Memory(bytes) => {
                let at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
                let part = bytes.get(at..at + len).ok_or(io::ErrorKind::UnexpectedEof)?;
                to.write(part)
            }
        }
    }

    /// Fills `buf`. The range must be within the object.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.read_exact_at(buf, at),
            Self::Memory(bytes) => {
                let at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
                let part = bytes.get(at..at + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                buf.copy_from_slice(part);
                Ok(())
            }
        }
    }
}

/// FNV-1a: equal bytes have equal tags, also in other processes.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A time, in seconds since 1970, as headers have it (RFC 9110, section 5.6.7).
fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = DAYS[usize::try_from(days % 7).unwrap_or(0)];
    let is_leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    for len in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{weekday}, {:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT",
        days + 1,
        MONTHS[month]
    )
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers other than Content-Length.
    pub headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    pub(crate) range: Range<u64>,
}

impl Answer {
    /// An answer with a body.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body: Vec<u8> = body.into();
        let range = 0..body.len() as u64;
        Self { status, headers: Vec::new(), body: Body { bytes: Bytes::from(body), range } }
    }

    /// With another header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Replaces a header, or adds it.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value));
    }

    /// The object, or the part of it that is asked for.
    pub(crate) fn of(object: &Object, request: &Request) -> Self {
        let size = object.bytes.len();
        let with_tags = |status, range: Range<u64>| {
            let mut answer = Self {
                status,
                headers: Vec::new(),
                body: Body { bytes: object.bytes.clone(), range },
            };
            answer.set("Accept-Ranges", "bytes".into());
            if let Some(tag) = &object.etag {
                answer.set("ETag", tag.clone());
            }
            if let Some(time) = &object.last_modified {
                answer.set("Last-Modified", time.clone());
            }
            answer
        };
        let is_tag = |value: &str| {
            value == "*" || value.split(',').any(|tag| Some(tag.trim()) == object.etag.as_deref())
        };
        if request.header("if-match").is_some_and(|value| !is_tag(value)) {
            return Self::new(412, "");
        }
        let applies = request
            .header("if-range")
            .is_none_or(|value| is_tag(value) || Some(value) == object.last_modified.as_deref());
        match request.range(size).filter(|_| applies) {
            None => with_tags(200, 0..size),
            Some(Ok(range)) => {
                let value = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                let mut answer = with_tags(206, range);
                answer.set("Content-Range", value);
                answer
            }
            Some(Err(())) => Self::new(416, "").header("Content-Range", &format!("bytes */{size}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date() {
        // date -u -R -d @SECONDS
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
        assert_eq!(http_date(1_798_761_599), "Thu, 31 Dec 2026 23:59:59 GMT");
    }
}
