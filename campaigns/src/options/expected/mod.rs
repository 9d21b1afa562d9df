//! What an image must show: a tree in memory, and the effects of settings on it.

pub(crate) mod effect;
pub(crate) mod model;
