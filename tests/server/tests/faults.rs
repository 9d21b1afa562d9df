//! The server does what it is told to, as a plain socket sees it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ferofs_test_server::{Answer, Auth, Fault, Object, Rule, Server};

/// Sends one request on its own connection, and returns what came before the end, or before an error.
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
fn ranges_tags_and_counts() {
    let server = server();
    let (answer, error) = get(&server, "2-4");
    assert!(answer.starts_with("HTTP/1.1 206 ") && answer.ends_with("\r\n\r\n234"), "{answer}");
    assert!(
        answer.contains("Content-Range: bytes 2-4/10\r\n") && answer.contains("ETag: \"a\"\r\n"),
        "{answer}"
    );
    assert_eq!(error, None);
    assert!(get(&server, "10-").0.starts_with("HTTP/1.1 416 "));
    let conditional =
        |header: &str| ask(&server, &format!("GET /x HTTP/1.1\r\nRange: bytes=0-0\r\n{header}")).0;
    assert!(conditional("If-Match: \"b\"").starts_with("HTTP/1.1 412 "));
    assert!(conditional("If-Match: \"a\"").starts_with("HTTP/1.1 206 "));
    assert!(conditional("If-Range: \"b\"").starts_with("HTTP/1.1 200 "));
    let counts = server.counts();
    assert_eq!(
        (counts.requests, counts.bytes, counts.connections, counts.faults),
        (5, 3 + 1 + 10, 5, 0)
    );
    assert_eq!(server.log()[0].header("range"), Some("bytes=2-4"));
    assert!(ask(&server, "GET /_control/counts HTTP/1.1").0.contains("\"requests\":5"));
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
fn credentials_and_functions() {
    let server = server();
    let challenge = "Bearer realm=\"r\"".to_owned();
    server.set_auth("/x", Some(Auth::Header { value: "Bearer s".into(), challenge }));
    assert!(get(&server, "0-0").0.contains("WWW-Authenticate: Bearer realm=\"r\"\r\n"));
    assert!(
        ask(&server, "GET /x HTTP/1.1\r\nAuthorization: Bearer s").0.starts_with("HTTP/1.1 200 ")
    );
    server.set_auth("/x", Some(Auth::Parameter { name: "sig".into(), value: "1".into() }));
    assert!(get(&server, "0-0").0.starts_with("HTTP/1.1 403 "));
    assert!(ask(&server, "GET /x?a=b&sig=1 HTTP/1.1").0.starts_with("HTTP/1.1 200 "));
    server.route(|request| (request.path == "/token").then(|| Answer::new(200, "made")));
    assert!(ask(&server, "POST /token HTTP/1.1").0.ends_with("made"));
    let script = "auth /x Basic abc";
    let control =
        format!("POST /_control HTTP/1.1\r\nContent-Length: {}\r\n\r\n{script}", script.len());
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(control.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
    assert!(
        ask(&server, "GET /x HTTP/1.1\r\nAuthorization: Basic abc").0.starts_with("HTTP/1.1 200 ")
    );
}

#[test]
fn addresses_expire() {
    let server = server();
    server.add(
        Rule::new(Fault::ExpiringRedirect(307, "/x".into(), Duration::from_millis(700))).path("/y"),
    );
    server.set_auth("/x", Some(Auth::Expires));
    assert!(get(&server, "0-0").0.starts_with("HTTP/1.1 403 "));
    let answer = ask(&server, "GET /y HTTP/1.1").0;
    let to = answer.split("Location: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert!(to.starts_with("/x?expires="), "{to}");
    assert!(ask(&server, &format!("GET {to} HTTP/1.1")).0.starts_with("HTTP/1.1 200 "));
    std::thread::sleep(Duration::from_millis(750));
    assert!(ask(&server, &format!("GET {to} HTTP/1.1")).0.starts_with("HTTP/1.1 403 "));
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

#[test]
fn files_are_served_whole_and_in_parts() {
    let folder = std::env::temp_dir().join(format!("ferofs-test-server-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text: Vec<u8> = (0..3_000_000_u32).map(|number| b'a' + (number % 23) as u8).collect();
    std::fs::write(folder.join("x"), &text).unwrap();
    let server = Server::start().unwrap();
    server.serve_folder(&folder);
    let whole = ask(&server, "GET /x HTTP/1.1").0;
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Last-Modified: ") && head.contains("ETag: \""), "{head}");
    assert!(body.as_bytes() == text);
    server.add(Rule::new(Fault::FlippedBit(2_000_000)));
    let part = get(&server, "1500000-2499999").0;
    let part = part.split_once("\r\n\r\n").unwrap().1.as_bytes();
    let differ: Vec<usize> =
        (0..1_000_000).filter(|at| part[*at] != text[1_500_000 + at]).collect();
    assert_eq!(differ, [500_000]);
    assert!(ask(&server, "GET /../x HTTP/1.1").0.starts_with("HTTP/1.1 404 "));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_server_that_is_down_comes_back() {
    let server = server();
    server.set_down(true);
    assert!(get(&server, "0-0").0.is_empty());
    server.set_down(false);
    assert!(get(&server, "0-0").0.starts_with("HTTP/1.1 206 "));
}
