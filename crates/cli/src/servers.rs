//! Commands about images on servers.

pub(super) mod cache;
pub(super) mod convert;
mod form;
mod layers;
pub(super) mod pull;
pub(super) mod push;
mod scratch;
mod transfer;
mod upper_layer;
