//! Commands that prepare a system for this program: names, completions, manual pages.

pub(super) mod completions;
pub(super) mod links;
