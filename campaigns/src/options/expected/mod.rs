//! The tree that an image must show, in memory, and the effects of settings on it.

pub(crate) mod effect;
pub(crate) mod model;
