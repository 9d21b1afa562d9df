//! What fio reads from large files, through mounts: the paper's micro-benchmarks (figures 7 and 8), how speed follows from
//! what compression saves (figure 11), strategies of decoding (5.6), readers side by side, sizes of clusters.

use std::fmt::{self, Display, Formatter};
use std::fs;

use anyhow::{Context, Result};

use super::super::contestant::Way;
use super::super::fio::{Job, Pattern};
use super::super::measure::set_warm;
use super::Bench;
use super::io;
use super::record::{Values, values};
use super::stage::{Content, Entrant, FILE, Form, Stage, entrants, erofs, leading_entrants, wanted};

const MIB: f64 = 1_048_576.0;
/// From so many bytes on, the machine's processor time is told.
const LONG: u64 = 48 << 20;
const GIB: f64 = 1_073_741_824.0;

/// Figures 7 and 8.
pub(super) fn micro(bench: &mut Bench) -> Result<()> {
    let mut cases = Vec::new();
    for subject in bench.stage.subjects() {
        cases.extend(Pattern::ALL.map(|pattern| Content { subject: subject.clone(), pattern }));
    }
    bench.compete("micro", bench.stage.scale.rounds, &cases, &entrants(), |stage, case, entrant| {
        read(
            stage,
            &case.subject,
            entrant,
            Job { pattern: case.pattern, ..whole(stage, &case.subject)? },
            false,
        )
    })
}

/// Figure 11.
pub(super) fn savings(bench: &mut Bench) -> Result<()> {
    let mut cases = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Random] {
        cases.extend(bench.stage.scale.savings.iter().map(|percent| At { pattern, x: *percent }));
    }
    bench.compete("savings", bench.stage.scale.rounds, &cases, &leading_entrants(), |stage, case, entrant| {
        let subject = format!("saves{}", case.x);
        read(stage, &subject, entrant, Job { pattern: case.pattern, ..whole(stage, &subject)? }, false)
    })
}

/// Section 5.6.
pub(super) fn strategies(bench: &mut Bench) -> Result<()> {
    let ways: [(&str, &'static [&'static str]); 8] = [
        ("auto", &["--decode", "auto"]),
        ("paper", &["--decode", "paper"]),
        ("commercial", &["--decode", "commercial"]),
        ("in-place", &["--decode", "in-place"]),
        ("rolling", &["--decode", "rolling"]),
        ("vmap", &["--decode", "vmap"]),
        ("buffer", &["--decode", "buffer"]),
        ("direct", &["--decode", "direct"]),
    ];
    let entrants = ways.map(|(name, options)| Entrant::new(name, &erofs(), Way::Ferofs(options)));
    let cases = Pattern::ALL.map(|pattern| Content { subject: "text".into(), pattern });
    bench.compete("strategies", bench.stage.scale.rounds, &cases, &entrants, |stage, case, entrant| {
        read(
            stage,
            &case.subject,
            entrant,
            Job { pattern: case.pattern, ..whole(stage, &case.subject)? },
            true,
        )
    })
}

/// Readers side by side.
pub(super) fn readers(bench: &mut Bench) -> Result<()> {
    let mut cases = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Random] {
        cases.extend(bench.stage.scale.readers.iter().map(|readers| At { pattern, x: *readers }));
    }
    bench.compete("readers", bench.stage.scale.rounds, &cases, &leading_entrants(), |stage, case, entrant| {
        let job = Job { pattern: case.pattern, readers: case.x, ..whole(stage, "text")? };
        read(stage, "text", entrant, job, true)
    })
}

/// The size of clusters: on size, speed, and how much is read of the device.
pub(super) fn clusters(bench: &mut Bench) -> Result<()> {
    let sizes = [4, 16, 64, 256, 1024];
    let cases = sizes.map(|size| At { pattern: Pattern::Random, x: size });
    let entrants = [("ferofs (FUSE)", Way::Ferofs(&[])), ("EROFS (kernel)", Way::Kernel("erofs"))];
    let entrants = entrants.map(|(name, way)| Entrant::new(name, &erofs(), way));
    bench.compete("clusters", bench.stage.scale.rounds, &cases, &entrants, |stage, case, entrant| {
        let form = Form::Ferofs(format!("-z lz4hc,9 -C {}K", case.x));
        let entrant = Entrant { form, ..entrant.clone() };
        let job = Job { pattern: case.pattern, ..whole(stage, "text")? };
        let mut all = read(stage, "text", &entrant, job, false)?;
        let image = fs::metadata(stage.image("text", &entrant.form)?)?.len();
        all.extend(values([("mib", image as f64 / MIB)]));
        all.extend(io::issued(stage, "text", case.pattern, &entrant)?);
        Ok(all)
    })
}

/// A case at a point of an axis.
struct At {
    pattern: Pattern,
    x: u64,
}

impl Display for At {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} @ {}", self.pattern, self.x)
    }
}

/// One reader of all of a subject, as far as there is time.
fn whole(stage: &Stage, subject: &str) -> Result<Job> {
    let size = stage.size(subject)?;
    Ok(Job { pattern: Pattern::Sequential, size, wanted: size, seconds: stage.scale.seconds, readers: 1 })
}

/// Mounts, reads, and tells the speed, and what it cost in processor time: of all the machine, and of the daemon.
fn read(stage: &Stage, subject: &str, entrant: &Entrant, job: Job, warm: bool) -> Result<Values> {
    wanted(stage.tools.fio.as_deref(), "fio")?;
    let contestant = stage.contestant(subject, entrant)?;
    set_warm(&contestant.image, warm)?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point()?)?;
    let before = busy()?;
    let reading = job.run(&mounted.path().join(FILE))?;
    let gib = reading.bytes as f64 / GIB;
    let mut all = values([("mib_s", reading.mib_per_second())]);
    // In a short run, fio's own start would be all that is seen.
    if reading.bytes >= LONG {
        all.extend(values([("cpu_s_gib", (busy()? - before) / gib)]));
    }
    if let Some(cpu) = mounted.cpu() {
        all.extend(values([("daemon_s_gib", cpu / gib)]));
    }
    Ok(all)
}

/// Seconds that the machine's processors have worked, for whomever.
pub(super) fn busy() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    // user, nice, system, idle, iowait, irq, softirq, steal: in hundredths of a second.
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let work = [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum::<f64>();
    Ok(work / 100.0)
}
