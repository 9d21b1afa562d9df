//! Files in chunks (chunk-based layout). Source: FORMAT.md 5.
//!
//! | module | which files |
//! |---|---|
//! | [`deduplicated`] | all files of an image in chunks: equal chunks are stored once |
//! | [`external`] | all files of an image whose content stays in its sources |
//! | [`sparse`] | single files with large holes, in all other images |

pub(crate) mod deduplicated;
pub(crate) mod external;
pub(crate) mod sparse;
