//! Compares what Linux does with hostile images, in a virtual machine, with `ferofs check --deep`
//! and with what our reader gives.
//!
//! A finding is an image that `check` calls sound although Linux refuses a part of it, or of which
//! Linux and our reader give different bytes. Crashes and hangs of Linux are counted only, and
//! different bytes of an image in which `check` finds something: Linux confuses clusters that
//! overlap, and cuts names at a NUL.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ferofs::check;
use ferofs::read::OpenOptions;
use ferofs_tests::rng::Rng;

use super::base_images::TestImage;
use super::mutate::BaseImage;
use super::worker::keep_image;
use crate::linux::digest::{Entry, OurReader, entries, total};
use crate::linux::guest::{self, Case};
use crate::linux::machine::{Answer, Kernel, Machine, Processor};

/// The releases of Linux: one of those that distributions have, and the newest.
const RELEASES: [&str; 2] = ["6.18", "newest"];
/// Images for one start of a machine: the answers to them are kept in memory.
const BATCH: u64 = 2500;
/// Entries of a finding that are printed.
const PRINTED: usize = 3;

/// Changes the base images `images` times.
pub(super) fn campaign(
    bases: &[BaseImage],
    seed: u64,
    images: u64,
    work_dir: &Path,
    kept: &Path,
) -> Result<()> {
    let unchanged = bases.iter().map(|base| {
        let image = TestImage::new(Arc::clone(&base.bytes));
        TestImage { device: base.device.clone(), ..image }
    });
    let mut comparison = Comparison::new(&unchanged.collect::<Vec<_>>(), work_dir, kept)?;
    let start = Instant::now();
    for first in (0..images).step_by(BATCH as usize) {
        let numbers = first..images.min(first + BATCH);
        let tests = numbers.map(|number| {
            let mut rng = Rng::new(seed).fork(&number.to_le_bytes());
            let at = rng.below(bases.len() as u64) as usize;
            let (what, image, _) = bases[at].change(&mut rng);
            Test { number, base: at, what: format!("{}: {what}", bases[at].name), image }
        });
        comparison.compare(tests.collect())?;
        let done = images.min(first + BATCH);
        println!("{done} images, {:.1} a second", done as f64 / start.elapsed().as_secs_f64());
    }
    comparison.end()
}

/// Compares the images in `dir` as they are.
pub(super) fn files(dir: &Path, work_dir: &Path, kept: &Path) -> Result<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "erofs" || end == "img"));
    paths.sort();
    let images: Vec<_> = paths
        .iter()
        .map(|path| Ok(TestImage::new(Arc::new(fs::read(path)?))))
        .collect::<Result<_>>()?;
    let mut comparison = Comparison::new(&images, work_dir, kept)?;
    let tests = (0..).zip(paths.iter().zip(images)).map(|(base, (path, image))| Test {
        number: base as u64,
        base,
        what: path.display().to_string(),
        image,
    });
    comparison.compare(tests.collect())?;
    comparison.end()
}

/// An image to compare.
struct Test {
    number: u64,
    base: usize,
    what: String,
    image: TestImage,
}

/// What we do with an image: the rules that it breaks, and all entries of our reader.
struct Ours {
    findings: Vec<String>,
    entries: Vec<Entry>,
}

struct Comparison {
    machines: Vec<Machine>,
    kept: PathBuf,
    counts: BTreeMap<String, u64>,
    findings: u64,
}

impl Comparison {
    fn new(bases: &[TestImage], work_dir: &Path, kept: &Path) -> Result<Self> {
        let images = work_dir.join("machine-images");
        if images.exists() {
            fs::remove_dir_all(&images)?;
        }
        fs::create_dir_all(&images)?;
        for (number, TestImage { base, device, .. }) in bases.iter().enumerate() {
            fs::write(images.join(number.to_string()), &base[..])?;
            if let Some(device) = device {
                fs::write(images.join(format!("{number}.device0")), &device[..])?;
            }
        }
        let machine = |release| {
            let kernel = Kernel::get(release, Processor::Amd64, work_dir).context(release)?;
            Machine::new(&kernel, work_dir, &images).context(release)
        };
        let machines = RELEASES.into_iter().map(machine).collect::<Result<_>>()?;
        Ok(Self { machines, kept: kept.to_owned(), counts: BTreeMap::new(), findings: 0 })
    }

    fn compare(&mut self, tests: Vec<Test>) -> Result<()> {
        let ours: Vec<Ours> = tests.iter().map(|test| ours(&test.image)).collect();
        let case = |(test, ours): (&Test, &Ours)| {
            Case::new(test.number, test.base, total(&ours.entries), &test.image)
        };
        let mut cases: Vec<Case> = tests.iter().zip(&ours).map(case).collect();
        // A machine that stays at one base image need not set up its loop device again.
        cases.sort_by_key(|case| (case.base, case.size));
        let answers = std::thread::scope(|scope| {
            let cases = &cases;
            let running: Vec<_> = self
                .machines
                .iter()
                .map(|machine| scope.spawn(move || machine.read(cases)))
                .collect();
            let joined = running.into_iter().map(|thread| thread.join());
            joined
                .map(|found| found.unwrap_or_else(|_| bail!("a thread panicked")))
                .collect::<Result<Vec<_>>>()
        })?;
        for (number, answers) in answers.iter().enumerate() {
            for (test, ours) in tests.iter().zip(&ours) {
                let Some(answer) = answers.get(&test.number) else { continue };
                self.judge(number, test, ours, answer);
            }
        }
        Ok(())
    }

    fn judge(&mut self, machine: usize, test: &Test, ours: &Ours, answer: &Answer) {
        let release = self.machines[machine].kernel.release.clone();
        let mut count =
            |what: &str| *self.counts.entry(format!("Linux {release}: {what}")).or_default() += 1;
        let line = match answer {
            Answer::Line(line) => line,
            Answer::Crash => {
                println!("Linux {release} crashes: {} ({})", test.number, test.what);
                return count("crashes");
            }
            Answer::Hang => {
                println!("Linux {release} hangs: {} ({})", test.number, test.what);
                return count("hangs");
            }
        };
        let sound = ours.findings.is_empty();
        if line == "ok" {
            return count(if sound { "same, sound" } else { "same, check finds something" });
        }
        let linux: HashMap<String, Result<u64, String>> = line
            .split_whitespace()
            .filter_map(guest::parse_entry)
            .map(|entry| (entry.what, entry.value))
            .collect();
        // An entry that Linux does not have is below a directory that it refused.
        let refused = Err(String::from("not reached"));
        let found: Vec<_> = ours
            .entries
            .iter()
            .map(|entry| (entry, linux.get(&entry.what).unwrap_or(&refused)))
            .filter(|(entry, linux)| {
                entry.value.is_ok() && entry.value.as_ref().ok() != linux.as_ref().ok()
            })
            .collect();
        if !sound {
            let differs = found.iter().any(|(_, linux)| linux.is_ok());
            return count(if differs {
                "other bytes, check finds something"
            } else {
                "refused by one, or by check"
            });
        }
        if found.is_empty() {
            return count("same as far as we read, sound");
        }
        count("findings");
        self.findings += 1;
        let listed: Vec<_> = found
            .iter()
            .take(PRINTED)
            .map(|(entry, linux)| format!("{} {linux:?}", entry.what))
            .collect();
        let (number, what) = (test.number, &test.what);
        println!(
            "finding {release} {number} [{what}]: {}, {} in all",
            listed.join(", "),
            found.len()
        );
        keep_image(&self.kept, test.number, &test.image);
    }

    fn end(self) -> Result<()> {
        for (what, count) in &self.counts {
            println!("{count:8}  {what}");
        }
        match self.findings {
            0 => Ok(()),
            n => bail!("{n} findings; their images are in {}", self.kept.display()),
        }
    }
}

fn ours(image: &TestImage) -> Ours {
    let open = |limit| {
        let mut options = OpenOptions::default();
        options.work_limit = limit;
        image.clone().open(&options)
    };
    let mut options = check::Options::default();
    options.workers = NonZeroUsize::new(1);
    let findings = match open(Some(1)) {
        Ok(opened) => match check::check(&opened, &options) {
            Ok(report) => report
                .findings
                .iter()
                .chain(&report.warnings)
                .map(|found| format!("{}: {}", found.path.display(), found.corruption))
                .collect(),
            Err(error) => vec![error.to_string()],
        },
        Err(error) => vec![error.to_string()],
    };
    let entries = match open(None) {
        Ok(opened) => entries(&OurReader(&opened)),
        Err(error) => vec![Entry { what: String::from("/:s"), value: Err(error.to_string()) }],
    };
    Ours { findings, entries }
}
