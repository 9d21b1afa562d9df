//! Decodes the encoded bytes of a cluster to the range that a request wants of it.
//!
//! Decoding in place is not here: it needs the encoded bytes at the end of the request's own
//! memory, see [`super::run`] and [`super::partial`].

use std::io;

use ferofs_codec::{DecodeError, Portion, decode_lz4_range};
use ferofs_format::Algorithm;

use super::buffer_pool::PAGE;
use super::request::{Request, not_built, undecodable};
use super::strategy::Strategy;
use crate::accounting::stats::Counter;
use crate::error::{IoError, Result};
use crate::metadata::extent::Location;

/// Bytes at most that LZ4 decodes to a buffer while memory is short: the size of the largest
/// rolling window. Longer ranges are decoded through that window.
const MAX_BUFFERED_LOW_MEMORY: usize = 17 * PAGE;

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

/// The wanted range of a cluster.
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

    /// The end of a range of `len` bytes in the cluster. The map limits it to 12 MiB.
    pub(crate) const fn end(self, len: usize) -> usize {
        self.skip.saturating_add(len)
    }
}

impl Request<'_> {
    /// Fills `out` with the wanted range of `cluster`, whose encoded bytes are `encoded`.
    pub(crate) fn decode(
        &self,
        cluster: &Cluster,
        encoded: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<()> {
        let engine = self.engine;
        let encoded = self.without_padding(cluster.algorithm, cluster.at, encoded)?;
        let (skip, end) = (wanted.skip, wanted.end(out.len()));
        let max_buffered = (cluster.algorithm == Algorithm::Lz4).then(|| self.max_buffered());
        #[cfg(not(feature = "comparison"))]
        let strategy = Strategy::fastest(max_buffered, skip, end);
        #[cfg(feature = "comparison")]
        let strategy = engine.policy.choose(max_buffered, skip, out.len());
        match strategy {
            Strategy::Direct => {
                self.count(Counter::Direct, end);
                self.decode_from_start(cluster, encoded, wanted, out)
            }
            Strategy::Rolling => {
                self.count(Counter::Rolling, end);
                let mut window = self.buffer(engine.lz4_window);
                decode_lz4_range(encoded, &mut window, skip, out)
                    .map_err(|_| undecodable(cluster.at))
            }
            // The policy does not choose it here.
            #[cfg(feature = "comparison")]
            Strategy::InPlace => self.decode_buffered(cluster, encoded, wanted, out),
            #[cfg(feature = "comparison")]
            Strategy::Vmap => match engine.scratch.pool().map(end) {
                Some(mut mapped) => {
                    self.decode_and_copy(cluster, encoded, wanted, &mut mapped, Counter::Vmap, out)
                }
                None => self.decode_buffered(cluster, encoded, wanted, out),
            },
            Strategy::Buffer => self.decode_buffered(cluster, encoded, wanted, out),
        }
    }

    /// Bytes at most that LZ4 decodes to a buffer: 32 times the pool and an eighth of the memory
    /// limit, unless memory is short. More go through a window, which takes more than twice the
    /// time.
    fn max_buffered(&self) -> usize {
        let engine = self.engine;
        if engine.pressure.is_short() {
            MAX_BUFFERED_LOW_MEMORY
        } else {
            let most = engine.scratch.pool().len().saturating_mul(32);
            MAX_BUFFERED_LOW_MEMORY.max(most.min(self.volume.memory.limit() / 8))
        }
    }

    fn decode_buffered(
        &self,
        cluster: &Cluster,
        encoded: &[u8],
        wanted: Wanted,
        out: &mut [u8],
    ) -> Result<()> {
        let mut buffer = self.buffer(wanted.end(out.len()));
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
        self.copy(buffer.split_at(wanted.skip).1, out);
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
        let decoded =
            scratch.with_decoder(|decoder| decoder.decode(cluster.algorithm, encoded, out, extent));
        decoded.map_err(|error| match error {
            DecodeError::NotBuilt { .. } => not_built(cluster.at, cluster.algorithm),
            DecodeError::Memory => IoError::unnamed("decode", io::ErrorKind::OutOfMemory).into(),
            _ => undecodable(cluster.at),
        })
    }
}
