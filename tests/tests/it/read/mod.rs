//! Reading images without a mount, and the read engine behind mounts.
//!
//! - `engine`: decoding strategies, profiles and pins, memory limits.
//! - `extract`: `ferofs extract`: which files, over existing files, never outside the target.
//! - `inspect`: `ferofs inspect`, `diff`, and the output of `dump.erofs`.

mod engine;
mod extract;
mod inspect;
