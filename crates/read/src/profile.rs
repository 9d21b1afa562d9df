//! Access profiles: the ranges that were read most, as text, and kept decoded.

pub(crate) mod pin;
pub(crate) mod recording;
pub(crate) mod text;
