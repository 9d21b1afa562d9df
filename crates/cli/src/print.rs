//! Output for people: messages, names of files, progress.

pub(crate) mod color;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod reading;
pub(crate) mod verbosity;
