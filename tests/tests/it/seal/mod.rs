//! Sealed images: `ferofs verity` and `--roothash`.
//!
//! - `building`: `ferofs build --verity` makes the seal that `ferofs verity format` makes.
//! - `formats`: veritysetup and fsverity agree with our hash trees.
//! - `signatures`: openssl agrees with our signatures; wrong, weak and expired ones are refused.
//! - `tampering`: a changed image gives its bytes or an error, never other bytes.

mod building;
mod formats;
mod signatures;
mod tampering;
