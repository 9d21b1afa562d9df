//! Options of benchmarks that consist of parts.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The options that were given.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) rounds: Option<usize>,
    pub(crate) only: Vec<String>,
    pub(crate) publish: bool,
    pub(crate) quick: bool,
    /// Where data or images are.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) trees: Vec<String>,
}

impl Options {
    /// Parses `options`. `parts` are the values of `--only`, which takes any text if there are none. `takes` are the other options of this benchmark, of which `own` gets those that
    /// are not in [`Options`], with their numbers; with `--only` among them, a part can be published alone.
    pub(crate) fn parse(
        options: &[&str],
        parts: &[&str],
        takes: &[&str],
        mut own: impl FnMut(&str, u64),
    ) -> Result<Self> {
        let mut parsed = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().with_context(|| format!("{option} needs a value"));
            match *option {
                "--publish" => parsed.publish = true,
                "--only" => {
                    let part = *value()?;
                    if !parts.is_empty() && !parts.contains(&part) {
                        bail!("--only: no such part: {part}; the parts are {}", parts.join(", "));
                    }
                    parsed.only.push(part.to_owned());
                }
                unknown if !takes.contains(&unknown) => bail!("unknown option {unknown}"),
                "--quick" => parsed.quick = true,
                "--dir" | "--into" | "--out" => parsed.dir = Some(value()?.into()),
                "--trees" => parsed.trees.push((*value()?).to_owned()),
                name => {
                    let number = value()?.parse::<u64>().with_context(|| name.to_owned())?;
                    if number == 0 {
                        bail!("{name} needs at least 1");
                    }
                    match name {
                        "--rounds" => parsed.rounds = Some(usize::try_from(number)?),
                        _ => own(name, number),
                    }
                }
            }
        }
        let is_part = !parsed.only.is_empty() && !takes.contains(&"--only");
        if parsed.publish && (parsed.quick || is_part || !parsed.trees.is_empty()) {
            bail!("--publish needs everything: it cannot be combined with --only, --trees and --quick");
        }
        Ok(parsed)
    }

    /// Whether to measure this part.
    pub(crate) fn has_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| part == name)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_select_parts_and_exclude_each_other() {
        let takes = ["--rounds", "--quick", "--names", "--trees"];
        let mut names = 0;
        let mut parse =
            |options: &[&str]| Options::parse(options, &["one", "two"], &takes, |_, number| names = number);
        let options = parse(&["--only", "one", "--rounds", "2", "--names", "7"]).unwrap();
        assert!(options.has_part("one") && !options.has_part("two") && options.rounds == Some(2));
        let all = parse(&["--publish"]).unwrap();
        assert!(all.has_part("two") && all.publish);
        for wrong in [
            &["--only", "x"][..],
            &["--only"],
            &["--rounds", "0"],
            &["--rounds", "x"],
            &["--publish", "--quick"],
            &["--publish", "--trees", "part"],
            &["--publish", "--only", "one"],
            &["--dir", "x"],
            &["--x"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(names, 7);
    }
}
