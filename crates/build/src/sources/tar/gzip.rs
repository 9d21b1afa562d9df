//! Decompresses gzip files of several members. Zeroes may follow the last one, as padding to whole blocks.
//! Source: RFC 1952, and what gzip(1) does.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The content of all members, one after the other.
pub(super) struct Gzip<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    pub(super) fn new(packed: R) -> Self {
        Self { member: Some(GzDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            let Some(mut rest) = self.member.take().map(GzDecoder::into_inner) else { break };
            self.member = skip_zeroes(&mut rest)?.then(|| GzDecoder::new(rest));
        }
        Ok(0)
    }
}

/// Whether anything follows the zeroes.
fn skip_zeroes(rest: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = rest.fill_buf()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
        let is_end = zeroes < bytes.len();
        rest.consume(zeroes);
        if is_end {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn member(content: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(content).unwrap();
        gzip.finish().unwrap()
    }

    fn content(packed: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Gzip::new(Cursor::new(packed)).read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn members_follow_each_other_and_zeroes_end_them() {
        let (one, other) = (member(b"one "), member(b"other"));
        assert_eq!(content([&one[..], &other].concat()).unwrap(), b"one other");
        assert_eq!(content([&one[..], &other, &[0; 5000]].concat()).unwrap(), b"one other");
        assert_eq!(content([&one[..], &[0; 3], &other].concat()).unwrap(), b"one other");
        assert!(content([&one[..], b"garbage that is no header"].concat()).is_err());
        assert!(content(one[..one.len() - 1].to_vec()).is_err());
    }
}
