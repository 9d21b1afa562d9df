//! A line between clients and a server, with latency and bandwidth: a TCP proxy that delays what it copies.
//!
//! It needs no rights and no kernel modules, where `tc netem` needs both. It delays what depends on distance:
//!
//! - Each byte takes half of the round-trip time in each direction.
//! - A connection takes one round trip before the first byte can be sent (the handshake of TCP).
//! - All connections share the bandwidth of each direction.
//! - Bytes without an acknowledgement are limited by a window, for each connection. Like TCP, [`Network::slow_start`] begins with
//!   ten segments, and adds what is acknowledged.
//!
//! It does not lose packets.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes in flight of one connection and direction: the default maximum of Linux's receive buffer (`tcp_rmem`) is 6 MiB.
const WINDOW: usize = 6 << 20;
/// The first window of a TCP connection in Linux (RFC 6928): ten segments of Ethernet.
const FIRST_WINDOW: usize = 10 * 1460;
/// A connection without bytes in flight for this time begins with the first window again (`tcp_slow_start_after_idle`): Linux's smallest
/// retransmission timeout.
const IDLE: Duration = Duration::from_millis(200);
/// Bytes that are copied at a time, so that connections share the bandwidth evenly.
const UNIT: usize = 64 << 10;

/// The properties of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Network {
    /// From a request to its answer.
    pub(crate) round_trip: Duration,
    /// Bytes a second in each direction; `None`: no limit.
    pub(crate) bandwidth: Option<u64>,
    /// Whether windows begin small.
    pub(crate) slow_start: bool,
}

/// What clients have done on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) connections: u64,
    /// Requests of HTTP without TLS.
    pub(crate) requests: u64,
    /// Bytes from the server, with headers.
    pub(crate) bytes: u64,
}

impl Traffic {
    /// The traffic since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            connections: self.connections - before.connections,
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// A line to one server. When it is dropped, it takes no more connections; those that are open end with their clients.
pub(crate) struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    network: Network,
    /// When the bytes that were sent before have left: to the server, to the clients.
    busy: [Mutex<Option<Instant>>; 2],
    counters: Counters,
    is_closed: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Line {
    /// Listens at a free port, and connects each client with `server`.
    pub(crate) fn open(server: SocketAddr, network: Network) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            network,
            busy: Default::default(),
            counters: Counters::default(),
            is_closed: false.into(),
        });
        let kept = Arc::clone(&shared);
        Builder::new().name("line".into()).spawn(move || {
            for client in listener.incoming() {
                if shared.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                // A client that went away, or a server that is not there: the client sees a closed connection.
                let _ = client.and_then(|client| connect(client, &shared));
            }
        })?;
        Ok(Self { address, shared: kept })
    }

    /// Where clients connect to.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let Counters { connections, requests, bytes } = &self.shared.counters;
        let [connections, requests, bytes] =
            [connections, requests, bytes].map(|counter| counter.load(Ordering::Relaxed));
        Traffic { connections, requests, bytes }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Starts the four threads of a connection.
fn connect(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let server = TcpStream::connect(shared.server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    shared.counters.connections.fetch_add(1, Ordering::Relaxed);
    // What a client sends before a handshake over the line would end waits for its end.
    let open = Instant::now() + shared.network.round_trip;
    copy(client.try_clone()?, server.try_clone()?, Direction::ToServer, open, shared)?;
    copy(server, client, Direction::ToClient, open, shared)
}

/// Starts the two threads of a direction: one takes bytes from their sender, one gives them to their receiver in time.
fn copy(
    from: TcpStream,
    to: TcpStream,
    direction: Direction,
    open: Instant,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel();
    let flight = Arc::new(Flight::new(shared.network));
    let (shared, for_taker) = (Arc::clone(shared), Arc::clone(&flight));
    Builder::new().name("take".into()).spawn(move || {
        // An error ends the connection as the end of the stream does.
        let _ = take(from, direction, open, &sender, &for_taker, &shared);
    })?;
    Builder::new().name("give".into()).spawn(move || {
        let _ = give(&to, &receiver, &flight);
        flight.end();
        // The receiver may have gone.
        let _ = to.shutdown(Shutdown::Write);
    })?;
    Ok(())
}

/// Bytes, and when they arrive.
type Parcel = (Instant, Vec<u8>);

fn take(
    mut from: TcpStream,
    direction: Direction,
    open: Instant,
    parcels: &Sender<Parcel>,
    flight: &Flight,
    shared: &Shared,
) -> io::Result<()> {
    let Network { round_trip, bandwidth, .. } = shared.network;
    // At most 5 ms of the bandwidth.
    let unit = bandwidth
        .map_or(UNIT, |bytes| usize::try_from(bytes / 200).map_or(UNIT, |len| len.clamp(1460, UNIT)));
    let mut buf = vec![0; unit];
    loop {
        // The window depends on the time when there are bytes to send.
        if from.peek(&mut [0])? == 0 {
            return Ok(());
        }
        let Some(space) = flight.wait_for_space() else { return Ok(()) };
        let len = from.read(&mut buf[..space.min(unit)])?;
        let bytes = &buf[..len];
        let Counters { requests, bytes: received, .. } = &shared.counters;
        match direction {
            Direction::ToClient => drop(received.fetch_add(len as u64, Ordering::Relaxed)),
            // Clients send a request with one call, and the next one after its answer.
            Direction::ToServer if bytes.starts_with(b"GET ") || bytes.starts_with(b"HEAD ") => {
                requests.fetch_add(1, Ordering::Relaxed);
            }
            Direction::ToServer => {}
        }
        let left = shared.send(direction, len, open);
        flight.sent(len);
        if parcels.send((left + round_trip / 2, bytes.to_vec())).is_err() {
            return Ok(());
        }
    }
}

fn give(mut to: &TcpStream, parcels: &Receiver<Parcel>, flight: &Flight) -> io::Result<()> {
    for (arrival, bytes) in parcels {
        thread::sleep(arrival.saturating_duration_since(Instant::now()));
        to.write_all(&bytes)?;
        flight.arrived(bytes.len());
    }
    Ok(())
}

impl Shared {
    /// When the last of `len` bytes has left, if they are sent now.
    fn send(&self, direction: Direction, len: usize, open: Instant) -> Instant {
        let now = Instant::now().max(open);
        let Some(bandwidth) = self.network.bandwidth else { return now };
        let mut busy = self.busy[usize::from(direction == Direction::ToClient)].lock();
        let start = busy.map_or(now, |busy| busy.max(now));
        *busy.insert(start + Duration::from_secs_f64(len as f64 / bandwidth as f64))
    }
}

/// Bytes of one connection and direction that are on the line, or that arrived and are not acknowledged.
struct Flight {
    network: Network,
    state: Mutex<FlightState>,
    changed: Condvar,
}

struct FlightState {
    window: usize,
    in_flight: usize,
    /// When acknowledgements arrive, and for how many bytes.
    acknowledged: VecDeque<(Instant, usize)>,
    /// When the last byte was acknowledged.
    idle_since: Instant,
    is_ended: bool,
}

impl Flight {
    fn new(network: Network) -> Self {
        let window = if network.slow_start { FIRST_WINDOW } else { WINDOW };
        let state = FlightState {
            window,
            in_flight: 0,
            acknowledged: VecDeque::new(),
            idle_since: Instant::now(),
            is_ended: false,
        };
        Self { network, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until bytes may be sent. Returns their number; `None`: the receiver has gone.
    fn wait_for_space(&self) -> Option<usize> {
        let mut state = self.state.lock();
        loop {
            if state.is_ended {
                return None;
            }
            let now = Instant::now();
            while let Some((time, len)) = state.acknowledged.front().copied().filter(|(time, _)| *time <= now)
            {
                state.acknowledged.pop_front();
                state.in_flight -= len;
                state.idle_since = time;
                state.window = (state.window + len).min(WINDOW);
            }
            if self.network.slow_start && state.in_flight == 0 && now - state.idle_since > IDLE {
                state.window = FIRST_WINDOW;
            }
            if state.in_flight < state.window {
                return Some(state.window - state.in_flight);
            }
            let wait = state.acknowledged.front().map(|(time, _)| time.saturating_duration_since(now));
            // Without a time, an arrival or the end wakes this thread.
            let wait = wait.unwrap_or(Duration::from_secs(1));
            self.changed.wait_for(&mut state, wait);
        }
    }

    fn sent(&self, len: usize) {
        self.state.lock().in_flight += len;
    }

    fn arrived(&self, len: usize) {
        let time = Instant::now() + self.network.round_trip / 2;
        self.state.lock().acknowledged.push_back((time, len));
        self.changed.notify_one();
    }

    fn end(&self) {
        self.state.lock().is_ended = true;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each byte with 200,000 bytes.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                thread::spawn(move || {
                    while client.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
                        client.write_all(&[7; 200_000]).unwrap();
                    }
                });
            }
        });
        address
    }

    /// The least time of two requests on one connection: a line may be slower than it should, never faster.
    fn time_of_two(network: Network) -> Duration {
        let line = Line::open(server(), network).unwrap();
        let start = Instant::now();
        let mut client = TcpStream::connect(line.address()).unwrap();
        for _ in 0..2 {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let mut answer = vec![0; 200_000];
            client.read_exact(&mut answer).unwrap();
            assert!(answer.iter().all(|byte| *byte == 7));
        }
        let time = start.elapsed();
        assert_eq!(line.traffic(), Traffic { connections: 1, requests: 2, bytes: 400_000 });
        drop(client);
        time
    }

    #[test]
    fn bytes_arrive_late() {
        let round_trip = Duration::from_millis(20);
        let network = Network { round_trip, bandwidth: None, slow_start: false };
        // The handshake and two requests.
        assert!(time_of_two(network) >= 3 * round_trip);
        // Windows of 14,600, 29,200, 58,400 and 116,800 bytes: the first answer takes three round trips more.
        assert!(time_of_two(Network { slow_start: true, ..network }) >= 6 * round_trip);
        let bandwidth = Some(4_000_000);
        assert!(time_of_two(Network { bandwidth, ..network }) >= Duration::from_millis(100 + 60));
    }

    #[test]
    fn the_end_of_a_server_reaches_the_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Network { round_trip: Duration::ZERO, bandwidth: None, slow_start: false };
        let line = Line::open(listener.local_addr().unwrap(), network).unwrap();
        let mut client = TcpStream::connect(line.address()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"last").unwrap();
        drop(accepted);
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"last");
    }
}
