//! The messages: numbers in little-endian order.

use std::ops::Range;

/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 2048;
/// Bytes of a request.
const REQUEST: usize = 29;
/// Bytes of an answer before its text.
const ANSWER: usize = 9;

/// Bytes of a range in a list of ranges.
const RANGE: usize = 16;
/// The byte before a list of ranges, which has no other length than a request.
const RANGES: u8 = b'R';

/// A request of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// A number of the client, which the answer repeats.
    pub id: u64,
    /// The bytes of the object.
    pub range: Range<u64>,
    pub kind: RequestKind,
    /// Milliseconds until the client gives up.
    pub time: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Answer when all bytes are stored.
    Want = 0,
    /// Fetch them, without an answer.
    Prefetch = 1,
    /// Answer with the counters.
    Stats = 2,
    /// As `Want`, after stored bytes that are wrong have been removed.
    Repair = 3,
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub id: u64,
    pub kind: AnswerKind,
    /// The reason of a failure, or the counters.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    Done = 0,
    Failed = 1,
    Timeout = 2,
    /// The server has started, and knows no request.
    Started = 3,
}

impl Request {
    #[expect(clippy::as_conversions, reason = "a kind is a byte")]
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST);
        for number in [self.id, self.range.start, self.range.end] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(self.kind as u8);
        bytes.extend(self.time.to_le_bytes());
        bytes
    }

    /// `None` if `bytes` are not a request.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (id, bytes) = bytes.split_first_chunk()?;
        let (start, bytes) = bytes.split_first_chunk()?;
        let (end, bytes) = bytes.split_first_chunk()?;
        let (kind, time) = bytes.split_first()?;
        let kind = match kind {
            0 => RequestKind::Want,
            1 => RequestKind::Prefetch,
            2 => RequestKind::Stats,
            3 => RequestKind::Repair,
            _ => return None,
        };
        let time = u32::from_le_bytes(time.try_into().ok()?);
        let [id, start, end] = [id, start, end].map(|bytes| u64::from_le_bytes(*bytes));
        Some(Self { id, range: start..end, kind, time })
    }
}

/// Messages that list ranges which are to be fetched in the background. They have no answer.
pub(crate) fn ranges_to_bytes(ranges: &[Range<u64>]) -> Vec<Vec<u8>> {
    let message = |ranges: &[Range<u64>]| {
        let numbers = ranges.iter().flat_map(|range| [range.start, range.end]);
        std::iter::once(RANGES).chain(numbers.flat_map(u64::to_le_bytes)).collect()
    };
    ranges.chunks((LONGEST - 1) / RANGE).map(message).collect()
}

/// The ranges of such a message; `None` for other bytes.
pub(crate) fn parse_ranges(bytes: &[u8]) -> Option<Vec<Range<u64>>> {
    let (first, ranges) = bytes.split_first()?;
    let (ranges, remainder) = ranges.as_chunks::<RANGE>();
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let is_list = *first == RANGES && remainder.is_empty();
    is_list.then(|| ranges.iter().map(|range| number(&range[..8])..number(&range[8..])).collect())
}

impl Answer {
    #[expect(clippy::as_conversions, reason = "a kind is a byte")]
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.push(self.kind as u8);
        // Up to the border of a character.
        let mut ends = (0..=LONGEST - ANSWER).rev();
        let text =
            ends.find_map(|end| self.text.get(..end.min(self.text.len()))).unwrap_or_default();
        bytes.extend(text.as_bytes());
        bytes
    }

    /// `None` if `bytes` are not an answer.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (id, bytes) = bytes.split_first_chunk()?;
        let (kind, text) = bytes.split_first()?;
        let kind = match kind {
            0 => AnswerKind::Done,
            1 => AnswerKind::Failed,
            2 => AnswerKind::Timeout,
            3 => AnswerKind::Started,
            _ => return None,
        };
        Some(Self {
            id: u64::from_le_bytes(*id),
            kind,
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let request =
            Request { id: 7, range: 4096..u64::MAX, kind: RequestKind::Prefetch, time: 9000 };
        assert_eq!(Request::parse(&request.to_bytes()), Some(request));
        assert_eq!(Request::parse(&[0; REQUEST - 1]), None);
        assert_eq!(Request::parse(&[9; REQUEST]), None);
        let ranges: Vec<_> = (0..300).map(|number| number * 7..u64::MAX - number).collect();
        let messages = ranges_to_bytes(&ranges);
        assert!(
            messages.iter().all(|bytes| bytes.len() <= LONGEST && Request::parse(bytes).is_none())
        );
        assert_eq!(
            messages.iter().flat_map(|bytes| parse_ranges(bytes).unwrap()).collect::<Vec<_>>(),
            ranges
        );
        for wrong in [&b""[..], b"R123", &[0; 17], &[RANGES; REQUEST]] {
            assert_eq!(parse_ranges(wrong), None);
        }
        let answer = Answer { id: u64::MAX, kind: AnswerKind::Timeout, text: "why".into() };
        assert_eq!(Answer::parse(&answer.to_bytes()), Some(answer.clone()));
        let long = Answer { text: "ü".repeat(5000), ..answer };
        assert!(long.to_bytes().len() <= LONGEST);
        assert!(Answer::parse(&long.to_bytes()).unwrap().text.chars().all(|c| c == 'ü'));
        assert_eq!(Answer::parse(&[0; 8]), None);
    }
}
