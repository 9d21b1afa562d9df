//! A web server for tests of clients. It serves bytes and files with ranges and ETags (HTTP/1.1,
//! RFC 9110 and 9112), counts requests and bytes, and behaves as badly as a test tells it to.
//!
//! ```
//! use ferofs_test_server::{Fault, Rule, Server};
//!
//! let server = Server::start()?;
//! server.put("/image", vec![7; 100_000]);
//! server.add(Rule::new(Fault::Status(503)).header("Retry-After", "1").times(2));
//! let url = server.url("/image");
//! // Two requests for `url` fail, the next ones succeed.
//! assert_eq!(server.counts().requests, 0);
//! # assert!(url.starts_with("http://127.0.0.1:"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`Server`] listens and has one thread for each connection; all of them end when it is dropped.
//! [`Handle`] is the part that tests share: objects, rules, credentials, counters. [`Rule`] says
//! which requests meet which [`Fault`]. [`script`] reads rules from text, for the program.
#![forbid(unsafe_code)]

mod fault;
mod handle;
mod object;
mod request;
pub mod script;
mod server;

pub use fault::{Fault, Rule};
pub use handle::{Auth, Counts, Handle};
pub use object::Answer;
pub use object::Object;
pub use request::Request;
pub use server::Server;
