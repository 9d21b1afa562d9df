//! The cache on disk: parts of remote objects, which mounts and processes share.
//!
//! ```text
//! CACHE/KEY/info.json   size and origin
//!           data        the object, with holes where nothing is stored
//!           present     a bit for each unit that is stored (`presence`)
//!           synced      a bit for each unit that survives a power failure
//!           use.lock    locked shared by processes that use the entry
//!           claims      locked where a process fetches (`claim`)
//! ```
//!
//! The key is the root hash, or the digest, of the object, so that equal images of several servers
//! are stored once. Bytes are stored after they were verified.

mod claim;
mod entry;
mod evict;
mod folder;
mod local;
mod presence;

pub(crate) use self::claim::Claims;
pub(crate) use self::entry::{DATA, write_file};
pub use self::entry::{Entry, EntryInfo};
pub use self::evict::{Collected, Usage};
pub use self::folder::Cache;
pub use self::presence::UNIT;
pub(crate) use self::presence::{bytes_of, units_in};
