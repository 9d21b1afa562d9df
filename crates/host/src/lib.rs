//! A part of ferofs: users choose `ferofs`, `ferofs-fuse` or `ferofs-cli`.
//!
//! Files of this machine, for all that reads or writes trees and images: opened beneath a
//! directory, replaced only when their successor is complete, and never a device or file that
//! something else uses.
//!
//! | module | job |
//! |---|---|
//! | `open` | opens by directory and name, without following links |
//! | [`stat`] | what the system says about a file |
//! | `preload` | fakeroot and others, which show other owners |
//! | `replaced` | the access of a file that another one replaces |
//! | `new_file` | files that get their name when they are complete |
//! | `device` | devices and files that are written in place |
//! | `known_format` | what a file is that is not an image |
//! | `patterns` | chooses files of a tree by their paths |

mod device;
mod known_format;
mod new_file;
mod open;
#[cfg(feature = "patterns")]
mod patterns;
mod preload;
mod replaced;
pub mod stat;

pub use device::{lock_to_change, mount_path, open_device, open_in_place};
pub use known_format::KnownFormat;
pub use new_file::{NewFile, PendingName, hidden_beside, random, sync_name};
pub use open::{open_dir, open_file};
#[cfg(feature = "patterns")]
pub use patterns::{Patterns, PatternsError, UsedPatterns};
pub use preload::{PreloadError, check_preload, has_preload};
pub use replaced::{follow_links, is_descriptor, keep_access};
