//! The options and the report of a check, and the collection of findings that becomes the report.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_format::{BlockSize, BytePos, Fault, Structure};
use ferofs_read::error::{Corruption, Error, Result};
use ferofs_read::escape::Escaped;
use ferofs_read::{Count, Extent};
use ferofs_verity::IntegrityError;
use parking_lot::Mutex;

/// The options of a check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Threads that check inodes and decode content; `None`: one for each processor.
    pub workers: Option<NonZeroUsize>,
    /// Decode all content; without this, only its map is checked. Default: yes.
    pub content: bool,
    /// How far the check is; other threads may read it meanwhile.
    pub progress: Arc<Progress>,
}

/// How far a check is.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Inodes that the walk found until now. The superblock has their number, which a damaged image
    /// may lie about.
    pub inodes: Count,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: None, content: true, progress: Arc::default() }
    }
}

/// A rule that the image breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The file's path; empty for the root, and for the image as a whole.
    pub path: PathBuf,
    /// The rule, and the position.
    pub corruption: Corruption,
    /// The bytes of the file that are affected; `None`: the file as a whole.
    pub content: Option<Range<u64>>,
    /// Another file that uses the same bytes.
    pub also: Option<PathBuf>,
}

impl Finding {
    /// The finding in a line: the path, the broken rule, and its place. `level` comes before the
    /// rule, for example "warning: ".
    fn line(&self, level: &str, block_size: BlockSize) -> String {
        let Self { path, corruption, content, also } = self;
        let mut line = format!("/{}: {level}{corruption}", Escaped::path(path));
        if let Some(pos) = corruption.pos {
            line += &format!(", block {}", pos.block(block_size).get());
        }
        if let Some(content) = content {
            line += &format!(", file bytes {}..{}", content.start, content.end);
        }
        if let Some(also) = also {
            line += &format!(", shared with /{}", Escaped::path(also));
        }
        line
    }

    /// The order of a file's findings.
    pub(super) fn key(&self) -> (Option<u64>, Option<u64>, String) {
        let start = self.content.as_ref().map(|content| content.start);
        (start, self.corruption.pos.map(BytePos::get), self.corruption.to_string())
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Broken rules, sorted by path. Their number per file and their memory are limited.
    pub findings: Vec<Finding>,
    /// Broken rules that do not keep Linux from reading: a link count above the number of names, as
    /// incremental builds of erofs-utils leave it. Sorted and limited as `findings`.
    pub warnings: Vec<Finding>,
    /// The number of findings beyond these limits.
    pub unlisted: u64,
    /// Inodes that were checked.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Bytes of content that were decoded.
    pub content_bytes: u64,
    /// Blocks of the primary device that nothing in the tree refers to: no damage, but space that
    /// patches or alignment left unused.
    pub unreferenced_blocks: u64,
}

impl Report {
    /// A line for each finding and warning, and one for those that are not listed.
    pub fn lines(&self, block_size: BlockSize) -> impl Iterator<Item = String> {
        let findings = self.findings.iter().map(move |finding| finding.line("", block_size));
        let warnings =
            self.warnings.iter().map(move |finding| finding.line("warning: ", block_size));
        let unlisted = match self.unlisted {
            0 => None,
            1 => Some("1 more finding".to_owned()),
            more => Some(format!("{more} more findings")),
        };
        findings.chain(warnings).chain(unlisted)
    }

    /// Whether no rule is broken, apart from [warnings](Self::warnings). Without
    /// [`Options::content`], content was not read.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.unlisted == 0
    }
}

/// Listed findings per file. More are only counted.
const PER_FILE: usize = 16;
/// Bytes of all listed findings. More are only counted.
const BUDGET: usize = 16 << 20;

/// Whether Linux reads images that break this rule: it never frees inodes, so that a link count may
/// be too large. Before 7.2, it reads the images of 2019, whose LZ4 data is not padded; from 7.2
/// on, all holes in compressed files.
fn is_warning(fault: &Fault) -> bool {
    match fault {
        Fault::LinkCount { stored, found } => stored > found,
        Fault::FeatureNotSet(feature) => *feature == "LZ4_0PADDING",
        Fault::OlderLinux(_) => true,
        _ => false,
    }
}

/// The finding for a block that does not have the digest of the hash tree, in the content of a file
/// or in metadata.
fn unverified(broken: IntegrityError, is_content: bool) -> Corruption {
    let structure = if is_content { Structure::Extent } else { Structure::Inode };
    match broken.is_hash {
        // Its position is in the tree.
        true => Corruption::new(
            structure,
            Fault::Digest("the hash tree does not agree with the root hash"),
        ),
        false => {
            let fault = Fault::Digest("a block does not agree with the root hash");
            Corruption::new(structure, fault).at(BytePos::new(broken.position))
        }
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Mutex<FoundRules>);

#[derive(Debug, Default)]
struct FoundRules {
    findings: Vec<Finding>,
    bytes: usize,
    unlisted: u64,
    failure: Option<Error>,
    /// The sizes of the files that are cut off.
    cut_off: Vec<u64>,
}

impl FoundRules {
    /// Whether another finding may be listed. Otherwise counts it as not listed.
    fn has_space(&mut self, fault: &Fault) -> bool {
        // Everything that was beyond the end of a file, and the names in directories there, would
        // hide that it is cut off.
        let follows = match fault {
            Fault::OutOfRange { limit, .. } => self.cut_off.contains(limit),
            Fault::LinkCount { .. } => !self.cut_off.is_empty(),
            _ => false,
        };
        let has_space = !follows && self.bytes <= BUDGET;
        self.unlisted = self.unlisted.saturating_add((!has_space).into());
        has_space
    }

    fn push(&mut self, finding: Finding) {
        let also = finding.also.as_ref().map_or(0, |also| also.as_os_str().len());
        let paths = finding.path.as_os_str().len().saturating_add(also);
        self.bytes = self.bytes.saturating_add(size_of::<Finding>()).saturating_add(paths);
        self.findings.push(finding);
    }
}

impl Findings {
    /// Adds a broken rule.
    pub(super) fn add(
        &self,
        path: impl FnOnce() -> PathBuf,
        corruption: Corruption,
        extent: Option<&Extent>,
    ) {
        let mut state = self.0.lock();
        if state.has_space(&corruption.fault) {
            let content = extent.map(|extent| extent.start.get()..extent.end());
            state.push(Finding { path: path(), corruption, content, also: None });
        }
    }

    pub(super) fn push(&self, finding: Finding) {
        let mut state = self.0.lock();
        if state.has_space(&finding.corruption.fault) {
            state.push(finding);
        }
    }

    /// Only counts what refers to bytes beyond `size`, the end of a file that is cut off.
    pub(super) fn only_count_beyond(&self, size: u64) {
        self.0.lock().cut_off.push(size);
    }

    /// The value of `result`. A broken rule, or a block without the digest of the hash tree,
    /// becomes a finding; any other error ends the check.
    pub(super) fn value_of<T>(
        &self,
        path: impl FnOnce() -> PathBuf,
        extent: Option<&Extent>,
        result: Result<T>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::Corrupt(corruption) | Error::Unsupported(corruption)) => {
                self.add(path, corruption, extent);
                None
            }
            Err(error) => {
                match IntegrityError::within(&error) {
                    Some(broken) => self.add(path, unverified(*broken, extent.is_some()), extent),
                    None => drop(self.0.lock().failure.get_or_insert(error)),
                }
                None
            }
        }
    }

    /// The damaged parts of the content of the file `path`.
    pub(super) fn damaged_parts(&self, path: &Path) -> Vec<(Range<u64>, Corruption)> {
        let state = self.0.lock();
        let of_file = state.findings.iter().filter(|finding| finding.path == path);
        of_file
            .filter_map(|finding| Some((finding.content.clone()?, finding.corruption.clone())))
            .collect()
    }

    /// Whether an error ended the check.
    pub(super) fn has_failed(&self) -> bool {
        self.0.lock().failure.is_some()
    }

    /// Sorts the findings, applies the limit per file, and puts them into `report`. The result is
    /// the error that ended the check, if there is one.
    pub(super) fn into_report(self, report: Report) -> (Report, Result<()>) {
        let FoundRules { mut findings, mut unlisted, failure, .. } = self.0.into_inner();
        findings.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.key().cmp(&b.key())));
        findings.dedup();
        let (warnings, findings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| is_warning(&finding.corruption.fault));
        let mut listed: Vec<Finding> = Vec::new();
        let mut of_file = 0usize;
        for finding in findings {
            let same = listed.last().is_some_and(|last| last.path == finding.path);
            of_file = if same { of_file.saturating_add(1) } else { 1 };
            if of_file <= PER_FILE {
                listed.push(finding);
            } else {
                unlisted = unlisted.saturating_add(1);
            }
        }
        (Report { findings: listed, warnings, unlisted, ..report }, failure.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corruption(fault: Fault) -> Corruption {
        Corruption::new(Structure::Inode, fault)
    }

    #[test]
    fn findings_are_listed_once_and_up_to_a_limit_per_file() {
        let findings = Findings::default();
        for (path, count) in [("many", PER_FILE + 4), ("all", PER_FILE), ("many", 2)] {
            for pos in 0..count as u64 {
                findings.add(|| path.into(), corruption(Fault::Decode).at(BytePos::new(pos)), None);
            }
        }
        for fault in [
            Fault::LinkCount { stored: 3, found: 2 },
            Fault::LinkCount { stored: 2, found: 3 },
            Fault::FeatureNotSet("LZ4_0PADDING"),
            Fault::FeatureNotSet("FRAGMENTS"),
        ] {
            findings.add(|| "few".into(), corruption(fault), None);
        }
        let (report, result) = findings.into_report(Report::default());
        assert!(result.is_ok() && !report.is_sound());
        let listed = |path: &str| {
            report.findings.iter().filter(|found| found.path == Path::new(path)).count()
        };
        assert_eq!([listed("all"), listed("many"), listed("few")], [PER_FILE, PER_FILE, 2]);
        assert_eq!((report.warnings.len(), report.unlisted), (2, 4));
    }

    #[test]
    fn long_paths_do_not_fill_the_memory() {
        let (findings, path) = (Findings::default(), PathBuf::from("p".repeat(1 << 20)));
        for pos in 0..20 {
            let corruption = corruption(Fault::Decode).at(BytePos::new(pos));
            if pos % 2 == 0 {
                findings.add(|| path.clone(), corruption, None);
            } else {
                findings.push(Finding {
                    path: path.clone(),
                    corruption,
                    content: None,
                    also: None,
                });
            }
        }
        let (report, _) = findings.into_report(Report::default());
        assert_eq!((report.findings.len(), report.unlisted), (16, 4));
    }
}
