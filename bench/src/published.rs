//! The published pages, `cargo xtask bench all`, which measures all of them again, and the test
//! that finds pages that are out of date.
//!
//! Each page has a comment with the accepted costs of the related cells of bench/gate.tsv when it
//! was measured. Costs that changed since then mean that the figures of the page are no longer
//! those of this ferofs: it must be measured again, or say so in a line that begins with `- out of
//! date: ` and names the cells. Such a line of docs/results/README.md names commits that are not in
//! this history.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{page, shell};

use crate::common::machine;
use crate::gate::accepted::AcceptedFile;

/// The name of the accepted costs among the facts about a run.
pub(crate) const COSTS: &str = "accepted costs when this was measured";
/// `bench all` starts only with at most this many runnable processes for each processor.
const LOAD: f64 = 0.5;

/// A benchmark whose figures are in docs.
struct Published {
    bench: &'static str,
    pages: &'static [&'static str],
    /// Prefixes of the cells of the gate that do what the benchmark measures.
    cells: &'static [&'static str],
    /// What it may take on two idle processors, without the trees, which are made once: together 95
    /// minutes.
    minutes: u64,
}

const fn published(
    bench: &'static str,
    pages: &'static [&'static str],
    cells: &'static [&'static str],
    minutes: u64,
) -> Published {
    Published { bench, pages, cells, minutes }
}

const PUBLISHED: [Published; 12] = [
    published("build", &["docs/results/build.md"], &["build ", "extract "], 13),
    published(
        "kernel",
        &["docs/results/kernel.md"],
        &["build preset default", "build zstd", "read "],
        6,
    ),
    published(
        "charts",
        &["docs/pictures/peers.md", "docs/guide/settings.md"],
        &["build ", "mount "],
        4,
    ),
    published(
        "redundant",
        &["docs/results/redundant.md"],
        &["build preset backup", "patch create"],
        9,
    ),
    published(
        "scale",
        &["docs/results/scale.md"],
        &["build small", "check small", "extract ", "mount names"],
        6,
    ),
    published("random", &["docs/results/random.md"], &["read ", "mount "], 15),
    published("patch", &["docs/results/patch.md"], &["patch "], 5),
    published("delta", &["docs/results/delta.md"], &["delta "], 10),
    published("like", &["docs/results/like.md"], &["build like"], 6),
    published("fleet", &["docs/results/fleet.md"], &["read ", "mount ", "verity "], 7),
    published(
        "codec",
        &["docs/results/codec.md"],
        &["build lz4hc 12", "build lzma", "build zstd", "build deflate"],
        3,
    ),
    published(
        "paper",
        &["docs/results/paper.md"],
        &["read ", "mount ", "build preset android"],
        11,
    ),
];

/// Measures and publishes everything that was not measured with this commit.
pub(crate) fn all(publish: impl Fn(&str) -> Result<()>) -> Result<()> {
    let commit = page::commit()?;
    if commit.contains("changed") {
        bail!(
            "the checkout has changes: commit them, so that the pages can name the commit that was measured"
        );
    }
    let load: f64 = machine::load()?.split(' ').next().unwrap_or_default().parse()?;
    let most = LOAD * std::thread::available_parallelism()?.get() as f64;
    if load > most {
        bail!(
            "the load is {load}, and {most} at most would disturb nothing: try again when the machine is idle"
        );
    }
    for Published { bench, pages, minutes, .. } in &PUBLISHED {
        let mut texts = pages.iter().map(|page| fs::read_to_string(shell::repository().join(page)));
        if texts.all(|text| text.is_ok_and(|text| text.contains(&format!("- commit: {commit}\n"))))
        {
            println!("{bench}: measured with {commit} already");
            continue;
        }
        let start = Instant::now();
        publish(bench).with_context(|| (*bench).to_owned())?;
        let took = start.elapsed().as_secs() as f64 / 60.0;
        println!("{bench}: {took:.1} of {minutes} minutes");
    }
    Ok(())
}

/// The accepted costs of the cells that belong to a benchmark: names, and
/// [values](AcceptedFile::costs) with `-` for those that a cell lacks.
pub(crate) fn costs(bench: &str) -> Result<String> {
    let Some(published) = PUBLISHED.iter().find(|published| published.bench == bench) else {
        return Ok(String::new());
    };
    let accepted = accepted()?;
    let cells = accepted
        .cells
        .keys()
        .filter(|cell| published.cells.iter().any(|start| cell.starts_with(start)));
    let costs = cells.filter_map(|cell| {
        let figures = accepted
            .costs(cell)?
            .map(|figure| figure.map_or("-".into(), |figure| figure.to_string()));
        Some(format!("{cell} = {}", figures.join(" ")))
    });
    Ok(costs.collect::<Vec<_>>().join(", "))
}

fn accepted() -> Result<AcceptedFile> {
    AcceptedFile::parse(&fs::read_to_string(shell::repository().join("bench/gate.tsv"))?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ferofs_tests::need;

    use super::*;

    /// Accepted costs may change by this share before a page is out of date.
    const TOLERANCE: f64 = 0.05;
    /// So may costs by less than this, in the order of [`AcceptedFile::costs`]: a hundred calls take
    /// a tenth of a millisecond, and pages show milliseconds.
    const FEW: [u64; 5] = [1_000_000, 1 << 20, 0, 8, 100];
    /// The line in which a page says what has changed since it was measured.
    const OLD: &str = "- out of date: ";

    /// Whether a page says that its figures are no longer those of `name`.
    fn says_out_of_date(text: &str, name: &str) -> bool {
        let old = text.lines().find_map(|line| line.strip_prefix(OLD)).unwrap_or_default();
        old.split(", ").any(|old| old == name)
    }

    /// What changed since a page was measured; nothing if its figures still hold.
    fn changes(text: &str, accepted: &AcceptedFile) -> Result<Vec<String>> {
        let (_, costs) =
            text.split_once(&format!("<!-- {COSTS}: ")).context("no accepted costs")?;
        let (costs, _) = costs.split_once(" -->").context("the comment has no end")?;
        let mut changes = Vec::new();
        for cost in costs.split(", ") {
            let (cell, before) = cost.split_once(" = ").with_context(|| cost.to_owned())?;
            let now = accepted.costs(cell).unwrap_or_default();
            // Older pages have only the instructions.
            let now = now.map(|figure| figure.map_or("-".into(), |figure| figure.to_string()));
            for ((before, now), few) in before.split(' ').zip(&now).zip(FEW) {
                let is_same = match (before.parse::<u64>(), now.parse::<u64>()) {
                    (Ok(before), Ok(now)) => {
                        (now as f64 / before as f64 - 1.0).abs() <= TOLERANCE
                            || now.abs_diff(before) <= few
                    }
                    // It was not measured then.
                    (Err(_), _) => true,
                    _ => false,
                };
                if !is_same && !says_out_of_date(text, cell) {
                    changes.push(format!("`{cell}` cost {before} then, and {now} is accepted now"));
                }
            }
        }
        Ok(changes)
    }

    #[test]
    fn published_figures_are_those_of_this_ferofs() {
        let accepted = accepted().unwrap();
        let mut old = Vec::new();
        for Published { bench, pages, .. } in &PUBLISHED {
            for page in *pages {
                let text = fs::read_to_string(shell::repository().join(page)).unwrap();
                for change in changes(&text, &accepted).with_context(|| (*page).to_owned()).unwrap()
                {
                    old.push(format!("{page}: {change}: run cargo xtask bench {bench} --publish"));
                }
            }
        }
        assert!(old.is_empty(), "{old:#?}");
    }

    /// The commits that a page names as measured.
    fn commits(text: &str) -> Vec<&str> {
        let columns =
            text.lines().skip_while(|line| !line.starts_with("| processor | commit |")).skip(2);
        let columns = columns
            .take_while(|line| line.starts_with('|'))
            .filter_map(|line| line.split(" | ").nth(1));
        text.lines().filter_map(|line| line.strip_prefix("- commit: ")).chain(columns).collect()
    }

    #[test]
    fn published_pages_name_commits_that_people_can_get() {
        let git = |words: &[&str]| {
            let output = Command::new("git").current_dir(shell::repository()).args(words).output();
            output.ok().filter(|output| output.status.success())
        };
        let index = shell::repository().join("docs/results/README.md");
        let index = fs::read_to_string(index).unwrap();
        let shallow = git(&["rev-parse", "--is-shallow-repository"]);
        if shallow.is_none_or(|output| !output.stdout.starts_with(b"false")) {
            need::lacks(need::HISTORY);
            return;
        }
        let pages = PUBLISHED.iter().flat_map(|published| published.pages);
        for page in pages.chain(&["docs/results/processors.md"]) {
            let text = fs::read_to_string(shell::repository().join(page)).unwrap();
            assert!(!commits(&text).is_empty(), "{page} names no commit");
            for commit in commits(&text) {
                let is_here = git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_some();
                assert!(
                    is_here || says_out_of_date(&index, commit),
                    "{page}: the commit {commit} is not in the history of this checkout: measure the page again"
                );
            }
        }
    }

    #[test]
    fn a_cost_that_changes_by_more_than_five_percent_is_noticed() {
        let page = format!("<!-- {COSTS}: {} -->", costs("build").unwrap());
        for (factor, is_old) in
            [(1.04, false), (0.96, false), (1.06, true), (0.94, true), (0.0, true)]
        {
            let accepted = accepted().unwrap();
            // Instructions, bytes and system calls.
            for (cell, number) in [("build tar", 0), ("build tar", 3), ("extract lz4", 5)] {
                let mut accepted = accepted.clone();
                let figures = &mut accepted.cells.get_mut(cell).unwrap().figures;
                figures[number] = figures[number].map(|figure| (figure as f64 * factor) as u64);
                assert!(
                    changes(&format!("{OLD}check lz4, {cell}\n{page}"), &accepted)
                        .unwrap()
                        .is_empty()
                );
                let changes = changes(&page, &accepted).unwrap();
                assert_eq!(!changes.is_empty(), is_old, "{number} {factor}: {changes:?}");
                let quoted = format!("`{cell}`");
                assert!(changes.iter().all(|change| change.contains(&quoted)), "{changes:?}");
            }
        }
    }

    #[test]
    fn everything_takes_as_long_as_the_pages_say() {
        assert!(PUBLISHED.iter().map(|published| published.minutes).sum::<u64>() <= 95);
        for Published { bench, .. } in &PUBLISHED {
            assert!(!costs(bench).unwrap().is_empty(), "{bench}: the gate has no such cells");
        }
    }
}
