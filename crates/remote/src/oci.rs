//! `oci://HOST/REPOSITORY:TAG[@DIGEST]`: layers in OCI registries (distribution specification, version 2).
//!
//! `reference` parses names, `credentials` finds those of docker and podman, `auth` gets tokens, `registry` sends requests, `manifest` has the
//! documents, `resolve` chooses the EROFS layer of an image, `push` stores images.

mod auth;
mod credentials;
mod manifest;
mod options;
mod push;
mod reference;
mod registry;
mod resolve;
mod upload;

pub use self::options::{LayerChoice, OciOptions};
pub use self::push::{PushOptions, Pushed, push};
pub use self::reference::Reference;
pub use self::resolve::{Resolved, open, resolve};
