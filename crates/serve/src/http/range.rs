//! Reads the headers of answers to requests for ranges.

use std::ops::Range;
use std::time::Duration;

use ureq::http::HeaderMap;

use crate::object::Validator;

/// The value of a header, if it is text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// The range and the complete size of `Content-Range: bytes 0-99/1234`.
pub(crate) fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let (range, size) =
        header(headers, "content-range")?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let last: u64 = number(last)?;
    Some((number(first)?..last.checked_add(1)?, number(size)?))
        .filter(|(range, _)| !range.is_empty())
}

/// A number without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The identity of the bytes: a strong ETag, or else the time of the last change.
pub(crate) fn validator(headers: &HeaderMap) -> Validator {
    match (header(headers, "etag"), header(headers, "last-modified")) {
        (Some(tag), _) if tag.starts_with('"') => Validator::ETag(tag.to_owned()),
        (_, Some(time)) => Validator::LastModified(time.to_owned()),
        _ => Validator::None,
    }
}

/// The headers of an answer that change with the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    etag: Option<String>,
    modified: Option<String>,
}

impl Tags {
    /// The tags of an answer.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| header(headers, name).map(str::to_owned);
        Self { etag: text("etag"), modified: text("last-modified") }
    }

    /// Whether the object has changed between two answers with these tags. Equal weak tags
    /// (`W/"a"`) do not prove equal bytes, but different ones prove a change. A server may give a
    /// young file a weak tag first, and later the same one without `W/`.
    pub(crate) fn prove_change(&self, now: &Self) -> bool {
        if let (Some(old), Some(new)) = (&self.etag, &now.etag) {
            let (strong_old, strong_new) =
                (old.trim_start_matches("W/"), new.trim_start_matches("W/"));
            if strong_old != strong_new {
                return true;
            }
            if strong_old == old && strong_new == new {
                return false;
            }
        }
        self.modified.as_ref().zip(now.modified.as_ref()).is_some_and(|(old, new)| old != new)
    }
}

/// How long the server asks to wait: a number of seconds. Dates are taken as the default pause,
/// since clocks differ.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = number(header(headers, "retry-after")?)?;
    // Nobody waits longer than a day.
    Some(Duration::from_secs(seconds.min(86_400)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        [(ureq::http::HeaderName::from_static(name), value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn ranges_are_exact() {
        let range = |value: &str| content_range(&headers("content-range", value));
        assert_eq!(range("bytes 0-99/1234"), Some((0..100, 1234)));
        assert_eq!(range("bytes 7-7/8"), Some((7..8, 8)));
        for wrong in [
            "bytes 9-7/80",
            "bytes */80",
            "bytes 0-9/*",
            "bytes 0-+9/80",
            "items 0-9/80",
            "bytes 0-18446744073709551615/1",
            "",
        ] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tags_prove_a_change() {
        let tags = |etag: &str, modified: &str| {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Tags { etag: text(etag), modified: text(modified) }
        };
        for (old, new, is_changed) in [
            (tags("", ""), tags("", ""), false),
            (tags("\"a\"", "1"), tags("\"a\"", "2"), false),
            (tags("\"a\"", "1"), tags("\"b\"", "1"), true),
            (tags("W/\"a\"", ""), tags("W/\"b\"", ""), true),
            (tags("W/\"a\"", "1"), tags("W/\"a\"", "1"), false),
            (tags("W/\"a\"", "1"), tags("W/\"a\"", "2"), true),
            (tags("W/\"a\"", "1"), tags("\"a\"", "1"), false),
            (tags("W/\"a\"", "1"), tags("\"b\"", "1"), true),
            (tags("\"a\"", "1"), tags("", "2"), true),
            (tags("\"a\"", "1"), tags("", ""), false),
        ] {
            assert_eq!(old.prove_change(&new), is_changed, "{old:?} {new:?}");
        }
    }

    #[test]
    fn weak_tags_do_not_identify_bytes() {
        assert_eq!(validator(&headers("etag", "\"a\"")), Validator::ETag("\"a\"".into()));
        assert_eq!(validator(&headers("etag", "W/\"a\"")), Validator::None);
        assert_eq!(validator(&headers("last-modified", "x")), Validator::LastModified("x".into()));
        assert_eq!(retry_after(&headers("retry-after", "7")), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(&headers("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")), None);
    }
}
