//! Values that several command lines take.

pub(crate) mod byte_size;
pub(crate) mod compression;
pub(crate) mod features;
pub(crate) mod image;
pub(crate) mod suggestion;
