//! What each kernel did with each image, and whether it may.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::images::Built;
use super::{Version, parallel};
use crate::hostile::base_images::TestImage;
use crate::linux::digest::total;
use crate::linux::guest::{self, Case};
use crate::linux::machine::{Answer, Answers, Kernel, Machine, Processor};

/// Debian's kernel of this release has no LZMA.
const WITHOUT_LZMA: Version = Version(6, 1);
/// The page with the results, and the line after which they begin.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/kernels.md");
const MARK: &str = "<!-- cargo xtask test --kernels --publish writes from here -->\n";

const READS: &str = "reads";
const REFUSES: &str = "refuses";

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Column(Processor, Version);

impl Column {
    fn of(kernel: &Kernel) -> Result<Self> {
        Ok(Self(kernel.processor, Version::parse(&kernel.release)?))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = match self.0 {
            Processor::Amd64 => "",
            Processor::Arm64 => "-arm64",
            Processor::Arm64Pages16K => "-16k",
        };
        write!(f, "{}{page}", self.1)
    }
}

/// The results for the images of a layout.
struct Row {
    layout: &'static str,
    /// The first release that mounts it, as the summary says.
    first: Version,
    cells: BTreeMap<Column, &'static str>,
}

/// The results.
pub(super) struct Table {
    work_dir: PathBuf,
    /// Machines that run at a time.
    jobs: usize,
    rows: Vec<Row>,
    /// The number of images of random options, by kernel and result.
    random: BTreeMap<(Column, &'static str), u64>,
    findings: u64,
}

impl Table {
    pub(super) fn new(work_dir: &Path, jobs: usize) -> Self {
        Self {
            work_dir: work_dir.to_owned(),
            jobs,
            rows: Vec::new(),
            random: BTreeMap::new(),
            findings: 0,
        }
    }

    /// Lets all kernels read all images.
    pub(super) fn read(&mut self, kernels: &[&Kernel], images: &[Built]) -> Result<()> {
        let dir = self.work_dir.join("images");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let mut cases = Vec::new();
        for (number, image) in images.iter().enumerate() {
            fs::write(dir.join(number.to_string()), &image.bytes[..])?;
            for (extra, device) in image.devices.iter().enumerate() {
                fs::write(dir.join(format!("{number}.device{extra}")), &device[..])?;
            }
            if let Some(equal) = &image.equal {
                fs::write(dir.join(format!("{number}.equal")), &equal[..])?;
            }
            if let Some(root_hash) = &image.root_hash {
                fs::write(dir.join(format!("{number}.roothash")), root_hash)?;
            }
            let source = TestImage::new(Arc::clone(&image.bytes));
            cases.push(Case::new(number as u64, number, total(&image.entries), &source));
        }
        for (column, answers) in self.start_all(kernels, &dir, &cases)? {
            for (number, image) in images.iter().enumerate() {
                let answer =
                    answers.get(&(number as u64)).context("the machine did not read all images")?;
                self.judge(column, image, answer)?;
            }
        }
        Ok(())
    }

    fn start_all(
        &self,
        kernels: &[&Kernel],
        dir: &Path,
        cases: &[Case],
    ) -> Result<Vec<(Column, Answers)>> {
        parallel(self.jobs, kernels.len(), |number| {
            let kernel = kernels[number];
            let (column, start) = (Column::of(kernel)?, Instant::now());
            let machine = Machine::new(kernel, &self.work_dir, dir)?;
            let answers = machine.read(cases).with_context(|| format!("Linux {column}"))?;
            let time = start.elapsed().as_secs_f64();
            println!("Linux {column}: {} images in {time:.0} s", cases.len());
            Ok((column, answers))
        })
    }

    fn judge(&mut self, column: Column, image: &Built, answer: &Answer) -> Result<()> {
        let mut problems = Vec::new();
        let result = match answer {
            Answer::Line(line) if line == "ok" => READS,
            Answer::Line(line) => compare(column, image, line, &mut problems),
            Answer::Crash => "CRASHES",
            Answer::Hang => "HANGS",
        };
        match image.layout {
            Some(layout) => drop(self.row(layout, image.first).cells.insert(column, result)),
            None => *self.random.entry((column, result)).or_default() += 1,
        }
        let Column(processor, version) = column;
        let is_promised = version >= image.first && image.block <= processor.page();
        let is_left_out = version == WITHOUT_LZMA && image.has_lzma;
        if result == READS || result == REFUSES && (!is_promised || is_left_out) {
            return Ok(());
        }
        self.findings += 1;
        let kept = self.work_dir.join("kept");
        fs::create_dir_all(&kept)?;
        let file = kept.join(format!("{column}-{}.erofs", self.findings));
        fs::write(&file, &image.bytes[..])?;
        println!(
            "Linux {column} {result}: {} [{}], first {}: {:?}; {}",
            image.layout.unwrap_or("random"),
            image.options,
            image.first,
            problems.iter().take(3).collect::<Vec<_>>(),
            file.display()
        );
        Ok(())
    }

    fn row(&mut self, layout: &'static str, first: Version) -> &mut Row {
        let at = self.rows.iter().position(|row| row.layout == layout).unwrap_or_else(|| {
            self.rows.push(Row { layout, first, cells: BTreeMap::new() });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    fn columns(&self) -> BTreeSet<Column> {
        let cells = self.rows.iter().flat_map(|row| row.cells.keys());
        cells.chain(self.random.keys().map(|(column, _)| column)).copied().collect()
    }

    /// Prints each cell.
    pub(super) fn print(&self) {
        let columns = self.columns();
        let line = |name: &str, cells: Vec<String>| {
            println!(
                "{name:<28}{}",
                cells.iter().map(|cell| format!("{cell:>11}")).collect::<String>()
            );
        };
        line("Linux", columns.iter().map(ToString::to_string).collect());
        for row in &self.rows {
            let cell =
                |column: &Column| row.cells.get(column).copied().unwrap_or_default().to_owned();
            line(row.layout, columns.iter().map(cell).collect());
        }
        for ((column, result), count) in &self.random {
            println!("Linux {column} {result} {count} images of random options");
        }
    }

    /// Fails if a kernel did what it must not.
    pub(super) fn end(&self) -> Result<()> {
        match self.findings {
            0 => Ok(()),
            n => {
                bail!("{n} findings; their images are in {}", self.work_dir.join("kept").display())
            }
        }
    }

    /// Writes the results into the page. Layouts with equal results share a line.
    pub(super) fn publish(&self) -> Result<()> {
        let page = fs::read_to_string(PAGE).context(PAGE)?;
        let (head, _) = page.split_once(MARK).with_context(|| format!("{PAGE}: no line {MARK}"))?;
        fs::write(PAGE, format!("{head}{MARK}{}", self.text())).context(PAGE)
    }

    fn text(&self) -> String {
        let all = self.columns();
        let mut lines: BTreeMap<(Version, String), Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            let reads = row.cells.iter().filter(|(_, result)| **result == READS);
            let reads = reads.map(|(column, _)| *column).collect();
            // A row without all kernels names those that it has.
            let measured: BTreeSet<Column> = row.cells.keys().copied().collect();
            let text = if measured == all { short(&reads, &all) } else { list(&reads) };
            lines.entry((row.first, text)).or_default().push(row.layout);
        }
        let mut text =
            format!("Kernels: {}.\n\n|promised|read by|images|\n|---|---|---|\n", list(&all));
        for ((first, reads), layouts) in lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "|{first}|{reads}|{}|", layouts.join(", "));
        }
        let counts = |result| {
            let of = |column: &Column| self.random.get(&(*column, result)).copied().unwrap_or(0);
            all.iter().map(|column| of(column).to_string()).collect::<Vec<_>>().join(", ")
        };
        text + &format!(
            "\nRandom options, images read: {}; refused: {}.\n",
            counts(READS),
            counts(REFUSES)
        )
    }
}

/// Whether Linux shows the tree of the image, according to the entries in `line`. Adds other values
/// and errors to `problems`.
fn compare(column: Column, image: &Built, line: &str, problems: &mut Vec<String>) -> &'static str {
    let linux: BTreeMap<String, Result<u64, String>> = line
        .split_whitespace()
        .filter_map(guest::parse_entry)
        .map(|entry| (entry.what, entry.value))
        .collect();
    let mut result = READS;
    for entry in &image.entries {
        match linux.get(&entry.what) {
            Some(Ok(value)) if entry.value.as_ref().ok() == Some(value) => {}
            // Where holes are, older releases show zeroes.
            Some(_) if entry.what.ends_with(":h") && column.1 < image.shows_holes => {}
            Some(Ok(_)) => {
                problems.insert(0, entry.what.clone());
                result = "WRONG";
            }
            refused => {
                if let Some(Err(error)) = refused {
                    problems.push(format!("{}: {error}", entry.what));
                }
                if result == READS {
                    result = REFUSES;
                }
            }
        }
    }
    result
}

/// The kernels of `some`, in few words: `6.12+` are this release and all newer ones in `all`.
fn short(some: &BTreeSet<Column>, all: &BTreeSet<Column>) -> String {
    if some == all {
        return String::from("all");
    }
    let mut parts = Vec::new();
    for (processor, name) in [
        (Processor::Amd64, "amd64"),
        (Processor::Arm64, "arm64"),
        (Processor::Arm64Pages16K, "arm64-16k"),
    ] {
        let of = |columns: &BTreeSet<Column>| -> Vec<Column> {
            columns.iter().filter(|column| column.0 == processor).copied().collect()
        };
        let (some, all) = (of(some), of(all));
        match some.first() {
            None => {}
            Some(_) if some == all => parts.push(name.to_owned()),
            Some(first) if all.ends_with(&some) => parts.push(format!("{first}+")),
            Some(_) => parts.extend(some.iter().map(ToString::to_string)),
        }
    }
    parts.join(", ")
}

fn list(columns: &BTreeSet<Column>) -> String {
    columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_in_few_words() {
        let amd64 = [(5, 10), (6, 1), (7, 2)].map(|(a, b)| Column(Processor::Amd64, Version(a, b)));
        let large = Column(Processor::Arm64Pages16K, Version(7, 2));
        let all: BTreeSet<Column> = amd64.into_iter().chain([large]).collect();
        let name = |some: &[Column]| short(&some.iter().copied().collect(), &all);
        assert_eq!(name(&[amd64[0], amd64[1], amd64[2], large]), "all");
        assert_eq!(name(&amd64[1..]), "6.1+");
        assert_eq!(name(&[amd64[0], amd64[2], large]), "5.10, 7.2, arm64-16k");
        assert_eq!(name(&amd64), "amd64");
        assert_eq!(list(&all), "5.10, 6.1, 7.2, 7.2-16k");
    }

    #[test]
    fn other_bytes_are_wrong_and_errors_refuse() {
        let entry =
            |what: &str, value| crate::linux::digest::Entry { what: what.into(), value: Ok(value) };
        let image = Built {
            layout: None,
            options: String::new(),
            bytes: Arc::default(),
            devices: Vec::new(),
            equal: None,
            root_hash: None,
            first: Version(5, 4),
            shows_holes: Version(7, 2),
            block: 4096,
            has_lzma: false,
            entries: vec![entry("/a:c", 10), entry("/a:h", 11)],
        };
        let result = |version, line: &str| {
            compare(Column(Processor::Amd64, version), &image, line, &mut Vec::new())
        };
        let (old, new) = (Version(6, 12), Version(7, 2));
        assert_eq!(result(old, "/a:c=a /a:h=b"), READS);
        assert_eq!(result(old, "/a:c=a /a:h=c"), READS);
        assert_eq!(result(new, "/a:c=a /a:h=c"), "WRONG");
        assert_eq!(result(new, "/a:c!5 /a:h=b"), REFUSES);
        assert_eq!(result(old, "/a:c=b /a:h!5"), "WRONG");
        assert_eq!(result(old, "/:s!mount-22"), REFUSES);
    }
}
