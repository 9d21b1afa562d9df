//! Options and values that several commands take.

pub(crate) mod byte_size;
pub(crate) mod compression;
pub(crate) mod exclude;
pub(crate) mod features;
pub(crate) mod hidden;
pub(crate) mod image;
pub(crate) mod image_name;
pub(crate) mod overwrite;
pub(crate) mod seal;
pub(crate) mod signature;

use std::num::NonZeroUsize;

/// The number of threads that an option asks for, or that this machine has processors.
pub(crate) fn threads(option: Option<NonZeroUsize>) -> usize {
    option.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// Returns "; the nearest is X" if one of `names` is similar to `name`, else nothing.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    // Jaro-Winkler similarity, from 0 to 1. Names below this value look unrelated to people.
    const MIN_SIMILARITY: f64 = 0.75;
    let similarity = |other: &str| strsim::jaro_winkler(name, other);
    let best = names.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    best.filter(|best| similarity(best) > MIN_SIMILARITY)
        .map_or(String::new(), |best| format!("; the nearest is {best}"))
}
