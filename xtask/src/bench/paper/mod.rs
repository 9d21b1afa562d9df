//! `cargo xtask bench paper [--quick] [--only EXPERIMENT]... [--data PATH]... [--out DIR] [--publish]`: the evaluation of
//! the EROFS paper (Gao et al., USENIX ATC 2019) anew, and a report of it. docs/EVALUATION.md says how each figure is made.
//!
//! [`stage`] makes data and images, the experiments measure and give figures to the [`record`], and the [`report`] is made
//! from nothing but that. What this machine lacks is a figure's outcome like others, and named in its place.

mod boot;
mod build;
mod content;
mod figures;
mod io;
mod machine;
mod memory;
mod programs;
mod record;
mod report;
mod sizes;
mod stage;

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_tests::{need, scratch};

use self::record::{Key, Log, Outcome, Values};
use self::stage::{FULL, QUICK, Stage, Tools};
use super::contestant::{Daemons, Lacks};
use super::measure::turns;
use crate::install::{self, BTRFS, EROFS_UTILS, FIO, FUSE, MKE2FS, MOUNT, SQUASHFS, SQUASHFUSE};
use crate::{peers, shell};

type Experiment = fn(&mut Bench) -> Result<()>;

/// What is measured, in this order: what matters most first.
const EXPERIMENTS: [(&str, Experiment); 12] = [
    ("sizes", sizes::sizes),
    ("micro", content::micro),
    ("io", io::amplification),
    ("boot", boot::boot),
    ("memory", memory::memory),
    ("tails", memory::tails),
    ("savings", content::savings),
    ("strategies", content::strategies),
    ("readers", content::readers),
    ("clusters", content::clusters),
    ("window", sizes::window),
    // The slow builds come last of all.
    ("build", build::build),
];

/// What said of the time's end.
const TIME_UP: &str = "the time was up: run the command again";

/// The stage, the log, and how long it may go on.
pub(crate) struct Bench {
    stage: Stage,
    log: Log,
    deadline: Instant,
}

pub(crate) fn paper(options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    let scale = if options.quick { &QUICK } else { &FULL };
    let room = match &options.out {
        Some(out) => out.clone(),
        None => scratch::target_dir().join("bench-paper").join(scale.name),
    };
    fs::create_dir_all(&room).with_context(|| room.display().to_string())?;
    let room = room.canonicalize()?;
    let raw = room.join("raw.jsonl");
    let log = if options.report {
        Log::parse(&fs::read_to_string(&raw).with_context(|| raw.display().to_string())?)?
    } else {
        prepare();
        let ferofs = match std::env::var_os("FEROFS_BIN") {
            Some(ferofs) => ferofs.into(),
            None => shell::build_ferofs("release")?,
        };
        let peers = peers::installed(&scratch::target_dir()).map(|bin| bin.join("erofsfuse"));
        let erofsfuse = peers.or_else(|| need::find_tool("erofsfuse"));
        let tools = Tools::find();
        let machine = machine::describe(scale, &tools, &room, &options.data);
        let log = Log::open(&raw, machine)?;
        let daemons = Daemons { ferofs, erofsfuse };
        let stage = Stage { room: room.clone(), scale, daemons, tools, given: options.data };
        stage.clear()?;
        machine::touch_memory()?;
        let deadline = Instant::now() + Duration::from_secs(60 * scale.minutes);
        let mut bench = Bench { stage, log, deadline };
        bench.run(&options.only)?;
        bench.log
    };
    report::write(&log, &room)?;
    if options.publish {
        report::publish(&log, &room)?;
    }
    println!("{}", room.join("report.html").display());
    Ok(())
}

/// Installs what is missing; what cannot be is named in its place later.
fn prepare() {
    for tool in [FIO, FUSE, MOUNT, EROFS_UTILS, SQUASHFS, SQUASHFUSE, MKE2FS, BTRFS] {
        if let Err(error) = install::install(&[tool]) {
            eprintln!("{error:#}");
        }
    }
    if super::read::linux_archive().is_err()
        && need::is_root()
        && let Err(error) = install::package("linux-source")
    {
        eprintln!("{error:#}");
    }
    if peers::installed(&scratch::target_dir()).is_none()
        && let Err(error) = peers::peers()
    {
        eprintln!("{error:#}");
    }
}

impl Bench {
    fn run(&mut self, only: &[String]) -> Result<()> {
        for (name, experiment) in EXPERIMENTS {
            if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
                continue;
            }
            let start = Instant::now();
            println!("{}", shell::bold(name));
            if let Err(error) = experiment(self) {
                let key =
                    Key { experiment: name.into(), case: String::new(), contestant: String::new(), round: 0 };
                println!("  {error:#}");
                self.log.add(key, outcome(Err(error)))?;
            }
            println!("{}", shell::dim(&format!("  {name}: {:.0} s", start.elapsed().as_secs_f64())));
        }
        Ok(())
    }

    /// Lets all take turns at each case, for `rounds` rounds, and keeps what comes of it. What was measured before is not
    /// measured again.
    fn compete<C: Display, E: Display>(
        &mut self,
        experiment: &str,
        rounds: usize,
        cases: &[C],
        contestants: &[E],
        measure: impl Fn(&Stage, &C, &E) -> Result<Values>,
    ) -> Result<()> {
        for round in 0..rounds {
            for case in cases {
                for number in turns(contestants.len(), round) {
                    let contestant = &contestants[number];
                    let key = |round| Key {
                        experiment: experiment.to_owned(),
                        case: case.to_string(),
                        contestant: contestant.to_string(),
                        round,
                    };
                    if matches!(self.log.latest(&key(round)), Some(Outcome::Values(_))) {
                        continue;
                    }
                    // What the machine lacks, it lacks in each round.
                    if round > 0 && matches!(self.log.latest(&key(0)), Some(Outcome::LeftOut(_))) {
                        continue;
                    }
                    let result = match Instant::now() < self.deadline {
                        true => measure(&self.stage, case, contestant),
                        false => Err(Lacks(TIME_UP.into()).into()),
                    };
                    let outcome = outcome(result);
                    println!("  {}: {}", key(round), shell::dim(&said(&outcome)));
                    if self.log.latest(&key(round)) != Some(&outcome) {
                        self.log.add(key(round), outcome)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn outcome(result: Result<Values>) -> Outcome {
    match result {
        Ok(values) => Outcome::Values(values),
        Err(error) => match error.downcast_ref::<Lacks>() {
            Some(lacks) => Outcome::LeftOut(lacks.to_string()),
            None => Outcome::Failed(format!("{error:#}")),
        },
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Values(values) => {
            let parts = values.iter().map(|(name, value)| format!("{name} {value:.2}"));
            parts.collect::<Vec<_>>().join(", ")
        }
        Outcome::LeftOut(why) => format!("left out: {why}"),
        Outcome::Failed(why) => format!("failed: {why}"),
    }
}

#[derive(Debug, Default)]
struct Options {
    quick: bool,
    only: Vec<String>,
    data: Vec<PathBuf>,
    out: Option<PathBuf>,
    report: bool,
    publish: bool,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self> {
        let mut parsed = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().with_context(|| format!("{option} needs a value"));
            match *option {
                "--quick" => parsed.quick = true,
                "--report" => parsed.report = true,
                "--publish" => parsed.publish = true,
                "--out" => parsed.out = Some(value()?.into()),
                "--data" => {
                    let path = PathBuf::from(value()?);
                    parsed.data.push(path.canonicalize().with_context(|| path.display().to_string())?);
                }
                "--only" => {
                    let name = value()?;
                    if !EXPERIMENTS.iter().any(|(known, _)| known == name) {
                        bail!("there are {}", EXPERIMENTS.map(|(known, _)| known).join(", "));
                    }
                    parsed.only.push((*name).to_owned());
                }
                unknown => bail!("unknown option {unknown}"),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::record::{Machine, values};
    use super::*;

    fn bench(room: &std::path::Path) -> Bench {
        let log = Log::open(&room.join("raw.jsonl"), Machine::new()).unwrap();
        let daemons = Daemons { ferofs: "ferofs".into(), erofsfuse: None };
        let stage = Stage {
            room: room.to_owned(),
            scale: &QUICK,
            daemons,
            tools: Tools::default(),
            given: Vec::new(),
        };
        Bench { stage, log, deadline: Instant::now() + Duration::from_secs(1000) }
    }

    #[test]
    fn an_interrupted_run_goes_on_where_it_was() {
        let room = ferofs_tests::scratch();
        let runs = Cell::new(0);
        let measure = |_: &Stage, case: &&str, contestant: &&str| {
            runs.set(runs.get() + 1);
            match (*case, *contestant) {
                ("one", "lame") => Err(Lacks("needs legs".into()).into()),
                ("one", "late") if runs.get() < 6 => bail!("fell"),
                _ => Ok(values([("x", f64::from(runs.get()))])),
            }
        };
        bench(room.path()).compete("e", 2, &["one"], &["fast", "lame", "late"], measure).unwrap();
        // Round 1: three, of whom one fell; round 2: two, as the lame one stays so.
        assert_eq!(runs.get(), 5);
        let mut again = bench(room.path());
        again.compete("e", 2, &["one"], &["fast", "lame", "late"], measure).unwrap();
        // What was left out or failed is tried again, and nothing else.
        assert_eq!(runs.get(), 8);
        let key = |contestant: &str, round| Key {
            experiment: "e".into(),
            case: "one".into(),
            contestant: contestant.into(),
            round,
        };
        assert_eq!(again.log.latest(&key("lame", 0)), Some(&Outcome::LeftOut("needs legs".into())));
        assert!(matches!(again.log.latest(&key("late", 0)), Some(Outcome::Values(_))));
        assert_eq!(again.log.latest(&key("fast", 0)), Some(&Outcome::Values(values([("x", 1.0)]))));
    }

    #[test]
    fn what_there_is_no_time_for_is_named() {
        let room = ferofs_tests::scratch();
        let mut bench = bench(room.path());
        bench.deadline = Instant::now();
        bench.compete("e", 3, &["one"], &["x"], |_, _, _| bail!("is not run")).unwrap();
        assert_eq!(bench.log.records.len(), 1);
        assert_eq!(bench.log.records[0].outcome, Outcome::LeftOut(TIME_UP.into()));
    }

    #[test]
    fn a_missing_peer_is_named_in_its_place() {
        let room = ferofs_tests::scratch();
        // Data are there, so that none is made.
        fs::create_dir_all(room.path().join("data/text")).unwrap();
        let mut bench = bench(room.path());
        let all = stage::entrants();
        bench
            .compete("sizes", 1, &["text"], &all, |stage, case, entrant| {
                stage.image(case, &entrant.form).map(|_| Values::new())
            })
            .unwrap();
        let why = |name: &str| {
            let record = bench.log.records.iter().find(|record| record.key.contestant == name).unwrap();
            said(&record.outcome)
        };
        assert_eq!(why("squashfs 4K (kernel)"), "left out: needs mksquashfs");
        assert_eq!(why("btrfs zstd (kernel)"), "left out: needs mkfs.btrfs");
        assert_eq!(why("ext4 (kernel)"), "left out: needs mke2fs");
    }

    #[test]
    fn options_are_read() {
        let options =
            Options::parse(&["--quick", "--out", "x", "--only", "boot", "--data", "/proc"]).unwrap();
        assert!(options.quick && options.only == ["boot"] && options.data == [PathBuf::from("/proc")]);
        assert!(Options::parse(&["--only", "nothing"]).is_err());
        assert!(Options::parse(&["--out"]).is_err());
        assert!(Options::parse(&["--data", "/nowhere/at/all"]).is_err());
        assert!(Options::parse(&["unknown"]).is_err());
    }
}
