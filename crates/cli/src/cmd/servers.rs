//! Commands about images on servers.

pub(super) mod cache;
pub(super) mod pull;
pub(super) mod push;
mod transfer;
