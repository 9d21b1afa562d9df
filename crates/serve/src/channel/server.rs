//! The fetcher's end of a channel.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::message::{Answer, LONGEST, Outcome, Request};
use crate::error::Failure;
use crate::fetch::Fetcher;
use crate::object::later;

/// How long an answer waits for room in the socket: a client that is stopped must not stop the
/// fetcher.
const ROOM_TIME: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Answers the requests of the client at the other end of `socket`, until it has closed its end.
///
/// # Errors
/// The errors of recv(2).
pub fn serve(socket: OwnedFd, fetcher: &Fetcher) -> io::Result<()> {
    serve_some(socket, fetcher, usize::MAX)
}

/// As [`serve`], but ends after `most` requests.
pub(crate) fn serve_some(socket: OwnedFd, fetcher: &Fetcher, most: usize) -> io::Result<()> {
    let socket = Arc::new(socket);
    answer(&socket, u64::MAX, Outcome::Started);
    let mut bytes = [0; LONGEST];
    for _ in 0..most {
        let len = match recv(&*socket, &mut bytes, RecvFlags::empty()) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(()),
            Ok((_, len)) => len,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        match serde_json::from_slice(bytes.get(..len).unwrap_or_default()) {
            Ok(Request::Prefetch(range)) => fetcher.prefetch(range),
            Ok(Request::Background(ranges)) => {
                ranges.into_iter().for_each(|range| fetcher.background(range));
            }
            Ok(Request::Stats { id }) => {
                answer(&socket, id, Outcome::Stats(Box::new(fetcher.stats())));
            }
            Ok(Request::Want { id, range, milliseconds, repair }) => {
                if repair {
                    // Bytes that could not be removed are still wrong for the reader, who asks a
                    // few times.
                    let _ = fetcher.remove_wrong(range.clone());
                }
                let socket = Arc::clone(&socket);
                let deadline = later(Instant::now(), Duration::from_millis(milliseconds.into()));
                let done = move |result: Result<(), Failure>| {
                    let outcome = match result {
                        Ok(()) => Outcome::Stored,
                        Err(Failure { text, is_timeout }) => {
                            Outcome::Failed { reason: text.to_string(), is_timeout }
                        }
                    };
                    answer(&socket, id, outcome);
                };
                fetcher.want(range, deadline, Box::new(done));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Sends an answer. One that cannot be sent is lost: the client asks again, or gives up in time.
fn answer(socket: &OwnedFd, id: u64, outcome: Outcome) {
    let bytes = Answer { id, outcome }.into_bytes();
    loop {
        match send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&ROOM_TIME)) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
            _ => return,
        }
    }
}
