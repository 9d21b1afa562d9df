//! `s3://BUCKET/KEY`: objects of AWS S3 and of stores with its protocol, such as MinIO and Ceph.
//!
//! `profile` reads what the AWS command line reads: environment variables, `~/.aws/config` and `~/.aws/credentials`. `access` signs
//! requests (rusty-s3 makes the signatures); the objects themselves are [`HttpObject`](super::HttpObject)s.

mod access;
mod profile;

pub use self::access::{S3Access, S3Options};
