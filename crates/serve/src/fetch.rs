//! Fetches parts of an object into the cache: what readers wait for first, then what they will
//! need.
//!
//! A worker (`worker`) takes a range that is wanted and that no other worker fetches (`queue`),
//! claims it against other processes, fetches it with retries (`attempts`) or copies it from
//! another image on this machine (`reuse`), checks it against the hash tree (`check`), stores it in
//! the cache, and tells the readers that wait for it (`shared`).

mod attempts;
mod check;
mod fetcher;
mod join;
mod options;
mod queue;
mod reuse;
mod shared;
mod speed;
mod stats;
mod worker;

pub use self::attempts::RetryOptions;
pub(crate) use self::attempts::fetch;
pub(crate) use self::check::check_stored;
pub use self::check::{Check, Checked, TreeCheck, VerifiedEntry};
pub use self::fetcher::Fetcher;
pub use self::join::join_ranges;
pub use self::options::{Done, FetchOptions};
pub(crate) use self::reuse::{Base, KnownBlocks};
pub(crate) use self::stats::Counters;
pub use self::stats::FetchStats;
pub use crate::error::Failure;
