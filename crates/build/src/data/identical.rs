//! Files with the same bytes share them.

pub mod large;
pub mod small;
