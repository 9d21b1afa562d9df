//! The patch file: a header, tables, the list of changed files, and the appended bytes in compressed pieces. Layout:
//! docs/PATCH_FORMAT.md.

pub(crate) mod change;
pub(crate) mod columns;
pub(crate) mod header;
mod method;
pub(crate) mod piece;
pub(crate) mod plan;
pub(crate) mod prediction;
pub(crate) mod reader;
pub(crate) mod reencode;
pub(crate) mod relocation;
pub(crate) mod start;
pub(crate) mod writer;
