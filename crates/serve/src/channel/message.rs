//! The messages, as JSON.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::fetch::FetchStats;

/// Bytes of the longest message.
pub(super) const LONGEST: usize = 16 << 10;
/// Ranges of one message, which have at most 60 bytes each.
const RANGES: usize = 200;
/// Characters of a reason, which have at most 6 bytes each.
const REASON: usize = 2000;

/// A message of the client. The answer repeats the `id`.
#[derive(Serialize, Deserialize)]
pub(super) enum Request {
    /// Answer when all bytes of `range` are stored, or after this time, when the client gives up.
    Want { id: u64, range: Range<u64>, milliseconds: u32, repair: bool },
    /// Answer with the counters.
    Stats { id: u64 },
    /// Fetch these bytes, without an answer.
    Prefetch(Range<u64>),
    /// The same when no reader wants anything.
    Background(Vec<Range<u64>>),
}

/// A message of the server.
#[derive(Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Outcome {
    /// The server has started, and knows no request.
    Started,
    Stored,
    Stats(Box<FetchStats>),
    Failed {
        reason: String,
        is_timeout: bool,
    },
}

impl Answer {
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if let Outcome::Failed { reason, .. } = &mut self.outcome {
            *reason = reason.chars().take(REASON).collect();
        }
        to_bytes(&self)
    }
}

pub(super) fn to_bytes(message: &impl Serialize) -> Vec<u8> {
    // Numbers and text can be written.
    serde_json::to_vec(message).unwrap_or_default()
}

/// Messages that have these ranges fetched in the background.
pub(super) fn background(ranges: &[Range<u64>]) -> impl Iterator<Item = Vec<u8>> {
    ranges.chunks(RANGES).map(|ranges| to_bytes(&Request::Background(ranges.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_messages_fit() {
        let ranges = vec![u64::MAX - 1..u64::MAX; 450];
        let messages: Vec<_> = background(&ranges).collect();
        assert!(messages.len() == 3 && messages.iter().all(|bytes| bytes.len() <= LONGEST));
        let reason = "\0".repeat(5000);
        let outcome = Outcome::Failed { reason, is_timeout: false };
        assert!(Answer { id: u64::MAX, outcome }.into_bytes().len() <= LONGEST);
    }
}
