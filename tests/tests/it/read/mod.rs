//! Reading images without a mount, and the read engine behind mounts.
//!
//! - `browser`: the example in WebAssembly.
//! - `engine`: decoding strategies, profiles and pins, memory limits.
//! - `extract`: `ferofs extract`: which files, over existing files, never outside the target.
//! - `inspect`: `ferofs inspect`, `diff`, and the output of `dump.erofs`.
//! - `minimal`: the smallest program that reads an image.

mod browser;
mod engine;
mod extract;
mod inspect;
mod minimal;
