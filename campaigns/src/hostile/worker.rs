//! A worker process: makes images from the seed and runs all operations on each. A watchdog ends
//! the process if an operation does not end, and prints its name; the campaign then continues with
//! the next image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use ferofs::read::Cancel;
use ferofs_tests::rng::Rng;
use parking_lot::Mutex;

use super::base_images::TestImage;
use super::commands::Commands;
use super::generate::generate;
use super::mutate::BaseImage;
use super::operations::{self, Outcome, cpu, run_operations};

/// Exit code of a process that its watchdog ended.
pub(crate) const HANG: i32 = 3;

/// The task of a process.
pub(crate) struct Range {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Images `first`, `first + step`, ...
    pub(crate) step: u64,
    /// The commands and the daemon run on one of this many images; 0: never.
    pub(crate) commands: u64,
}

/// The current operation: the CPU time at its start, and its name.
static STARTED: AtomicU64 = AtomicU64::new(u64::MAX);
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    case: u64,
    operation: &'static str,
    image: TestImage,
    cancel: Option<Cancel>,
}

/// The image number `case` of `seed`: a description of it, the image, and the number of its base
/// image if only one field was changed.
pub(crate) fn make(
    base_images: &[BaseImage],
    seed: u64,
    case: u64,
) -> (String, TestImage, Option<usize>, Rng) {
    let mut rng = Rng::new(seed).fork(&case.to_le_bytes());
    // Generated images have more errors; changed valid images pass more of the checks.
    if base_images.is_empty() || rng.below(2) == 0 {
        let (what, image) = generate(&mut rng);
        return (what, image, None, rng);
    }
    let number = rng.below(base_images.len() as u64) as usize;
    let (what, image, single) = base_images[number].change(&mut rng);
    (format!("{}: {what}", base_images[number].name), image, single.then_some(number), rng)
}

/// Tests the images of `range`, and prints findings and counts.
pub(crate) fn work(base_images: &[BaseImage], range: &Range, keep: &Path) -> Result<()> {
    std::panic::set_hook(Box::new(|info| {
        println!("panic-at {}", info.to_string().replace('\n', ": "))
    }));
    watch(keep.to_owned());
    let mut commands = match range.commands {
        0 => None,
        _ => Some(Commands::new().context("the commands")?),
    };
    let mut tally = Tally::default();
    let mut case = range.first;
    while case < range.end {
        let (what, image, single, mut rng) = make(base_images, range.seed, case);
        // One image of eight has no limit but its budget.
        let cancel = (!case.is_multiple_of(8)).then(Cancel::default);
        let before = |operation| {
            *RUNNING.lock() =
                Some(Running { case, operation, image: image.clone(), cancel: cancel.clone() });
            STARTED.store(cpu(), Relaxed);
        };
        let mut outcome = run_operations(&image, &mut rng, cancel.as_ref(), &before);
        STARTED.store(u64::MAX, Relaxed);
        if let Some(commands) = &mut commands
            && (case / range.step).is_multiple_of(range.commands)
        {
            outcome.failures.extend(commands.try_all(&image, &mut rng)?);
        }
        for failure in &outcome.failures {
            println!("failure {case} {failure} ({what})");
            keep_image(keep, case, &image);
        }
        tally.add(case, base_images, &what, single, &outcome);
        case += range.step;
        // The parent learns how far this process came.
        println!("at {case}");
    }
    tally.print();
    Ok(())
}

/// Writes the image number `case` to `dir`. An error does not matter: the image can be made again
/// from its number.
pub(crate) fn keep_image(dir: &Path, case: u64, image: &TestImage) {
    let _ = std::fs::create_dir_all(dir);
    let _ = image.write(&dir.join(format!("{case}.erofs")));
}

/// Cancels operations that may be cancelled, and ends the process when one takes twice its limit.
fn watch(keep: PathBuf) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let spent = cpu().saturating_sub(STARTED.load(Relaxed));
            let running = RUNNING.lock();
            let Some(Running { case, operation, image, cancel }) = &*running else { continue };
            if let Some(cancel) = cancel
                && spent > operations::CANCEL_AFTER
            {
                cancel.cancel();
            }
            let limit = operations::TIME + operations::TIME_PER_MB * (image.len() >> 20) as u64;
            if spent > 2 * limit {
                println!("failure {case} hang: {operation}");
                keep_image(&keep, *case, image);
                println!("at {case}");
                std::process::exit(HANG);
            }
        }
    });
}

#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, u64>,
    rules: BTreeMap<String, u64>,
    slowest: u64,
    largest: usize,
}

impl Tally {
    fn add(
        &mut self,
        case: u64,
        base_images: &[BaseImage],
        what: &str,
        single: Option<usize>,
        outcome: &Outcome,
    ) {
        self.slowest = self.slowest.max(outcome.slowest);
        self.largest = self.largest.max(outcome.largest);
        for rule in &outcome.reported {
            *self.rules.entry(rule.clone()).or_default() += 1;
        }
        let sound = single.map(|number| base_images[number].sound);
        let class = match (&outcome.reported[..], outcome.content, sound) {
            ([_, ..], ..) => "reported",
            (_, Some(read), Some(sound)) if read == sound => "same",
            (_, Some(read), Some(sound)) if !read.failed && read.shape == sound.shape => {
                "other-values"
            }
            (_, Some(read), _) if read.failed && outcome.cancelled => "cancelled",
            // Without `--deep`, damage within compressed content is not seen.
            (_, Some(read), _) if read.failed && !outcome.deep => "unreadable-when-decoded",
            (_, Some(read), _) if read.failed => {
                println!("silent {case} check --deep does not report what cannot be read: {what}");
                "unreadable-unreported"
            }
            (_, _, Some(_)) => "other-shape",
            _ => "sound",
        };
        *self.counts.entry(class).or_default() += 1;
        *self.counts.entry("images").or_default() += 1;
    }

    fn print(&self) {
        for (name, count) in &self.counts {
            println!("count {name} {count}");
        }
        for (rule, count) in &self.rules {
            println!("rule {count} {rule}");
        }
        println!("most slowest-us {}", self.slowest);
        println!("most largest-bytes {}", self.largest);
    }
}
