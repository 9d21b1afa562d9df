//! How files are being read: the one place that classifies access patterns.
//!
//! A reader's small reads come twice when a page cache is in front of it. [`page_reads`] sees the reads that the page
//! cache asks for, and tells a server what else to store there. [`requests`] sees what the engine is asked for, with
//! the bytes that a server adds, and decides on read-ahead and on advice to the system. The first classifies pages, the
//! second one byte ranges, so that neither can be told from the other's reads.

pub mod page_reads;
pub(crate) mod requests;
