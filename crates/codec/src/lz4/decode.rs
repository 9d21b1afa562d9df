//! LZ4 blocks.

use crate::{DecodeError, Extent};

const CORRUPT: DecodeError = DecodeError::Corrupt { algorithm: "lz4" };

const MIN_MATCH: usize = 4;

/// Decodes the block `src` into `dst`.
pub(crate) fn decode(mut src: &[u8], dst: &mut [u8], extent: Extent) -> Result<(), DecodeError> {
    let mut at = 0;
    loop {
        let token = take(&mut src, 1)?[0];
        let literals = length(&mut src, token >> 4)?.min(dst.len() - at + 1);
        let wanted = literals.min(dst.len() - at);
        if wanted < literals && extent == Extent::Whole {
            return Err(CORRUPT);
        }
        dst[at..at + wanted].copy_from_slice(take(&mut src, wanted)?);
        at += wanted;
        if at == dst.len() && (src.is_empty() || extent == Extent::Prefix) {
            return Ok(());
        }
        let offset = take(&mut src, 2)?;
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        let len = length(&mut src, token & 15)?.saturating_add(MIN_MATCH);
        if offset == 0 || offset > at || (len > dst.len() - at && extent == Extent::Whole) {
            return Err(CORRUPT);
        }
        let end = at + len.min(dst.len() - at);
        while at < end {
            // A match may overlap what it makes: each round doubles what can be copied at once.
            let len = offset.min(end - at);
            dst.copy_within(at - offset..at - offset + len, at);
            at += len;
        }
        if at == dst.len() && extent == Extent::Prefix {
            return Ok(());
        }
    }
}

fn take<'a>(src: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (head, tail) = src.split_at_checked(len).ok_or(CORRUPT)?;
    *src = tail;
    Ok(head)
}

fn length(src: &mut &[u8], nibble: u8) -> Result<usize, DecodeError> {
    let mut len = usize::from(nibble);
    if nibble == 15 {
        loop {
            let more = take(src, 1)?[0];
            len = len.saturating_add(usize::from(more));
            if more != 255 {
                break;
            }
        }
    }
    Ok(len)
}
