//! Code that compares ferofs with the EROFS paper (USENIX ATC 2019): the policies, and the page pool for policies other than
//! [`Policy::Auto`](policy::Policy::Auto).
//!
//! The engine asks [`policy`] how to decode a cluster. It takes buffers from [`vmap`], which has all `unsafe` code of this
//! crate, only with another policy than the default one.

pub(crate) mod policy;
#[cfg(unix)]
pub(crate) mod vmap;
