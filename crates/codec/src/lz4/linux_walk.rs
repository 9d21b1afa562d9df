//! Walks through the sequences of a cluster by the rules of Linux's decoder, which refuses some
//! streams that others accept. Nothing is decoded. Sources: the LZ4 block format, and what Linux
//! 6.18 and 7.2 do with damaged clusters.

use crate::decoder::Portion;

/// Bytes at the end of the output that must be literals.
const LAST_LITERALS: usize = 5;
/// The last match starts at least so many bytes before the end.
const MATCH_LIMIT: usize = 12;
/// Bytes that a length of literals may not start within, at the end of the input.
const LENGTH_END: usize = 15;
/// Bytes that Linux copies at once if input and output have so many more: then it does not look at
/// the ends.
const SHORT_INPUT: usize = 16;
const SHORT_OUTPUT: usize = 32;

/// The largest match distance in the cluster `src`, which decodes to `decoded` bytes, or for a
/// prefix to more; `None` if Linux refuses the cluster, or if a distance is 0, for which decoders
/// give different bytes.
pub(crate) fn farthest_match(src: &[u8], decoded: usize, portion: Portion) -> Option<usize> {
    let is_prefix = portion == Portion::Prefix;
    let (input, output) = (src.len(), decoded);
    let (mut ip, mut op, mut farthest) = (0, 0, 0);
    loop {
        let token = usize::from(next(src, &mut ip)?);
        let (mut literals, code) = (token >> 4, token & 15);
        let is_short = literals != 15 && ip + SHORT_INPUT < input && op + SHORT_OUTPUT <= output;
        if literals == 15 {
            if ip + LENGTH_END >= input {
                return None;
            }
            loop {
                let more = next(src, &mut ip)?;
                literals += usize::from(more);
                if more != 255 || ip + LENGTH_END >= input {
                    break;
                }
            }
        }
        let at_end =
            op + literals + MATCH_LIMIT > output || ip + literals + LAST_LITERALS + 3 > input;
        if at_end && !is_short {
            if is_prefix {
                literals = literals.min(output - op);
            }
            let fits = if is_prefix { ip + literals <= input } else { ip + literals == input };
            if !fits || op + literals > output {
                return None;
            }
            (ip, op) = (ip + literals, op + literals);
            if !is_prefix || op == output || ip + 2 >= input {
                break;
            }
        } else {
            (ip, op) = (ip + literals, op + literals);
        }
        let distance = usize::from(u16::from_le_bytes([next(src, &mut ip)?, next(src, &mut ip)?]));
        if distance == 0 || distance > op {
            return None;
        }
        farthest = farthest.max(distance);
        let mut matched = code + 4;
        if code == 15 {
            loop {
                let more = next(src, &mut ip)?;
                if ip + LAST_LITERALS > input {
                    return None;
                }
                matched += usize::from(more);
                if more != 255 {
                    break;
                }
            }
        }
        if is_short && code != 15 && distance >= 8 {
            op += matched;
        } else if is_prefix {
            op += matched.min(output - op);
            if op == output {
                break;
            }
        } else {
            op += matched;
            if op + LAST_LITERALS > output {
                return None;
            }
        }
    }
    (op == output).then_some(farthest)
}

fn next(src: &[u8], ip: &mut usize) -> Option<u8> {
    let byte = *src.get(*ip)?;
    *ip += 1;
    Some(byte)
}
