//! Evaluates the log: for each experiment its cases and systems, statistics over the rounds, and whether claims hold.

use super::super::record::{Key, Log, Machine, Outcome};
use super::figures::{Claim, Relation};
use crate::common::rounds::Spread;

pub(crate) struct Summary<'a> {
    log: &'a Log,
}

/// The result for one metric of one system in one case.
pub(crate) enum Cell<'a> {
    Measured(Spread),
    LeftOut(&'a str),
    Failed(&'a str),
    /// The measurement has no such value: for example, the kernel has no daemon.
    NoValue,
}

/// Whether the values agree with a claim.
pub(crate) enum Verdict {
    Agrees,
    /// No comparison agrees.
    Disagrees,
    /// Some comparisons agree; these do not.
    Partly(Vec<String>),
    NotMeasured,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(log: &'a Log) -> Self {
        Self { log }
    }

    pub(crate) fn machine(&self) -> &'a Machine {
        &self.log.machine
    }

    /// The cases of an experiment, in the order of their first records.
    pub(crate) fn cases(&self, experiment: &str) -> Vec<&'a str> {
        self.names(experiment, |key| &key.case)
    }

    pub(crate) fn systems(&self, experiment: &str) -> Vec<&'a str> {
        self.names(experiment, |key| &key.system)
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

    /// Why the experiment has no measurements; `None` if it has some.
    pub(crate) fn failure_reason(&self, experiment: &str) -> Option<&'a str> {
        let records = self.log.records.iter().rev();
        let mut own = records.filter(|record| record.key.experiment == experiment);
        match own.find(|record| record.key.system.is_empty()).map(|record| &record.outcome) {
            Some(Outcome::LeftOut(why) | Outcome::Failed(why)) if self.cases(experiment).is_empty() => {
                Some(why)
            }
            _ => None,
        }
    }

    /// The largest number of rounds of any measurement.
    pub(crate) fn rounds(&self, experiment: &str) -> usize {
        let own = self.log.records.iter().filter(|record| record.key.experiment == experiment);
        own.map(|record| record.key.round + 1).max().unwrap_or(0)
    }

    pub(crate) fn cell(&self, experiment: &str, case: &str, system: &str, metric: &str) -> Cell<'a> {
        let own = self.log.records.iter().filter(|record| {
            let key = &record.key;
            key.experiment == experiment && key.case == case && key.system == system
        });
        // The newest outcome of each round counts.
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
            _ if known => Cell::NoValue,
            Some(Outcome::LeftOut(why)) => Cell::LeftOut(why),
            Some(Outcome::Failed(why)) => Cell::Failed(why),
            _ => Cell::LeftOut("not measured"),
        }
    }

    pub(crate) fn median(&self, experiment: &str, case: &str, system: &str, metric: &str) -> Option<f64> {
        match self.cell(experiment, case, system, metric) {
            Cell::Measured(spread) => Some(spread.median),
            _ => None,
        }
    }

    /// Rounds that failed while other rounds of the same measurement succeeded. A measurement that always failed is shown in its cell.
    pub(crate) fn failures(&self, experiment: &str) -> Vec<String> {
        let mut failures = Vec::new();
        for record in self.log.records.iter().filter(|record| record.key.experiment == experiment) {
            if let (Outcome::Failed(why), Some(Outcome::Failed(last))) =
                (&record.outcome, self.log.latest(&record.key))
                && why == last
                && self.has_values(&record.key)
            {
                let Key { case, system, round, .. } = &record.key;
                failures.push(format!("{case}: {system}, round {}: {why}", round + 1));
            }
        }
        failures
    }

    /// Whether another round of the same measurement has values.
    fn has_values(&self, key: &Key) -> bool {
        self.log.records.iter().any(|record| {
            matches!(record.outcome, Outcome::Values(_))
                && *key == Key { round: key.round, ..record.key.clone() }
        })
    }

    pub(crate) fn verdict(&self, experiment: &str, claim: &Claim) -> Verdict {
        let (mut agree, mut not) = (0, Vec::new());
        for case in self.cases(experiment) {
            if !claim.cases.iter().any(|part| case.contains(part)) {
                continue;
            }
            let Some(own) = self.median(experiment, case, claim.system, claim.metric) else { continue };
            let mut count = |agrees: bool, other: &str| match agrees {
                true => agree += 1,
                false if other.is_empty() => not.push(case.to_owned()),
                false => not.push(format!("{case}: {}", other.trim_end_matches(" (kernel)"))),
            };
            match claim.relation {
                Relation::AtMost(limit) => count(own <= limit, ""),
                Relation::MoreThan(others) | Relation::LessThan(others) => {
                    for other in others {
                        let Some(value) = self.median(experiment, case, other, claim.metric) else {
                            continue;
                        };
                        let more = matches!(claim.relation, Relation::MoreThan(_));
                        count(if more { own > value } else { own < value }, other);
                    }
                }
            }
        }
        match (agree, not.is_empty()) {
            (0, true) => Verdict::NotMeasured,
            (0, false) => Verdict::Disagrees,
            (_, true) => Verdict::Agrees,
            (_, false) => Verdict::Partly(not),
        }
    }
}

impl Verdict {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Agrees => "confirmed".to_owned(),
            Self::Disagrees => "not confirmed".to_owned(),
            Self::Partly(not) => format!("partly confirmed; not for {}", not.join("; ")),
            Self::NotMeasured => "not measured".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::values;
    use super::*;

    fn log(records: &[(&str, usize, f64)]) -> Log {
        let mut log = Log::parse("").unwrap();
        for (system, round, value) in records {
            let key =
                Key { experiment: "e".into(), case: "c".into(), system: (*system).into(), round: *round };
            log.add(key, Outcome::Values(values([("x", *value)]))).unwrap();
        }
        log
    }

    #[test]
    fn the_newest_outcome_of_a_round_counts() {
        let log = log(&[("a", 0, 1.0), ("a", 1, 5.0), ("a", 0, 9.0)]);
        let Cell::Measured(spread) = Summary::new(&log).cell("e", "c", "a", "x") else { panic!("measured") };
        assert_eq!((spread.min, spread.median, spread.max), (5.0, 5.0, 9.0));
        assert!(matches!(Summary::new(&log).cell("e", "c", "a", "y"), Cell::NoValue));
        assert!(matches!(Summary::new(&log).cell("e", "c", "b", "x"), Cell::LeftOut("not measured")));
    }

    #[test]
    fn claims_are_compared_by_medians() {
        let log = log(&[("a", 0, 2.0), ("b", 0, 1.0), ("c", 0, 3.0)]);
        let summary = Summary::new(&log);
        let claim = |relation| Claim { statement: "", system: "a", metric: "x", cases: &[""], relation };
        assert!(matches!(summary.verdict("e", &claim(Relation::MoreThan(&["b"]))), Verdict::Agrees));
        assert!(matches!(summary.verdict("e", &claim(Relation::LessThan(&["b"]))), Verdict::Disagrees));
        assert!(matches!(summary.verdict("e", &claim(Relation::MoreThan(&["b", "c"]))), Verdict::Partly(_)));
        assert!(matches!(summary.verdict("e", &claim(Relation::AtMost(2.0))), Verdict::Agrees));
        assert!(matches!(summary.verdict("e", &claim(Relation::MoreThan(&["d"]))), Verdict::NotMeasured));
    }
}
