//! Options that several benchmarks have.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;

/// Rounds, of which there is at least one.
pub(crate) fn rounds() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Which parts are measured, and whether they are published.
#[derive(Args, Debug, Default)]
pub(crate) struct SizeArgs {
    /// Only the parts of these names; a wrong one lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Write the figures of all parts to docs
    #[arg(long, conflicts_with = "only")]
    pub(crate) publish: bool,
}

/// The same for benchmarks that measure times.
#[derive(Args, Debug, Default)]
pub(crate) struct PartArgs {
    #[command(flatten)]
    pub(crate) parts: SizeArgs,
    /// Measure N times
    #[arg(long, value_name = "N", value_parser = rounds())]
    pub(crate) rounds: Option<usize>,
    /// Where data and images are
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

impl SizeArgs {
    /// Fails if `--only` names something else than `parts`.
    pub(crate) fn check(&self, parts: &[&str]) -> Result<()> {
        match self.only.iter().find(|name| !parts.contains(&name.as_str())) {
            Some(name) => bail!("--only: no such part: {name}; the parts are {}", parts.join(", ")),
            None => Ok(()),
        }
    }

    /// Whether to measure this part.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| part == name)
    }
}

#[cfg(test)]
mod tests {
    use super::SizeArgs;

    #[test]
    fn parts_are_chosen_by_name() {
        let args = SizeArgs { only: vec!["one".into()], publish: false };
        assert!(args.has("one") && !args.has("two") && SizeArgs::default().has("two"));
        assert!(args.check(&["one", "two"]).is_ok() && args.check(&["two"]).is_err());
    }
}
