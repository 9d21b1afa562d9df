//! How a cluster is decoded that is not decoded in place.

/// How a cluster is decoded. All strategies give the same bytes.
#[allow(unreachable_pub, reason = "public with the feature `comparison`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The bytes before the wanted range go through a window of at most 17 pages; the range itself
    /// is decoded directly into the request. Only for LZ4.
    Rolling,
    /// Into a buffer, and copied from there.
    Buffer,
    /// Directly into the request, if the wanted range is at the cluster's start.
    Direct,
    /// In the memory that also holds the encoded bytes, at its end. Only for whole LZ4 clusters, if
    /// the output cannot overwrite input that is still needed.
    #[cfg(feature = "comparison")]
    InPlace,
    /// Into pages from anywhere in the pool that are mapped to adjacent addresses, and copied from
    /// there.
    #[cfg(feature = "comparison")]
    Vmap,
}

impl Strategy {
    /// The fastest strategy according to measurements for the bytes `skip..end` of a cluster:
    /// directly, else into a buffer, or rolling if the buffer would be large. `max_buffered`: for
    /// LZ4, which supports rolling, the bytes from the cluster's start up to which a buffer is
    /// faster.
    pub(crate) const fn fastest(max_buffered: Option<usize>, skip: usize, end: usize) -> Self {
        match (skip, max_buffered) {
            (0, _) => Self::Direct,
            (_, Some(max_buffered)) if end > max_buffered => Self::Rolling,
            _ => Self::Buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer_pool::PAGE;
    use super::Strategy::{self, Buffer, Direct, Rolling};

    #[test]
    fn large_buffers_are_avoided() {
        let page = |n: usize| n * PAGE;
        let lz4 = Some(page(17));
        assert_eq!(Strategy::fastest(lz4, 0, page(9)), Direct);
        assert_eq!(Strategy::fastest(lz4, page(1), page(2)), Buffer);
        assert_eq!(Strategy::fastest(lz4, page(40), page(41)), Rolling);
        assert_eq!(Strategy::fastest(Some(page(48)), page(40), page(41)), Buffer);
        assert_eq!(Strategy::fastest(None, page(40), page(41)), Buffer);
    }
}
