//! What patches need to know of an image: its superblock's sector, its history, its digest, and what an interrupted change left
//! in it.

pub(crate) mod digest;
pub(crate) mod history;
pub(crate) mod interrupted;
pub(crate) mod overlay;
pub(crate) mod sector;
