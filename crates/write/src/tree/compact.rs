//! Types that take little memory, because a tree has one for each inode or name: texts, times and
//! numbers of nodes.

use ferofs_format::inode::Timestamp;

/// The most bytes of a text: enough for a set of xattrs, which an inode counts in 16 bits and units
/// of 4 bytes.
const LEN_BITS: u32 = 20;

/// A text in an [`Arena`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    /// The low 32 bits of its position.
    at: u32,
    /// The high 12 bits of its position, and its length in the low [`LEN_BITS`] bits: a tree has
    /// two texts for each name, so they are kept short.
    high_and_len: u32,
}

impl Text {
    fn start(self) -> u64 {
        u64::from(self.high_and_len >> LEN_BITS) << 32 | u64::from(self.at)
    }

    const fn len(self) -> usize {
        (self.high_and_len & ((1 << LEN_BITS) - 1)) as usize
    }
}

/// Texts one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena(Vec<u8>);

impl Arena {
    /// Adds `bytes`: fewer than 1 MiB, which holds for all that a tree stores. More bytes are cut
    /// off.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Text {
        let at = self.0.len() as u64;
        let len = bytes.len().min((1 << LEN_BITS) - 1);
        self.0.extend_from_slice(&bytes[..len]);
        // 44 bits are 16 TiB of memory.
        Text { at: at as u32, high_and_len: ((at >> 32) as u32) << LEN_BITS | len as u32 }
    }

    /// The bytes of `text`; none if it belongs to another arena.
    pub(crate) fn get(&self, text: Text) -> &[u8] {
        let found = usize::try_from(text.start())
            .ok()
            .and_then(|start| self.0.get(start..start + text.len()));
        found.unwrap_or_default()
    }
}

/// A [`Timestamp`] in less memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactTime {
    low_secs: u32,
    high_secs: i32,
    nanos: u32,
}

impl From<Timestamp> for CompactTime {
    fn from(time: Timestamp) -> Self {
        Self { low_secs: time.secs as u32, high_secs: (time.secs >> 32) as i32, nanos: time.nanos }
    }
}

impl From<CompactTime> for Timestamp {
    fn from(time: CompactTime) -> Self {
        Self { secs: i64::from(time.high_secs) << 32 | i64::from(time.low_secs), nanos: time.nanos }
    }
}

/// The index of a node in [`Tree::nodes`](crate::tree::Tree::nodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub u32);

impl NodeId {
    pub(crate) const ROOT: Self = Self(0);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_what_they_were() {
        let mut arena = Arena::default();
        let texts: Vec<Text> = (0..300).map(|len| arena.push(&vec![len as u8; len])).collect();
        for (len, text) in texts.iter().enumerate() {
            assert_eq!(arena.get(*text), vec![len as u8; len]);
        }
        assert_eq!(Arena::default().get(texts[7]), b"");
    }

    #[test]
    fn positions_above_4_gib_are_kept() {
        let text = Text { at: 7, high_and_len: 3 << LEN_BITS | 255 };
        assert_eq!((text.start(), text.len()), ((3 << 32) + 7, 255));
    }

    #[test]
    fn each_time_is_kept() {
        for secs in
            [0, 1, -1, i64::MIN, i64::MAX, 1 << 32, -(1 << 32), u32::MAX.into(), -5_000_000_001]
        {
            let time = Timestamp { secs, nanos: 999_999_999 };
            assert_eq!(Timestamp::from(CompactTime::from(time)), time);
        }
        assert_eq!(size_of::<CompactTime>(), 12);
    }
}
