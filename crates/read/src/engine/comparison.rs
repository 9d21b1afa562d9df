//! Code that compares ferofs with the EROFS paper (USENIX ATC 2019): the policies, and the page pool for policies other than
//! [`Policy::Auto`](policy::Policy::Auto). Only the feature `comparison` compiles it.
//!
//! The engine asks [`policy`] how to decode a cluster. It takes buffers from [`pool`]: with another policy than the default one,
//! they are those of [`vmap`], which has all `unsafe` code of this crate.

pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod vmap;
