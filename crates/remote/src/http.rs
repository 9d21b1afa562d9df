//! Objects on web servers, by requests for ranges (RFC 9110, sections 13 and 14).
//!
//! `client` sends requests. `object` fetches ranges of one object and checks each answer; where the object is and with what credentials is
//! a matter of its [`Access`], which other protocols over HTTP implement as well. `range` reads headers.

mod client;
mod object;
mod range;
mod web;

pub use self::client::{Client, TlsOptions};
pub use self::object::{Access, HttpObject, Opened, Target};
pub use self::web::{WebAccess, WebOptions};
