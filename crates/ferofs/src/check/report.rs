//! The options and the report of a check.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ferofs_format::BlockSize;
use ferofs_read::error::Corruption;
use ferofs_read::escape::Escaped;

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
    /// Inodes that the walk found until now. The superblock has their number, which a damaged image may lie about.
    pub inodes: AtomicU64,
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
    /// The finding in a line: the path, the broken rule, and its place. `level` comes before the rule, for example "warning: ".
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
        (start, self.corruption.pos.map(ferofs_format::BytePos::get), self.corruption.to_string())
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Broken rules, sorted by path. Their number per file and their memory are limited.
    pub findings: Vec<Finding>,
    /// Broken rules that do not keep Linux from reading: a link count above the number of names, as incremental builds of erofs-utils leave it.
    /// Sorted and limited as `findings`.
    pub warnings: Vec<Finding>,
    /// The number of findings beyond these limits.
    pub unlisted: u64,
    /// Inodes that were checked.
    pub inodes: u64,
    /// Bytes of content that were decoded.
    pub content_bytes: u64,
    /// Blocks of the primary device that nothing in the tree refers to: no damage, but space that patches or alignment left
    /// unused.
    pub unreferenced_blocks: u64,
}

impl Report {
    /// A line for each finding and warning, and one for those that are not listed.
    pub fn lines(&self, block_size: BlockSize) -> impl Iterator<Item = String> {
        let findings = self.findings.iter().map(move |finding| finding.line("", block_size));
        let warnings = self.warnings.iter().map(move |finding| finding.line("warning: ", block_size));
        let unlisted = (self.unlisted > 0).then(|| format!("{} more findings", self.unlisted));
        findings.chain(warnings).chain(unlisted)
    }

    /// Whether no rule is broken, apart from [warnings](Self::warnings). Without [`Options::content`], content was not read.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.unlisted == 0
    }
}
