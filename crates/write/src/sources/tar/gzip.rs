//! Decompresses gzip files of several members. Zeroes may follow the last one, as padding to whole
//! blocks. Other bytes there are ignored, with a warning. Source: RFC 1952, and what gzip(1) does.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::bufread::GzDecoder;

/// The content of all members, one after the other.
pub(super) struct Gzip<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
    /// Whether the current member is not the first, and nothing of it was read.
    is_next: bool,
    /// Set when bytes that are not gzip follow.
    has_more: Arc<AtomicBool>,
}

/// The first byte of each member.
const FIRST: u8 = 0x1f;

impl<R: BufRead> Gzip<R> {
    /// Sets `has_more` if bytes that are not gzip follow the last member.
    pub(super) fn new(packed: R, has_more: Arc<AtomicBool>) -> Self {
        Self { member: Some(GzDecoder::new(packed)), is_next: false, has_more }
    }

    /// Ends the content, and reads the bytes after it, so that the process that writes them into a
    /// pipe does not fail.
    fn ignore(&mut self, mut rest: R) -> io::Result<usize> {
        self.has_more.store(true, Ordering::Relaxed);
        io::copy(&mut rest, &mut io::sink()).map(|_| 0)
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            match (member.read(buf), self.is_next) {
                // The header is wrong.
                (Err(error), true) if error.kind() == io::ErrorKind::InvalidInput => {
                    let Some(rest) = self.member.take().map(GzDecoder::into_inner) else { break };
                    return self.ignore(rest);
                }
                (Err(error), _) => return Err(error),
                (Ok(read), _) if read > 0 || buf.is_empty() => {
                    self.is_next = false;
                    return Ok(read);
                }
                (Ok(_), _) => {}
            }
            let Some(mut rest) = self.member.take().map(GzDecoder::into_inner) else { break };
            match skip_zeroes(&mut rest)? {
                None => break,
                Some(FIRST) => (self.member, self.is_next) = (Some(GzDecoder::new(rest)), true),
                Some(_) => return self.ignore(rest),
            }
        }
        Ok(0)
    }
}

/// The byte that follows the zeroes.
fn skip_zeroes(rest: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let bytes = rest.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
        let next = bytes.get(zeroes).copied();
        rest.consume(zeroes);
        if next.is_some() {
            return Ok(next);
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

    /// The content, and whether other bytes follow.
    fn content(packed: Vec<u8>) -> io::Result<(Vec<u8>, bool)> {
        let (mut out, has_more) = (Vec::new(), Arc::default());
        Gzip::new(Cursor::new(packed), Arc::clone(&has_more)).read_to_end(&mut out)?;
        Ok((out, has_more.load(Ordering::Relaxed)))
    }

    #[test]
    fn members_follow_each_other_and_zeroes_end_them() {
        let (one, other) = (member(b"one "), member(b"other"));
        let both = || (b"one other".to_vec(), false);
        assert_eq!(content([&one[..], &other].concat()).unwrap(), both());
        assert_eq!(content([&one[..], &other, &[0; 5000]].concat()).unwrap(), both());
        assert_eq!(content([&one[..], &[0; 3], &other].concat()).unwrap(), both());
        assert!(content(one[..one.len() - 1].to_vec()).is_err());
    }

    #[test]
    fn other_bytes_at_the_end_are_ignored() {
        let one = member(b"one");
        for more in [&b"text"[..], b"\0\0text", b"\x1ftext that is longer than a header"] {
            assert_eq!(
                content([&one[..], more].concat()).unwrap(),
                (b"one".to_vec(), true),
                "{more:?}"
            );
        }
        assert!(content(b"text that is longer than a header".to_vec()).is_err());
        // An incomplete member.
        assert!(content([&one[..], &one[..5]].concat()).is_err());
    }
}
