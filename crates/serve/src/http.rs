//! Objects on web servers, by requests for ranges (RFC 9110, sections 13 and 14).
//!
//! `client` sends requests. `object` fetches ranges of one object and checks each answer; where the
//! object is and with what credentials is a matter of its [`Access`], which other protocols over
//! HTTP implement as well. `range` reads headers. `tls` makes connections secure, with the
//! certificates that `verifiers` accepts. `web` and `s3` say where objects of web servers and of S3
//! stores are.

mod client;
mod object;
mod range;
mod s3;
mod tls;
mod verifiers;
mod web;

pub use self::client::Client;
pub use self::object::{Access, HttpObject, Opened, Target};
pub use self::s3::{S3Access, S3Options};
pub use self::tls::TlsOptions;
pub use self::web::{WebAccess, WebOptions};

pub(crate) use self::client::{is_this_machine, kind_of_io};
pub(crate) use self::object::error_of;
pub(crate) use self::range::header;
pub(crate) use self::web::{basic, bearer, without_password};
