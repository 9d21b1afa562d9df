//! Memory: what reading leaves behind (the paper's figure 10), and how long reads take where it is short.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::contestant::Way;
use super::super::fio::{Job, Pattern, finish};
use super::super::measure::set_warm;
use super::Bench;
use super::machine::free;
use super::record::{Values, values};
use super::stage::{Content, Entrant, FILE, Stage, entrants, erofs, leading_entrants, wanted};
use crate::group::Group;

const MIB: f64 = 1_048_576.0;
/// How often the daemon's memory is looked at.
const PEEK: Duration = Duration::from_millis(20);
/// What readers, daemon and page cache may use together where memory is short.
const SHORT: u64 = 32 << 20;

/// Figure 10.
pub(super) fn memory(bench: &mut Bench) -> Result<()> {
    let cases =
        [Pattern::Sequential, Pattern::Random].map(|pattern| Content { subject: "text".into(), pattern });
    bench.compete("memory", bench.stage.scale.rounds, &cases, &entrants(), held)
}

fn held(stage: &Stage, case: &Content, entrant: &Entrant) -> Result<Values> {
    wanted(stage.tools.fio.as_deref(), "fio")?;
    let contestant = stage.contestant(&case.subject, entrant)?;
    set_warm(&contestant.image, false)?;
    let group = Group::new(None)?;
    let before = free()?;
    let mounted = contestant.mount_in(&stage.daemons, &stage.mount_point()?, Some(&group))?;
    let file = mounted.path().join(FILE);
    let size = stage.size(&case.subject)?;
    // A quarter, so that all but the slowest read it in the time that there is.
    let job = Job {
        pattern: case.pattern,
        size: size / 4,
        wanted: size / 4,
        seconds: 4 * stage.scale.seconds,
        readers: 1,
    };
    let mut fio = group.enter(&job.command(&file));
    let mut running = fio.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("fio")?;
    let mut private = 0;
    let status = loop {
        private = private.max(mounted.private_dirty().unwrap_or(0));
        if let Some(status) = running.try_wait()? {
            break status;
        }
        thread::sleep(PEEK);
    };
    if !status.success() {
        bail!("fio: {status}");
    }
    let mut all = values([
        ("charged_mib", group.held()? as f64 / MIB),
        ("gone_mib", before.saturating_sub(free()?) as f64 / MIB),
    ]);
    if contestant.way.is_daemon() {
        all.extend(values([("private_mib", private as f64 / MIB)]));
    }
    drop(mounted);
    Ok(all)
}

/// The tail of latencies, with memory enough and with little.
pub(super) fn tails(bench: &mut Bench) -> Result<()> {
    let mut all = leading_entrants();
    all.insert(1, Entrant::new("ferofs --low-memory", &erofs(), Way::Ferofs(&["--low-memory"])));
    all.insert(2, Entrant::new("ferofs --memory-limit 2M", &erofs(), Way::Ferofs(&["--memory-limit", "2M"])));
    bench.compete("tails", bench.stage.scale.rounds, &["enough", "32 MiB"], &all, |stage, case, entrant| {
        wanted(stage.tools.fio.as_deref(), "fio")?;
        let contestant = stage.contestant("text", entrant)?;
        set_warm(&contestant.image, false)?;
        let group = Group::new((*case != "enough").then_some(SHORT))?;
        let mounted = contestant.mount_in(&stage.daemons, &stage.mount_point()?, Some(&group))?;
        let size = stage.size("text")?;
        let seconds = stage.scale.seconds;
        let job = Job { pattern: Pattern::Random, size, wanted: size, seconds, readers: 2 };
        let reading = finish(&mut group.enter(&job.command(&mounted.path().join(FILE))))?;
        drop(mounted);
        let [middle, late, latest] = reading.latency;
        Ok(values([
            ("p50_us", middle),
            ("p99_us", late),
            ("max_us", latest),
            ("mib_s", reading.mib_per_second()),
        ]))
    })
}
