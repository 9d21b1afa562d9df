//! LZ4 blocks: one encoder and one decoder a file.

mod decode;
mod fast;

pub(crate) use decode::decode;
pub(crate) use fast::Fast;
