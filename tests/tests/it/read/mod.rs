//! Reading images without a mount, and the read engine behind mounts.
//!
//! - `browser`: the example in WebAssembly.
//! - `engine`: decoding strategies, profiles and pins, memory limits.
//! - `extract`: `ferofs extract`: which files, over existing files, never outside the target.
//! - `inspect`: `ferofs inspect`, `diff`, and the output of `dump.erofs`.

mod browser;
mod engine;
mod extract;
mod inspect;
