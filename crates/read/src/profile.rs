//! Access profiles: the ranges that were read most, as text, kept decoded, and found in the image.

pub(crate) mod pin;
pub(crate) mod ranges;
pub(crate) mod recording;
pub(crate) mod text;
