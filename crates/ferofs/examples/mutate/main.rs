//! Changes images in one place each, mends the checksum, and looks at what `check` and reading everything make of them.
//!
//! `cargo xtask mutate` makes the images and runs this. Each run must end without a panic, within 2 seconds of CPU time
//! and 64 MiB and four times the image of memory; each damaged image must be reported by `check`, or read the same as before.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod fields;
mod memory;
mod survey;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferofs::check::{self, rule};
use ferofs::read::{Image, OpenOptions, Source};
use ferofs_format::superblock;
use rustix::time::{ClockId, clock_gettime};

use crate::fields::Field;
use crate::survey::{Survey, survey};

const MOST_MICROSECONDS: u64 = 2_000_000;
const MOST_MEMORY: usize = 64 << 20;

/// An image in memory with some bytes replaced.
#[derive(Clone)]
struct Mutant {
    base: Arc<Vec<u8>>,
    patches: Vec<(usize, Vec<u8>)>,
}

impl Source for Mutant {
    fn size(&self) -> u64 {
        self.base.len() as u64
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(pos).unwrap_or(usize::MAX);
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(self.base.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        for (at, bytes) in &self.patches {
            let (from, to) = (start.max(*at), end.min(at + bytes.len()));
            if from < to {
                buf[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
            }
        }
        Ok(())
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A sound image to start from.
struct Subject {
    name: String,
    bytes: Arc<Vec<u8>>,
    fields: Vec<Field>,
    /// Where metadata ends, nearly.
    metadata: usize,
    /// Bytes that the superblock's checksum covers.
    covered: usize,
    sound: Survey,
}

impl Subject {
    fn open(path: &Path) -> Result<Self, String> {
        let bytes = Arc::new(std::fs::read(path).map_err(|e| e.to_string())?);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let image = open(Mutant { base: Arc::clone(&bytes), patches: Vec::new() })?;
        let fields = fields::fields(&image, &bytes);
        let metadata = fields.iter().map(|f| f.at + f.len).max().unwrap_or(0);
        let (covered, sound) = (image.superblock().checksum_len(), survey(&image));
        let findings = check::check(&image, &options()).map_err(|e| e.to_string())?.findings;
        match findings.first() {
            None if !sound.failed => Ok(Self { name, bytes, fields, metadata, covered, sound }),
            finding => Err(format!("{name} is not sound to begin with: {finding:?}")),
        }
    }

    /// One change, and what it is called.
    fn mutate(&self, rng: &mut Rng) -> (&'static str, Mutant) {
        let (name, at, bytes) = match rng.below(10) {
            0 => {
                let at = rng.below(self.bytes.len());
                ("random bytes anywhere", at, self.random(at, rng))
            }
            1 => {
                let at = superblock::OFFSET + rng.below(self.metadata - superblock::OFFSET);
                ("random bytes in metadata", at, self.random(at, rng))
            }
            _ => {
                // Kinds of fields have equal chances, whatever their number.
                let kinds: Vec<_> = self.kinds();
                let kind = kinds[rng.below(kinds.len())];
                let of_kind: Vec<_> = self.fields.iter().filter(|f| f.name == kind).collect();
                let field = *of_kind[rng.below(of_kind.len())];
                let other = *of_kind[rng.below(of_kind.len())];
                (kind, field.at, self.lie(field, other, rng))
            }
        };
        let mut mutant = Mutant { base: Arc::clone(&self.bytes), patches: vec![(at, bytes)] };
        self.mend(&mut mutant);
        (name, mutant)
    }

    fn kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<_> = self.fields.iter().map(|f| f.name).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    fn random(&self, at: usize, rng: &mut Rng) -> Vec<u8> {
        let len = (1 + rng.below(8)).min(self.bytes.len() - at);
        (0..len).map(|_| rng.next() as u8).collect()
    }

    /// Another value for `field`: extreme, a little off, one bit off, random, or that of the `other` field.
    fn lie(&self, field: Field, other: Field, rng: &mut Rng) -> Vec<u8> {
        let value = |f: Field| {
            let mut bytes = [0; 8];
            bytes[..f.len].copy_from_slice(&self.bytes[f.at..][..f.len]);
            u64::from_le_bytes(bytes)
        };
        let old = value(field);
        let new = match rng.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => old.wrapping_add(1 + rng.below(4) as u64),
            3 => old.wrapping_sub(1 + rng.below(4) as u64),
            4 => rng.next(),
            5 => value(other),
            6 => rng.next() >> rng.below(64),
            _ => old ^ 1 << rng.below(field.len * 8),
        };
        new.to_le_bytes()[..field.len].to_vec()
    }

    /// Computes the superblock's checksum anew where the image still says that it has one.
    fn mend(&self, mutant: &mut Mutant) {
        let mut covered = vec![0; self.covered];
        let read = mutant.read_exact_at(superblock::OFFSET as u64, &mut covered);
        if read.is_ok() && covered[8] & 1 != 0 && self.bytes[superblock::OFFSET + 8] & 1 != 0 {
            superblock::write_checksum(&mut covered);
            mutant.patches.push((superblock::OFFSET + 4, covered[4..8].to_vec()));
        }
    }
}

fn options() -> check::Options {
    check::Options { workers: NonZeroUsize::new(1), ..check::Options::default() }
}

fn open(mutant: Mutant) -> Result<Image, String> {
    // Small caches: memory is measured.
    let options = OpenOptions { metadata_cache: 1 << 20, ..OpenOptions::default() };
    Image::open_with(Box::new(mutant), Vec::new(), &options).map_err(|error| match error.corruption() {
        Some(c) => format!("{} / {}", c.structure, rule(&c.fault)),
        None => error.to_string(),
    })
}

/// What became of one mutant.
enum Verdict {
    /// `check` says so, by these rules; or the image does not open.
    Reported(Vec<String>),
    Same,
    /// Another image just as sound: content, a name or an attribute differs.
    OtherValues,
    /// The structure differs and `check` is silent; `true`: and something cannot be read.
    Unnoticed(bool),
}

fn judge(subject: &Subject, mutant: Mutant) -> Verdict {
    let image = match open(mutant) {
        Ok(image) => image,
        Err(kind) => return Verdict::Reported(vec![format!("open: {kind}")]),
    };
    let checked = check::check(&image, &options());
    let read = survey(&image);
    let mut kinds: Vec<String> = match checked {
        Ok(report) => report
            .findings
            .iter()
            .map(|f| format!("{} / {}", f.corruption.structure, rule(&f.corruption.fault)))
            .collect(),
        Err(error) => vec![format!("check: {error}")],
    };
    kinds.sort_unstable();
    kinds.dedup();
    match (kinds.is_empty(), read) {
        (false, _) => Verdict::Reported(kinds),
        (true, read) if read == subject.sound => Verdict::Same,
        (true, read) if !read.failed && read.shape == subject.sound.shape => Verdict::OtherValues,
        (true, read) => Verdict::Unnoticed(read.failed),
    }
}

/// CPU time of this process, in microseconds.
fn cpu() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

/// The run that goes on: since when, and what to write down if it never ends.
static STARTED: AtomicU64 = AtomicU64::new(u64::MAX);
static RUNNING: Mutex<Option<(String, Mutant)>> = Mutex::new(None);
static PANIC: Mutex<String> = Mutex::new(String::new());

fn keep(dir: &Path, name: &str, mutant: &Mutant) {
    let mut bytes = mutant.base.to_vec();
    for (at, new) in &mutant.patches {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    let _ = std::fs::create_dir_all(dir);
    let _ = std::fs::write(dir.join(format!("{name}.erofs")), bytes);
}

/// Ends the process when a run takes more than its time.
fn watch(dir: PathBuf) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(250));
            if cpu().saturating_sub(STARTED.load(Relaxed)) > 2 * MOST_MICROSECONDS {
                if let Some((name, mutant)) = RUNNING.lock().ok().and_then(|mut running| running.take()) {
                    keep(&dir, &name, &mutant);
                    println!("hang {name}");
                }
                std::process::exit(3);
            }
        }
    });
}

#[derive(Default)]
struct Tally {
    runs: u64,
    same: u64,
    other_values: u64,
    reported: u64,
    unnoticed: BTreeMap<String, u64>,
    kinds: BTreeMap<String, u64>,
    failures: u64,
    slowest: u64,
    largest: usize,
}

fn main() -> ExitCode {
    let (mut images, mut seed, mut dir, mut paths) = (1000u64, 1u64, PathBuf::from("mutants"), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--images" => images = args.next().and_then(|n| n.parse().ok()).expect("--images N"),
            "--seed" => seed = args.next().and_then(|n| n.parse().ok()).expect("--seed N"),
            "--keep" => dir = args.next().expect("--keep DIR").into(),
            path => paths.push(PathBuf::from(path)),
        }
    }
    let subjects: Vec<Subject> = match paths.iter().map(|path| Subject::open(path)).collect() {
        Ok(subjects) => subjects,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|info| {
        *PANIC.lock().unwrap() = info.to_string().replace('\n', ": ");
    }));
    watch(dir.clone());
    let mut tally = Tally::default();
    for n in 0..images {
        let subject = &subjects[(n % subjects.len() as u64) as usize];
        let mut rng = Rng(seed << 40 | n);
        let (kind, mutant) = subject.mutate(&mut rng);
        tally.run(subject, kind, mutant, &format!("{}-{seed}-{n}", subject.name), &dir);
    }
    tally.print();
    ExitCode::from(u8::from(tally.failures > 0))
}

impl Tally {
    fn run(&mut self, subject: &Subject, kind: &str, mutant: Mutant, name: &str, dir: &Path) {
        let copy = mutant.clone();
        *RUNNING.lock().unwrap() = Some((name.to_owned(), copy.clone()));
        let before = memory::reset();
        let start = cpu();
        STARTED.store(start, Relaxed);
        let verdict = catch_unwind(AssertUnwindSafe(|| judge(subject, mutant)));
        STARTED.store(u64::MAX, Relaxed);
        let (spent, taken) = (cpu() - start, memory::peak().saturating_sub(before));
        self.runs += 1;
        self.slowest = self.slowest.max(spent);
        self.largest = self.largest.max(taken);
        let mut fail = |what: String| {
            self.failures += 1;
            println!("{what} {name} ({kind})");
            keep(dir, name, &copy);
        };
        if spent > MOST_MICROSECONDS {
            fail(format!("slow: {spent} us"));
        }
        if taken > MOST_MEMORY + 4 * subject.bytes.len() {
            fail(format!("memory: {taken} bytes"));
        }
        match verdict {
            Err(_) => fail(format!("panic: {}", PANIC.lock().unwrap())),
            Ok(Verdict::Same) => self.same += 1,
            Ok(Verdict::OtherValues) => self.other_values += 1,
            Ok(Verdict::Reported(kinds)) => {
                self.reported += 1;
                for kind in kinds {
                    *self.kinds.entry(kind).or_default() += 1;
                }
            }
            Ok(Verdict::Unnoticed(failed)) => {
                let what = if failed { "unreadable" } else { "other shape" };
                let count = self.unnoticed.entry(format!("{what}: {kind}")).or_default();
                *count += 1;
                if *count <= 3 {
                    let (at, new) = &copy.patches[0];
                    let old = &copy.base[*at..*at + new.len()];
                    println!("unnoticed, {what}: {kind} at {at}: {old:02x?} -> {new:02x?} in {name}");
                    keep(dir, name, &copy);
                }
            }
        }
    }

    fn print(&self) {
        println!(
            "runs {} reported {} same {} other-values {} unnoticed {} failures {} kinds {} slowest-us {} most-bytes {}",
            self.runs,
            self.reported,
            self.same,
            self.other_values,
            self.unnoticed.values().sum::<u64>(),
            self.failures,
            self.kinds.len(),
            self.slowest,
            self.largest
        );
        for (kind, count) in &self.kinds {
            println!("kind {count} {kind}");
        }
        for (kind, count) in &self.unnoticed {
            println!("unnoticed {count} {kind}");
        }
    }
}
