//! Clusters of which a request wants a part, and clusters that cannot be part of a run.
//!
//! Their encoded bytes go through a bounded cache, because later requests often want the same
//! clusters. For a sequential reader with small requests, one call also reads the following blocks.
//! Clusters are decoded only as far as wanted; but to their end, and kept, if a sequential reader,
//! other files or other threads want the rest.

use ferofs_codec::{decode_lz4_in_place, lz4_in_place_margin};
use ferofs_format::Algorithm;

use super::clusters::{Decoding, Found};
use super::decode::{Cluster, Wanted};
use super::request::{Request, undecodable};
use crate::access::requests::Pattern;
use crate::accounting::stats::{Cause, Counter};
use crate::error::Result;
use crate::metadata::extent::{Extent, ExtentData, Location};
use crate::volume::block_cache::{BlockCache, Key};
use ferofs_format::units::to_u64;

/// Bytes from which on a request gets no read-ahead: it already reads enough with each call.
const SMALL_REQUEST: usize = 64 << 10;

impl Request<'_> {
    /// Fills `buf` with what follows the first `skip` bytes of an encoded extent.
    pub(crate) fn read_partial(&self, extent: &Extent, skip: u64, buf: &mut [u8]) -> Result<()> {
        let ExtentData::Encoded { algorithm, at, encoded_len, partial } = extent.data else {
            return Ok(());
        };
        let encoded_len = usize::try_from(encoded_len).unwrap_or(usize::MAX);
        let cluster = Cluster { algorithm, at, encoded_len, exact: self.exact(partial) };
        // The map bounds both lengths to 12 MiB.
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let len = usize::try_from(extent.len).unwrap_or(usize::MAX);
        let end = skip.saturating_add(buf.len());
        let wanted = Wanted { skip, to_end: end == len };
        // Reading an inline tail may start requests on other files: the thread could wait for its
        // own decoding.
        if buf.len() == len || matches!(at, Location::Metadata(_)) {
            self.charge_decoding(algorithm, encoded_len, len)?;
            let mut encoded = self.buffer(encoded_len);
            self.fetch(&cluster, &mut encoded, true)?;
            return self.decode(&cluster, &encoded, wanted, buf);
        }
        let engine = self.engine;
        let cache = if self.shared { &engine.packed } else { &engine.tails };
        match cache.find(at, end, &self.volume.counters) {
            Found::Decoded(bytes) => {
                self.copy_wanted(&bytes, skip, buf);
                Ok(())
            }
            Found::Missing(decoding) => {
                // The next request starts after this one, so that a cluster read to its end is not
                // wanted again.
                let rest_follows =
                    self.is_sequential() && !wanted.to_end && !engine.pressure.is_short();
                // A reader that follows the order of fragments starts at the start of a cluster. A
                // first read in the middle is for a single file that shares data with another one,
                // so the rest is decoded only at a second read.
                let is_single = self.shared && skip > len / 8 && cache.is_first_partial_read(at);
                let kept = if is_single { len.min(end.saturating_add(len / 8)) } else { len };
                if (self.shared || rest_follows) && cache.takes(kept) {
                    self.decode_kept(&cluster, decoding, kept, kept == len, wanted, buf)
                } else {
                    self.decode_wanted(&cluster, decoding, len, wanted, buf)
                }
            }
        }
    }

    /// Copies the wanted range of a cluster from its `decoded` bytes.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "callers decode the cluster at least up to the end of the range"
    )]
    fn copy_wanted(&self, decoded: &[u8], skip: usize, buf: &mut [u8]) {
        self.copy(&decoded[skip..skip + buf.len()], buf);
    }

    /// Decodes the first `len` bytes of the cluster, perhaps all, and keeps them in the cache.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`decode_len` is at least `encoded_len`; the map limits both to 12 MiB"
    )]
    fn decode_kept(
        &self,
        cluster: &Cluster,
        mut decoding: Decoding<'_>,
        len: usize,
        is_whole: bool,
        wanted: Wanted,
        buf: &mut [u8],
    ) -> Result<()> {
        self.charge_decoding(cluster.algorithm, cluster.encoded_len, len)?;
        let lz4 = cluster.algorithm == Algorithm::Lz4;
        if lz4 && is_whole && cluster.exact && self.engine.in_place(len) {
            // With the margin after it, any LZ4 cluster decodes where its encoded bytes end.
            let decode_len =
                len.max(cluster.encoded_len) + lz4_in_place_margin(cluster.encoded_len);
            let out = decoding.buffer(decode_len);
            let start = decode_len - cluster.encoded_len;
            self.fetch(cluster, &mut out[start..], false)?;
            let stream = self.without_padding(cluster.algorithm, cluster.at, &out[start..])?;
            let encoded = decode_len - stream.len();
            self.count(Counter::InPlace, len);
            decode_lz4_in_place(out, encoded..decode_len, len)
                .map_err(|_| undecodable(cluster.at))?;
            self.copy_wanted(out, wanted.skip, buf);
        } else {
            let mut encoded = self.buffer(cluster.encoded_len);
            self.fetch(cluster, &mut encoded, false)?;
            let out = decoding.buffer(len);
            self.decode(cluster, &encoded, Wanted { skip: 0, to_end: is_whole }, out)?;
            self.copy_wanted(out, wanted.skip, buf);
        }
        decoding.publish(len);
        Ok(())
    }

    /// Decodes as far as wanted; the whole cluster if other threads wait for it by now.
    fn decode_wanted(
        &self,
        cluster: &Cluster,
        mut decoding: Decoding<'_>,
        len: usize,
        wanted: Wanted,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut encoded = self.buffer(cluster.encoded_len);
        self.fetch(cluster, &mut encoded, true)?;
        // Charges only what this request wants: threads that wait charge their own parts.
        self.charge_decoding(cluster.algorithm, cluster.encoded_len, wanted.end(buf.len()))?;
        if !decoding.is_wanted() {
            return self.decode(cluster, &encoded, wanted, buf);
        }
        let out = decoding.buffer(len);
        self.decode(cluster, &encoded, Wanted::WHOLE, out)?;
        self.copy_wanted(out, wanted.skip, buf);
        decoding.publish(len);
        Ok(())
    }

    /// Gets the encoded bytes from the cache or with one read, which are then stored in the cache
    /// if `keep`.
    fn fetch(&self, cluster: &Cluster, encoded: &mut [u8], keep: bool) -> Result<()> {
        let block_size = self.volume.superblock.block_size;
        let cache = self.engine.encoded.as_ref().filter(|_| !self.engine.pressure.is_short());
        let (Some(cache), Location::Device(device, pos)) = (cache, cluster.at) else {
            return self.read_counted(cluster.at, 0, encoded, Cause::Partial);
        };
        let whole_blocks =
            pos.in_block(block_size) == 0 && cluster.encoded_len.is_multiple_of(block_size.bytes());
        if !whole_blocks || cluster.encoded_len > cache.budget() / 4 {
            return self.read_counted(cluster.at, 0, encoded, Cause::Partial);
        }
        let first = Key { device: device.get(), block: pos.block(block_size).get() };
        let mut blocks = encoded.chunks_exact_mut(block_size.bytes()).enumerate();
        if blocks.all(|(number, block)| cache.get(first.after(number), block)) {
            self.volume.counters.add(Counter::EncodedHits, 1);
            return Ok(());
        }
        let ahead =
            if self.has_gathered(cluster.at, cluster.encoded_len) { 0 } else { self.ahead() };
        let ahead = (ahead >> block_size.bits()) << block_size.bits();
        let with_ahead = to_u64(cluster.encoded_len.saturating_add(ahead));
        if ahead > 0
            && ahead <= cache.budget() / 2
            && self.volume.has_range(device, pos, with_ahead)
        {
            return self.fetch_ahead(cluster, encoded, ahead, cache, first);
        }
        self.read_counted(cluster.at, 0, encoded, Cause::Partial)?;
        // A random reader seldom comes back soon.
        if keep && self.pattern != Pattern::Random {
            keep_blocks(cache, first, encoded, block_size.bytes());
        }
        Ok(())
    }

    /// Reads the cluster and `ahead` bytes that follow it with one call.
    fn fetch_ahead(
        &self,
        cluster: &Cluster,
        encoded: &mut [u8],
        ahead: usize,
        cache: &BlockCache,
        first: Key,
    ) -> Result<()> {
        let block_size = self.volume.superblock.block_size;
        let mut all = self.buffer(encoded.len().saturating_add(ahead));
        self.read_counted(cluster.at, 0, &mut all, Cause::Ahead)?;
        let (own, next) = all.split_at(encoded.len());
        encoded.copy_from_slice(own);
        keep_blocks(cache, first.after(own.len() >> block_size.bits()), next, block_size.bytes());
        Ok(())
    }

    /// Bytes to read ahead together with this request.
    fn ahead(&self) -> usize {
        match self.pattern {
            // The source prefetches.
            _ if self.volume.batches => 0,
            // The rest of the file has at most as many encoded bytes as decoded ones.
            Pattern::Sequential { ahead } if self.len < SMALL_REQUEST => ahead.min(self.left),
            _ => 0,
        }
    }
}

fn keep_blocks(cache: &BlockCache, first: Key, blocks: &[u8], block_size: usize) {
    for (number, block) in blocks.chunks_exact(block_size).enumerate() {
        cache.put(first.after(number), block);
    }
}
