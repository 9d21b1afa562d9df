//! The patch file: a header, tables, the list of changed files, and the appended bytes in compressed pieces. Layout:
//! docs/PATCH_FORMAT.md.

pub mod change;
pub(crate) mod columns;
pub mod header;
mod method;
pub mod piece;
pub mod plan;
pub mod prediction;
pub(crate) mod reader;
pub mod reencode;
pub mod relocation;
pub(crate) mod start;
pub mod writer;
