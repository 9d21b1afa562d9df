//! Checks blocks against a root: `hash_cache` (checked hash blocks in memory) -> `block_verifier`
//! (checks bytes) -> `verified_source` (checks what is read from an image).

mod block_verifier;
mod hash_cache;
#[cfg(test)]
mod test_images;
mod verified_source;

pub use block_verifier::BlockVerifier;
pub use verified_source::VerifiedSource;
