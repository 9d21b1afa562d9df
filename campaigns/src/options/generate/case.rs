//! A case: a tree and steps generated from a seed, and the edits that make a failing case smaller.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use ferofs_tests::model::{File, Kind, Model, Name};
use ferofs_tests::rng::Rng;

use super::sequence::{self, Step};
use super::settings::Settings;

/// A case. Its text form is enough to repeat it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) number: u64,
    pub(crate) edits: Vec<Edit>,
}

/// An edit that leaves something out or makes it smaller. Numbers refer to the unedited case and
/// count from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Edit {
    /// Leaves out these names of the first tree, from the first to the last.
    Names(usize, usize),
    /// Removes the attributes of this name's file.
    Plain(usize),
    /// Halves the parts of this name's content this many times.
    Half(usize, u32),
    /// Leaves out this step.
    Step(usize),
    /// Leaves out a setting: the step and the setting.
    Setting(usize, usize),
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Names(from, to) => write!(f, "n{from}-{to}"),
            Edit::Plain(name) => write!(f, "p{name}"),
            Edit::Half(name, times) => write!(f, "h{name}-{times}"),
            Edit::Step(step) => write!(f, "s{step}"),
            Edit::Setting(step, setting) => write!(f, "o{step}-{setting}"),
        }
    }
}

impl FromStr for Edit {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, numbers) = text.split_at_checked(1).context("an empty edit")?;
        let numbers: Vec<usize> = numbers
            .split('-')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context(text.to_owned())?;
        Ok(match (kind, numbers.as_slice()) {
            ("n", [from, to]) => Edit::Names(*from, *to),
            ("p", [name]) => Edit::Plain(*name),
            ("h", [name, times]) => Edit::Half(*name, u32::try_from(*times)?),
            ("s", [step]) => Edit::Step(*step),
            ("o", [step, setting]) => Edit::Setting(*step, *setting),
            _ => bail!("{text}: no such edit"),
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.number)?;
        for (number, edit) in self.edits.iter().enumerate() {
            write!(f, "{}{edit}", if number == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (Some(seed), Some(number)) = (number(), number()) else {
            bail!("{text}: a case is SEED:NUMBER[:EDITS]")
        };
        let edits = parts.next().unwrap_or_default();
        let edits = edits
            .split(',')
            .filter(|edit| !edit.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self { seed, number, edits })
    }
}

/// The tree and the steps of a case. A step that is left out is `None`, so that the others keep
/// their numbers.
pub(crate) struct Script {
    pub(crate) model: Model,
    /// The names of the first tree by number, including those that are left out.
    pub(crate) names: Vec<Name>,
    pub(crate) steps: Vec<Option<Step>>,
    /// The number of settings of each step in the unedited case.
    pub(crate) settings: Vec<usize>,
}

impl Case {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self { seed, number, edits: Vec::new() }
    }

    /// A random number generator for the part called `label`.
    pub(crate) fn rng(&self, label: &[u8]) -> Rng {
        // The seed is mixed first: neighbouring seeds and numbers must not give the same cases.
        let seed = Rng::new(self.seed).next_u64();
        Rng::new(seed ^ Rng::new(!self.number).next_u64()).fork(label)
    }

    /// The tree and the steps.
    pub(crate) fn script(&self) -> Script {
        let mut model = Model::random(&mut self.rng(b"tree"));
        let names: Vec<Name> = model.names.keys().cloned().collect();
        let steps = sequence::random(&model, &mut self.rng(b"steps"));
        let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
        let settings: Vec<usize> = steps
            .iter_mut()
            .flatten()
            .map(|step| settings_of(step).map_or(0, |settings| settings.0.len()))
            .collect();
        // From the last on, so that numbers stay right.
        let mut dropped: Vec<(usize, usize)> = Vec::new();
        for edit in &self.edits {
            match *edit {
                Edit::Names(from, to) => {
                    names.iter().take(to + 1).skip(from.max(1)).for_each(|name| model.remove(name))
                }
                Edit::Plain(name) => self.change(&mut model, &names, name, |file| {
                    file.xattrs.clear();
                    (file.mode, file.uid, file.gid, file.time) = (0o755, 0, 0, (1_600_000_000, 0));
                }),
                Edit::Half(name, times) => self.change(&mut model, &names, name, |file| {
                    if let Kind::Regular(pieces) = &mut file.kind {
                        pieces.iter_mut().for_each(|piece| piece.len >>= times);
                        pieces.retain(|piece| piece.len > 0);
                    }
                }),
                Edit::Step(step) => {
                    if let Some(step) = steps.get_mut(step) {
                        *step = None;
                    }
                }
                Edit::Setting(step, setting) => dropped.push((step, setting)),
            }
        }
        dropped.sort_unstable();
        for (step, setting) in dropped.into_iter().rev() {
            if let Some(settings) =
                steps.get_mut(step).and_then(Option::as_mut).and_then(settings_of)
                && setting < settings.0.len()
            {
                settings.0.remove(setting);
            }
        }
        Script { model, names, steps, settings }
    }

    fn change(&self, model: &mut Model, names: &[Name], number: usize, change: impl Fn(&mut File)) {
        if let Some(file) = names.get(number).and_then(|name| model.names.get(name)) {
            change(&mut model.files[*file]);
        }
    }
}

pub(crate) fn settings_of(step: &mut Step) -> Option<&mut Settings> {
    match step {
        Step::Build { settings, .. }
        | Step::Add { settings, .. }
        | Step::Patch { settings, .. }
        | Step::Squash { settings }
        | Step::Extract { settings, .. } => Some(settings),
        Step::Rollback { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_can_be_written_and_parsed() {
        let text = "7:123:n1-4,p5,h6-3,s1,o0-2";
        let case: Case = text.parse().unwrap();
        assert_eq!(case.to_string(), text);
        assert_eq!("7:5".parse::<Case>().unwrap(), Case::new(7, 5));
        assert!("7".parse::<Case>().is_err() && "7:1:x3".parse::<Case>().is_err());
    }

    #[test]
    fn a_seed_gives_the_same_case_and_edits_leave_out_what_they_name() {
        let case = (0..)
            .map(|number| Case::new(1, number))
            .find(|case| case.script().names.len() > 5)
            .unwrap();
        let script = case.script();
        assert_eq!(script.model, case.script().model);
        let less = Case { edits: vec![Edit::Names(1, script.names.len())], ..case }.script();
        assert_eq!(less.model.names.len(), 1);
        assert_eq!(less.names, script.names);
    }
}
