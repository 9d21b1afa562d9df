//! Options and values that several commands take.

pub(crate) mod byte_size;
pub(crate) mod compression;
pub(crate) mod exclude;
pub(crate) mod features;
pub(crate) mod fetch;
pub(crate) mod hidden;
pub(crate) mod image;
pub(crate) mod image_name;
pub(crate) mod overwrite;
pub(crate) mod remote;
pub(crate) mod seal;
pub(crate) mod signature;
pub(crate) mod suggestion;
