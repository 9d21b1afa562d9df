//! The policies that choose among the strategies of decoding.

use super::super::buffer_pool::PAGE;
use super::super::strategy::Strategy;

/// Bytes of the buffer of the paper's policies: four pages, as in the phones of its measurements. Longer ranges are decoded
/// with another strategy.
const BUFFER_SIZE: usize = 4 * PAGE;

/// The rule that chooses the strategy for a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The fastest strategy according to measurements: in place; else directly; else into a buffer, or rolling if the buffer would
    /// be large.
    #[default]
    Auto,
    /// The EROFS paper's policy (USENIX ATC 2019, section 4): a buffer if at most a page is wanted; else in place; else rolling;
    /// else vmap.
    Paper,
    /// The policy of the phones in the paper's measurements: a buffer below four pages, else vmap.
    Commercial,
    /// Always this strategy; for clusters that it does not support as [`Policy::Auto`], but not in place.
    Always(Strategy),
}

impl Policy {
    /// Whether a whole cluster of `len` decoded bytes is decoded in place, if that is possible.
    pub(crate) const fn in_place(self, len: usize) -> bool {
        match self {
            Self::Auto | Self::Always(Strategy::InPlace) => true,
            Self::Paper => len > PAGE,
            Self::Commercial | Self::Always(_) => false,
        }
    }

    /// The strategy for the `len` bytes after the first `skip` bytes of a cluster that is not decoded in place. `max_buffered`: for
    /// LZ4, which supports rolling, the bytes from the cluster's start up to which a buffer is faster.
    pub(crate) const fn choose(self, max_buffered: Option<usize>, skip: usize, len: usize) -> Strategy {
        let end = skip.saturating_add(len);
        let chosen = match self {
            Self::Auto => Strategy::fastest(max_buffered, skip, end),
            Self::Paper if len <= PAGE && end <= BUFFER_SIZE => Strategy::Buffer,
            Self::Paper if max_buffered.is_some() => Strategy::Rolling,
            Self::Commercial if end < BUFFER_SIZE => Strategy::Buffer,
            Self::Paper | Self::Commercial => Strategy::Vmap,
            Self::Always(strategy) => strategy,
        };
        let is_unsupported = match chosen {
            Strategy::InPlace => true,
            Strategy::Rolling => max_buffered.is_none(),
            Strategy::Direct => skip > 0,
            Strategy::Vmap | Strategy::Buffer => false,
        };
        if is_unsupported { Strategy::fastest(max_buffered, skip, end) } else { chosen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_chooses_its_strategies() {
        use Strategy::{Buffer, Direct, Rolling, Vmap};
        let page = |n: usize| n * PAGE;
        let lz4 = Some(page(17));
        assert_eq!(Policy::Paper.choose(lz4, page(2), page(1)), Buffer);
        assert_eq!(Policy::Paper.choose(lz4, page(4), page(1)), Rolling, "the buffer has four pages");
        assert_eq!(Policy::Paper.choose(lz4, 0, page(2)), Rolling);
        assert_eq!(Policy::Paper.choose(None, 0, page(2)), Vmap);
        assert_eq!(Policy::Commercial.choose(lz4, page(2), page(1)), Buffer);
        assert_eq!(Policy::Commercial.choose(lz4, page(3), page(1)), Vmap);
        assert_eq!(Policy::Auto.choose(lz4, page(1), page(1)), Buffer);
        assert_eq!(Policy::Always(Rolling).choose(None, 0, page(1)), Direct);
        assert_eq!(Policy::Always(Direct).choose(lz4, 1, page(1)), Buffer);
        assert!(Policy::Paper.in_place(page(2)) && !Policy::Paper.in_place(page(1)));
        assert!(Policy::Auto.in_place(1) && !Policy::Commercial.in_place(page(9)));
    }
}
