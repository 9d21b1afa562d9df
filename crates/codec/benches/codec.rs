//! The codecs beside liblz4 called once per cluster, and beside plain bisection, on real files: one
//! table, one run.
//!
//! `cargo bench -p ferofs-codec --features liblz4-encode -- [--only NAME] [--mib N] [FILE]...`; without files: binaries,
//! documentation and kernel source of this machine. Times are the thread's CPU time, the least of
//! the turns, ours and theirs by turns.
#![allow(unsafe_code, missing_docs, clippy::expect_used, clippy::type_complexity)]

use std::ffi::{c_char, c_int};
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};

// Only links the library, whose decoder is declared below.
use lz4_sys as _;

use ferofs_codec::{Algorithm, Compressor, Decoder, Fit, LIBLZ4, Params, Portion, compressor};
use rustix::time::{ClockId, clock_gettime};
use zstd_safe::CParameter;

const BLOCK: usize = 4096;
const WINDOW: usize = 1 << 20;
const TURNS: usize = 3;

unsafe extern "C" {
    fn LZ4_decompress_safe(
        src: *const c_char,
        dst: *mut c_char,
        len: c_int,
        capacity: c_int,
    ) -> c_int;
}

/// Encodes one cluster: input taken and bytes made, or `None` if it does not pay.
type Cluster<'a> = dyn FnMut(&[u8], usize, &mut [u8]) -> Option<(usize, usize)> + 'a;

/// The measurement of one pass over a file.
#[derive(Clone, Copy, Default)]
struct Pass {
    seconds: f64,
    /// Bytes in whole blocks, as an image stores them.
    bytes: usize,
    clusters: usize,
    /// Clusters that Linux decodes in place.
    in_linux: usize,
}

fn now() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn pass(src: &[u8], size: usize, encode: &mut Cluster<'_>) -> Pass {
    let (mut out, mut dst, mut pos) = (Pass::default(), vec![0; size], 0);
    let start = now();
    while pos < src.len() {
        match encode(src, pos, &mut dst) {
            Some((consumed, produced)) => {
                out.in_linux += usize::from(linux_decodes_in_place(pos, consumed, produced));
                pos += consumed;
                out.bytes += produced.next_multiple_of(BLOCK);
                out.clusters += 1;
            }
            None => {
                pos += BLOCK;
                out.bytes += BLOCK;
            }
        }
    }
    out.seconds = now() - start;
    out
}

/// Linux's rule (and liblz4's), whatever the content: between the last decoded byte and the end of
/// its page there must be room for what the decoder copies too much.
fn linux_decodes_in_place(pos: usize, consumed: usize, produced: usize) -> bool {
    let end = pos + consumed;
    end.next_multiple_of(BLOCK) - end >= (produced >> 8) + 32
}

fn best(of: &mut Option<Pass>, new: Pass) {
    let seconds = of.map_or(new.seconds, |old| old.seconds.min(new.seconds));
    *of = Some(Pass { seconds, ..new });
}

fn pays(consumed: usize, produced: usize, size: usize, at_end: bool) -> Option<(usize, usize)> {
    (produced > 0 && produced < consumed && (at_end || consumed > size))
        .then_some((consumed, produced))
}

fn liblz4(level: u8) -> impl FnMut(&[u8], usize, &mut [u8]) -> Option<(usize, usize)> {
    let fast = Params::new(Algorithm::Lz4, None).expect("a level that exists");
    let params = Params { level: LIBLZ4 + level, ..fast };
    let mut encoder = compressor(&params).expect("checked parameters");
    move |src, pos, dst| ours(&mut *encoder)(src, pos, dst)
}

/// The longest input that fits, by halving the interval down to a thousandth.
fn bisect(
    mut compress: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> impl FnMut(&[u8], usize, &mut [u8]) -> Option<(usize, usize)> {
    move |src, pos, dst| {
        let rest = &src[pos..src.len().min(pos + WINDOW.max(4 * dst.len()))];
        let (mut low, mut size) = (0, 0);
        let mut most = rest.len().min(dst.len() * 8);
        let mut high = most + 1;
        while high - low > 1 + low / 1000 {
            // The first trial takes the upper end: short input fits at once.
            let len =
                if low == 0 && high > rest.len() { rest.len() } else { low + (high - low) / 2 };
            match compress(&rest[..len], dst) {
                Some(produced) => (low, size) = (len, produced),
                None => high = len,
            }
            // A level that compresses still better deserves a wider interval.
            if high > most && low + low / 1000 >= most && most < rest.len() {
                most = rest.len().min(most * 4);
                high = most + 1;
            }
        }
        pays(low, size, dst.len(), pos + low == src.len())
    }
}

/// Compresses all of the input: the size, or `None` if the output is too small.
type Exact = dyn FnMut(&[u8], &mut [u8]) -> Option<usize>;

fn exact(algorithm: Algorithm, level: u8) -> Box<Exact> {
    match algorithm {
        Algorithm::Deflate => {
            let level =
                libdeflater::CompressionLvl::new(level.into()).expect("a level of libdeflate's");
            let mut c = libdeflater::Compressor::new(level);
            Box::new(move |src, dst| c.deflate_compress(src, dst).ok())
        }
        Algorithm::Zstd => {
            let mut c = zstd_safe::CCtx::create();
            // The largest window that Linux accepts.
            for parameter in [CParameter::CompressionLevel(level.into()), CParameter::WindowLog(20)]
            {
                c.set_parameter(parameter).expect("a level of libzstd's");
            }
            Box::new(move |src, dst| c.compress2(dst, src).ok())
        }
        // Ours would not compress noise, but look at it.
        Algorithm::Lz4 => {
            let mut c = liblz4(level);
            Box::new(move |src, dst| c(src, 0, dst).map(|(_, produced)| produced))
        }
        Algorithm::Lzma => {
            let params = Params::new(algorithm, Some(level)).expect("a level that exists");
            let mut c = compressor(&params).expect("checked parameters");
            Box::new(move |src, dst| match c.fit_exact(src, dst) {
                Ok(Fit::Encoded { produced, .. }) => Some(produced),
                _ => None,
            })
        }
    }
}

fn peer(algorithm: Algorithm, level: u8) -> Box<Cluster<'static>> {
    match algorithm {
        Algorithm::Lz4 => Box::new(liblz4(level)),
        Algorithm::Lzma | Algorithm::Deflate | Algorithm::Zstd => {
            Box::new(bisect(exact(algorithm, level)))
        }
    }
}

fn ours(
    encoder: &mut dyn Compressor,
) -> impl FnMut(&[u8], usize, &mut [u8]) -> Option<(usize, usize)> {
    |src, pos, dst| match encoder.fit(src, pos, dst).expect("a call within the limits") {
        Fit::Encoded { consumed, produced } => Some((consumed, produced)),
        Fit::Incompressible => None,
    }
}

fn row(name: &str, data: &[u8], algorithm: Algorithm, level: u8, size: usize) {
    let params = Params::new(algorithm, Some(level)).expect("a level that exists");
    let mut encoder = compressor(&params).expect("checked parameters");
    let mut peer = peer(algorithm, level);
    let (mut mine, mut theirs) = (None, None);
    for _ in 0..TURNS {
        encoder.begin();
        best(&mut mine, pass(data, size, &mut ours(&mut *encoder)));
        best(&mut theirs, pass(data, size, &mut peer));
    }
    let (mine, theirs) = (mine.unwrap_or_default(), theirs.unwrap_or_default());
    let speed = |p: Pass| data.len() as f64 / 1e6 / p.seconds;
    print!(
        "{name:8} {:8} {level:3} {:5}K {:9.1} {:10} {:9.1} {:10} {:7.2} {:8.4}",
        algorithm.name(),
        size >> 10,
        speed(mine),
        mine.bytes,
        speed(theirs),
        theirs.bytes,
        theirs.seconds / mine.seconds,
        mine.bytes as f64 / theirs.bytes as f64
    );
    if algorithm == Algorithm::Lz4 {
        let share = |n: usize| 100.0 * n as f64 / mine.clusters.max(1) as f64;
        print!("  in place in Linux {:.2} %", share(mine.in_linux));
    }
    if let Some((trials, clusters)) = encoder.trials() {
        print!("  {:.2} trials", trials as f64 / clusters.max(1) as f64);
    }
    println!();
}

/// Decodes all clusters of a pass at level 9, by ours and by liblz4.
fn decoding(name: &str, data: &[u8], size: usize) {
    let params = Params::new(Algorithm::Lz4, Some(9)).expect("a level that exists");
    let mut encoder = compressor(&params).expect("checked parameters");
    let (mut clusters, mut pos) = (Vec::new(), 0);
    while pos < data.len() {
        let mut dst = vec![0; size];
        match encoder.fit(data, pos, &mut dst).expect("a call within the limits") {
            Fit::Encoded { consumed, produced, .. } => {
                dst.truncate(produced);
                clusters.push((dst, consumed));
                pos += consumed;
            }
            Fit::Incompressible => pos += BLOCK,
        }
    }
    let mut out = vec![0; 4 << 20];
    let mut decoder = Decoder::default();
    let (mut mine, mut theirs) = (f64::MAX, f64::MAX);
    for _ in 0..2 * TURNS {
        let start = now();
        for (src, len) in &clusters {
            decoder
                .decode(Algorithm::Lz4, src, &mut out[..*len], Portion::Whole)
                .expect("our own encoding");
        }
        mine = mine.min(now() - start);
        let start = now();
        for (src, len) in &clusters {
            let (from, to) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: the pointers cover the lengths given; `len` is at most the window.
            black_box(unsafe { LZ4_decompress_safe(from, to, src.len() as c_int, *len as c_int) });
        }
        theirs = theirs.min(now() - start);
    }
    let total: usize = clusters.iter().map(|c| c.1).sum();
    let speed = |s: f64| total as f64 / 1e6 / s;
    println!(
        "{name:8} decode lz4 {:5}K {:9.1} MB/s, liblz4 {:9.1} MB/s: {:.3}",
        size >> 10,
        speed(mine),
        speed(theirs),
        theirs / mine
    );
}

/// The time to see that noise will not compress, beside the time to compress it: at least one
/// output's worth.
fn noise(size: usize) {
    let mut state = 1u64;
    let mut step = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let data: Vec<u8> = (0..4 << 20).map(|_| step()).collect();
    for (algorithm, level) in [
        (Algorithm::Lz4, 0),
        (Algorithm::Lz4, 3),
        (Algorithm::Lz4, 9),
        (Algorithm::Lz4, 12),
        (Algorithm::Zstd, 1),
        (Algorithm::Zstd, 3),
        (Algorithm::Zstd, 9),
        (Algorithm::Deflate, 1),
        (Algorithm::Deflate, 6),
        (Algorithm::Lzma, 0),
        (Algorithm::Lzma, 6),
    ] {
        let params = Params::new(algorithm, Some(level)).expect("a level that exists");
        let mut encoder = compressor(&params).expect("checked parameters");
        let mut dst = vec![0; size + 1024];
        let mut once = exact(algorithm, level);
        let (mut look, mut encode) = (f64::MAX, f64::MAX);
        for _ in 0..TURNS {
            let start = now();
            for pos in (0..data.len() - 2 * size).step_by(size) {
                let fit =
                    encoder.fit(&data, pos, &mut dst[..size]).expect("a call within the limits");
                assert_eq!(fit, Fit::Incompressible);
            }
            look = look.min(now() - start);
            let start = now();
            for pos in (0..data.len() - 2 * size).step_by(size) {
                black_box(once(&data[pos..pos + size], &mut dst));
            }
            encode = encode.min(now() - start);
        }
        println!(
            "noise    {:8} {level:3} {:5}K  seen at {:.2} % of the cost of compressing it",
            algorithm.name(),
            size >> 10,
            100.0 * look / encode
        );
    }
}

/// Reads files under `root` that `wanted` accepts, in the order of their names, until `most` bytes
/// are there.
fn gather(root: &str, most: usize, wanted: impl Fn(&Path, usize) -> bool) -> Vec<u8> {
    let (mut dirs, mut data) = (vec![PathBuf::from(root)], Vec::new());
    while let Some(dir) = dirs.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::path);
        for entry in entries {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                dirs.push(entry.path());
            } else if meta.is_file()
                && wanted(&entry.path(), meta.len() as usize)
                && data.len() < most
            {
                data.extend(std::fs::read(entry.path()).unwrap_or_default());
            }
        }
    }
    data.truncate(most);
    data
}

fn defaults(most: usize) -> Vec<(String, Vec<u8>)> {
    let mut sets = vec![
        ("bin".to_owned(), gather("/usr/bin", most, |_, len| len > 100_000)),
        (
            "doc".to_owned(),
            gather("/usr/share/doc", most, |path, _| {
                path.extension().is_none_or(|e| e != "gz" && e != "png")
            }),
        ),
    ];
    let tar = std::fs::read_dir("/usr/src").into_iter().flatten().flatten().map(|e| e.path());
    let tar = tar
        .filter(|p| p.to_string_lossy().contains("linux-source"))
        .find(|p| p.extension().is_some_and(|e| e == "xz"));
    if let Some(tar) = tar {
        let xz = std::process::Command::new("xz")
            .arg("-dc")
            .arg(tar)
            .stdout(std::process::Stdio::piped())
            .spawn();
        if let Ok(mut xz) = xz {
            let mut data = Vec::new();
            if let Some(out) = xz.stdout.take() {
                let _read = out.take(most as u64).read_to_end(&mut data);
            }
            let _ended = (xz.kill(), xz.wait());
            sets.push(("kernel".to_owned(), data));
        }
    }
    sets.retain(|(_, data)| !data.is_empty());
    sets
}

fn main() {
    let (mut files, mut only, mut mib) = (Vec::new(), None, 16);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bench" => {}
            "--only" => only = args.next(),
            "--mib" => mib = args.next().and_then(|n| n.parse().ok()).unwrap_or(mib),
            file => files.push(file.to_owned()),
        }
    }
    let most = mib << 20;
    let sets = match files.is_empty() {
        true => defaults(most),
        false => {
            let read = |f: String| {
                std::fs::read(&f).map(|mut d| (d.truncate(most), d)).map(|(_, d)| (f.clone(), d))
            };
            files.into_iter().filter_map(|f| read(f).ok()).collect()
        }
    };
    if only.as_deref().is_none_or(|o| o == "noise") {
        noise(4 << 10);
        noise(128 << 10);
    }
    println!(
        "data     codec    lvl  output ours MB/s      bytes peer MB/s      bytes   speed     size"
    );
    let wanted = |name: &str| only.as_deref().is_none_or(|o| name.starts_with(o));
    for (name, data) in &sets {
        for size in [4 << 10, 64 << 10, 128 << 10, 1 << 20] {
            for (algorithm, levels) in [
                (Algorithm::Lz4, &[0, 1, 3, 6, 9, 12][..]),
                (Algorithm::Zstd, &[3, 9]),
                (Algorithm::Deflate, &[1, 6]),
                (Algorithm::Lzma, &[6]),
            ] {
                for &level in levels {
                    if wanted(&format!("{}{level}", algorithm.name())) {
                        // The slow ones, bisected, get a part of the data.
                        let part =
                            if algorithm == Algorithm::Lz4 { data.len() } else { data.len() / 4 };
                        row(name, &data[..part], algorithm, level, size);
                    }
                }
            }
            if wanted("decode") {
                decoding(name, data, size);
            }
        }
    }
}
