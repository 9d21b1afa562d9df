//! Lets each system call of a command fail once, in each way that is possible, and kills the
//! command at each change that it makes. After each failure no incomplete file has a final name,
//! nothing hangs, the exit code is correct, and an image that is updated in place shows the old or
//! the new tree.

mod mount;
mod scenario;
pub(crate) mod syscalls;
pub(crate) mod tracer;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use scenario::{Fixture, SCENARIOS, Scenario};
use syscalls::{CALLS, Fault};
use tracer::{Injection, trace};

/// Failing system calls and kills
#[derive(Args)]
pub(crate) struct FaultArgs {
    /// One scenario of those that are listed when it starts, or `mount`
    #[arg(long, value_name = "SCENARIO")]
    only: Option<String>,
    /// Every Nth failure only
    #[arg(long, value_name = "N", default_value = "1")]
    every: NonZeroUsize,
    /// Commands at a time; one for each processor if it is not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// One failure alone, SCENARIO:CALL:NUMBER:FAULT, as the campaign names it
    #[arg(long, value_name = "CASE")]
    repeat: Option<String>,
}

/// A command that takes longer hangs: on these small trees, even traced, none takes a tenth of
/// this.
const TIMEOUT: Duration = Duration::from_secs(30);

struct Case {
    scenario: &'static Scenario,
    inject: Injection,
    call: &'static str,
}

impl Case {
    fn name(&self) -> String {
        let Self { scenario, inject, call } = self;
        format!("{}:{call}:{}:{}", scenario.name, inject.nth, inject.fault.name())
    }
}

pub(crate) fn run(args: &FaultArgs) -> Result<()> {
    let (only, repeat) = (args.only.as_deref(), args.repeat.as_deref());
    let (jobs, every) = (crate::jobs(args.jobs), args.every.get());
    let start = Instant::now();
    let fixture = Fixture::new().context("the trees and images to start from")?;
    let mut total = Total::default();
    let chosen = only.or(repeat.and_then(|case| case.split(':').next()));
    for scenario in
        SCENARIOS.iter().filter(|scenario| chosen.is_none_or(|name| name == scenario.name))
    {
        let cases = cases(&fixture, scenario)?;
        let all = cases.len();
        let chosen: Vec<_> = cases
            .into_iter()
            .step_by(every)
            .filter(|case| repeat.is_none_or(|name| name == case.name()))
            .collect();
        println!("{}: {} of {all} failures", scenario.name, chosen.len());
        run_cases(&fixture, chosen, jobs, &mut total)?;
    }
    if chosen.is_none_or(|name| name == "mount") {
        mount::run(every, repeat, &mut total)?;
    }
    total.print(start.elapsed())
}

/// Lists all failures of a command, with a run in which nothing fails.
fn cases(fixture: &Fixture, scenario: &'static Scenario) -> Result<Vec<Case>> {
    let attempt = fixture.attempt(scenario)?;
    let stdout = tempfile::NamedTempFile::new()?;
    let traced = trace(scenario.command(&attempt, stdout.path())?, None, TIMEOUT)?;
    if traced.hung || !matches!(traced.status.code(), Some(0 | 1)) {
        bail!("{}: traced, it ends with {}: {}", scenario.name, traced.status, traced.stderr);
    }
    Ok(injections(&traced.calls).map(|(call, inject)| Case { scenario, inject, call }).collect())
}

/// All failures of the counted calls.
fn injections(
    calls: &std::collections::HashMap<i64, u64>,
) -> impl Iterator<Item = (&'static str, Injection)> {
    CALLS.iter().flat_map(|call| {
        let count = calls.get(&call.number).copied().unwrap_or(0);
        (0..count).flat_map(move |nth| {
            let faults = call.faults.iter();
            faults.map(move |&fault| (call.name, Injection { number: call.number, nth, fault }))
        })
    })
}

fn run_cases(fixture: &Fixture, cases: Vec<Case>, jobs: usize, total: &mut Total) -> Result<()> {
    let queue = parking_lot::Mutex::new(cases.into_iter());
    let next = || queue.lock().next();
    let sums: Vec<Result<Total>> = thread::scope(|scope| {
        let running: Vec<_> = (0..jobs)
            .map(|_| {
                scope.spawn(|| {
                    let mut sum = Total::default();
                    while let Some(case) = next() {
                        sum.add(&case.name(), case.inject.fault, run_case(fixture, &case)?);
                    }
                    Ok(sum)
                })
            })
            .collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|sum| sum.unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    for sum in sums {
        total.merge(sum?);
    }
    Ok(())
}

/// Returns the defects; `None` if this run did not reach the call, because threads run in another
/// order each time.
fn run_case(fixture: &Fixture, case: &Case) -> Result<Option<Vec<String>>> {
    let attempt = fixture.attempt(case.scenario)?;
    let stdout = tempfile::NamedTempFile::new()?;
    let command = case.scenario.command(&attempt, stdout.path())?;
    let traced = trace(command, Some(case.inject), TIMEOUT)?;
    let wrong = case.scenario.judge(&attempt, stdout.path(), &traced, case.inject.fault)?;
    if !traced.injected && wrong.is_empty() {
        return Ok(None);
    }
    let said = traced.stderr.lines().next().unwrap_or_default().to_owned();
    Ok(Some(wrong.into_iter().map(|wrong| format!("{wrong} [{said}]")).collect()))
}

/// The counts of a campaign.
#[derive(Default)]
struct Total {
    runs: BTreeMap<&'static str, u64>,
    missed: u64,
    findings: u64,
}

impl Total {
    fn add(&mut self, name: &str, fault: Fault, found: Option<Vec<String>>) {
        match found {
            None => self.missed += 1,
            Some(wrong) => {
                *self.runs.entry(fault.name()).or_default() += 1;
                self.findings += u64::from(!wrong.is_empty());
                for wrong in wrong {
                    println!("finding {name}: {wrong}");
                }
            }
        }
    }

    fn merge(&mut self, other: Self) {
        other
            .runs
            .into_iter()
            .for_each(|(fault, count)| *self.runs.entry(fault).or_default() += count);
        self.missed += other.missed;
        self.findings += other.findings;
    }

    fn print(&self, elapsed: Duration) -> Result<()> {
        let all: u64 = self.runs.values().sum();
        for (fault, count) in &self.runs {
            println!("{count:7}  {fault}");
        }
        println!(
            "{all} failures injected in {} s, {} not reached, {} findings",
            elapsed.as_secs(),
            self.missed,
            self.findings
        );
        match self.findings {
            0 => Ok(()),
            n => bail!("{n} findings"),
        }
    }
}
