//! libferofs: reads EROFS images from C, and applies deltas. [`ferofs_open`] and
//! [`ferofs_delta_apply`] are where a program starts; `include/ferofs.h` is generated from this
//! crate.
//!
//! | module | what it does |
//! |---|---|
//! | [`image`] | opens and closes an image |
//! | [`names`] | looks up paths, lists directories, reads links and extended attributes |
//! | [`content`] | attributes and bytes of files |
//! | [`delta`] | applies exact deltas |
//! | `status` | turns errors into negative errno values and messages |
//!
//! All `unsafe` code of the crate converts what C passes: each function says what its pointers must
//! be.

#![allow(non_camel_case_types, reason = "types are named as C programs expect")]

pub mod content;
pub mod delta;
pub mod image;
pub mod names;
mod status;

pub use content::{ferofs_pread, ferofs_stat, ferofs_stat_inode};
pub use delta::{ferofs_delta, ferofs_delta_apply, ferofs_delta_info};
pub use image::{ferofs_close, ferofs_image, ferofs_open, ferofs_open_source, ferofs_source};
pub use names::{
    ferofs_dirent, ferofs_getxattr, ferofs_listxattr, ferofs_lookup, ferofs_readdir,
    ferofs_readlink, ferofs_root,
};
pub use status::ferofs_error_message;

/// The version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ferofs_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
