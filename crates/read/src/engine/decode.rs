//! The strategies: from the encoded bytes of a cluster to the range that a request wants of it.
//!
//! Decoding in place is not here: it needs the encoded bytes where the request's own memory is, see
//! [`super::run`] and [`super::partial`].

use ferofs_codec::{Portion, decode_lz4_range};
use ferofs_format::Algorithm;

use super::options::{Policy, Strategy};
use super::pool::PAGE;
use super::request::{Request, undecodable};
use crate::accounting::stats::Counter;
use crate::error::Result;
use crate::metadata::extent::Location;

/// What a buffer holds at most, where a policy says so.
const BUFFER: usize = 4 * PAGE;
/// What a buffer holds at most where LZ4 can roll and memory is short: the longest window.
const LONG: usize = 17 * PAGE;

/// A cluster to decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub algorithm: Algorithm,
    pub at: Location,
    /// Bytes of the pcluster.
    pub encoded_len: usize,
    /// The pcluster decodes to the extent, and to nothing more.
    pub exact: bool,
}

/// The range wanted of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Bytes that precede it.
    pub skip: usize,
    /// It reaches the cluster's end.
    pub to_end: bool,
}

impl Wanted {
    /// All of the cluster.
    pub(crate) const WHOLE: Self = Self { skip: 0, to_end: true };
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
    const fn choose(self, long: Option<usize>, skip: usize, len: usize) -> Strategy {
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

impl Request<'_> {
    /// Fills `out` with the range wanted of `cluster`, whose encoded bytes are `encoded`.
    pub(crate) fn decode(
        &self,
        cluster: &Cluster,
        encoded: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<()> {
        let engine = self.engine;
        let (skip, end) = (wanted.skip, wanted.skip + out.len());
        let long = (cluster.algorithm == Algorithm::Lz4).then(|| self.long());
        match engine.policy.choose(long, skip, out.len()) {
            Strategy::Direct | Strategy::InPlace => {
                self.count(Counter::Direct, end);
                self.decode_from_start(cluster, encoded, wanted, out)
            }
            Strategy::Rolling => {
                self.count(Counter::Rolling, end);
                let mut window = self.buffer(engine.lz4_window);
                decode_lz4_range(encoded, &mut window, skip, out).map_err(|_| undecodable(cluster.at))
            }
            Strategy::Vmap => match engine.scratch.mapped(end) {
                Some(mut mapped) => {
                    self.decode_and_copy(cluster, encoded, wanted, &mut mapped, Counter::Vmap, out)
                }
                None => self.decode_buffered(cluster, encoded, wanted, out),
            },
            Strategy::Buffer => self.decode_buffered(cluster, encoded, wanted, out),
        }
    }

    /// Bytes that LZ4 better decodes to a buffer than through a window, which takes more than twice the time: up to four
    /// times the pool, unless memory is short.
    fn long(&self) -> usize {
        let engine = self.engine;
        if engine.pressure.is_short() {
            LONG
        } else {
            LONG.max(engine.scratch.pool().len().saturating_mul(4))
        }
    }

    fn decode_buffered(
        &self,
        cluster: &Cluster,
        encoded: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<()> {
        let mut buffer = self.buffer(wanted.skip + out.len());
        self.decode_and_copy(cluster, encoded, wanted, &mut buffer, Counter::Buffered, out)
    }

    fn decode_and_copy(
        &self,
        cluster: &Cluster,
        encoded: &[u8],
        wanted: Wanted,
        buffer: &mut [u8],
        counter: Counter,
        out: &mut [u8],
    ) -> Result<()> {
        self.count(counter, buffer.len());
        self.decode_from_start(cluster, encoded, wanted, buffer)?;
        self.copy(&buffer[wanted.skip..], out);
        Ok(())
    }

    /// Fills `out` with the cluster from its start on, to its end if `wanted` reaches that.
    fn decode_from_start(
        &self,
        cluster: &Cluster,
        encoded: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<()> {
        let extent = if wanted.to_end && cluster.exact { Portion::Whole } else { Portion::Prefix };
        let scratch = &self.engine.scratch;
        let decoded = scratch.with_decoder(|decoder| decoder.decode(cluster.algorithm, encoded, out, extent));
        decoded.map_err(|_| undecodable(cluster.at))
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
