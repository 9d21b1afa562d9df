//! Sealed images: `ferofs verity` and `--roothash`.
//!
//! - `formats`: veritysetup and fsverity agree with our hash trees.
//! - `tampering`: a changed image gives its bytes or an error, never other bytes.

mod formats;
mod tampering;
