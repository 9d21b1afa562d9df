//! Holds many short texts in one allocation: names, targets of symbolic links, sets of xattrs.

/// The most bytes of a text: enough for a set of xattrs, which an inode counts in 16 bits and units of 4 bytes.
const LEN_BITS: u32 = 20;

/// A text in an [`Arena`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text {
    /// The low 32 bits of its position.
    at: u32,
    /// The high 12 bits of its position, and its length in the low [`LEN_BITS`] bits: a tree has two texts for each name, so they are kept short.
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
    /// Adds `bytes`: fewer than 1 MiB, which holds for all that a tree stores. More bytes are cut off.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Text {
        let at = self.0.len() as u64;
        let len = bytes.len().min((1 << LEN_BITS) - 1);
        self.0.extend_from_slice(&bytes[..len]);
        // 44 bits are 16 TiB of memory.
        Text { at: at as u32, high_and_len: ((at >> 32) as u32) << LEN_BITS | len as u32 }
    }

    /// The bytes of `text`; none if it belongs to another arena.
    pub(crate) fn get(&self, text: Text) -> &[u8] {
        let found =
            usize::try_from(text.start()).ok().and_then(|start| self.0.get(start..start + text.len()));
        found.unwrap_or_default()
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
}
