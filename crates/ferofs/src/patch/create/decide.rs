//! Decides what the new tree reuses of the old image: files first, then the directories above them.

mod compare;
pub(crate) mod directories;
pub(crate) mod files;
