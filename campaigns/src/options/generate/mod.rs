//! Generates cases from a seed, and makes a failing case smaller.

pub(crate) mod case;
pub(crate) mod choose;
pub(crate) mod sequence;
pub(crate) mod settings;
pub(crate) mod shrink;
pub(crate) mod tree;
