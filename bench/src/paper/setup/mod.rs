//! What the experiments work on: the machine, the test data, the systems to compare, and their images.

pub(crate) mod data;
pub(crate) mod machine;
pub(crate) mod programs;
pub(crate) mod scale;
pub(crate) mod systems;
pub(crate) mod workspace;
