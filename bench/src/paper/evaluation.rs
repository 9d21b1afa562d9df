//! A run of the evaluation: repeats each measurement for some rounds, and adds the results to the
//! log. A run that was interrupted continues with what the log does not have.

use std::fmt::Display;
use std::io::stdout;
use std::time::{Duration, Instant};

use anyhow::Result;
use ferofs_devtools::shell;

use super::experiments::EXPERIMENTS;
use super::record::{Key, Log, Outcome, Values};
use super::setup::{self, Workspace};
use crate::common::filesystem::Unavailable;
use crate::common::options::SizeArgs;
use crate::common::rounds::rotated_order;

/// The outcome of a measurement that did not start because of the time limit.
const TIME_UP: &str = "the time was up: run the command again";

/// The state of a run.
pub(crate) struct Evaluation {
    pub(crate) workspace: Workspace,
    pub(crate) log: Log,
    /// No measurement starts later than this.
    deadline: Instant,
}

impl Evaluation {
    pub(crate) fn new(workspace: Workspace, log: Log) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60 * setup::MINUTES);
        Self { workspace, log, deadline }
    }

    /// Makes the experiments of these names, or all if there are none.
    pub(crate) fn run_experiments(&mut self, parts: &SizeArgs) -> Result<()> {
        for (name, experiment) in EXPERIMENTS.into_iter().filter(|(name, _)| parts.has(name)) {
            let start = Instant::now();
            println!("{}", shell::bold(name));
            if let Err(error) = experiment(self) {
                println!("  {error:#}");
                let key = Key {
                    experiment: name.into(),
                    case: String::new(),
                    system: String::new(),
                    round: 0,
                };
                self.log.add(key, outcome(Err(error)))?;
            }
            println!(
                "{}",
                shell::dim(&format!("  {name}: {:.0} s", start.elapsed().as_secs_f64()), &stdout())
            );
        }
        Ok(())
    }

    /// Measures each system in each case, for `rounds` rounds, and logs the outcomes. Skips what
    /// the log already has.
    pub(crate) fn measure_all<C: Display, S: Display>(
        &mut self,
        experiment: &str,
        rounds: usize,
        cases: &[C],
        systems: &[S],
        measure: impl Fn(&Workspace, &C, &S) -> Result<Values>,
    ) -> Result<()> {
        for round in 0..rounds {
            for case in cases {
                for number in rotated_order(systems.len(), round) {
                    let system = &systems[number];
                    let key = |round| Key {
                        experiment: experiment.to_owned(),
                        case: case.to_string(),
                        system: system.to_string(),
                        round,
                    };
                    if matches!(self.log.latest(&key(round)), Some(Outcome::Values(_))) {
                        continue;
                    }
                    // A thing that the machine lacked in the first round is also missing in later
                    // rounds.
                    if round > 0 && matches!(self.log.latest(&key(0)), Some(Outcome::LeftOut(_))) {
                        continue;
                    }
                    let result = match Instant::now() < self.deadline {
                        true => measure(&self.workspace, case, system),
                        false => Err(Unavailable(TIME_UP.into()).into()),
                    };
                    let outcome = outcome(result);
                    println!("  {}: {}", key(round), shell::dim(&describe(&outcome), &stdout()));
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
        Err(error) => match error.downcast_ref::<Unavailable>() {
            Some(reason) => Outcome::LeftOut(reason.to_string()),
            None => Outcome::Failed(format!("{error:#}")),
        },
    }
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Values(values) => {
            let parts = values.iter().map(|(name, value)| format!("{name} {value:.2}"));
            parts.collect::<Vec<_>>().join(", ")
        }
        Outcome::LeftOut(why) => format!("left out: {why}"),
        Outcome::Failed(why) => format!("failed: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use anyhow::bail;

    use super::super::record::{Machine, values};
    use super::*;
    use crate::common::programs::Programs;

    fn evaluation_in(dir: &Path) -> Evaluation {
        let log = Log::open(&dir.join("raw.jsonl"), Machine::new()).unwrap();
        let workspace = Workspace { dir: dir.to_owned(), programs: Programs::default() };
        Evaluation::new(workspace, log)
    }

    #[test]
    fn an_interrupted_run_continues() {
        let dir = ferofs_tests::scratch();
        let count = Cell::new(0);
        let measure = |_: &Workspace, case: &&str, system: &&str| {
            count.set(count.get() + 1);
            match (*case, *system) {
                ("one", "unavailable") => Err(Unavailable("needs a device".into()).into()),
                ("one", "fails at first") if count.get() < 6 => bail!("failure"),
                _ => Ok(values([("x", f64::from(count.get()))])),
            }
        };
        let systems = ["works", "unavailable", "fails at first"];
        evaluation_in(dir.path()).measure_all("e", 2, &["one"], &systems, measure).unwrap();
        // Round 1 measures three systems, one of which fails. Round 2 measures two: it skips the
        // unavailable one.
        assert_eq!(count.get(), 5);
        let mut again = evaluation_in(dir.path());
        again.measure_all("e", 2, &["one"], &systems, measure).unwrap();
        // The second run repeats only what failed or was left out.
        assert_eq!(count.get(), 8);
        let key = |system: &str, round| Key {
            experiment: "e".into(),
            case: "one".into(),
            system: system.into(),
            round,
        };
        assert_eq!(
            again.log.latest(&key("unavailable", 0)),
            Some(&Outcome::LeftOut("needs a device".into()))
        );
        assert!(matches!(again.log.latest(&key("fails at first", 0)), Some(Outcome::Values(_))));
        assert_eq!(
            again.log.latest(&key("works", 0)),
            Some(&Outcome::Values(values([("x", 1.0)])))
        );
    }

    #[test]
    fn a_measurement_after_the_deadline_is_left_out() {
        let dir = ferofs_tests::scratch();
        let mut evaluation = evaluation_in(dir.path());
        evaluation.deadline = Instant::now();
        evaluation.measure_all("e", 3, &["one"], &["x"], |_, _, _| bail!("is not run")).unwrap();
        assert_eq!(evaluation.log.records.len(), 1);
        assert_eq!(evaluation.log.records[0].outcome, Outcome::LeftOut(TIME_UP.into()));
    }
}
