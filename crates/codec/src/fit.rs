//! The [`Compressor`] trait: a compressor with fixed-size output encodes as much input as fits into
//! a block. Builders get one from [`compressor`](crate::compressor).

use crate::error::EncodeError;

/// The largest encoded cluster that Linux accepts, in bytes. Source: FORMAT.md 6.1.
pub const MAX_ENCODED: usize = 1 << 20;
/// The largest decoded cluster that Linux accepts, in bytes. Source: FORMAT.md 6.1.
pub const MAX_DECODED: usize = 12 << 20;
/// The smallest output in bytes that compressors accept. Smaller outputs are an error; the smallest
/// block has 512 bytes.
#[cfg(feature = "encode")]
pub(crate) const MIN_ENCODED: usize = 64;
/// The longest input slice in bytes, as compressors store positions in 32 bits. Longer inputs are
/// an error.
#[cfg(feature = "encode")]
pub(crate) const MAX_INPUT: usize = 1 << 30;

/// The result of encoding one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The first `produced` bytes of the output decode to `consumed` bytes of the input.
    Encoded {
        /// Input bytes taken, counted from the cluster's start.
        consumed: usize,
        /// Output bytes written; the first one is never zero, as decoders skip leading zeroes as
        /// padding.
        produced: usize,
    },
    /// Encoding does not make the input smaller: store it uncompressed.
    Incompressible,
}

/// Encodes a file (or a segment of it) cluster by cluster, each into an output of fixed size.
///
/// Between two calls of [`begin`](Self::begin), every call must pass the same `src`, which may grow
/// at its end. The result depends only on `src`, the positions and the output sizes since `begin`.
pub trait Compressor: Send {
    /// Starts another input: the next call passes another `src`. This is cheap.
    fn begin(&mut self);

    /// Encodes as much as fits of `src[pos..]` into `dst`.
    ///
    /// A cluster takes at most the window, or four times the output if that is more. Each cluster
    /// decodes on its own: matches do not refer to bytes before `pos`. The result is
    /// [`Fit::Incompressible`] unless the cluster takes more input than the output's size or, at
    /// the input's end, more input than the bytes produced.
    ///
    /// # Errors
    /// An input that ends at `pos` or is too long; an output that is too small, too large or larger
    /// than the window.
    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError>;

    /// Encodes all of `src` into `dst`; [`Fit::Incompressible`] if the result does not fit or is
    /// not shorter than `src`. Calls [`begin`](Self::begin) first.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError>;

    /// Trial compressions and clusters so far; `None` for compressors that need no trials.
    fn trials(&self) -> Option<(u64, u64)> {
        None
    }

    /// Bytes of input in all trials so far, for [`encoder_time`](crate::encoder_time); `None` for
    /// compressors that need no trials.
    fn searched(&self) -> Option<u64> {
        None
    }

    /// Lets trials fail with [`EncodeError::Work`] when they have taken so many more `bytes` of
    /// input. Compressors that need no trials have no limit.
    fn limit(&mut self, _bytes: u64) {}
}

/// Moves the `produced` encoded bytes from the start of `block` to its end and fills the start with
/// zeroes, as images with the `LZ4_0PADDING` feature store clusters. If `produced` exceeds the
/// block, nothing moves.
pub fn right_align(block: &mut [u8], produced: usize) {
    let pad = block.len().saturating_sub(produced);
    block.copy_within(..block.len() - pad, pad);
    if let Some(padding) = block.get_mut(..pad) {
        padding.fill(0);
    }
}

/// The encoded bytes of a right-aligned block: `block` without its leading zeroes.
#[must_use]
pub fn strip_padding(block: &[u8]) -> &[u8] {
    let pad = block.iter().position(|&b| b != 0).unwrap_or(block.len());
    block.get(pad..).unwrap_or_default()
}

/// Checks the arguments of [`Compressor::fit`], and returns the end of the input that this cluster
/// may take.
#[cfg(feature = "encode")]
pub(crate) fn check(
    src: &[u8],
    pos: usize,
    dst: &[u8],
    window: usize,
) -> Result<usize, EncodeError> {
    if pos >= src.len() {
        return Err(EncodeError::EmptyInput { pos, len: src.len() });
    }
    if src.len() > MAX_INPUT {
        return Err(EncodeError::InputTooLarge { len: src.len(), most: MAX_INPUT });
    }
    if dst.len() < MIN_ENCODED {
        return Err(EncodeError::OutputTooSmall { len: dst.len(), least: MIN_ENCODED });
    }
    if dst.len() > MAX_ENCODED {
        return Err(EncodeError::OutputTooLarge { len: dst.len(), most: MAX_ENCODED });
    }
    if window < dst.len() {
        return Err(EncodeError::WindowTooSmall { window, output: dst.len() });
    }
    Ok(src.len().min(pos.saturating_add(self::window(window, dst.len()))))
}

/// Bytes of input that an output of `output` bytes may take. One as large as the window could not
/// save anything, so the ratio may be four.
#[cfg(feature = "encode")]
pub(crate) fn window(window: usize, output: usize) -> usize {
    window.max(output.saturating_mul(4))
}

/// Whether encoding saves space, as [`Compressor::fit`] defines it.
#[cfg(feature = "encode")]
pub(crate) fn saves_space(consumed: usize, produced: usize, output: usize, at_end: bool) -> bool {
    produced < consumed && (at_end || consumed > output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strip_padding_undoes_right_align() {
        let mut block = *b"abcdef\x07\x07";
        right_align(&mut block, 6);
        assert_eq!(&block, b"\0\0abcdef");
        assert_eq!(strip_padding(&block), b"abcdef");
        assert_eq!(strip_padding(&[0; 9]), b"");
    }

    #[test]
    fn each_bad_argument_has_its_own_error() {
        let src = [1u8; 100];
        assert!(matches!(check(&src, 100, &[0; 64], 1 << 20), Err(EncodeError::EmptyInput { .. })));
        assert!(matches!(check(&[], 0, &[0; 64], 1 << 20), Err(EncodeError::EmptyInput { .. })));
        assert!(matches!(
            check(&src, 0, &[0; 63], 1 << 20),
            Err(EncodeError::OutputTooSmall { least: 64, .. })
        ));
        assert!(matches!(
            check(&src, 0, &vec![0; MAX_ENCODED + 1], usize::MAX),
            Err(EncodeError::OutputTooLarge { .. })
        ));
        assert!(matches!(
            check(&src, 0, &vec![0; 65537], 65536),
            Err(EncodeError::WindowTooSmall { .. })
        ));
        assert_eq!(check(&[1; 1000], 3, &[0; 64], 64), Ok(259));
    }
}
