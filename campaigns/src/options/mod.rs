//! Random trees with random options and sequences of commands.
//!
//! `generate` makes a case from a seed: a random tree, and a sequence of commands with random
//! settings. `execute` runs the commands and compares each image with what it must show: the tree,
//! after the effects of the settings (`effect`). `generate::shrink` makes a failing case smaller,
//! and `report` prints and keeps it. `known` lists all options that must occur.

mod effect;
/// Executes the steps of a case, and compares each image with the expected tree.
mod execute {
    pub(crate) mod oracles;
    pub(crate) mod perform;
    pub(crate) mod sources;
    pub(crate) mod workspace;
}
/// Generates cases from a seed, and makes a failing case smaller.
pub(crate) mod generate {
    pub(crate) mod case;
    pub(crate) mod sequence;
    pub(crate) mod settings;
    pub(crate) mod shrink;
}
mod known;
mod report;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::ArgPredicate;
use ferofs_tests::need;
use parking_lot::Mutex;

use execute::oracles::Oracles;
use execute::perform::{Tally, perform};
use execute::workspace::{Finding, Stop, Workspace};
use generate::case::Case;
use report::Report;

/// Random trees and random settings, checked through the kernel, FUSE, the library and erofs-utils
///
/// Makes random trees, and images of them by random settings and sequences of commands, and
/// compares each image with its tree. Needs root. Below Linux 6.17, which mounts all of them, FUSE
/// takes the kernel's place. The search makes a failing case small, prints it for --repeat, and
/// keeps its files and a script of its commands under target/fuzz-options.
#[derive(Args)]
pub(crate) struct Plan {
    /// How long; 60 unless --images says when to stop
    #[arg(
        long,
        value_name = "N",
        default_value_if("images", ArgPredicate::IsPresent, None),
        default_value = "60"
    )]
    pub(crate) seconds: Option<u64>,
    /// Stop after N images, however long it takes
    #[arg(long, value_name = "N")]
    images: Option<u64>,
    /// The same seed gives the same cases
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// Cases at a time; one for each processor if it is not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Run only this case (printed for each failure), with all oracles, and keep its files
    #[arg(long, value_name = "CASE")]
    repeat: Option<Case>,
}

/// Runs the search.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    if !need::root() {
        return Ok(());
    }
    need::many_open_files();
    // The newest feature of the format is the metabox.
    let oracles = Oracles::find(need::kernel_has_erofs() && need::is_linux_since(6, 17));
    if let Some(case) = &plan.repeat {
        return repeat(case, &oracles);
    }
    let search = Search {
        plan,
        oracles: &oracles,
        next: AtomicU64::new(0),
        images: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        start: Instant::now(),
        report: Mutex::default(),
    };
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..crate::jobs(plan.jobs)).map(|_| scope.spawn(|| search.work())).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<()>>| match worker.join() {
            Ok(result) => result,
            Err(_) => bail!("a worker panicked"),
        };
        workers.into_iter().map(join).collect()
    });
    results.into_iter().collect::<Result<Vec<()>>>()?;
    let report = search.report.into_inner();
    let cases = search.next.load(Ordering::Relaxed);
    report.finish(search.images.load(Ordering::Relaxed), cases, search.start.elapsed())
}

fn repeat(case: &Case, oracles: &Oracles) -> Result<()> {
    let mut workspace = Workspace::new()?;
    let result = attempt(case, &mut workspace, oracles, true);
    let kept = report::keep(case, &workspace, result.as_ref().err())?;
    println!("{}", workspace.log.join("\n"));
    println!("kept in {}", kept.display());
    match result {
        Ok(tally) => {
            println!("{case}: {} images, no finding; refused: {:?}", tally.images, tally.refused)
        }
        Err(Stop::Found(finding)) => bail!("{}: {}", finding.oracle, finding.message),
        Err(Stop::Failed(error)) => return Err(error),
    }
    Ok(())
}

fn attempt(
    case: &Case,
    workspace: &mut Workspace,
    oracles: &Oracles,
    all: bool,
) -> Result<Tally, Stop> {
    let script = case.script();
    let steps: Vec<_> = script.steps.into_iter().flatten().collect();
    perform(workspace, oracles, &script.model, &steps, all, case.rng(b"oracles"))
}

/// The state that all workers share.
struct Search<'a> {
    plan: &'a Plan,
    oracles: &'a Oracles,
    next: AtomicU64,
    images: AtomicU64,
    stop: AtomicBool,
    start: Instant,
    report: Mutex<Report>,
}

impl Search<'_> {
    fn done(&self) -> bool {
        let late = self
            .plan
            .seconds
            .is_some_and(|seconds| self.start.elapsed() > Duration::from_secs(seconds));
        let enough =
            self.plan.images.is_some_and(|images| self.images.load(Ordering::Relaxed) >= images);
        late || enough || self.stop.load(Ordering::Relaxed)
    }

    /// Executes cases until the search is done.
    fn work(&self) -> Result<()> {
        let mut workspace = Workspace::new()?;
        while !self.done() {
            let case = Case::new(self.plan.seed, self.next.fetch_add(1, Ordering::Relaxed));
            match attempt(&case, &mut workspace, self.oracles, false) {
                Ok(tally) => {
                    let images =
                        self.images.fetch_add(tally.images, Ordering::Relaxed) + tally.images;
                    self.report.lock().note(&tally, images, self.start.elapsed());
                }
                Err(Stop::Found(finding)) => {
                    // A case that fails before its first image counts as one image; otherwise
                    // `--images` might never end.
                    self.images.fetch_add(1, Ordering::Relaxed);
                    self.found(&case, &finding, &mut workspace)?;
                }
                Err(Stop::Failed(error)) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return Err(error.context(format!("case {case}")));
                }
            }
        }
        Ok(())
    }

    /// Shrinks the first failure of its kind; counts further ones.
    fn found(&self, case: &Case, finding: &Finding, workspace: &mut Workspace) -> Result<()> {
        let key = finding.key();
        if !self.report.lock().is_new(&key, case) {
            return Ok(());
        }
        // If an oracle found it that compares only some images, it must compare each image now.
        let all =
            ["fuse", "library", "erofs-utils", "kernel, from a file"].contains(&finding.oracle);
        let mut last = finding.clone();
        let small = generate::shrink::shrink(case, &mut |case| match attempt(
            case,
            workspace,
            self.oracles,
            all,
        ) {
            Err(Stop::Found(found)) if found.key() == key => {
                last = found;
                true
            }
            _ => false,
        });
        // Executes the small case again, for its files and commands.
        let again = attempt(&small, workspace, self.oracles, all);
        let kept = report::keep(&small, workspace, again.as_ref().err())?;
        self.report.lock().show(case, &small, &last, workspace, &kept, again.is_err());
        Ok(())
    }
}
