//! `oci://HOST/REPOSITORY:TAG[@DIGEST]`: layers in OCI registries (distribution specification,
//! version 2).
//!
//! `reference` parses names, `credentials` finds those of docker and podman, `auth` gets tokens,
//! `registry` sends requests, `manifest` has the documents, `config` those about containers,
//! `resolve` chooses the EROFS layer of an image, `image` has all layers, `push` stores images.

mod auth;
mod config;
mod credentials;
mod image;
mod manifest;
mod options;
mod push;
mod reference;
mod registry;
mod resolve;
mod upload;

pub use self::config::ImageConfig;
pub use self::credentials::credential_files;
pub use self::image::{Layer, RegistryImage};
pub use self::manifest::LayerKind;
pub use self::options::{LayerChoice, OciOptions};
pub use self::push::{PushOptions, Pushed, push};
pub use self::reference::Reference;
pub use self::resolve::open;
