//! Clusters of which a request wants a part, and those that no run takes.
//!
//! Their encoded bytes go through a bounded cache, as neighbouring requests want the same clusters. They are decoded
//! only as far as wanted; but whole, and kept, where a sequential reader or other files will want the rest.

use ferofs_codec::Extent as Decode;
use ferofs_format::Algorithm;

use super::super::cache::Key;
use super::super::extent::{Extent, ExtentData, Location};
use super::super::image::{Image, to_u64};
use super::clusters::{Clusters, Found};
use super::scratch::Scratch;
use super::stats::{Cause, Counter};
use super::{Request, undecodable};
use crate::error::Result;

/// A cluster to decode.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    algorithm: Algorithm,
    at: Location,
    encoded_len: usize,
    exact: bool,
}

impl Request<'_> {
    /// Fills `buf` with what follows the first `skip` bytes of an encoded extent.
    pub(super) fn read_partial(&mut self, extent: &Extent, skip: u64, buf: &mut [u8]) -> Result<()> {
        let ExtentData::Encoded { algorithm, at, encoded_len, partial } = extent.data else { return Ok(()) };
        let encoded_len = usize::try_from(encoded_len).unwrap_or(usize::MAX);
        let cluster = Cluster { algorithm, at, encoded_len, exact: self.exact(partial) };
        // The map bounds both lengths to 12 MiB.
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let len = usize::try_from(extent.len).unwrap_or(usize::MAX);
        let image = self.image;
        let cache = if self.shared { &image.engine.packed } else { &image.engine.tails };
        // Reading an inline tail may lead to other files, so that its thread could come to wait for itself.
        let inline = matches!(at, Location::Metadata(_));
        if buf.len() == len || inline || !cache.is_enabled() {
            return self.decode_wanted(&cluster, len, skip, buf);
        }
        self.read_kept(cache, &cluster, len, skip, buf)
    }

    /// Takes the part from the cluster as others left it decoded, or decodes all of it where that pays.
    fn read_kept(
        &mut self,
        cache: &Clusters,
        cluster: &Cluster,
        len: usize,
        skip: usize,
        buf: &mut [u8],
    ) -> Result<()> {
        let counters = &self.image.engine.counters;
        // What comes next starts after this request, so the end of a cluster will not be wanted again.
        let rest_follows = self.sequential && skip + buf.len() < len;
        match cache.find(cluster.at, len, self.shared || rest_follows) {
            Found::Decoded { bytes, waited } => {
                counters.add(Counter::ClusterHits, 1);
                counters.add(Counter::CohortHits, waited.into());
                buf.copy_from_slice(&bytes[skip..skip + buf.len()]);
                Ok(())
            }
            Found::Claimed(mut claim) => {
                let out = claim.buffer(len);
                fetch(self.image, cluster, self.scratch, false)?;
                decode(cluster, self.scratch, out, true)?;
                counters.decoded(Counter::Buffered, len);
                buf.copy_from_slice(&out[skip..skip + buf.len()]);
                claim.publish();
                Ok(())
            }
            Found::Nothing => self.decode_wanted(cluster, len, skip, buf),
        }
    }

    /// Decodes as far as wanted: into `buf` if that starts with the cluster, else into a buffer first.
    fn decode_wanted(&mut self, cluster: &Cluster, len: usize, skip: usize, buf: &mut [u8]) -> Result<()> {
        let counters = &self.image.engine.counters;
        fetch(self.image, cluster, self.scratch, true)?;
        let end = skip + buf.len();
        if skip == 0 {
            counters.decoded(Counter::Direct, end);
            return decode(cluster, self.scratch, buf, end == len);
        }
        let mut decoded = std::mem::take(&mut self.scratch.decoded);
        if decoded.len() < end {
            decoded.resize(end, 0);
        }
        counters.decoded(Counter::Buffered, end);
        let result = decode(cluster, self.scratch, &mut decoded[..end], end == len);
        if result.is_ok() {
            buf.copy_from_slice(&decoded[skip..end]);
        }
        self.scratch.decoded = decoded;
        result
    }
}

/// Decodes the encoded bytes in `scratch` to fill `out`, which is the `whole` extent or a prefix.
fn decode(cluster: &Cluster, scratch: &mut Scratch, out: &mut [u8], whole: bool) -> Result<()> {
    let extent = if whole && cluster.exact { Decode::Whole } else { Decode::Prefix };
    let result = scratch.decoder.decode(cluster.algorithm, &scratch.encoded, out, extent);
    result.map_err(|_| undecodable(cluster.at))
}

/// Gets the encoded bytes into `scratch`, from the cache or with one read, and may `keep` them.
fn fetch(image: &Image, cluster: &Cluster, scratch: &mut Scratch, keep: bool) -> Result<()> {
    scratch.encoded.resize(cluster.encoded_len, 0);
    let block_size = image.superblock().block_size;
    let cache = image.engine.encoded.as_ref();
    let (Some(cache), Location::Device(device, pos)) = (cache, cluster.at) else {
        return image.read_counted(cluster.at, 0, &mut scratch.encoded, Cause::Partial);
    };
    let whole_blocks =
        pos.in_block(block_size) == 0 && cluster.encoded_len.is_multiple_of(block_size.bytes());
    if !whole_blocks || cluster.encoded_len > cache.budget() / 4 {
        return image.read_counted(cluster.at, 0, &mut scratch.encoded, Cause::Partial);
    }
    let first = pos.block(block_size).get();
    let key = |number: usize| Key { device: device.get(), block: first.saturating_add(to_u64(number)) };
    let mut blocks = scratch.encoded.chunks_exact_mut(block_size.bytes()).enumerate();
    if blocks.all(|(number, block)| cache.get(key(number), block)) {
        image.engine.counters.add(Counter::EncodedHits, 1);
        return Ok(());
    }
    image.read_counted(cluster.at, 0, &mut scratch.encoded, Cause::Partial)?;
    if keep {
        for (number, block) in scratch.encoded.chunks_exact(block_size.bytes()).enumerate() {
            cache.put(key(number), block);
        }
    }
    Ok(())
}
