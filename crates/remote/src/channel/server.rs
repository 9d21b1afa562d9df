//! The fetcher's end of a channel.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::message::{Answer, AnswerKind, LONGEST, Request, RequestKind, parse_ranges};
use crate::fetch::Fetcher;
use crate::object::later;

/// How long an answer waits for room in the socket: a client that is stopped must not stop the fetcher.
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
    answer(&socket, &Answer { id: u64::MAX, kind: AnswerKind::Started, text: String::new() });
    let mut bytes = [0; LONGEST];
    for _ in 0..most {
        let len = match recv(&*socket, &mut bytes, RecvFlags::empty()) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(()),
            Ok((_, len)) => len,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let bytes = bytes.get(..len).unwrap_or_default();
        let Some(request) = Request::parse(bytes) else {
            parse_ranges(bytes).into_iter().flatten().for_each(|range| fetcher.background(range));
            continue;
        };
        let id = request.id;
        match request.kind {
            RequestKind::Prefetch => fetcher.prefetch(request.range),
            RequestKind::Stats => {
                let text = serde_json::to_string(&fetcher.stats()).unwrap_or_default();
                answer(&socket, &Answer { id, kind: AnswerKind::Done, text });
            }
            RequestKind::Want | RequestKind::Repair => {
                if request.kind == RequestKind::Repair {
                    // Bytes that could not be removed are still wrong for the reader, who asks a few times.
                    let _ = fetcher.remove_wrong(request.range.clone());
                }
                let socket = Arc::clone(&socket);
                let deadline = later(Instant::now(), Duration::from_millis(request.time.into()));
                let done = move |result: Result<(), crate::fetch::Failure>| {
                    let (kind, text) = match result {
                        Ok(()) => (AnswerKind::Done, String::new()),
                        Err(failure) if failure.is_timeout => {
                            (AnswerKind::Timeout, failure.text.to_string())
                        }
                        Err(failure) => (AnswerKind::Failed, failure.text.to_string()),
                    };
                    answer(&socket, &Answer { id, kind, text });
                };
                fetcher.want(request.range, deadline, Box::new(done));
            }
        }
    }
    Ok(())
}

/// Sends an answer. One that cannot be sent is lost: the client asks again, or gives up in time.
fn answer(socket: &OwnedFd, answer: &Answer) {
    let bytes = answer.to_bytes();
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
