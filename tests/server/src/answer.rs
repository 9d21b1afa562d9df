//! Answers, before they are sent.

use std::ops::Range;

use crate::object::{Bytes, Object};
use crate::request::Request;

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
            let mut answer =
                Self { status, headers: Vec::new(), body: Body { bytes: object.bytes.clone(), range } };
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
