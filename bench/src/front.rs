//! The table of README.md: lines of the published pages that readers ask for first, and the worst
//! ones. Publishing a page writes it anew, and a test compares it.

use std::fs;

use anyhow::{Context, Result};
use ferofs_devtools::{page, shell};

use crate::common::report::{number, rows};
use crate::write::WITH_ITSELF;

/// The line before the table in README.md.
const BEGIN: &str = "<!-- cargo xtask bench writes from here, from docs/results -->";

/// Lines of build.tsv: contest, tree, the start of the command that is compared, and what README.md
/// calls them.
const BUILDS: [(&str, &str, &str, &str); 5] = [
    ("default", "desktop", "`mkfs.erofs", "a desktop of 2.8 GB, no option given"),
    ("lz4", "desktop", "`mkfs.erofs", "the same, `--preset fast`"),
    ("zstd 12 48bit", "numpy", "`mksquashfs", "Python with NumPy and SciPy, `-z zstd,12 -E 48bit`"),
    ("zstd 3 blocks", "numpy", "`mkfs.erofs", "NumPy and SciPy, Zstandard 3"),
    ("smallest", "sqlalchemy", "`mksquashfs", "eight versions of SQLAlchemy, `--preset smallest`"),
];

/// Lines of kernel.tsv: setting, tree, job and state of the image, and what README.md calls them.
const READS: [(&str, &str, &str, &str, &str); 1] = [(
    "zstd 128K",
    "container",
    "random 4 KiB",
    "cold",
    "Linux reads 4 KiB at random, Zstandard, from a disk",
)];

/// Writes the table into README.md.
pub(crate) fn write() -> Result<()> {
    let path = shell::repository().join("README.md");
    let text = fs::read_to_string(&path).context("README.md")?;
    fs::write(&path, page::replace_measured(&text, BEGIN, &table()?).context("README.md")?)
        .context("README.md")
}

/// The table, of ratios below 1 where ferofs is better.
fn table() -> Result<String> {
    let (build, kernel, random) = (page("build.tsv")?, page("kernel.tsv")?, page("random.md")?);
    let builds: Vec<Vec<&str>> = build.lines().map(|line| line.split('\t').collect()).collect();
    let reads: Vec<Vec<&str>> = kernel.lines().map(|line| line.split('\t').collect()).collect();
    let build = |words: &str, line: &[&str]| -> Result<Vec<String>> {
        let [_, _, peer, cpu, _, size, wall, ..] = line else {
            anyhow::bail!("a line of build.tsv: {line:?}")
        };
        Ok([words, peer, cpu, wall, size].map(str::to_owned).to_vec())
    };
    let mut table = Vec::new();
    for (contest, tree, peer, words) in BUILDS {
        let is_line =
            |line: &&Vec<&str>| line.starts_with(&[contest, tree]) && line[2].starts_with(peer);
        table.push(build(words, builds.iter().find(is_line).with_context(|| words.to_owned())?)?);
    }
    let others: Vec<&Vec<&str>> =
        builds.iter().skip(1).filter(|line| !WITH_ITSELF.contains(&line[0])).collect();
    let worst = others.first().context("no comparisons")?;
    let words = format!("the worst of {} comparisons: {}, {}", others.len(), worst[0], worst[1]);
    table.push(build(&words, worst)?);
    for (setting, tree, job, image, words) in READS {
        let line = reads.iter().find(|line| line.starts_with(&[setting, tree, job, image]));
        let [cpu, _, wall, squashfs_cpu, squashfs_wall] =
            line.with_context(|| words.to_owned())?[4..9]
        else {
            anyhow::bail!("a line of kernel.tsv: {line:?}")
        };
        for (words, peer, cpu, wall) in [
            (words, "erofs-utils' image", cpu, wall),
            ("the same", "squashfs", squashfs_cpu, squashfs_wall),
        ] {
            table.push([words, peer, cpu, wall, "-"].map(str::to_owned).to_vec());
        }
    }
    // The page has the slowest loads, then the median one, then the fastest.
    let loads: Vec<Vec<&str>> =
        rows(&random).filter(|line| line.len() > 6 && line[1] != "---").skip(1).collect();
    let median = loads
        .len()
        .checked_sub(2)
        .and_then(|at| loads.get(at))
        .context("no median in random.md")?;
    for (words, line) in
        [("random reads through FUSE, the median load", median), ("the slowest load", &loads[0])]
    {
        let speed: f64 = line[1].parse().with_context(|| line[1].to_owned())?;
        table.push(vec![
            words.into(),
            "erofsfuse".into(),
            line[6].into(),
            number(1.0 / speed),
            "-".into(),
        ]);
    }
    Ok(page::table(&["job", "compared with", "processor time", "time", "size"], &table))
}

fn page(name: &str) -> Result<String> {
    let path = shell::repository().join("docs/results").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_front_page_has_the_published_figures() {
        let readme = std::fs::read_to_string(super::shell::repository().join("README.md")).unwrap();
        assert!(
            readme.contains(&super::table().unwrap()),
            "publish a page again: it writes the table of README.md"
        );
    }
}
