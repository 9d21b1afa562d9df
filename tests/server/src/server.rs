//! Listens, and answers, as slowly as a test wants.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::fault::{Fault, Rule};
use crate::handle::{Handle, now};
use crate::object::Answer;
use crate::request::Request;
use crate::script;

/// A running server. It ends, with all its threads and connections, when it is dropped. Its
/// [`Handle`] says what it serves.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    address: SocketAddr,
    connections: Arc<Connections>,
    listener: Option<JoinHandle<()>>,
}

impl Deref for Server {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

/// The threads own their connections: a reset is sent only when nothing else keeps the socket open.
#[derive(Debug, Default)]
struct Connections(Mutex<Vec<(Weak<TcpStream>, JoinHandle<()>)>>);

impl Server {
    /// Listens at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If the system has no free port or no thread.
    pub fn start() -> io::Result<Self> {
        Self::bind("127.0.0.1:0")
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// If the address is in use, or is none of this machine.
    pub fn bind(address: &str) -> io::Result<Self> {
        Self::bind_prepared(address, |_| {})
    }

    /// Listens at an address, after `prepare` has told the server what to serve: a server that
    /// restarts has all its objects with the first request.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_prepared(address: &str, prepare: impl FnOnce(&Handle)) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let handle = Handle::default();
        prepare(&handle);
        let connections = Arc::new(Connections::default());
        let (for_thread, kept) = (handle.clone(), Arc::clone(&connections));
        let listener = thread::Builder::new()
            .name("listener".into())
            .spawn(move || accept(&listener, &for_thread, &kept))?;
        Ok(Self { handle, address, connections, listener: Some(listener) })
    }

    /// The address and the port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a path of this server.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What tells the server what to do, for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the server ends, which the program does only by a signal.
    pub fn wait(mut self) {
        if let Some(listener) = self.listener.take() {
            // A panic of the thread was printed already.
            let _ = listener.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.shape.end();
        // Wakes the thread that accepts. If it cannot be reached, it has ended.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        let connections = std::mem::take(&mut *self.connections.0.lock());
        for (stream, _) in &connections {
            // It may have ended.
            let _ = stream.upgrade().map(|stream| stream.shutdown(Shutdown::Both));
        }
        for (_, thread) in connections {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, handle: &Handle, connections: &Connections) {
    for stream in listener.incoming() {
        if handle.shape.is_ended() {
            return;
        }
        let Ok(stream) = stream else { continue };
        handle.count_connection();
        let (stream, handle) = (Arc::new(stream), handle.clone());
        let kept = Arc::downgrade(&stream);
        let thread = thread::Builder::new().name("connection".into()).spawn(move || {
            // The errors are those of clients that went away.
            let _ = serve(&stream, &handle);
        });
        let mut connections = connections.0.lock();
        connections.retain(|(_, thread)| !thread.is_finished());
        if let Ok(thread) = thread {
            connections.push((kept, thread));
        }
    }
}

fn serve(stream: &TcpStream, handle: &Handle) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    loop {
        if handle.is_down() {
            return reset(stream);
        }
        let go_on = |request: &Request| match request.header("expect") {
            Some(_) => (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n"),
            None => Ok(()),
        };
        let Some(request) = Request::read(&mut input, go_on)? else { return Ok(()) };
        if let Some(answer) = script::control(&request, handle) {
            send(stream, handle, &request, answer, None)?;
            if !request.keeps_open() {
                return Ok(());
            }
            continue;
        }
        let rule = handle.meet(&request);
        if handle.is_down() {
            return reset(stream);
        }
        handle.shape.latency();
        if !answer(stream, handle, &request, rule)? || !request.keeps_open() {
            return Ok(());
        }
    }
}

/// Answers a request. Returns whether the connection stays open.
fn answer(
    stream: &TcpStream,
    handle: &Handle,
    request: &Request,
    rule: Option<Rule>,
) -> io::Result<bool> {
    let Some(rule) = rule else {
        let answer = handle.answer(request);
        return send(stream, handle, request, answer, None);
    };
    let mut answer = match &rule.fault {
        Fault::Status(status) => {
            Answer::new(*status, format!("status {status}, as the test wants it"))
        }
        Fault::Redirect(status, to) => Answer::new(*status, "").header("Location", to),
        Fault::ExpiringRedirect(status, to, time) => {
            let sign = if to.contains('?') { '&' } else { '?' };
            let until = now() + time.as_millis();
            Answer::new(*status, "").header("Location", &format!("{to}{sign}expires={until}"))
        }
        Fault::Complete => {
            let mut request = request.clone();
            request.headers.retain(|(name, _)| name != "range");
            handle.answer(&request)
        }
        Fault::OtherTag(tag) => {
            let mut request = request.clone();
            request.headers.retain(|(name, _)| name != "if-match");
            let mut answer = handle.answer(&request);
            answer.set("ETag", tag.clone());
            answer
        }
        Fault::Reset => return reset(stream).map(|()| false),
        Fault::Garbage => {
            (&*stream).write_all(b"\x15\x03\x01 this is no HTTP\r\n\r\n")?;
            return Ok(false);
        }
        Fault::StallBeforeHeaders(time) => {
            handle.shape.pause(*time);
            handle.answer(request)
        }
        _ => handle.answer(request),
    };
    if let (Fault::WrongRange(by), 206) = (&rule.fault, answer.status) {
        let (range, size) = (&answer.body.range, answer.body.bytes.len());
        answer.set(
            "Content-Range",
            format!("bytes {}-{}/{size}", range.start + by, range.end - 1 + by),
        );
    }
    if let (Fault::WrongSize(by), 206) = (&rule.fault, answer.status) {
        let (range, size) = (&answer.body.range, answer.body.bytes.len());
        answer
            .set("Content-Range", format!("bytes {}-{}/{}", range.start, range.end - 1, size + by));
    }
    for (name, value) in &rule.headers {
        answer.set(name, value.clone());
    }
    send(stream, handle, request, answer, Some(&rule.fault))
}

/// Sends an answer. Returns whether the connection stays open.
fn send(
    stream: &TcpStream,
    handle: &Handle,
    request: &Request,
    answer: Answer,
    fault: Option<&Fault>,
) -> io::Result<bool> {
    let Answer { status, headers, body } = answer;
    let len = body.range.end - body.range.start;
    let mut head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {len}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    if handle.shape.is_ended() {
        return Ok(false);
    }
    let mut output: &TcpStream = stream;
    output.write_all(head.as_bytes())?;
    if request.method == "HEAD" {
        return Ok(true);
    }
    // The place in the body where something happens.
    let stop = match fault {
        Some(Fault::Short(at) | Fault::ResetInBody(at) | Fault::StallInBody(at, _)) => {
            (*at).min(len)
        }
        _ => len,
    };
    // At most 10 ms of the bytes of a slow answer.
    let slow = if let Some(Fault::SlowBytes(bandwidth)) = fault {
        Some((*bandwidth).max(1))
    } else {
        None
    };
    let unit = slow.map_or(handle.shape.unit(), |slow| {
        usize::try_from(slow / 100).map_or(1024, |len| len.clamp(1, 65_536))
    });
    let mut sent = 0;
    while sent < len {
        if sent == stop {
            match fault {
                Some(Fault::Short(_)) => return Ok(false),
                Some(Fault::ResetInBody(_)) => return reset(stream).map(|()| false),
                Some(Fault::StallInBody(_, time)) => handle.shape.pause(*time),
                _ => {}
            }
        }
        let end = if sent < stop { stop } else { len };
        let part = usize::try_from(end - sent).map_or(unit, |left| left.min(unit));
        handle.shape.bandwidth(part);
        if let Some(slow) = slow {
            handle.shape.pause(Duration::from_secs_f64(part as f64 / slow as f64));
        }
        if handle.shape.is_ended() {
            return Ok(false);
        }
        let at = body.range.start + sent;
        let flipped = match fault {
            Some(Fault::FlippedBit(byte)) => {
                byte.checked_sub(at).and_then(|at| usize::try_from(at).ok())
            }
            _ => None,
        };
        let part = if let Some(flipped) = flipped.filter(|at| *at < part) {
            let mut bytes = vec![0; part];
            body.bytes.read(at, &mut bytes)?;
            bytes[flipped] ^= 1;
            output.write_all(&bytes)?;
            part
        } else {
            match body.bytes.send(stream, at, part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                sent => sent?,
            }
        };
        handle.count_bytes(part);
        sent += part as u64;
    }
    Ok(true)
}

/// Closes a connection by a reset: what was not sent yet is lost.
fn reset(stream: &TcpStream) -> io::Result<()> {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    Err(io::ErrorKind::ConnectionReset.into())
}

#[derive(Debug, Default)]
pub(crate) struct Shape {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    latency: Duration,
    /// Bytes a second, of all connections together; 0 for any.
    bandwidth: u64,
    /// When the bytes that were given out before have left.
    free_at: Option<Instant>,
    is_ended: bool,
}

impl Shape {
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    pub(crate) fn set_bandwidth(&self, bandwidth: u64) {
        let mut state = self.state.lock();
        state.bandwidth = bandwidth;
        state.free_at = None;
    }

    /// Waits for the latency of a request.
    pub(crate) fn latency(&self) {
        let latency = self.state.lock().latency;
        self.pause(latency);
    }

    /// The number of bytes to send at a time: at most 10 ms of the bandwidth.
    pub(crate) fn unit(&self) -> usize {
        let bandwidth = self.state.lock().bandwidth;
        let unit = if bandwidth == 0 { 1 << 20 } else { (bandwidth / 100).clamp(1024, 256 << 10) };
        usize::try_from(unit).unwrap_or(1024)
    }

    /// Waits until `len` bytes may be sent.
    pub(crate) fn bandwidth(&self, len: usize) {
        let until = {
            let mut state = self.state.lock();
            if state.bandwidth == 0 {
                return;
            }
            let now = Instant::now();
            let start = state.free_at.map_or(now, |free| free.max(now));
            let time = Duration::from_secs_f64(len as f64 / state.bandwidth as f64);
            *state.free_at.insert(start + time)
        };
        self.pause(until.saturating_duration_since(Instant::now()));
    }

    /// Waits, unless the server ends.
    pub(crate) fn pause(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.ended.wait_while_for(&mut self.state.lock(), |state| !state.is_ended, time);
    }

    pub(crate) fn end(&self) {
        self.state.lock().is_ended = true;
        self.ended.notify_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().is_ended
    }
}
