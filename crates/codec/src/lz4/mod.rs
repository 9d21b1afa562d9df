//! LZ4: own compressors with fixed-size output, and decoders. Source: FORMAT.md 6.5.
//!
//! `encode` has the compressors. `decode` decodes by `unchecked` or `liblz4`, `range` through a
//! window; `linux_walk` says what Linux accepts.

#[cfg(feature = "encode")]
mod chain;
#[cfg(feature = "encode")]
mod cluster;
mod decode;
#[cfg(feature = "encode")]
mod encode;
#[cfg(feature = "encode")]
mod fast;
#[cfg(feature = "encode")]
mod lazy;
#[cfg(any(feature = "liblz4", test))]
mod liblz4;
#[cfg(any(feature = "liblz4-encode", all(feature = "encode", test)))]
mod library;
#[cfg(feature = "encode")]
mod linux_walk;
#[cfg_attr(not(feature = "encode"), allow(dead_code, reason = "the compressors use most of it"))]
mod mem;
#[cfg(feature = "encode")]
mod optimal;
mod range;
#[cfg(feature = "encode")]
mod sequence_writer;
mod unchecked;

pub use decode::lz4_in_place_margin;
pub use range::lz4_window;

pub(crate) use decode::{decode, decode_in_place};
#[cfg(feature = "encode")]
pub(crate) use encode::CODEC;
#[cfg(all(feature = "encode", test))]
pub(crate) use library::liblz4_variant;
#[cfg(feature = "encode")]
pub(crate) use linux_walk::farthest_match;
pub(crate) use range::decode_range;
