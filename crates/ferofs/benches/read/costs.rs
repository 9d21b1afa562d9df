//! I/O, decoded bytes, memory and allocations of reads of a large file.

use ferofs::read::{EngineOptions, FileOffset, FileSource, Image, Inode, LowMemory, Stats};

use crate::{Goal, MIB, Outcome, PAGE, counting, open, row};

/// What is requested at random, as in the paper.
const AMOUNT: u64 = 16 << 20;

/// Where to read in a file of a certain size.
type Offsets = fn(u64) -> Vec<u64>;

/// The same numbers, here and there, in each run.
pub(crate) const fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// Bytes read from the image for each byte requested in pages here and there.
pub(crate) fn io(path: &str) -> Outcome {
    let cases: [(&str, Offsets); 2] = [
        ("random 4 KiB", |size| (0..AMOUNT / PAGE).map(|n| scattered(n) % (size / PAGE) * PAGE).collect()),
        ("4 KiB in every 128 KiB", |size| {
            (0..AMOUNT / PAGE).map(|n| n * (128 << 10)).filter(|at| at + PAGE <= size).collect()
        }),
    ];
    for (name, offsets) in cases {
        let (image, inode) = open(FileSource::open(path, 0)?, EngineOptions::default())?;
        let cost = Cost::of(&image, &inode, PAGE, &offsets(inode.size()))?;
        let requested = cost.requested();
        row(&format!("{name}: MiB requested"), requested / MIB, Goal::None);
        row(&format!("{name}: read / requested"), cost.of_requested(|s| s.io().bytes), Goal::AtMost(1.65));
        row(&format!("{name}: of that, metadata"), cost.of_requested(|s| s.metadata.bytes), Goal::None);
        row(&format!("{name}: allocations per read"), cost.allocations, Goal::AtMost(0.0));
        row(
            &format!("{name}: KiB held at the peak"),
            cost.after.held_peak as f64 / 1024.0,
            Goal::AtMost(1024.0),
        );
    }
    Ok(())
}

/// What reading the file once costs, in requests of several sizes.
pub(crate) fn sequential(path: &str) -> Outcome {
    for low_memory in [LowMemory::Never, LowMemory::Always] {
        for len in [PAGE, 128 << 10, 1 << 20] {
            let short = low_memory == LowMemory::Always;
            let name = format!("sequential {} KiB{}", len >> 10, if short { ", low memory" } else { "" });
            let mut options = EngineOptions::default();
            options.low_memory = low_memory;
            let (image, inode) = open(FileSource::open(path, 0)?, options)?;
            let offsets: Vec<u64> = (0..inode.size() / len).map(|n| n * len).collect();
            let cost = Cost::of(&image, &inode, len, &offsets)?;
            let decoded = cost.of_requested(|s| s.decoded_bytes);
            // Without memory nothing is kept from one request to the next.
            let goal = |goal| if short { Goal::None } else { goal };
            row(&format!("{name}: decoded / requested"), decoded, goal(Goal::AtMost(1.02)));
            let in_place =
                100.0 * cost.difference(|s| s.in_place) / cost.difference(Stats::clusters).max(1.0);
            row(&format!("{name}: decoded in place, %"), in_place, goal(Goal::AtLeast(95.0)));
            let held = cost.after.held_peak as f64 / 1024.0;
            row(
                &format!("{name}: KiB held at the peak"),
                held,
                Goal::AtMost(if short { 400.0 } else { 1024.0 }),
            );
            row(&format!("{name}: allocations per read"), cost.allocations, Goal::AtMost(0.0));
            row(
                &format!("{name}: read calls per MiB"),
                cost.difference(|s| s.io().reads) * MIB / cost.requested(),
                Goal::None,
            );
        }
    }
    Ok(())
}

/// What reads cost.
struct Cost {
    before: Stats,
    after: Stats,
    /// For each read of the second pass.
    allocations: f64,
}

impl Cost {
    /// The first pass tells what is read, decoded and held; the second one, with warm caches, what is allocated.
    fn of(image: &Image, inode: &Inode, len: u64, offsets: &[u64]) -> Outcome<Self> {
        let mut buf = vec![0; usize::try_from(len)?];
        let mut pass = || {
            offsets
                .iter()
                .try_for_each(|offset| image.read_at(inode, FileOffset::new(*offset), &mut buf).map(drop))
        };
        let before = image.stats();
        pass()?;
        let after = image.stats();
        let allocations = counting::allocations();
        pass()?;
        let allocations = (counting::allocations() - allocations) as f64 / offsets.len() as f64;
        Ok(Self { before, after, allocations })
    }

    fn difference(&self, what: impl Fn(&Stats) -> u64) -> f64 {
        (what(&self.after) - what(&self.before)) as f64
    }

    fn requested(&self) -> f64 {
        self.difference(|stats| stats.requested_bytes)
    }

    fn of_requested(&self, what: impl Fn(&Stats) -> u64) -> f64 {
        self.difference(what) / self.requested()
    }
}
