//! Decides what the new tree reuses of the old image: files first, then the directories above them. Then
//! which files get new digests as attributes, and whether the metabox and the packed inode grow.

mod compare;
pub(crate) mod directories;
pub(crate) mod files;
pub(crate) mod growth;
