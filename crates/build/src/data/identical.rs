//! Files with identical content, which is stored once: [`small`] ones are found by workers, [`large`] ones before.

pub(crate) mod large;
pub(crate) mod small;
