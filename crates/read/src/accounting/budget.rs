//! Limits on the work that one image may cause, which follow from the bytes that it has.
//!
//! An image of a few kilobytes can describe exabytes: by holes, by blocks that many extents share,
//! by inodes in a metabox that is a hole. Code that reads an image charges its work here, before or
//! after doing it. Beyond the limit, or after the operation was cancelled, [`Budget::charge`]
//! fails, which ends every loop.
//!
//! A command has one budget for all of its reads; each operation on the image may have a token that
//! cancels it alone. A server has no total limit, but each [request](Budget::request) has a limit
//! of its own.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::progress::Cancel;
use crate::error::{Error, LimitKind, Result};

/// Work that any image may cause, in units of about 100 ns: three seconds. Sound images of less
/// than a megabyte need less than a tenth of it.
const BASE_WORK: u64 = 32 << 20;
/// Work for each byte of the image. A sound image needs about 3 for an index of 2-byte records, its
/// densest structure, and less for all other structures.
const WORK_PER_BYTE: u64 = 8;
/// Names that any image may have. Commands keep up to 120 bytes in memory for each name.
const BASE_NAMES: u64 = 512 << 10;
/// Bytes of an image for each further name. A name and its inode take 44 bytes or more, and rarely
/// less than 3 if both are compressed.
const BYTES_PER_NAME: u64 = 2;
/// Work that a thread takes from the shared budget at once: more takes make threads wait for the
/// counter. Cancelling is checked at each take, about every 0.5 ms.
const BATCH: u64 = 4096;
/// Work that one request of a server may take: about half a second. A request beyond it fails. The
/// largest requests of sound images, 2 MiB of pclusters of 512 bytes, need some 20,000.
const REQUEST: u64 = 4 << 20;

/// Decoded or copied bytes for each unit of work: 100 ns for 64 bytes is what reading and decoding
/// them take on a slow machine. So at most 2 GiB + 512 n bytes are decoded from an image of n
/// bytes.
const BYTES_PER_WORK: u64 = 64;

thread_local! {
    /// Work that this thread has taken from a budget and not used yet.
    static CREDIT: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread serves a request, which cannot take more than [`REQUEST`].
    static IN_REQUEST: Cell<bool> = const { Cell::new(false) };
}

/// The budget of one open image, and the tokens that cancel the work of one of its handles.
#[derive(Clone, Debug)]
pub struct Budget {
    spent: Arc<Spent>,
    work_limit: u64,
    names_limit: u64,
    /// Work ends soon after one of these.
    cancel: Vec<Cancel>,
}

/// The work and names that all handles of an image used together.
#[derive(Debug, Default)]
struct Spent {
    work: AtomicU64,
    names: AtomicU64,
}

impl Budget {
    /// `factor` times the work that an image of `bytes` may need; no limit without a factor.
    pub(crate) fn new(bytes: u64, factor: Option<u32>, cancel: Cancel) -> Self {
        let times =
            |amount: u64| factor.map_or(u64::MAX, |factor| amount.saturating_mul(factor.into()));
        Self {
            spent: Arc::default(),
            work_limit: times(BASE_WORK.saturating_add(bytes.saturating_mul(WORK_PER_BYTE))),
            names_limit: times(BASE_NAMES.saturating_add(bytes / BYTES_PER_NAME)),
            cancel: vec![cancel],
        }
    }

    /// Adds a token: work ends soon after it is cancelled.
    pub(crate) fn cancel_with(&mut self, cancel: &Cancel) {
        self.cancel.push(cancel.clone());
    }

    /// Counts `work` units of about 100 ns.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Interrupted`].
    pub fn charge(&self, work: u64) -> Result<()> {
        match CREDIT.get().checked_sub(work) {
            Some(remaining) => {
                CREDIT.set(remaining);
                Ok(())
            }
            None => self.take(work),
        }
    }

    /// Counts the work of copying `bytes`.
    ///
    /// # Errors
    /// As [`Self::charge`].
    pub fn charge_bytes(&self, bytes: u64) -> Result<()> {
        self.charge((bytes / BYTES_PER_WORK).saturating_add(1))
    }

    /// Counts `names`, or other things that stay in memory while a command runs.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn charge_names(&self, names: u64) -> Result<()> {
        if self.names_limit == u64::MAX {
            return Ok(());
        }
        match self.spent.names.fetch_add(names, Ordering::Relaxed).saturating_add(names)
            <= self.names_limit
        {
            true => Ok(()),
            false => Err(Error::Limit { what: LimitKind::Names, limit: self.names_limit }),
        }
    }

    #[cold]
    fn take(&self, work: u64) -> Result<()> {
        if IN_REQUEST.get() {
            CREDIT.set(0);
            return Err(Error::Limit { what: LimitKind::Request, limit: REQUEST });
        }
        if self.cancel.iter().any(Cancel::is_cancelled) {
            return Err(Error::Interrupted);
        }
        let wanted = work.saturating_sub(CREDIT.get()).saturating_add(BATCH);
        let before = self.spent.work.fetch_add(wanted, Ordering::Relaxed);
        if self.work_limit != u64::MAX && before.saturating_add(wanted) > self.work_limit {
            // Later calls of other threads fail too, and the sum cannot overflow.
            self.spent.work.store(self.work_limit, Ordering::Relaxed);
            return Err(Error::Limit { what: LimitKind::Work, limit: self.work_limit });
        }
        CREDIT.set(BATCH);
        Ok(())
    }

    /// Runs one request of a server, which has a limit of its own.
    pub(crate) fn request<T>(request: impl FnOnce() -> T) -> T {
        /// Restores the thread's state even when a request panics.
        struct Restore(u64, bool);
        impl Drop for Restore {
            fn drop(&mut self) {
                CREDIT.set(self.0);
                IN_REQUEST.set(self.1);
            }
        }
        let restore = Restore(CREDIT.replace(REQUEST), IN_REQUEST.replace(true));
        let result = request();
        drop(restore);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(budget: &Budget) -> (u64, Error) {
        let mut work = 0;
        loop {
            match budget.charge(100) {
                Ok(()) => work += 100,
                Err(error) => return (work, error),
            }
        }
    }

    #[test]
    fn work_ends_where_the_size_says() {
        let budget = Budget::new(1000, Some(1), Cancel::default());
        let (work, error) = ends(&budget);
        assert!(matches!(error, Error::Limit { what: LimitKind::Work, .. }), "{error}");
        assert!(work > BASE_WORK && work <= BASE_WORK + 1000 * WORK_PER_BYTE + BATCH, "{work}");
        assert!(budget.charge(BATCH).is_err(), "it stays at its end");
    }

    #[test]
    fn cancelling_ends_unlimited_work() {
        let other = Budget::new(0, None, Cancel::default());
        other.charge(BASE_WORK * 4).unwrap();
        let cancel = Cancel::default();
        cancel.cancel();
        let mut budget = other.clone();
        budget.cancel_with(&cancel);
        let (work, error) = ends(&budget);
        assert!(matches!(error, Error::Interrupted) && work <= 2 * BATCH, "{work}: {error}");
        other.charge(BASE_WORK).unwrap();
        let budget = Budget::new(0, None, cancel);
        let (work, error) = ends(&budget);
        assert!(matches!(error, Error::Interrupted) && work <= 2 * BATCH, "{work}: {error}");
    }

    #[test]
    fn a_request_has_a_bound_of_its_own() {
        let budget = Budget::new(0, None, Cancel::default());
        let (work, error) = Budget::request(|| ends(&budget));
        assert!(matches!(error, Error::Limit { what: LimitKind::Request, .. }), "{error}");
        assert!(work <= REQUEST && work > REQUEST - 200);
        Budget::request(|| budget.charge(REQUEST)).unwrap();
    }

    #[test]
    fn names_are_counted() {
        let budget = Budget::new(100, Some(2), Cancel::default());
        budget.charge_names(2 * (BASE_NAMES + 50)).unwrap();
        assert!(matches!(budget.charge_names(1), Err(Error::Limit { what: LimitKind::Names, .. })));
    }
}
