//! The memory that applying a patch takes, as the patch file alone tells.

use ferofs_codec::{Params, codec, encoder_memory};

use crate::apply::THREADS_MAX;
use crate::error::Result;
use crate::format::piece::base::SMALL_EXTENT;
use crate::format::plan::Item;
use crate::format::reader::Patch;
use ferofs_format::units::to_u64;

/// The program itself with its stack and its threads, the reader of the image with its cache of
/// metadata, and a buffer of 1 MiB for each thread that hashes.
const PROGRAM: u64 = 24 << 20;
/// A thread that wants a part of an extent decodes all of it. LZMA's decoder has a dictionary of
/// the same length, and the system does not get back at once what was freed.
const COPIES: u64 = 3;
/// Bytes for each piece: in the tables of the header, which are decoded at once, and in lists of
/// them.
const OF_PIECE: u64 = 160;
/// Bytes for each byte of a decoded plan: its shortest parts take the most.
const OF_PLAN: u64 = 32;

impl Patch {
    /// An upper bound of the memory of a process that applies the patch, in bytes. It reads the
    /// plans of all pieces, and no payload.
    ///
    /// # Errors
    /// [`crate::Error::Io`], [`crate::Error::Patch`].
    pub fn apply_memory(&self) -> Result<u64> {
        let methods = self.known_methods();
        // The longest unit of each method.
        let mut longest = vec![0u64; methods.len()];
        // The buffers for pieces are used again, so the largest of each counts.
        let (mut buffers, mut dictionary) = ([0; 5], 0);
        self.each_plan(|sizes, plan| {
            buffers.iter_mut().zip(sizes).for_each(|(most, size)| *most = size.max(*most));
            let lens = plan.references.iter().map(|reference| u64::from(reference.len()));
            dictionary = lens.fold(0, u64::saturating_add).max(dictionary);
            for item in &plan.items {
                if let Item::Unit(unit) = item
                    && let Some(longest) = longest.get_mut(usize::from(unit.method))
                {
                    *longest = u64::from(unit.content_len).max(*longest);
                }
            }
        })?;
        let [stored, decoded_plan, delta, payload, region] = buffers;
        let used = methods.iter().flatten().zip(longest).filter(|(_, longest)| *longest > 0);
        // With small tables several threads encode, each into a buffer of its own.
        let encoders = |params: &Params| match codec(params.algorithm).has_small_tables {
            true => to_u64(THREADS_MAX),
            false => 1,
        };
        let tables = used.map(|(params, longest)| {
            encoder_memory(params, longest).saturating_mul(encoders(params))
        });
        // Only one thread at a time decodes a longer extent.
        let extent = u64::from(self.header().longest_extent);
        let extents =
            extent.min(SMALL_EXTENT).saturating_mul(to_u64(THREADS_MAX)).saturating_add(extent);
        let parts = [
            (1, PROGRAM),
            (COPIES, extents),
            (OF_PIECE, to_u64(self.appended().count())),
            (OF_PLAN, decoded_plan),
            (1, self.relocations()?.memory(self.superblocks()?[0].inodes)),
            (2, region),
        ];
        let parts = parts.iter().map(|(times, size)| size.saturating_mul(*times));
        Ok(parts
            .chain(tables)
            .chain([stored, delta, payload, dictionary])
            .fold(0, u64::saturating_add))
    }
}
