//! What reading costs: I/O, decoded bytes, memory, allocations, and time against liblz4 alone.
//!
//! `cargo bench -p ferofs --bench read -- IMAGE [TREE]`: IMAGE has one large file, `file`; every file of TREE is read
//! in directory order. `cargo xtask bench read` makes IMAGE.
#![allow(unsafe_code, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ferofs::read::{
    EngineOptions, ExtentData, FileOffset, FileSource, FileType, Image, Inode, Location, Nid, OpenOptions,
    Source, Stats, Strategy,
};
use ferofs_codec::{Decoder, Extent};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: f64 = 1_048_576.0;
const PAGE: u64 = 4096;
const AMOUNT: u64 = 16 << 20;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let Some(path) = args.first() else {
        // `cargo test --benches` and `cargo bench` without an image have nothing to measure.
        println!("skipped: no image was named");
        return Ok(());
    };
    println!(
        "{:<34}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>11}",
        "", "MiB", "io/req", "meta/req", "dec/req", "in place", "held KiB", "alloc/read"
    );
    let random = |n: u64, pages: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % pages * PAGE;
    reads("random 4 KiB", path, false, PAGE, |size| {
        (0..AMOUNT / PAGE).map(|n| random(n, size / PAGE)).collect()
    })?;
    reads("one 4 KiB in 128 KiB", path, false, PAGE, |size| {
        (0..AMOUNT / PAGE).map(|n| n * (128 << 10)).filter(|at| at + PAGE <= size).collect()
    })?;
    for (name, low_memory, len) in [
        ("sequential, 4 KiB", false, PAGE),
        ("sequential, 128 KiB", false, 128 << 10),
        ("sequential, 1 MiB", false, 1 << 20),
        ("sequential, 128 KiB, low memory", true, 128 << 10),
        ("sequential, 1 MiB, low memory", true, 1 << 20),
    ] {
        reads(name, path, low_memory, len, |size| (0..size / len).map(|n| n * len).collect())?;
    }
    speeds(path)?;
    args.get(1).map_or(Ok(()), |tree| read_tree(tree))
}

fn open(source: impl Source + 'static, engine: EngineOptions) -> Outcome<(Image, Inode)> {
    let options = OpenOptions { engine, ..OpenOptions::default() };
    let image = Image::open_with(Box::new(source), Vec::new(), &options)?;
    let inode = image.resolve("file".as_ref(), true)?;
    Ok((image, inode))
}

/// Prints what reads of `len` bytes at the given offsets cost.
fn reads(name: &str, path: &str, low_memory: bool, len: u64, offsets: impl Fn(u64) -> Vec<u64>) -> Outcome {
    let (image, inode) =
        open(FileSource::open(path, 0)?, EngineOptions { low_memory, ..EngineOptions::default() })?;
    let offsets = offsets(inode.size());
    let mut buf = vec![0; usize::try_from(len)?];
    let before = image.stats();
    // The first eighth warms up.
    let mut allocations = 0;
    for (number, offset) in offsets.iter().enumerate() {
        if number == offsets.len() / 8 {
            allocations = ALLOCATIONS.load(Relaxed);
        }
        image.read_at(&inode, FileOffset::new(*offset), &mut buf)?;
    }
    let warm = offsets.len() - offsets.len() / 8;
    let allocations = (ALLOCATIONS.load(Relaxed) - allocations) as f64 / warm as f64;
    let after = image.stats();
    let requested = (after.requested_bytes - before.requested_bytes) as f64;
    let data = |s: &Stats| s.io().bytes - s.metadata.bytes;
    println!(
        "{name:<34}{:>9.1}{:>9.3}{:>9.3}{:>9.3}{:>8.1}%{:>10}{allocations:>11.4}",
        requested / MIB,
        (data(&after) - data(&before)) as f64 / requested,
        (after.metadata.bytes - before.metadata.bytes) as f64 / requested,
        (after.decoded_bytes - before.decoded_bytes) as f64 / requested,
        100.0 * (after.in_place - before.in_place) as f64
            / (after.clusters() - before.clusters()).max(1) as f64,
        after.held_peak >> 10,
    );
    Ok(())
}

/// A cluster of the file: where it is in the image, and how long encoded and decoded.
type Cluster = (usize, usize, usize);

/// Reads of the image in memory against liblz4 on the same clusters, in turns; the best of five rounds.
fn speeds(path: &str) -> Outcome {
    let bytes = std::fs::read(path)?;
    let with = |strategy| EngineOptions { strategy, ..EngineOptions::default() };
    let (image, inode) = open(bytes.clone(), with(Strategy::InPlace))?;
    let (direct, _) = open(bytes.clone(), with(Strategy::Direct))?;
    let (buffer, _) = open(bytes.clone(), with(Strategy::Buffer))?;
    let (file, _) = open(FileSource::open(path, 0)?, with(Strategy::InPlace))?;
    let images = [&image, &direct, &buffer, &file];
    let mut clusters = Vec::new();
    for extent in image.extents(&inode, FileOffset::new(0))? {
        let extent = extent?;
        if let ExtentData::Encoded { at: Location::Device(_, pos), encoded_len, .. } = extent.data {
            let place = usize::try_from(pos.get())?;
            clusters.push((place, usize::try_from(encoded_len)?, usize::try_from(extent.len)?));
        }
    }
    let decoded: usize = clusters.iter().map(|cluster| cluster.2).sum();
    println!("\n{:<34}{:>14}{:>14}", "MiB/s of content", "1 thread", "2 threads");
    let mut best = [[0f64; 2]; 5];
    for _ in 0..5 {
        for threads in [1, 2] {
            let mut note = |row: usize, size: f64, seconds: f64| {
                best[row][threads - 1] = best[row][threads - 1].max(size / MIB / seconds);
            };
            let lz4 = timed(threads, |part| decode_all(&bytes, share(&clusters, part, threads)))?;
            note(0, decoded as f64, lz4);
            for (number, image) in images.iter().enumerate() {
                let seconds = timed(threads, |part| read_all(image, &inode, part, threads))?;
                note(number + 1, inode.size() as f64, seconds);
            }
        }
    }
    let names = [
        "liblz4 alone, in memory",
        "image in memory, in place",
        "image in memory, direct",
        "image in memory, buffer",
        "image in a cached file, in place",
    ];
    for (name, [one, two]) in names.iter().zip(best) {
        println!("{name:<34}{one:>14.0}{two:>14.0}");
    }
    println!("{:<34}{:>14.3}{:>14.3}", "in place / liblz4", best[1][0] / best[0][0], best[1][1] / best[0][1]);
    Ok(())
}

fn share(clusters: &[Cluster], part: usize, parts: usize) -> &[Cluster] {
    &clusters[clusters.len() * part / parts..clusters.len() * (part + 1) / parts]
}

/// Seconds that the slowest of `threads` takes.
fn timed(threads: usize, work: impl Fn(usize) -> Result<(), String> + Sync) -> Outcome<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|part| scope.spawn(move || work(part))).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Decodes every cluster into the next place of a window of 1 MiB, as a reader of 1 MiB at a time would.
fn decode_all(bytes: &[u8], clusters: &[Cluster]) -> Result<(), String> {
    let mut decoder = Decoder::new();
    let mut window = vec![0; 1 << 20];
    let mut at = 0;
    for &(pos, encoded_len, len) in clusters {
        if at + len > window.len() {
            at = 0;
        }
        let (src, dst) = (&bytes[pos..pos + encoded_len], &mut window[at..at + len]);
        decoder.decode(ferofs_codec::Algorithm::Lz4, src, dst, Extent::Whole).map_err(|e| e.to_string())?;
        at += len;
    }
    Ok(())
}

fn read_all(image: &Image, inode: &Inode, part: usize, parts: usize) -> Result<(), String> {
    let mut buf = vec![0; 1 << 20];
    let (part, parts) = (part as u64, parts as u64);
    let mut offset = inode.size() * part / parts;
    let end = inode.size() * (part + 1) / parts;
    while offset < end {
        let read = image.read_at(inode, FileOffset::new(offset), &mut buf).map_err(|e| e.to_string())?;
        offset += read as u64;
    }
    Ok(())
}

/// Reads every file of an image in directory order.
fn read_tree(path: &str) -> Outcome {
    let image = Image::open(FileSource::open(path, 0)?)?;
    let packed = image.superblock().packed.map(|nid| image.inode(nid)).transpose()?;
    let packed_size = packed.map_or(0, |inode| inode.size());
    let start = Instant::now();
    let mut files = 0u64;
    let mut buf = vec![0; 1 << 20];
    let mut dirs: Vec<Nid> = vec![image.root()?.nid()];
    while let Some(nid) = dirs.pop() {
        let dir = image.inode(nid)?;
        let mut below = Vec::new();
        for entry in image.read_dir(&dir)? {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let inode = image.inode(entry.nid)?;
            match inode.file_type() {
                FileType::Directory => below.push(entry.nid),
                FileType::Regular => {
                    files += 1;
                    let mut offset = 0;
                    while offset < inode.size() {
                        offset += image.read_at(&inode, FileOffset::new(offset), &mut buf)? as u64;
                    }
                }
                _ => {}
            }
        }
        dirs.extend(below.into_iter().rev());
    }
    let stats = image.stats();
    println!("\n{files} files in directory order in {:.2?}", start.elapsed());
    println!("packed content: {:.1} MiB", packed_size as f64 / MIB);
    println!("decoded / packed: {:.3}", stats.decoded_bytes as f64 / (packed_size as f64).max(1.0));
    println!(
        "data held at the peak: {:.1} MiB; cluster hits: {}",
        stats.held_peak as f64 / MIB,
        stats.cluster_hits
    );
    Ok(())
}
