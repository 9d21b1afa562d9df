//! `cargo xtask bench charts`: the figures and pictures of README.md and of the guide.
//!
//! - `peers`: size, build time and random reads of ferofs, erofs-utils and squashfs-tools: the bars
//!   of README.md.
//! - `settings`: the same of ferofs alone, over cluster sizes, algorithms and levels:
//!   docs/guide/settings.md.
//!
//! All times are processor seconds (user and system): other programs on the machine hardly change
//! them. Images are in memory. `--publish` writes the figures (JSON), the pictures and the tables
//! into docs; `--draw` makes pictures and tables again from the published figures, and a test
//! compares them.

mod measure;
mod peers;
mod settings;

use std::fs;

use anyhow::{Context, Result, bail};
use clap::Args;
use ferofs_devtools::install::{self, FUSE, SQUASHFUSE};
use ferofs_devtools::shell;

use measure::Bench;
use measure::Record;
pub(crate) use settings::PRESETS;

use crate::common::options::rounds;
use crate::common::programs::Programs;
use crate::trees;

/// A file of docs and its content.
type Page = (&'static str, String);

/// One part: what it measures, and what it writes from the figures.
struct Part {
    name: &'static str,
    /// The published figures.
    figures: &'static str,
    /// The name of the measured tree.
    source: &'static str,
    measure: fn(&Bench) -> Result<Record>,
    pages: fn(&Record) -> Result<Vec<Page>>,
}

const PARTS: [Part; 2] = [
    Part {
        name: "peers",
        figures: "docs/pictures/peers.json",
        source: "container",
        measure: peers::measure,
        pages: peers::pages,
    },
    Part {
        name: "settings",
        figures: "docs/guide/settings.json",
        source: "part",
        measure: settings::measure,
        pages: settings::pages,
    },
];

#[derive(Args)]
pub(crate) struct ChartsArgs {
    /// One of both parts
    #[arg(long, value_parser = PARTS.map(|part| part.name))]
    only: Option<String>,
    /// Measure N times
    #[arg(long, value_name = "N", default_value = "3", value_parser = rounds())]
    rounds: usize,
    /// Write the figures, the pictures and the tables of README.md and docs/guide; needs 3 rounds
    #[arg(long)]
    publish: bool,
    /// Make pictures and tables from the published figures
    #[arg(long, conflicts_with = "publish")]
    draw: bool,
}

pub(crate) fn charts(args: &ChartsArgs) -> Result<()> {
    let rounds = args.rounds;
    if args.publish && rounds < 3 {
        bail!("--publish needs at least 3 rounds");
    }
    let parts = PARTS.iter().filter(|part| args.only.as_ref().is_none_or(|name| name == part.name));
    if args.draw {
        for part in parts {
            let record = Record::read(&shell::repository().join(part.figures))?;
            write((part.pages)(&record)?)?;
        }
        return Ok(());
    }
    install::install(&[FUSE, SQUASHFUSE])?;
    let programs = Programs::install()?;
    for part in parts {
        let tree = trees::named(part.source)?;
        let (source, title) = (tree.get()?, tree.about.to_owned());
        let bench = Bench::new(&programs, source, title, rounds)?;
        let record = (part.measure)(&bench).with_context(|| part.name)?;
        println!("{}", record.text()?);
        if args.publish {
            // First, so that a mistake in a picture does not lose an hour's figures.
            write(vec![(part.figures, record.json()?)])?;
            write((part.pages)(&record)?)?;
        }
    }
    Ok(())
}

fn write(pages: Vec<Page>) -> Result<()> {
    for (name, text) in pages {
        let path = shell::repository().join(name);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&path, text).with_context(|| name)?;
        println!("{name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pictures and tables in docs are those of the published figures.
    #[test]
    fn what_is_published_is_what_was_measured() {
        for part in PARTS {
            let record = Record::read(&shell::repository().join(part.figures)).unwrap();
            for row in &record.rows {
                assert!(
                    row.build_cpu_seconds.len() >= 3,
                    "{}: {} rounds",
                    row.options,
                    record.rounds
                );
            }
            for (name, text) in (part.pages)(&record).unwrap() {
                let published = fs::read_to_string(shell::repository().join(name)).unwrap();
                assert!(published == text, "{name}: run cargo xtask bench charts --draw");
            }
        }
    }
}
