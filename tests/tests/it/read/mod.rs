//! Reading images without a mount, and the read engine behind mounts.
//!
//! - `browser`: the example in WebAssembly.
//! - `dump`: the output of `dump.erofs` and `fsck.erofs`.
//! - `engine`: decoding strategies, profiles and pins, memory limits.
//! - `extract`: `ferofs extract`: which files, over existing files, never outside the target.
//! - `holes`: holes in compressed files, in all forms.
//! - `inspect`: `ferofs inspect` and `diff`.
//! - `minimal`: the smallest program that reads an image.

mod browser;
mod dump;
mod engine;
mod extract;
mod holes;
mod inspect;
mod minimal;
