//! The strategies of decoding side by side, as in section 5.6 of the EROFS paper: speed, allocations, page faults,
//! copies.

use ferofs::read::{EngineOptions, FileOffset, Image, Inode, Policy, Strategy};

use crate::costs::scattered;
use crate::{MIB, Outcome, PAGE, counting, open};

const ROUNDS: usize = 5;
/// Bytes of the file that are read from front to back.
const FRONT: u64 = 128 << 20;
/// Reads of a page each.
const RANDOM: u64 = 16 << 10;

/// Offsets and lengths of requests on a file of a certain size.
type Load = fn(u64) -> Vec<(u64, u64)>;

pub(crate) fn side_by_side(path: &str) -> Outcome {
    let bytes = std::fs::read(path)?;
    let policies = [
        ("in place", Policy::Always(Strategy::InPlace)),
        ("direct", Policy::Always(Strategy::Direct)),
        ("rolling", Policy::Always(Strategy::Rolling)),
        ("buffer", Policy::Always(Strategy::Buffer)),
        ("vmap", Policy::Always(Strategy::Vmap)),
        ("policy paper", Policy::Paper),
        ("policy commercial", Policy::Commercial),
        ("policy auto", Policy::Auto),
    ];
    let loads: [(&str, Load); 3] = [
        ("sequential, 128 KiB at a time", |size| steps(size.min(FRONT), 128 << 10)),
        ("random, 4 KiB", |size| random(size, PAGE)),
        ("random, 32 KiB", |size| random(size, 8 * PAGE)),
    ];
    for (name, requests) in loads {
        println!("\n{name}: image in memory");
        println!(
            "{:<20}{:>10}{:>12}{:>12}{:>12}{:>12}  clusters by strategy",
            "", "MiB/s", "alloc/read", "faults/MiB", "copied/req", "decoded/req"
        );
        let mut contestants = Vec::new();
        for (name, policy) in policies {
            let mut options = EngineOptions::default();
            options.policy = policy;
            contestants.push((name, open(bytes.clone(), options)?, Best::new()));
        }
        for _ in 0..ROUNDS {
            for (_, (image, inode), best) in &mut contestants {
                best.round(image, inode, &requests(inode.size()))?;
            }
        }
        for (name, (image, _), best) in &contestants {
            best.print(name, image);
        }
    }
    Ok(())
}

/// Offsets and lengths of requests from the start on.
fn steps(size: u64, len: u64) -> Vec<(u64, u64)> {
    (0..size / len).map(|n| (n * len, len)).collect()
}

fn random(size: u64, len: u64) -> Vec<(u64, u64)> {
    (0..RANDOM * PAGE / len).map(|n| (scattered(n) % (size / len) * len, len)).collect()
}

/// The fastest round; the other figures are of the last one.
struct Best {
    seconds: f64,
    requested: f64,
    allocations: f64,
    faults: f64,
}

impl Best {
    const fn new() -> Self {
        Self { seconds: f64::MAX, requested: 0.0, allocations: 0.0, faults: 0.0 }
    }

    fn round(&mut self, image: &Image, inode: &Inode, requests: &[(u64, u64)]) -> Outcome {
        let longest = requests.iter().map(|request| request.1).max().unwrap_or(0);
        let mut buf = vec![0u8; usize::try_from(longest)?];
        buf.fill(1);
        let (faults, allocations, start) =
            (counting::page_faults(), counting::allocations(), counting::cpu_seconds());
        for (offset, len) in requests {
            image.read_at(inode, FileOffset::new(*offset), &mut buf[..usize::try_from(*len)?])?;
        }
        let seconds = counting::cpu_seconds() - start;
        self.allocations = (counting::allocations() - allocations) as f64 / requests.len() as f64;
        self.requested = requests.iter().map(|request| request.1 as f64).sum();
        self.faults = (counting::page_faults() - faults) as f64 / (self.requested / MIB);
        self.seconds = self.seconds.min(seconds);
        Ok(())
    }

    fn print(&self, name: &str, image: &Image) {
        let stats = image.stats();
        let of_requested = |bytes: u64| bytes as f64 / stats.requested_bytes as f64;
        println!(
            "{name:<20}{:>10.0}{:>12.4}{:>12.2}{:>12.3}{:>12.3}  {} in place, {} direct, {} rolling, {} buffer, {} vmap",
            self.requested / MIB / self.seconds,
            self.allocations,
            self.faults,
            of_requested(stats.copied_bytes),
            of_requested(stats.decoded_bytes),
            stats.in_place,
            stats.direct,
            stats.rolling,
            stats.buffered,
            stats.vmap,
        );
    }
}
