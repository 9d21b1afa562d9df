//! How many workers of a build fit into the memory that this process may still take. The image does
//! not depend on their number.

use std::num::NonZeroUsize;

use ferofs_codec::encoder_memory;
use ferofs_threads::{STACK, free_memory, too_little_memory};

use crate::data::jobs_limit;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::compression::SEGMENT;

/// Bytes of any build, without the tree, which is in memory already.
const LEAST: u64 = 6 << 20;
/// Bytes of buffers for the output, and of what the allocator keeps; less for little content.
const BUFFERS: u64 = 8 << 20;
/// Bytes of indexes and of tails that stay in memory: see [`Spill`](crate::output::spill::Spill).
const SPILL: u64 = 16 << 20;
/// Threads that list a source. Threads that start later use their stacks again.
const LISTERS: u64 = 8;

/// Sets the number of workers, and of jobs under way, so that a build of a tree with `content`
/// bytes in files fits into memory. It is never larger than the options ask for. `content` is 0
/// before the source is listed.
///
/// # Errors
/// [`Error::Io`] if one worker does not fit.
pub(crate) fn fit(options: &mut Options, content: u64) -> Result<()> {
    let Some(free) = free_memory() else { return Ok(()) };
    let asked = options.run.worker_count();
    let needed =
        (1..=asked).rev().map(|workers| (workers, None)).chain([(1, Some(NonZeroUsize::MIN))]).map(
            |(workers, jobs)| {
                options.run.workers = NonZeroUsize::new(workers);
                options.run.max_jobs = jobs;
                needed(options, content)
            },
        );
    let mut least = 0;
    for needed in needed {
        if needed <= free.0 {
            return Ok(());
        }
        least = needed;
    }
    let hint = ", or use smaller pclusters (-C) or a faster level";
    Err(Error::io_unnamed("build", too_little_memory(least, free, hint)))
}

/// An upper bound for the bytes of the data stage.
fn needed(options: &Options, content: u64) -> u64 {
    let compression = options.data.compression.as_ref();
    let segment =
        compression.map_or(SEGMENT, |compression| compression.segment(options.image.block_size));
    let jobs = jobs_limit(options, segment) as u64;
    let content = content.max(1);
    let segment = segment.min(content);
    let block = options.image.block_size;
    let methods = compression.iter().flat_map(|compression| compression.params(block));
    let tables: u64 = methods.map(|params| encoder_memory(&params, segment)).sum();
    let workers = options.run.worker_count() as u64;
    let stacks = STACK * if content <= 1 { LISTERS } else { workers };
    // Tails are in the packed inode, whose part that is being filled is in memory, or spilled. Then
    // there is the content that each worker reads, and for each job a part of the packed inode or
    // an encoded one.
    let kept = LEAST + stacks + BUFFERS.min(content) + segment.max(SPILL.min(content));
    kept + workers * (tables + segment) + (jobs * segment).min(content.saturating_mul(2))
}
