//! The contract of fixed-size output: fill a block with as much input as fits. Everything that compresses implements
//! [`Compressor`]; builders make one by
//! [`compressor`](crate::compressor).

use crate::error::EncodeError;

/// The largest encoded cluster that Linux accepts, in bytes. Source: FORMAT.md 6.1.
pub const MAX_ENCODED: usize = 1 << 20;
/// The largest decoded cluster that Linux accepts, in bytes. Source: FORMAT.md 6.1.
pub const MAX_DECODED: usize = 12 << 20;
/// The smallest output that any compressor here accepts, in bytes.
pub(crate) const MIN_ENCODED: usize = 64;
/// The longest input slice, in bytes: positions are kept in 32 bits.
pub(crate) const MAX_INPUT: usize = 1 << 30;

/// What became of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The first `produced` bytes of the output decode to `consumed` bytes of the input.
    Encoded {
        /// Input bytes taken, counted from the cluster's start.
        consumed: usize,
        /// Output bytes written; the first of them is never zero.
        produced: usize,
    },
    /// Store the input plainly: encoding saves nothing.
    Incompressible,
}

/// Encodes a file (or a segment of it) cluster by cluster, each into an output of fixed size.
///
/// Between two calls of [`begin`](Self::begin), every call must pass the same `src` (it may grow at its end). The
/// result depends only on `src`, the positions and the outputs since `begin`, never on what was encoded before it.
pub trait Compressor: Send {
    /// Forgets the input so far: the next call brings another `src`. Costs next to nothing.
    fn begin(&mut self);

    /// Encodes as much as fits of `src[pos..]` into `dst`.
    ///
    /// At most the window is taken, or four times the output if that is more. Each cluster decodes on its own: matches reach back to `pos` and no further. It pays if it takes more input
    /// than the output's size, or, at the input's end, than the bytes produced.
    ///
    /// # Errors
    /// Nothing at `pos`, an output too small, too large or larger than the window, an input beyond [`MAX_INPUT`].
    fn fit(&mut self, src: &[u8], pos: usize, dst: &mut [u8]) -> Result<Fit, EncodeError>;

    /// Encodes exactly `src` into `dst`, of any size; it pays if it fits and the result is shorter than `src`.
    /// Implies [`begin`](Self::begin).
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    fn fit_exact(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Fit, EncodeError>;

    /// Trial compressions and clusters so far, for the compressors that need trials.
    fn trials(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Moves the `produced` encoded bytes at the start of `block` to its end and zeroes what precedes them, as an image
/// with the `LZ4_0PADDING` feature stores every cluster. A `produced` beyond the block counts as the whole block.
pub fn right_align(block: &mut [u8], produced: usize) {
    let pad = block.len().saturating_sub(produced);
    block.copy_within(..block.len() - pad, pad);
    if let Some(padding) = block.get_mut(..pad) {
        padding.fill(0);
    }
}

/// The encoded bytes of a right-aligned block, without its leading zeroes.
#[must_use]
pub fn strip_padding(block: &[u8]) -> &[u8] {
    let pad = block.iter().position(|&b| b != 0).unwrap_or(block.len());
    block.get(pad..).unwrap_or_default()
}

/// Checks what every [`Compressor::fit`] checks, and returns the end of the input that this cluster may take.
pub(crate) fn check(src: &[u8], pos: usize, dst: &[u8], window: usize) -> Result<usize, EncodeError> {
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
    // An output as large as the window could never pay: give it room for a ratio of four.
    let window = window.max(dst.len().saturating_mul(4));
    Ok(src.len().min(pos.saturating_add(window)))
}

/// Whether an encoding pays, as [`Compressor::fit`] defines it.
pub(crate) fn pays(consumed: usize, produced: usize, output: usize, at_end: bool) -> bool {
    produced < consumed && (at_end || consumed > output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_aligned_blocks_strip_to_what_was_put_in() {
        let mut block = *b"abcdef\x07\x07";
        right_align(&mut block, 6);
        assert_eq!(&block, b"\0\0abcdef");
        assert_eq!(strip_padding(&block), b"abcdef");
        assert_eq!(strip_padding(&[0; 9]), b"");
    }

    #[test]
    fn bad_calls_are_refused_by_name() {
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
        assert!(matches!(check(&src, 0, &vec![0; 65537], 65536), Err(EncodeError::WindowTooSmall { .. })));
        assert_eq!(check(&[1; 1000], 3, &[0; 64], 64), Ok(259));
    }
}
