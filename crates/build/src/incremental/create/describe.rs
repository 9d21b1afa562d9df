//! Describes the appended bytes for the patch file: what they resemble, and how they are encoded again.
//!
//! | module | job |
//! |---|---|
//! | [`segments`] | where the builder's compressors started again |
//! | [`units`] | finds appended extents, and checks that they can be encoded again |
//! | [`similar`] | finds ranges of the base that resemble the appended bytes |
//! | [`alignment`] | finds old content that lies beside new content, although some bytes differ |
//! | [`relocations`] | lists the old inode that each new one resembles, so that metadata can be predicted |
//! | [`pieces`] | divides and compresses content and metadata |

pub(crate) mod alignment;
pub(crate) mod pieces;
pub(crate) mod relocations;
pub(crate) mod segments;
pub(crate) mod similar;
pub(crate) mod units;
