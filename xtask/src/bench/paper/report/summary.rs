//! Records, put together: for each experiment its cases and contestants, and what the rounds gave.

use super::super::figures::{Claim, Holds};
use super::super::record::{Key, Log, Machine, Outcome};
use crate::bench::measure::Spread;

pub(super) struct Summary<'a> {
    log: &'a Log,
}

/// What is known of one metric of one contestant at one case.
pub(super) enum Cell<'a> {
    Measured(Spread),
    LeftOut(&'a str),
    Failed(&'a str),
    /// It was measured and has no such figure: the kernel has no daemon.
    Nothing,
}

/// What became of a claim.
pub(super) enum Verdict {
    Agrees,
    /// Of none of them it is so.
    Not,
    /// Some do not agree; and who.
    Partly(Vec<String>),
    NotMeasured,
}

impl<'a> Summary<'a> {
    pub(super) fn new(log: &'a Log) -> Self {
        Self { log }
    }

    pub(super) fn machine(&self) -> &'a Machine {
        &self.log.machine
    }

    /// The cases of an experiment, in the order of their first records.
    pub(super) fn cases(&self, experiment: &str) -> Vec<&'a str> {
        self.names(experiment, |key| &key.case)
    }

    pub(super) fn contestants(&self, experiment: &str) -> Vec<&'a str> {
        self.names(experiment, |key| &key.contestant)
    }

    fn names(&self, experiment: &str, name: fn(&Key) -> &String) -> Vec<&'a str> {
        let mut names = Vec::new();
        for record in self.log.records.iter().filter(|record| record.key.experiment == experiment) {
            let name = name(&record.key).as_str();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Why the whole experiment was not made, if so.
    pub(super) fn trouble(&self, experiment: &str) -> Option<&'a str> {
        let records = self.log.records.iter().rev();
        let mut own = records.filter(|record| record.key.experiment == experiment);
        match own.find(|record| record.key.contestant.is_empty()).map(|record| &record.outcome) {
            Some(Outcome::LeftOut(why) | Outcome::Failed(why)) if self.cases(experiment).is_empty() => {
                Some(why)
            }
            _ => None,
        }
    }

    /// How many rounds gave something, at most.
    pub(super) fn rounds(&self, experiment: &str) -> usize {
        let own = self.log.records.iter().filter(|record| record.key.experiment == experiment);
        own.map(|record| record.key.round + 1).max().unwrap_or(0)
    }

    pub(super) fn cell(&self, experiment: &str, case: &str, contestant: &str, metric: &str) -> Cell<'a> {
        let own = self.log.records.iter().filter(|record| {
            let key = &record.key;
            key.experiment == experiment && key.case == case && key.contestant == contestant
        });
        // The last word on each round counts.
        let mut rounds: Vec<Option<&Outcome>> = vec![None; self.rounds(experiment)];
        for record in own {
            rounds[record.key.round] = Some(&record.outcome);
        }
        let outcomes: Vec<&Outcome> = rounds.into_iter().flatten().collect();
        let mut known = false;
        let values = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Values(values) => {
                known = true;
                values.get(metric).copied()
            }
            _ => None,
        });
        if let Some(spread) = Spread::of(values) {
            return Cell::Measured(spread);
        }
        match outcomes.first() {
            _ if known => Cell::Nothing,
            Some(Outcome::LeftOut(why)) => Cell::LeftOut(why),
            Some(Outcome::Failed(why)) => Cell::Failed(why),
            _ => Cell::LeftOut("not measured"),
        }
    }

    pub(super) fn middle(&self, experiment: &str, case: &str, contestant: &str, metric: &str) -> Option<f64> {
        match self.cell(experiment, case, contestant, metric) {
            Cell::Measured(spread) => Some(spread.middle),
            _ => None,
        }
    }

    /// Rounds that failed though others gave something: what failed always is told in its cell.
    pub(super) fn failures(&self, experiment: &str) -> Vec<String> {
        let mut failures = Vec::new();
        for record in self.log.records.iter().filter(|record| record.key.experiment == experiment) {
            if let (Outcome::Failed(why), Some(Outcome::Failed(last))) =
                (&record.outcome, self.log.latest(&record.key))
                && why == last
                && self.gave(&record.key)
            {
                let Key { case, contestant, round, .. } = &record.key;
                failures.push(format!("{case}: {contestant}, round {}: {why}", round + 1));
            }
        }
        failures
    }

    /// Whether another round of the same gave something.
    fn gave(&self, key: &Key) -> bool {
        self.log.records.iter().any(|record| {
            matches!(record.outcome, Outcome::Values(_))
                && *key == Key { round: key.round, ..record.key.clone() }
        })
    }

    pub(super) fn verdict(&self, experiment: &str, claim: &Claim) -> Verdict {
        let (mut agree, mut not) = (0, Vec::new());
        for case in self.cases(experiment) {
            if !claim.cases.iter().any(|part| case.contains(part)) {
                continue;
            }
            let Some(own) = self.middle(experiment, case, claim.who, claim.metric) else { continue };
            let mut judge = |holds: bool, whom: &str| match holds {
                true => agree += 1,
                false if whom.is_empty() => not.push(case.to_owned()),
                false => not.push(format!("{case}: {}", whom.trim_end_matches(" (kernel)"))),
            };
            match claim.holds {
                Holds::AtMost(limit) => judge(own <= limit, ""),
                Holds::MoreThan(others) | Holds::LessThan(others) => {
                    for other in others {
                        let Some(value) = self.middle(experiment, case, other, claim.metric) else {
                            continue;
                        };
                        let more = matches!(claim.holds, Holds::MoreThan(_));
                        judge(if more { own > value } else { own < value }, other);
                    }
                }
            }
        }
        match (agree, not.is_empty()) {
            (0, true) => Verdict::NotMeasured,
            (0, false) => Verdict::Not,
            (_, true) => Verdict::Agrees,
            (_, false) => Verdict::Partly(not),
        }
    }
}

impl Verdict {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Agrees => "yes, here too".to_owned(),
            Self::Not => "not here".to_owned(),
            Self::Partly(not) => format!("in part; not for {}", not.join("; ")),
            Self::NotMeasured => "could not be told".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::values;
    use super::*;

    fn log(records: &[(&str, usize, f64)]) -> Log {
        let mut log = Log::parse("").unwrap();
        for (contestant, round, value) in records {
            let key = Key {
                experiment: "e".into(),
                case: "c".into(),
                contestant: (*contestant).into(),
                round: *round,
            };
            log.add(key, Outcome::Values(values([("x", *value)]))).unwrap();
        }
        log
    }

    #[test]
    fn the_last_word_on_a_round_counts() {
        let log = log(&[("a", 0, 1.0), ("a", 1, 5.0), ("a", 0, 9.0)]);
        let Cell::Measured(spread) = Summary::new(&log).cell("e", "c", "a", "x") else { panic!("measured") };
        assert_eq!((spread.least, spread.middle, spread.most), (5.0, 5.0, 9.0));
        assert!(matches!(Summary::new(&log).cell("e", "c", "a", "y"), Cell::Nothing));
        assert!(matches!(Summary::new(&log).cell("e", "c", "b", "x"), Cell::LeftOut("not measured")));
    }

    #[test]
    fn claims_are_judged_by_medians() {
        let log = log(&[("a", 0, 2.0), ("b", 0, 1.0), ("c", 0, 3.0)]);
        let summary = Summary::new(&log);
        let claim = |holds| Claim { says: "", who: "a", metric: "x", cases: &[""], holds };
        assert!(matches!(summary.verdict("e", &claim(Holds::MoreThan(&["b"]))), Verdict::Agrees));
        assert!(matches!(summary.verdict("e", &claim(Holds::LessThan(&["b"]))), Verdict::Not));
        assert!(matches!(summary.verdict("e", &claim(Holds::MoreThan(&["b", "c"]))), Verdict::Partly(_)));
        assert!(matches!(summary.verdict("e", &claim(Holds::AtMost(2.0))), Verdict::Agrees));
        assert!(matches!(summary.verdict("e", &claim(Holds::MoreThan(&["d"]))), Verdict::NotMeasured));
    }
}
