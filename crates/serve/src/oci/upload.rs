//! Uploads of blobs: what the registry has is not sent, and an upload that breaks off is resumed.

use std::path::Path;
use std::time::{Duration, Instant};

use ferofs_read::Source;
use ureq::Body;
use ureq::http::Response;
use url::Url;

use super::registry::{Registry, unexpected};
use crate::error::{Error, FetchErrorKind, Result};
use crate::http::{error_of, header};
use crate::object::later;
use crate::ranges::range_of;
use ferofs_format::units::to_usize;

/// Bytes of one request. Small blobs are sent by one. Registries' stores want at least 5 MiB.
const CHUNK: u64 = 16 << 20;
/// The time for one request: a chunk at 128 KiB/s.
const REQUEST_TIME: Duration = Duration::from_secs(150);
/// Requests in a row that may fail for one blob.
const FAILURES: u32 = 5;
/// The pause after the first failed request; each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);

/// How a blob came into the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// It was there.
    Existed,
    /// Another repository of the registry had it.
    Mounted,
    /// It was sent.
    Sent,
}

pub(super) struct Blob<'a> {
    pub(super) digest: String,
    pub(super) source: &'a dyn Source,
    /// The file, for messages.
    pub(super) path: &'a Path,
}

fn deadline() -> Instant {
    later(Instant::now(), REQUEST_TIME)
}

/// Stores a blob. `from` are repositories that may have it. `progress` is called with the number of
/// bytes that the registry has.
pub(super) fn store(
    registry: &Registry,
    blob: &Blob<'_>,
    from: &[String],
    progress: &dyn Fn(u64),
) -> Result<Stored> {
    let size = blob.source.size();
    if retried(|| exists(registry, &blob.digest)).map_err(|kind| registry.failed(kind))? {
        progress(size);
        return Ok(Stored::Existed);
    }
    for repository in from.iter().filter(|name| **name != registry.reference.repository) {
        if mount_from(registry, &blob.digest, repository)? {
            progress(size);
            return Ok(Stored::Mounted);
        }
    }
    let mut failures = 0u32;
    loop {
        match send(registry, blob, progress) {
            Ok(()) => return Ok(Stored::Sent),
            Err(Error::Fetch { error, .. }) if error.kind.is_temporary() && failures < FAILURES => {
                failures = failures.saturating_add(1);
                pause(failures, &error.kind);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes the repository have a blob of another repository of the registry. Returns whether it has
/// it.
pub(super) fn mount(registry: &Registry, digest: &str, repository: &str) -> Result<bool> {
    if retried(|| exists(registry, digest)).map_err(|kind| registry.failed(kind))? {
        return Ok(true);
    }
    Ok(repository != registry.reference.repository && mount_from(registry, digest, repository)?)
}

fn mount_from(registry: &Registry, digest: &str, repository: &str) -> Result<bool> {
    let url = format!("blobs/uploads/?mount={digest}&from={repository}");
    let answer = retried(|| begin(registry, &url)).map_err(|kind| registry.failed(kind))?;
    if answer.status().as_u16() == 201 {
        return Ok(true);
    }
    // The registry does not mount: it has begun an upload, which is not used.
    if let Some(url) = location(registry, &answer) {
        let _ = registry.send("DELETE", &url, &[], None, deadline());
    }
    Ok(false)
}

fn pause(failures: u32, kind: &FetchErrorKind) {
    let pause = PAUSE.saturating_mul(1 << failures.min(10));
    std::thread::sleep(kind.retry_after().map_or(pause, |asked| asked.clamp(pause, REQUEST_TIME)));
}

/// Sends a request again while it fails for a reason that may pass.
pub(super) fn retried<T>(
    mut request: impl FnMut() -> Result<T, FetchErrorKind>,
) -> Result<T, FetchErrorKind> {
    let mut failures = 0u32;
    loop {
        match request() {
            // A registry that computes another digest will do so again.
            Err(FetchErrorKind::Digest) => return Err(FetchErrorKind::Digest),
            Err(kind) if kind.is_temporary() && failures < FAILURES => {
                failures = failures.saturating_add(1);
                pause(failures, &kind);
            }
            result => return result,
        }
    }
}

/// Whether the registry has a blob.
fn exists(registry: &Registry, digest: &str) -> Result<bool, FetchErrorKind> {
    let url = registry.url(&format!("blobs/{digest}"))?;
    let answer = registry.send("HEAD", &url, &[], None, deadline())?;
    match answer.status().as_u16() {
        200 | 307 => Ok(true),
        404 => Ok(false),
        // Some registries do not let those look who may only write.
        403 | 405 => Ok(false),
        status => Err(error_of(status, answer.headers())),
    }
}

/// Begins an upload, or mounts a blob.
fn begin(registry: &Registry, path: &str) -> Result<Response<Body>, FetchErrorKind> {
    let answer = registry.send("POST", &registry.url(path)?, &[], Some(b""), deadline())?;
    match answer.status().as_u16() {
        201 | 202 => Ok(answer),
        _ => Err(unexpected(&answer)),
    }
}

/// The place where an upload continues.
fn location(registry: &Registry, answer: &Response<Body>) -> Option<Url> {
    registry.url("").ok()?.join(header(answer.headers(), "location")?).ok()
}

/// The reason why an upload did not continue. A registry that does not know the upload any more
/// takes a new one.
fn upload_error(answer: &Response<Body>) -> FetchErrorKind {
    match answer.status().as_u16() {
        status @ (404 | 410) => FetchErrorKind::Protocol(format!(
            "the registry has forgotten the upload (status {status})"
        )),
        _ => unexpected(answer),
    }
}

/// One upload: one request for a small blob, otherwise chunks.
fn send(registry: &Registry, blob: &Blob<'_>, progress: &dyn Fn(u64)) -> Result<()> {
    let size = blob.source.size();
    let failed = |kind| registry.failed(kind);
    let begun = begin(registry, "blobs/uploads/").map_err(failed)?;
    let no_location =
        || failed(FetchErrorKind::Protocol("the registry names no place for the upload".into()));
    let mut url = location(registry, &begun).ok_or_else(no_location)?;
    let (mut sent, mut failures) = (0, 0u32);
    // The last chunk, or the only one, goes with the request that ends the upload.
    while size.saturating_sub(sent) > CHUNK {
        let chunk = read(blob, sent, CHUNK)?;
        let failure = match patch(registry, &mut url, sent, &chunk) {
            Ok(end) => {
                (sent, failures) = (end.min(size), 0);
                progress(sent);
                continue;
            }
            Err(failure) => failure,
        };
        // Status 416: the registry has another number of bytes.
        let is_other_place = matches!(failure, FetchErrorKind::WrongRange(_));
        if failures >= FAILURES || !(failure.is_temporary() || is_other_place) {
            return Err(failed(failure));
        }
        failures = failures.saturating_add(1);
        pause(failures, &failure);
        // How much has arrived. Without an answer, the upload starts again.
        let answer = registry.send("GET", &url, &[], None, deadline()).map_err(failed)?;
        if !matches!(answer.status().as_u16(), 202 | 204) {
            return Err(failed(failure));
        }
        url = location(registry, &answer).unwrap_or(url);
        sent = received(&answer).unwrap_or(0).min(size);
        progress(sent);
    }
    let chunk = read(blob, sent, size.saturating_sub(sent))?;
    let range = format!("{sent}-{}", size.saturating_sub(1));
    url.query_pairs_mut().append_pair("digest", &blob.digest);
    let mut headers = vec![OCTETS];
    if sent > 0 {
        headers.push(("Content-Range", range.as_str()));
    }
    let answer = registry.send("PUT", &url, &headers, Some(&chunk), deadline()).map_err(failed)?;
    match answer.status().as_u16() {
        201 | 202 | 204 => {
            progress(size);
            Ok(())
        }
        _ => Err(failed(upload_error(&answer))),
    }
}

const OCTETS: (&str, &str) = ("Content-Type", "application/octet-stream");

/// Sends the chunk from `sent` on. Returns where the next one starts, and sets the address for it.
fn patch(
    registry: &Registry,
    url: &mut Url,
    sent: u64,
    chunk: &[u8],
) -> Result<u64, FetchErrorKind> {
    let end = range_of(sent, chunk).end;
    let range = format!("{sent}-{}", end.saturating_sub(1));
    let answer = registry.send(
        "PATCH",
        url,
        &[OCTETS, ("Content-Range", &range)],
        Some(chunk),
        deadline(),
    )?;
    match answer.status().as_u16() {
        201 | 202 | 204 => {
            if let Some(next) = location(registry, &answer) {
                *url = next;
            }
            Ok(received(&answer).filter(|end| *end > sent).unwrap_or(end))
        }
        _ => Err(upload_error(&answer)),
    }
}

/// The number of bytes that the registry has: the header `Range: 0-99`. An upload without bytes has
/// `0-0` there, as with one byte.
fn received(answer: &Response<Body>) -> Option<u64> {
    let range = header(answer.headers(), "range")?;
    let (first, last) = range.trim_start_matches("bytes=").split_once('-')?;
    let last: u64 = last.parse().ok()?;
    (first == "0").then(|| if last == 0 { Some(0) } else { last.checked_add(1) }).flatten()
}

fn read(blob: &Blob<'_>, start: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(len)];
    blob.source.read_exact_at(start, &mut bytes).map_err(Error::io("read", blob.path))?;
    Ok(bytes)
}
