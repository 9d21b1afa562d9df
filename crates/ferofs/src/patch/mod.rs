//! Bring an image up to date by a small patch, in place or in memory, and go back. docs/PATCH.md says how, and why.
//!
//! | room | what it does | next |
//! |---|---|---|
//! | [`create`] | makes a patch, going through the rooms below | |
//! | [`survey`], [`settings`] | what the old image consists of, and how it was encoded | [`fate`] |
//! | [`fate`] | which nodes of the new tree the old image has | [`reuse`] |
//! | [`reuse`], [`blocks`], [`dirs`] | what of old content, and of directories, can stay | [`metadata`] |
//! | [`root`], [`metadata`] | where the new root goes; new inodes and directories | [`payload`] |
//! | [`payload`], [`file`](mod@file) | the patch file | |
//! | [`apply`](mod@apply), [`overlay`](mod@overlay) | the other end: in place, and in memory | [`commit`] |
//! | [`commit`], [`journal`], [`medium`] | the order of writes, undoing failed ones, what is written to | |
//! | [`repair`](mod@repair) | a damaged superblock restored from the history | |
//! | [`add`](mod@add) | both ends at once: more files for an image | |
//! | [`history`], [`rollback`](mod@rollback), [`squash`](mod@squash) | what an image was, and going back | |
//! | [`sector`], [`digest`], [`parallel`] | the superblock's sector, digests of images, threads | |
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicBool;
//!
//! use ferofs::patch::{Beyond, CreateOptions, FileMedium, Patch, apply, create, log, overlay, rollback};
//! use ferofs::read::{FileSource, Image};
//!
//! # let room = tempfile::tempdir()?;
//! # let (old, new) = (room.path().join("old"), room.path().join("new"));
//! # for dir in [&old, &new] { std::fs::create_dir(dir)?; }
//! # std::fs::write(new.join("news"), "good")?;
//! # let (image, update) = (room.path().join("image"), room.path().join("update"));
//! # ferofs::build::build(&ferofs::build::Options::new(&old), &image)?;
//! let go_on = AtomicBool::new(false);
//! create(&image, &CreateOptions::new(&new), &update)?;
//! let patch = Patch::open(&update)?;
//!
//! // In memory: the image is only read.
//! let over = overlay(Arc::new(FileSource::open(&image, 0)?), &patch, &go_on)?;
//! assert!(Image::open(over)?.resolve("news".as_ref(), true).is_ok());
//!
//! // In place, and back.
//! let medium = FileMedium::open(&image)?;
//! apply(&medium, &patch, Beyond::Keep, &go_on)?;
//! assert!(apply(&medium, &patch, Beyond::Keep, &go_on).is_err(), "once is enough");
//! rollback(&medium, None, Beyond::Keep, 0)?;
//! assert_eq!(log(&medium)?.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod add;
mod apply;
mod blocks;
mod commit;
mod create;
mod digest;
mod dirs;
mod fate;
mod fault;
mod file;
mod history;
mod journal;
mod medium;
mod metadata;
mod overlay;
mod payload;
mod repair;
mod reuse;
mod rollback;
mod root;
mod sector;
mod settings;
mod squash;
mod survey;

pub use add::add;
pub use apply::{apply, overlay};
pub use commit::Beyond;
pub use create::{CreateOptions, Created, Encoding, create};
pub use fault::PatchFault;
pub use file::{Change, ChangeKind, Patch};
pub use history::{Origin, State};
pub use medium::{FileMedium, Medium};
pub use repair::{Repaired, repair};
pub use rollback::{log, rollback};
pub use squash::{squash, squash_options};

#[cfg(test)]
mod tests;
