//! What exists to compare ferofs with the EROFS paper (USENIX ATC 2019): policies other than
//! [`Policy::Auto`](policy::Policy::Auto), and the pool of pages that they decode to.
//!
//! The engine asks [`policy`] how to decode a cluster. Only with another policy than the default one does it take its
//! buffers from [`vmap`], which has all `unsafe` code of this crate.

pub(crate) mod policy;
pub(crate) mod vmap;
