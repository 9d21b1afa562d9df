//! Strategies of decoding, and the policies that choose among them.

use super::super::buffer_pool::PAGE;

/// Bytes that fit the buffer of the paper's policies: four pages, as in the phones that it was measured on. Longer
/// ranges are decoded in another way.
const BUFFER: usize = 4 * PAGE;

/// How a cluster is decoded. All give the same bytes. Where one cannot be, the engine takes the next that can:
/// see [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Where its encoded bytes were read to: at the end of the memory that it fills. LZ4 alone, whole clusters, and
    /// only where output cannot overtake input.
    InPlace,
    /// What precedes the range wanted goes through a window of at most 17 pages, however long it is; the range goes right
    /// to the request. LZ4 alone.
    Rolling,
    /// Into pages of the pool, scattered and mapped side by side, and copied from there.
    Vmap,
    /// Into a buffer, and copied from there.
    Buffer,
    /// Right into the request, from the cluster's start on; nothing may precede the range wanted.
    Direct,
}

/// Which strategy a cluster gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// What measures best: in place; else directly; else from a buffer, or rolling where that would be long.
    #[default]
    Auto,
    /// As the EROFS paper has it (USENIX ATC 2019, section 4): a buffer if at most a page is wanted; else in place;
    /// else rolling; else vmap.
    Paper,
    /// As in the phones that the paper was tried on: a buffer below four pages, else vmap.
    Commercial,
    /// Always one, where it can be; else as [`Policy::Auto`] without decoding in place.
    Always(Strategy),
}

impl Policy {
    /// Whether `len` bytes, all of a cluster, are to be decoded in place if they can be.
    pub(crate) const fn in_place(self, len: usize) -> bool {
        match self {
            Self::Auto | Self::Always(Strategy::InPlace) => true,
            Self::Paper => len > PAGE,
            Self::Commercial | Self::Always(_) => false,
        }
    }

    /// The strategy for `len` bytes after `skip` others, which are not decoded in place. LZ4 can roll, and better does beyond
    /// `long` bytes.
    pub(crate) const fn choose(self, long: Option<usize>, skip: usize, len: usize) -> Strategy {
        let end = skip + len;
        let chosen = match self {
            Self::Auto => Self::measured(long, skip, end),
            Self::Paper if len <= PAGE && end <= BUFFER => Strategy::Buffer,
            Self::Paper if long.is_some() => Strategy::Rolling,
            Self::Commercial if end < BUFFER => Strategy::Buffer,
            Self::Paper | Self::Commercial => Strategy::Vmap,
            Self::Always(strategy) => strategy,
        };
        let cannot = match chosen {
            Strategy::InPlace => true,
            Strategy::Rolling => long.is_none(),
            Strategy::Direct => skip > 0,
            Strategy::Vmap | Strategy::Buffer => false,
        };
        if cannot { Self::measured(long, skip, end) } else { chosen }
    }

    const fn measured(long: Option<usize>, skip: usize, end: usize) -> Strategy {
        match (skip, long) {
            (0, _) => Strategy::Direct,
            (_, Some(long)) if end > long => Strategy::Rolling,
            _ => Strategy::Buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_choose_as_they_say() {
        use Strategy::{Buffer, Direct, Rolling, Vmap};
        let page = |n: usize| n * PAGE;
        let lz4 = Some(page(17));
        assert_eq!(Policy::Paper.choose(lz4, page(2), page(1)), Buffer);
        assert_eq!(Policy::Paper.choose(lz4, page(4), page(1)), Rolling, "the buffer has four pages");
        assert_eq!(Policy::Paper.choose(lz4, 0, page(2)), Rolling);
        assert_eq!(Policy::Paper.choose(None, 0, page(2)), Vmap);
        assert_eq!(Policy::Commercial.choose(lz4, page(2), page(1)), Buffer);
        assert_eq!(Policy::Commercial.choose(lz4, page(3), page(1)), Vmap);
        assert_eq!(Policy::Auto.choose(lz4, 0, page(9)), Direct);
        assert_eq!(Policy::Auto.choose(lz4, page(1), page(1)), Buffer);
        assert_eq!(Policy::Auto.choose(lz4, page(40), page(1)), Rolling);
        assert_eq!(Policy::Auto.choose(Some(page(48)), page(40), page(1)), Buffer);
        assert_eq!(Policy::Auto.choose(None, page(40), page(1)), Buffer);
        assert_eq!(Policy::Always(Rolling).choose(None, 0, page(1)), Direct);
        assert_eq!(Policy::Always(Direct).choose(lz4, 1, page(1)), Buffer);
        assert!(Policy::Paper.in_place(page(2)) && !Policy::Paper.in_place(page(1)));
        assert!(Policy::Auto.in_place(1) && !Policy::Commercial.in_place(page(9)));
    }
}
