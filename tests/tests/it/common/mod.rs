//! Code that several topics share.

pub(crate) mod erofs_utils;
pub(crate) mod fixture;
pub(crate) mod hostile;
pub(crate) mod image_editor;
pub(crate) mod image_writer;
pub(crate) mod mkfs;
