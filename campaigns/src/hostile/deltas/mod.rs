//! Proofs for exact deltas, on the command and on the program for devices: mutants of deltas,
//! crafted deltas whose digests are right, and interruptions. Each run gives the right new image or
//! is refused, within the memory that the delta states and a limit on processor time.

mod crafted;
#[cfg(target_arch = "x86_64")]
mod interruptions;
mod mutants;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs::patch::Delta;
use ferofs_tests::run::{device_path, ferofs_path};
use ferofs_tests::{Content, Rng, Run, ferofs, need, scratch_in_memory};
use parking_lot::Mutex;
use tempfile::TempDir;

/// Of this many cases, one is an interruption, one a crafted delta, and the others are mutants.
const KINDS: u64 = 12;
/// Options of `ferofs build` for the images.
const IMAGES: [&str; 8] = [
    "-z lz4",
    "-z lz4,12 -C 64K --verity",
    "-z zstd,9 -C 128K",
    "-z lzma,6 -C 64K",
    "-z deflate,6 -C 64K",
    "-z zstd -E dedupe,fragments",
    "--preset fast -z lz4hc",
    "--chunk-size 4096",
];
/// Limit on the processor time of a run: a constant part, and a part per MB of the new image. They
/// are those of docs/PATCH.md.
const TIME: Duration = Duration::from_secs(6);
const TIME_PER_MB: Duration = Duration::from_secs(2);
/// A run that takes longer hangs.
const HANG: Duration = Duration::from_secs(120);
/// Has the bytes of the new image `out` until it is complete: docs/PATCH.md.
const PART: &str = ".out.part";
/// Bytes of memory that any run may take, before it knows the header: the program, and the header
/// as stored and decoded.
const MEMORY: u64 = 14 << 20;

/// Two images, and the delta from one to the other.
struct Pair {
    options: &'static str,
    dir: PathBuf,
    old: Vec<u8>,
    new: Vec<u8>,
    delta: Vec<u8>,
}

struct Campaign {
    dir: TempDir,
    pairs: Vec<Pair>,
    programs: Vec<Vec<PathBuf>>,
    time: PathBuf,
    seed: u64,
    /// System calls of applying each delta with each program.
    #[cfg(target_arch = "x86_64")]
    calls: Vec<interruptions::Calls>,
}

struct CaseResult {
    name: String,
    outcome: &'static str,
    wrong: Vec<String>,
    /// Thousandths of a second of processor time per MB of the new image, and of the memory that
    /// the delta states.
    used: [u64; 2],
    /// The delta, to keep it.
    delta: Vec<u8>,
}

/// Runs `cases` cases of `seed`, or the case `repeat` alone. Keeps failures in `kept`.
pub(crate) fn run(
    cases: u64,
    seed: u64,
    jobs: usize,
    repeat: Option<u64>,
    kept: &Path,
) -> Result<()> {
    let Some(time) = need::tool("time") else { return Ok(()) };
    let start = Instant::now();
    let campaign = Campaign::new(seed, time)?;
    let numbers = repeat.map_or(0..cases, |case| case..case + 1);
    let queue = Mutex::new(numbers);
    let counts: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let most = Mutex::new([(0, 0); 2]);
    let next = || queue.lock().next();
    let work = || -> Result<()> {
        while let Some(case) = next() {
            let result = campaign.case(case).with_context(|| format!("case {case}"))?;
            let kind = if result.name.starts_with("mutant") { "mutant" } else { &result.name };
            *counts.lock().entry(format!("{kind} {}", result.outcome)).or_default() += 1;
            for (most, used) in most.lock().iter_mut().zip(result.used) {
                *most = (used, case).max(*most);
            }
            for wrong in &result.wrong {
                println!("failure {case} {}: {wrong}", result.name);
                *counts.lock().entry("failures".to_owned()).or_default() += 1;
            }
            if repeat.is_some() || !result.wrong.is_empty() {
                fs::create_dir_all(kept)?;
                fs::write(kept.join(format!("{case}.delta")), &result.delta)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let mut joined = running.into_iter().map(|thread| thread.join());
        joined.try_for_each(|done| done.unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    let counts = counts.into_inner();
    counts.iter().for_each(|(name, count)| println!("{count:7}  {name}"));
    let [(slowest, slow), (largest, large)] = most.into_inner();
    println!("slowest: {slowest} ms of processor time per MB of the new image (case {slow})");
    println!("largest: {largest} thousandths of the memory that the delta states (case {large})");
    println!("{} s", start.elapsed().as_secs());
    match counts.get("failures") {
        None => Ok(()),
        Some(failures) => bail!("{failures} failures; the deltas are in {}", kept.display()),
    }
}

impl Campaign {
    fn new(seed: u64, time: PathBuf) -> Result<Self> {
        let dir = scratch_in_memory();
        let pairs = IMAGES.iter().enumerate();
        let pairs =
            pairs.map(|(number, options)| Pair::new(&dir.path().join(number.to_string()), options));
        let pairs =
            pairs.collect::<Result<Vec<_>>>().context("the images and deltas to start from")?;
        let mut programs = vec![vec![ferofs_path().to_owned(), "delta".into(), "apply".into()]];
        let device = device_path();
        if device.exists() || need::lacks("ferofs-device beside ferofs") {
            programs.push(vec![device, "delta".into()]);
        }
        #[cfg(target_arch = "x86_64")]
        let calls = interruptions::calls(&pairs, &programs, dir.path())?;
        Ok(Self {
            dir,
            pairs,
            programs,
            time,
            seed,
            #[cfg(target_arch = "x86_64")]
            calls,
        })
    }

    fn case(&self, case: u64) -> Result<CaseResult> {
        let mut rng = Rng::new(self.seed).fork(&case.to_le_bytes());
        let number = rng.below(self.pairs.len() as u64) as usize;
        let pair = &self.pairs[number];
        let program = rng.below(self.programs.len() as u64) as usize;
        let (name, delta, new) = match case % KINDS {
            #[cfg(target_arch = "x86_64")]
            0 => return self.interruption(number, program, &mut rng),
            1 => {
                let (name, delta, new) = crafted::craft(pair, &mut rng)?;
                (name, delta, Some(new))
            }
            _ => {
                let other = &self.pairs[rng.below(self.pairs.len() as u64) as usize];
                let (name, delta) = mutants::mutant(pair, other, &mut rng)?;
                (name, delta, None)
            }
        };
        let dir = TempDir::new_in(self.dir.path())?;
        fs::write(dir.path().join("delta"), &delta)?;
        self.apply(
            pair,
            &self.programs[program],
            dir.path(),
            name,
            delta,
            new.as_ref().unwrap_or(&pair.new),
        )
    }

    /// Applies `delta`, of which `new` comes out, or nothing.
    fn apply(
        &self,
        pair: &Pair,
        program: &[PathBuf],
        dir: &Path,
        name: String,
        delta: Vec<u8>,
        new: &[u8],
    ) -> Result<CaseResult> {
        let [out, peak] = ["out", "peak"].map(|name| dir.join(name));
        let run = Run::limited(&self.time, None, HANG)
            .args(["-q", "-f", "%M", "-o"])
            .arg(&peak)
            .args(program);
        let ended = run.args([&pair.dir.join("old"), &dir.join("delta"), &out]).try_run()?;
        let written = fs::read(&out).or_else(|_| fs::read(dir.join(PART))).unwrap_or_default();
        let mut wrong = Vec::new();
        let outcome = match ended.code {
            0 if written == new => "right",
            0 => {
                wrong.push("it succeeds with other bytes".to_owned());
                "wrong"
            }
            1 if is_clean(&ended.stderr) => "refused",
            code => {
                wrong.push(format!("exit code {code}: {}", ended.stderr.trim()));
                "wrong"
            }
        };
        // Each MiB is compared before it is written, with the digests in the header: crafted ones
        // and most mutants have the right ones.
        if name.starts_with("crafted") && !new.starts_with(&written) {
            wrong.push("wrong bytes are written".to_owned());
        }
        let header = Delta::read(&delta[..]).ok().map(|delta| delta.header().clone());
        let digests = header.as_ref().map_or(0, |header| header.chunks.as_flattened().len() as u64);
        let least = MEMORY + 4 * digests + delta.len() as u64;
        let stated = header.as_ref().map_or(0, |header| header.memory).max(least);
        let peak = fs::read_to_string(&peak)?.trim().parse::<u64>().unwrap_or(u64::MAX >> 10) << 10;
        if peak > stated {
            wrong.push(format!("it takes {peak} bytes of memory, and states {stated}"));
        }
        // Mutants may claim another size.
        let megabytes =
            header.map_or(0, |header| header.new_size).min(new.len() as u64) as f64 / 1e6;
        if ended.cpu > TIME + TIME_PER_MB.mul_f64(megabytes) {
            wrong.push(format!("it takes {:?} of processor time for {megabytes} MB", ended.cpu));
        }
        let slow = (ended.cpu.as_millis() as f64 / megabytes.max(1.0)) as u64;
        Ok(CaseResult { name, outcome, wrong, used: [slow, peak * 1000 / stated.max(1)], delta })
    }
}

/// Whether a message is that of a refusal.
fn is_clean(stderr: &str) -> bool {
    stderr.starts_with("ferofs")
        && !["panicked", "internal error"].iter().any(|word| stderr.contains(word))
}

impl Pair {
    fn new(dir: &Path, options: &'static str) -> Result<Self> {
        let source = dir.join("source");
        fs::create_dir_all(&source)?;
        let mut bytes = Content::Mixed.bytes(1_500_000, &mut Rng::new(1));
        for name in ["old", "new"] {
            fs::write(source.join("file"), &bytes)?;
            let run = ferofs!("build -q -T 1700000000").args(options.split(' '));
            run.args([&source, &dir.join(name)]).success();
            (0..bytes.len()).step_by(300_000).for_each(|at| bytes[at] ^= 0x55);
            for number in 0..30 {
                let text = Content::Text.bytes(100 + 2500 * number, &mut Rng::new(number as u64));
                fs::write(source.join(format!("text{number}")), text)?;
            }
            fs::write(source.join("new"), Content::Text.bytes(1_200_000, &mut Rng::new(77)))?;
        }
        let [old, new, delta] = ["old", "new", "delta"].map(|name| dir.join(name));
        ferofs!("delta create -q --level 3 -o", &delta, &old, &new).success();
        let (old, new, delta) = (fs::read(old)?, fs::read(new)?, fs::read(delta)?);
        Ok(Self { options, dir: dir.to_owned(), old, new, delta })
    }
}
