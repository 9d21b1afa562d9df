//! Executes the steps of a case, and compares each image with the expected tree.

pub(crate) mod archive;
pub(crate) mod oracles;
pub(crate) mod perform;
pub(crate) mod refusal;
pub(crate) mod sources;
pub(crate) mod workspace;
