//! Makes a failing case smaller: fewer steps, settings and names, fewer attributes, shorter files.

use std::time::{Duration, Instant};

use crate::options::generate::case::{Case, Edit};

/// The time limit for shrinking one failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the smallest case found for which `fails` is true.
pub(crate) fn shrink(case: &Case, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut search = Search { best: case.clone(), fails, start: Instant::now() };
    let script = case.script();
    for step in (0..script.steps.len()).rev() {
        search.try_one(Edit::Step(step));
    }
    search.names(script.names.len());
    for step in 0..script.steps.len() {
        for setting in (0..script.settings[step]).rev() {
            search.try_one(Edit::Setting(step, setting));
        }
    }
    for name in 0..script.names.len() {
        search.try_one(Edit::Plain(name));
    }
    for name in 0..script.names.len() {
        search.halve(name);
    }
    search.best
}

struct Search<'a> {
    best: Case,
    fails: &'a mut dyn FnMut(&Case) -> bool,
    start: Instant,
}

impl Search<'_> {
    /// Keeps the edit if the case still fails.
    fn try_one(&mut self, edit: Edit) -> bool {
        let mut case = self.best.clone();
        case.edits.push(edit);
        // An edit of a part that is left out changes nothing.
        let (new, old) = (case.script(), self.best.script());
        if new.model == old.model && format!("{:?}", new.steps) == format!("{:?}", old.steps) {
            return false;
        }
        self.try_case(case)
    }

    fn try_case(&mut self, case: Case) -> bool {
        if self.start.elapsed() > PATIENCE || !(self.fails)(&case) {
            return false;
        }
        self.best = case;
        true
    }

    /// Leaves out names: first many at once, then fewer.
    fn names(&mut self, count: usize) {
        let mut width = count;
        while width > 0 {
            let mut from = 1;
            while from < count {
                self.try_one(Edit::Names(from, (from + width - 1).min(count - 1)));
                from += width;
            }
            width /= 2;
        }
    }

    fn halve(&mut self, name: usize) {
        for times in [8, 4, 2, 1, 1] {
            let before = self.best.edits.iter().find_map(|edit| match edit {
                Edit::Half(other, times) if *other == name => Some(*times),
                _ => None,
            });
            let mut case = self.best.clone();
            case.edits.retain(|edit| !matches!(edit, Edit::Half(other, _) if *other == name));
            case.edits.push(Edit::Half(name, times + before.unwrap_or(0)));
            if case.script().model != self.best.script().model {
                self.try_case(case);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_effect_are_left_out() {
        let case = (0..)
            .map(|number| Case::new(3, number))
            .find(|case| case.script().names.len() > 20)
            .unwrap();
        let wanted = case.script().names[7].clone();
        let small = shrink(&case, &mut |case| case.script().model.names.contains_key(&wanted));
        let script = small.script();
        let below = wanted.iter().filter(|byte| **byte == b'/').count();
        assert_eq!(script.model.names.len(), 2 + below, "{small}");
        assert!(script.steps.iter().all(Option::is_none));
    }
}
