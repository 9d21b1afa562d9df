//! Bring an image up to date by a small patch, and go back.

mod apply;
mod blocks;
mod create;
mod digest;
mod dirs;
mod fate;
mod fault;
mod file;
mod history;
mod metadata;
mod overlay;
mod parallel;
mod payload;
mod reuse;
mod rollback;
mod root;
mod sector;
mod settings;
mod squash;
mod survey;

pub use apply::{FileMedium, Medium, apply, overlay};
pub use create::{CreateOptions, Created, Encoding, create};
pub use fault::PatchFault;
pub use file::{Change, ChangeKind, Patch};
pub use history::{Origin, State};
pub use rollback::{log, rollback};
pub use squash::{squash, squash_options};
