//! What a check has found so far, within bounds: a hostile image can break rules more often than anyone reads.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Finding, Report};
use ferofs_read::Extent;
use ferofs_read::error::{Corruption, Error, Result};

/// Findings of one file that are listed.
const PER_FILE: usize = 16;
/// Bytes of all findings that are listed.
const BUDGET: usize = 16 << 20;

/// Findings of many threads.
#[derive(Debug, Default)]
pub(super) struct Found(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    findings: Vec<Finding>,
    bytes: usize,
    unlisted: u64,
    failure: Option<Error>,
}

impl Found {
    /// Takes down a broken rule.
    pub(super) fn find(
        &self,
        path: impl FnOnce() -> PathBuf,
        corruption: Corruption,
        extent: Option<&Extent>,
    ) {
        let mut state = self.lock();
        if state.bytes > BUDGET {
            state.unlisted += 1;
            return;
        }
        let path = path();
        state.bytes += size_of::<Finding>() + path.as_os_str().len();
        let content = extent.map(|extent| extent.start.get()..extent.end());
        state.findings.push(Finding { path, corruption, content, also: None });
    }

    /// Takes down a finding as it is.
    pub(super) fn push(&self, finding: Finding) {
        let mut state = self.lock();
        if state.bytes > BUDGET {
            state.unlisted += 1;
            return;
        }
        let also = finding.also.as_ref().map_or(0, |also| also.as_os_str().len());
        state.bytes += size_of::<Finding>() + finding.path.as_os_str().len() + also;
        state.findings.push(finding);
    }

    /// Takes down what is wrong with the image; ends the check when it cannot be read.
    pub(super) fn note<T>(
        &self,
        path: impl FnOnce() -> PathBuf,
        extent: Option<&Extent>,
        result: Result<T>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::Corrupt(corruption) | Error::Unsupported(corruption)) => {
                self.find(path, corruption, extent);
                None
            }
            Err(error) => {
                self.lock().failure.get_or_insert(error);
                None
            }
        }
    }

    /// Whether the image cannot be read, so that going on makes no sense.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Ends the check: sorts what was found, and leaves out what nobody needs. The result is the error that stopped the
    /// check, if there is one.
    pub(super) fn report(self, report: Report) -> (Report, Result<()>) {
        let State { mut findings, mut unlisted, failure, .. } =
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        findings.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.key().cmp(&b.key())));
        findings.dedup();
        let mut listed: Vec<Finding> = Vec::new();
        let mut of_file = 0;
        for finding in findings {
            let same = listed.last().is_some_and(|last| last.path == finding.path);
            of_file = if same { of_file + 1 } else { 1 };
            if of_file <= PER_FILE {
                listed.push(finding);
            } else {
                unlisted += 1;
            }
        }
        (Report { findings: listed, unlisted, ..report }, failure.map_or(Ok(()), Err))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before the lock goes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
