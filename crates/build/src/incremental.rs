//! Makes patches, which bring an image up to date: an incremental build that appends what is new to an existing image.
//! docs/PATCH_FORMAT.md describes the format and the reasons; the crate `ferofs-patch` applies patches.
//!
//! | module | job |
//! |---|---|
//! | `create` | makes a patch: compares, encodes, lays out |
//! | `add`, `compose`, `squash` | creates and applies at once; makes one patch of several; builds the current tree again |

mod add;
mod compose;
mod create;
mod squash;

pub use self::add::add;
pub use self::compose::compose;
pub use self::create::options::{CreateOptions, Encoding, GrowthParts, IgnoredAttributes, PatchSummary};
pub use self::create::{PatchFile, create};
pub use self::squash::{squash, squash_in_place, squash_options};
