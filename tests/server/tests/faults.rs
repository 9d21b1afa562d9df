//! The server does what it is told to, as a plain socket sees it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ferofs_test_server::{Fault, Object, Rule, Server};

/// Sends one request on its own connection, and returns what came before the end, or before an
/// error.
fn ask(server: &Server, head: &str) -> (String, Option<ErrorKind>) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A server that is down may have closed the connection already.
    if let Err(error) = stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes())
    {
        return (String::new(), Some(error.kind()));
    }
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break None,
            Ok(len) => bytes.extend_from_slice(&buffer[..len]),
            Err(error) => break Some(error.kind()),
        }
    };
    (String::from_utf8_lossy(&bytes).into_owned(), error)
}

fn get(server: &Server, range: &str) -> (String, Option<ErrorKind>) {
    ask(server, &format!("GET /x HTTP/1.1\r\nRange: bytes={range}"))
}

fn server() -> Server {
    let server = Server::start().unwrap();
    server.put("/x", Object::new(*b"0123456789").with_etag(Some("\"a\"")));
    server
}

#[test]
fn faults_in_answers() {
    let server = server();
    let with = |fault: Fault| {
        server.clear();
        server.add(Rule::new(fault));
        get(&server, "2-5")
    };
    assert!(with(Fault::Complete).0.ends_with("\r\n\r\n0123456789"));
    assert!(with(Fault::Complete).0.starts_with("HTTP/1.1 200 "));
    assert!(with(Fault::WrongRange(1)).0.contains("Content-Range: bytes 3-6/10\r\n"));
    assert!(with(Fault::WrongSize(1)).0.contains("Content-Range: bytes 2-5/11\r\n"));
    assert!(with(Fault::FlippedBit(3)).0.ends_with("\r\n\r\n2245"));
    assert!(with(Fault::OtherTag("\"b\"".into())).0.contains("ETag: \"b\"\r\n"));
    assert!(with(Fault::Redirect(307, "/y".into())).0.contains("Location: /y\r\n"));
    let short = with(Fault::Short(2)).0;
    assert!(short.contains("Content-Length: 4\r\n") && short.ends_with("\r\n\r\n23"), "{short}");
    assert_eq!(with(Fault::Reset), (String::new(), Some(ErrorKind::ConnectionReset)));
    assert_eq!(with(Fault::ResetInBody(1)).1, Some(ErrorKind::ConnectionReset));
    server.clear();
    server.add(Rule::new(Fault::Status(429)).header("Retry-After", "7").times(1));
    assert!(get(&server, "0-0").0.contains("429 Status\r\n"));
    assert!(get(&server, "0-0").0.contains("206 Status\r\n"));
}

#[test]
fn time_passes_as_shaped() {
    let server = server();
    let since = |start: Instant| start.elapsed();
    server.shape(Duration::from_millis(60), 0);
    let start = Instant::now();
    get(&server, "0-0");
    assert!(since(start) >= Duration::from_millis(60));
    server.shape(Duration::ZERO, 100_000);
    server.put("/x", vec![0; 20_000]);
    let start = Instant::now();
    get(&server, "0-");
    assert!(since(start) >= Duration::from_millis(190), "{:?}", since(start));
    server.shape(Duration::ZERO, 0);
    server.add(Rule::new(Fault::StallInBody(1, Duration::from_millis(80))));
    let start = Instant::now();
    get(&server, "0-9");
    assert!(since(start) >= Duration::from_millis(80));
}

#[test]
fn a_stalled_server_ends_at_once() {
    let server = server();
    server.add(Rule::new(Fault::StallBeforeHeaders(Duration::from_secs(3600))));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET /x HTTP/1.1\r\n\r\n").unwrap();
    while server.counts().requests == 0 {
        std::thread::yield_now();
    }
    // Joins the thread of the stalled connection.
    drop(server);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(!matches!(stream.read(&mut [0; 4]), Ok(1..)));
}

#[test]
fn faults_by_chance_and_slow_answers() {
    let server = server();
    server.add(Rule::new(Fault::Status(500)).probability(0.5));
    (0..200).for_each(|_| drop(get(&server, "0-0")));
    // The numbers are the same in each run.
    assert!((70..130).contains(&server.counts().faults), "{:?}", server.counts());
    assert_eq!(server.ranges("/x"), vec![0..1; 200]);
    assert!(ask(&server, "GET /.control?clear HTTP/1.1").0.starts_with("HTTP/1.1 204 "));
    assert!(
        ask(&server, "GET /.control?fault+slow-bytes+50 HTTP/1.1").0.starts_with("HTTP/1.1 204 ")
    );
    assert!(ask(&server, "GET /.control?fault+slow HTTP/1.1").0.starts_with("HTTP/1.1 400 "));
    let start = Instant::now();
    assert!(get(&server, "0-9").0.ends_with("0123456789"));
    assert!(start.elapsed() >= Duration::from_millis(190), "{:?}", start.elapsed());
}
