//! Files with identical content, which is stored once: [`small`] ones are found by workers, [`large`] ones before.

pub mod large;
pub mod small;
