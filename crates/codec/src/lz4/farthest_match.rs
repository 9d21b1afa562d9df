//! The largest match distance in a cluster. Linux needs it announced in the superblock. Source: the LZ4 block format.

/// The largest match distance in the first `decoded` bytes that the cluster `src` decodes to. For a corrupt cluster: in the
/// sequences before the first invalid one.
pub(crate) fn farthest_match(src: &[u8], decoded: usize) -> usize {
    let (mut rest, mut done, mut farthest) = (src, 0usize, 0);
    while done < decoded {
        let Some((token, after)) = rest.split_first() else { break };
        rest = after;
        let Some(literals) = length(&mut rest, token >> 4) else { break };
        let Some(after) = rest.get(literals..) else { break };
        done = done.saturating_add(literals);
        let Some((distance, after)) = after.split_first_chunk::<2>() else { break };
        if done >= decoded {
            break;
        }
        farthest = farthest.max(usize::from(u16::from_le_bytes(*distance)));
        rest = after;
        let Some(matched) = length(&mut rest, token & 15) else { break };
        done = done.saturating_add(matched).saturating_add(4);
    }
    farthest
}

/// Reads a length: four bits and, if all are set, the bytes that add to it.
fn length(rest: &mut &[u8], nibble: u8) -> Option<usize> {
    let mut len = usize::from(nibble);
    let mut more = nibble == 15;
    while more {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        len = len.saturating_add(usize::from(*byte));
        more = *byte == 255;
    }
    Some(len)
}
