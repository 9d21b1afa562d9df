//! Runs the operations of the library on a hostile image, one after the other, and checks the
//! limits on CPU time and memory.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ferofs::Error;
use ferofs::check;
use ferofs::diff::{self, Side};
use ferofs::extract;
use ferofs::inspect;
use ferofs::read::{Cancel, FileOffset, Image, OpenOptions};
use ferofs_tests::rng::Rng;
use rustix::time::{ClockId, clock_gettime};

use super::base_images::TestImage;
use super::content::read_content;
use super::memory;

/// The limit on the CPU time of each operation, in microseconds: a constant part, and a part per MB
/// of the image.
pub(crate) const TIME: u64 = 10_000_000;
pub(crate) const TIME_PER_MB: u64 = 1_000_000;
/// The limit on the memory of each operation, in bytes, in addition to the size of the image.
pub(crate) const MEMORY: usize = 128 << 20;
/// Bytes of an archive after which the output stops: its length depends on the declared sizes, not
/// on the image.
const ARCHIVE: u64 = 24 << 20;

/// CPU time in microseconds after which the operations on most images are cancelled, and the time
/// until they must have ended. An image of a kilobyte can need the whole limit, which is too long
/// for a million images.
pub(crate) const CANCEL_AFTER: u64 = 200_000;
const CANCEL_TIME: u64 = 500_000;

/// The result of all operations on an image.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Rules that `check` or opening report.
    pub(crate) reported: Vec<String>,
    /// Whether an operation was cancelled.
    pub(crate) cancelled: bool,
    /// Whether `check` decoded the content, too.
    pub(crate) deep: bool,
    /// The operations that exceeded a limit, or panicked.
    pub(crate) failures: Vec<String>,
    /// The content, for images that open.
    pub(crate) content: Option<super::content::Content>,
    /// CPU microseconds of the slowest operation, and bytes of the largest.
    pub(crate) slowest: u64,
    pub(crate) largest: usize,
}

/// CPU time of this process, in microseconds.
pub(crate) fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Runs every operation of the library over `image`. `before` gets the name of each, for the
/// watchdog.
///
/// With `cancel`, another thread cancels an operation that has lasted for [`CANCEL_AFTER`].
pub(crate) fn run_operations(
    image: &TestImage,
    rng: &mut Rng,
    cancel: Option<&Cancel>,
    before: &dyn Fn(&'static str),
) -> Outcome {
    let mut test = ImageTest { image, cancel, before, outcome: Outcome::default() };
    let open = || open(image.clone(), cancel);
    let Some(opened) = test.run("open", open) else { return test.outcome };
    let opened = match opened {
        Ok(opened) => opened,
        Err(rule) => {
            test.outcome.reported.push(format!("open: {rule}"));
            return test.outcome;
        }
    };
    let mut opened = Some(opened);
    // Each operation has a budget of its own, as each command has.
    let mut fresh = move || opened.take().or_else(|| open().ok());
    let deep = rng.below(2) == 0;
    test.outcome.deep = deep;
    if let Some(opened) = fresh() {
        let rules = test.run(if deep { "check --deep" } else { "check" }, || rules(&opened, deep));
        test.outcome.reported = rules.unwrap_or_default();
    }
    if let Some(opened) = fresh() {
        test.outcome.content = test.run("read", || read_content(&opened));
    }
    // The other operations read the same tree: each image runs some of them.
    let once = |of: u64, rng: &mut Rng| rng.below(of) == 0;
    if once(2, rng)
        && let Some(opened) = fresh()
    {
        test.run("inspect", || drop(inspect::inspect(&opened, &inspect::Options::default())));
    }
    if once(4, rng) {
        test.run("diff", || compare(open(), open()));
    }
    if once(4, rng)
        && let Some(opened) = fresh()
    {
        test.run("tar", || archive(&opened));
    }
    if once(2, rng)
        && let Some(opened) = fresh()
    {
        let mut reads = rng.fork(b"reads");
        test.run("random reads", || random_reads(&opened, &mut reads));
    }
    test.outcome
}

struct ImageTest<'a> {
    image: &'a TestImage,
    cancel: Option<&'a Cancel>,
    before: &'a dyn Fn(&'static str),
    outcome: Outcome,
}

impl ImageTest<'_> {
    fn run<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> Option<T> {
        if let Some(cancel) = self.cancel {
            Arc::<AtomicBool>::from(cancel.clone()).store(false, Relaxed);
        }
        (self.before)(name);
        let live = memory::reset();
        let start = cpu();
        let done = catch_unwind(AssertUnwindSafe(work));
        let (spent, taken) = (cpu() - start, memory::peak().saturating_sub(live));
        self.outcome.slowest = self.outcome.slowest.max(spent);
        self.outcome.largest = self.outcome.largest.max(taken);
        let stored = self.image.len();
        let cancelled = self.cancel.is_some_and(Cancel::is_cancelled);
        self.outcome.cancelled |= cancelled;
        if cancelled && spent > CANCEL_AFTER + CANCEL_TIME {
            self.outcome.failures.push(format!("cancelled {name} takes {spent} us of CPU"));
        }
        if spent > TIME + TIME_PER_MB * (stored >> 20) as u64 {
            self.outcome.failures.push(format!("slow: {name} takes {spent} us of CPU"));
        }
        if taken > MEMORY + stored {
            self.outcome.failures.push(format!("memory: {name} takes {taken} bytes"));
        }
        if done.is_err() {
            self.outcome.failures.push(format!("panic: {name}"));
        }
        done.ok()
    }
}

/// Opens the image as the commands do: with a limit on the work that it may cause.
fn open(source: TestImage, cancel: Option<&Cancel>) -> Result<Image, String> {
    let mut options = OpenOptions::default();
    (options.work_limit, options.cancel) = (Some(1), cancel.cloned().unwrap_or_default());
    source.open(&options).map_err(|error| match error.corruption() {
        Some(found) => format!("{} / {}", found.structure, found.fault.rule()),
        None => error.to_string(),
    })
}

fn rules(image: &Image, content: bool) -> Vec<String> {
    let mut options = check::Options::default();
    (options.workers, options.content) = (NonZeroUsize::new(1), content);
    let mut rules: Vec<String> = match check::check(image, &options) {
        Ok(report) => {
            let name = |found: &check::Finding| {
                format!("{} / {}", found.corruption.structure, found.corruption.fault.rule())
            };
            report.findings.iter().map(name).collect()
        }
        Err(Error::Interrupted) => Vec::new(),
        Err(Error::Limit { what, .. }) => vec![format!("check: {what}")],
        Err(error) => vec![format!("check: {error}")],
    };
    rules.sort_unstable();
    rules.dedup();
    rules
}

fn compare(one: Result<Image, String>, other: Result<Image, String>) {
    let (Ok(one), Ok(other)) = (one, other) else { return };
    let (one, other) = (Side::Image(Box::new(one)), Side::Image(Box::new(other)));
    // Damage is an event or an error, which is right: the limits are checked elsewhere.
    let _ = diff::diff(&one, &other, &diff::Options::default(), |_| ControlFlow::Continue(()));
}

fn archive(image: &Image) {
    let Ok(root) = image.root() else { return };
    let mut options = extract::Options::default();
    options.workers = NonZeroUsize::new(1);
    let sink = Sink { left: ARCHIVE };
    // As above.
    let _ = extract::write_tar(image, &root, Path::new("root"), sink, &options, &|_, _| {});
}

/// Takes some bytes, and then fails.
struct Sink {
    left: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads at random offsets, and lists some extents from there, as a mount's readers do.
fn random_reads(image: &Image, rng: &mut Rng) {
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..8 {
        let nid = ferofs::read::Nid::new(rng.below(300));
        let Ok(inode) = image.inode(nid) else { continue };
        let offset = FileOffset::new(match rng.below(3) {
            0 => rng.below(1 << 20),
            1 => inode.size().saturating_sub(1 + rng.below(9000)),
            _ => rng.below(inode.size().max(1)),
        });
        let len = [1, 4096, buffer.len()][rng.below(3) as usize];
        // As above.
        let _ = image.read_at(&inode, offset, &mut buffer[..len]);
        if let Ok(extents) = image.extents(&inode, offset) {
            let _ = extents.take(200).filter_map(Result::ok).count();
        }
        let _ = image.lookup(&inode, b"name005");
        let _ = image.xattr(&inode, b"user.key");
    }
}
