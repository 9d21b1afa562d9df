//! Sequential reading against liblz4 on the same clusters in memory: what decoding costs at least.

use std::ffi::c_int;
use std::time::Instant;

use ferofs::read::{EngineOptions, ExtentData, FileOffset, FileSource, Image, Inode, Location};
use lz4_sys::LZ4_decompress_safe;

use crate::{Goal, MIB, Outcome, counting, open, row};

const ROUNDS: usize = 7;
/// The largest request.
const WINDOW: usize = 1 << 20;

/// A cluster of the file: where it is in the image, and how long encoded and decoded.
type Cluster = (usize, usize, usize);

/// Takes turns, so that a change in the machine's mood meets all; the best of each counts.
pub(crate) fn against_liblz4(path: &str) -> Outcome {
    let bytes = std::fs::read(path)?;
    let (memory, inode) = open(bytes.clone(), EngineOptions::default())?;
    let (file, _) = open(FileSource::open(path, 0)?, EngineOptions::default())?;
    let clusters = clusters(&memory, &inode)?;
    let decoded: usize = clusters.iter().map(|cluster| cluster.2).sum();
    let names = [
        "liblz4 alone",
        "image in memory, 1 MiB",
        "image in memory, 128 KiB",
        "cached file, 1 MiB",
        "cached file, 128 KiB",
        "cached file, 128 KiB, by File::read_at",
    ];
    let open_file = file.open_file("file")?;
    // [contestant][threads]: seconds of processor time of the slowest thread, seconds on the clock.
    let mut best = [[(f64::MAX, f64::MAX); 2]; 6];
    for _ in 0..ROUNDS {
        for threads in [1, 2] {
            let mut note = |contestant: usize, (cpu, wall): (f64, f64)| {
                let best = &mut best[contestant][threads - 1];
                *best = (best.0.min(cpu), best.1.min(wall));
            };
            note(0, timed(threads, |part| decode_all(&bytes, share(&clusters, part, threads)))?);
            for (number, (image, len)) in
                [(&memory, WINDOW), (&memory, 128 << 10), (&file, WINDOW), (&file, 128 << 10)]
                    .iter()
                    .enumerate()
            {
                let read = |at, buf: &mut [u8]| {
                    image.read_at(&inode, FileOffset::new(at), buf).map_err(|e| e.to_string())
                };
                let size = inode.size();
                note(number + 1, timed(threads, |part| read_all(read, size, part, threads, *len))?);
            }
            let read = |at, buf: &mut [u8]| open_file.read_at(at, buf).map_err(|e| e.to_string());
            note(5, timed(threads, |part| read_all(read, inode.size(), part, threads, 128 << 10))?);
        }
    }
    // Of the bytes that each gives.
    let size = |contestant: usize| if contestant == 0 { decoded as f64 } else { inode.size() as f64 };
    for threads in [1, 2] {
        for (contestant, name) in names.iter().enumerate() {
            let (cpu, wall) = best[contestant][threads - 1];
            let speed = |seconds| size(contestant) / MIB / seconds;
            row(&format!("{name}, {threads} thread(s): MiB/s of processor time"), speed(cpu), Goal::None);
            row(&format!("{name}, {threads} thread(s): MiB/s on the clock"), speed(wall), Goal::None);
            if contestant == 5 {
                let share = speed(cpu) / speed(best[4][threads - 1].0);
                row(
                    &format!("{name}, {threads} thread(s): share of Image::read_at"),
                    share,
                    Goal::AtLeast(0.98),
                );
            } else if contestant > 0 {
                let share = speed(cpu) / (size(0) / MIB / best[0][threads - 1].0);
                let goal = if *name == names[1] { Goal::AtLeast(0.9) } else { Goal::None };
                row(&format!("{name}, {threads} thread(s): share of liblz4's speed"), share, goal);
            }
        }
    }
    Ok(())
}

fn clusters(image: &Image, inode: &Inode) -> Outcome<Vec<Cluster>> {
    let mut clusters = Vec::new();
    for extent in image.extents(inode, FileOffset::new(0))? {
        let extent = extent?;
        if let ExtentData::Encoded { at: Location::Device(_, pos), encoded_len, .. } = extent.data {
            let place = usize::try_from(pos.get())?;
            clusters.push((place, usize::try_from(encoded_len)?, usize::try_from(extent.len)?));
        }
    }
    Ok(clusters)
}

fn share(clusters: &[Cluster], part: usize, parts: usize) -> &[Cluster] {
    &clusters[clusters.len() * part / parts..clusters.len() * (part + 1) / parts]
}

/// Seconds of processor time that the busiest of `threads` takes, and seconds on the clock.
fn timed(threads: usize, work: impl Fn(usize) -> Result<(), String> + Sync) -> Outcome<(f64, f64)> {
    let start = Instant::now();
    let cpu = std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || {
                    let start = counting::cpu_seconds();
                    work(part).map(|()| counting::cpu_seconds() - start)
                })
            })
            .collect();
        running.into_iter().try_fold(0f64, |most, thread| {
            let seconds = thread.join().map_err(|_| "a thread panicked".to_owned())?;
            seconds.map(|seconds| most.max(seconds))
        })
    })?;
    Ok((cpu, start.elapsed().as_secs_f64()))
}

/// Decodes every cluster into the next place of a window, as a reader of 1 MiB at a time would.
fn decode_all(bytes: &[u8], clusters: &[Cluster]) -> Result<(), String> {
    let mut window = vec![0; WINDOW];
    let mut at = 0;
    for &(pos, encoded_len, len) in clusters {
        if at + len > window.len() {
            at = 0;
        }
        let (src, dst) = (&bytes[pos..pos + encoded_len], &mut window[at..at + len]);
        let src = ferofs_codec::strip_padding(src);
        let (src_len, dst_len) = (c_int::try_from(src.len()), c_int::try_from(dst.len()));
        let (src_len, dst_len) = (src_len.map_err(|e| e.to_string())?, dst_len.map_err(|e| e.to_string())?);
        // SAFETY: the pointers and lengths are those of the two slices.
        let got =
            unsafe { LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len) };
        if got != dst_len {
            return Err(format!("liblz4 returned {got}"));
        }
        at += len;
    }
    Ok(())
}

/// Reads a part of a file of `size` bytes from its start to its end, `len` bytes at a time.
fn read_all(
    read: impl Fn(u64, &mut [u8]) -> Result<usize, String>,
    size: u64,
    part: usize,
    parts: usize,
    len: usize,
) -> Result<(), String> {
    let mut buf = vec![0; len];
    let (part, parts) = (part as u64, parts as u64);
    let mut offset = size * part / parts;
    let end = size * (part + 1) / parts;
    while offset < end {
        offset += read(offset, &mut buf)? as u64;
    }
    Ok(())
}
