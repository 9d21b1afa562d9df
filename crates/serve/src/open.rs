//! Opens a remote image: finds its hash tree, its entry in the cache, and what is known of it
//! without the server.

mod bases;
mod image;
mod known;
mod lazy;
mod options;
mod repair;
mod verify;

pub(crate) use self::bases::open_files;
pub use self::image::RemoteImage;
pub use self::known::Known;
pub use self::lazy::Connect;
pub use self::options::{Connected, OpenRemote};
pub use self::verify::verify_entry;
