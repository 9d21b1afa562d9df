//! Objects of web servers over real sockets: each thing that a server can do wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::soon;
use ferofs_serve::http::{Client, HttpObject, Opened, TlsOptions, WebAccess, WebOptions};
use ferofs_serve::{Error, FetchError, FetchErrorKind as Kind, RemoteObject, Validator};
use ferofs_test_server::{Auth, Fault, Object, Rule, Server};

/// Bytes of the objects. More than what is fetched when they are opened.
const SIZE: usize = 300_000;

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7 % 251) as u8).collect()
}

fn server() -> Server {
    let server = Server::start().unwrap();
    server.put("/x", bytes());
    server
}

fn open_with(url: &str, options: &WebOptions) -> Result<Opened, Error> {
    let access = Arc::new(WebAccess::new(url, options)?);
    HttpObject::open(Client::new(&TlsOptions::default())?, access, soon())
}

fn open(server: &Server) -> HttpObject {
    open_with(&server.url("/x"), &WebOptions::default()).unwrap().object
}

/// Fetches 1000 bytes from byte 100,000 on, and checks them.
fn fetch(object: &HttpObject) -> Result<(), FetchError> {
    let mut buf = [0; 1000];
    object.fetch(100_000, &mut buf, soon())?;
    assert!(buf == bytes()[100_000..101_000], "wrong bytes");
    Ok(())
}

fn kind_of_open(result: Result<Opened, Error>) -> Kind {
    match result.err() {
        Some(Error::Fetch { error, .. }) => error.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_request_opens_an_object_and_brings_its_first_bytes() {
    let server = server();
    let opened = open_with(&server.url("/x"), &WebOptions::default()).unwrap();
    assert_eq!(opened.object.size(), SIZE as u64);
    assert!(matches!(opened.object.validator(), Validator::ETag(_)));
    assert_eq!(opened.first_bytes, bytes()[..opened.first_bytes.len()]);
    assert!(!opened.first_bytes.is_empty());
    for _ in 0..5 {
        fetch(&opened.object).unwrap();
    }
    let counts = server.counts();
    assert_eq!((counts.requests, counts.connections), (6, 1), "the connection is used again");
    let request = &server.log()[1];
    assert_eq!(request.header("range"), Some("bytes=100000-100999"));
    let Validator::ETag(tag) = opened.object.validator() else { panic!() };
    assert_eq!(request.header("if-match"), Some(tag.as_str()));
    assert_eq!(request.header("user-agent"), Some(concat!("ferofs/", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn objects_smaller_than_the_first_request() {
    let server = server();
    server.put("/x", b"small".to_vec());
    let opened = open_with(&server.url("/x"), &WebOptions::default()).unwrap();
    assert_eq!((opened.object.size(), opened.first_bytes.as_slice()), (5, &b"small"[..]));
}

/// What a fetch gives when the server does this, and the bytes that are right.
fn with(fault: Rule) -> (Result<(), Kind>, usize) {
    let server = server();
    let object = open(&server);
    server.add(fault);
    match fetch(&object) {
        Ok(()) => (Ok(()), 1000),
        Err(error) => (Err(error.kind), error.received),
    }
}

#[test]
fn a_complete_answer_is_not_read() {
    let server = server();
    server.put("/x", vec![0; 64 << 20]);
    server.add(Rule::new(Fault::Complete));
    let error = kind_of_open(open_with(&server.url("/x"), &WebOptions::default()));
    assert!(matches!(error, Kind::NoRanges), "{error:?}");
    // The system's buffers take some; the rest is never sent.
    assert!(server.counts().bytes < 32 << 20, "{}", server.counts().bytes);
    server.clear();
    server.add(Rule::new(Fault::WrongRange(1)));
    let error = kind_of_open(open_with(&server.url("/x"), &WebOptions::default()));
    assert!(matches!(error, Kind::WrongRange(_)), "{error:?}");
}

#[test]
fn a_server_says_when_to_come_back() {
    for status in [429, 503] {
        let error =
            with(Rule::new(Fault::Status(status)).header("Retry-After", "7")).0.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error}");
    }
}

#[test]
fn changed_objects() {
    let server = server();
    let object = open(&server);
    let mut other = bytes();
    other[100_001] ^= 1;
    server.put("/x", other);
    assert!(matches!(fetch(&object).unwrap_err().kind, Kind::Changed), "If-Match");
    assert!(matches!(
        with(Rule::new(Fault::OtherTag("\"other\"".into()))),
        (Err(Kind::Changed), 0)
    ));
    let dated = |time| Object::new(bytes()).with_etag(Some("W/\"weak\"")).with_last_modified(time);
    server.put("/x", dated("Mon, 02 Nov 2026 10:00:00 GMT"));
    let object = open(&server);
    assert!(matches!(object.validator(), Validator::LastModified(_)));
    fetch(&object).unwrap();
    server.put("/x", dated("Mon, 02 Nov 2026 10:00:01 GMT"));
    assert!(matches!(fetch(&object).unwrap_err().kind, Kind::Changed), "Last-Modified");
    let weak = |tag| Object::new(bytes()).with_etag(Some(tag));
    server.put("/x", weak("W/\"1\""));
    let object = open(&server);
    assert_eq!(*object.validator(), Validator::None);
    fetch(&object).unwrap();
    server.put("/x", weak("\"1\""));
    fetch(&object).unwrap();
    server.put("/x", weak("W/\"2\""));
    assert!(matches!(fetch(&object).unwrap_err().kind, Kind::Changed), "weak ETag");
    let without = |len| Object::new(vec![7; len]).with_etag(None);
    server.put("/x", without(200_000));
    let object = open(&server);
    server.put("/x", without(200_001));
    assert!(matches!(fetch(&object).unwrap_err().kind, Kind::Changed), "size");
}

#[test]
fn the_deadline_covers_everything() {
    // Long enough for the first bytes, also on a loaded machine.
    const WAIT: Duration = Duration::from_secs(2);
    let hour = Duration::from_secs(3600);
    for fault in [Fault::StallBeforeHeaders(hour), Fault::StallInBody(600, hour)] {
        let server = server();
        let object = open(&server);
        server.add(Rule::new(fault.clone()));
        let start = Instant::now();
        let error = object.fetch(100_000, &mut [0; 1000], start + WAIT).unwrap_err();
        assert!(matches!(error.kind, Kind::Timeout), "{fault:?}: {error:?}");
        assert_eq!(error.received, if matches!(fault, Fault::StallInBody(..)) { 600 } else { 0 });
        assert!(start.elapsed() >= WAIT);
        // An object works again after a timeout.
        server.clear();
        fetch(&object).unwrap();
    }
    let server = server();
    let object = open(&server);
    let past = object.fetch(0, &mut [0; 10], Instant::now()).unwrap_err();
    assert!(matches!(past.kind, Kind::Timeout));
    assert_eq!(server.counts().requests, 1, "nothing is sent after the deadline");
}

#[test]
fn credentials() {
    let server = server();
    let value = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned();
    server.set_auth("/x", Some(Auth::Header { value, challenge: "Basic realm=\"x\"".into() }));
    let none = open_with(&server.url("/x"), &WebOptions::default());
    assert!(matches!(kind_of_open(none), Kind::NoCredentials));
    let url = server.url("/x").replace("http://", "http://Aladdin:open%20sesame@");
    fetch(&open_with(&url, &WebOptions::default()).unwrap().object).unwrap();
    let mut options = WebOptions::default();
    options.user = Some(("Aladdin".into(), "wrong".into()));
    assert!(matches!(kind_of_open(open_with(&server.url("/x"), &options)), Kind::Unauthorized));
    let error = open_with(&server.url("/x"), &options).err().unwrap().to_string();
    assert!(error.contains("401") && !error.contains("wrong"), "{error}");
}

#[test]
fn tokens_in_files_are_read_again() {
    let server = server();
    let token = |token: &str| {
        let value = format!("Bearer {token}");
        server.set_auth("/x", Some(Auth::Header { value, challenge: "Bearer".into() }));
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    token("first");
    let mut options = WebOptions::default();
    options.token_file = Some(file.clone());
    let object = open_with(&server.url("/x"), &options).unwrap().object;
    token("second");
    assert!(matches!(fetch(&object).unwrap_err().kind, Kind::Unauthorized));
    std::fs::write(&file, "second").unwrap();
    fetch(&object).unwrap();
    // Of several requests with the old token, each is sent again, although only one finds that the
    // file has changed.
    for round in 0..20 {
        token(&format!("next-{round}"));
        std::fs::write(&file, format!("next-{round}")).unwrap();
        std::thread::scope(|scope| {
            let fetches: Vec<_> = (0..8).map(|_| scope.spawn(|| fetch(&object))).collect();
            fetches.into_iter().for_each(|fetched| fetched.join().unwrap().unwrap());
        });
    }
    std::fs::write(&file, "two words").unwrap();
    assert!(matches!(open_with(&server.url("/x"), &options), Err(Error::Credentials { .. })));
}

#[test]
fn redirects_are_followed_once_and_resolved_anew_when_they_expire() {
    let (front, store) = (Server::start().unwrap(), server());
    let sign = |signature: &str| {
        front.clear();
        front.add(Rule::new(Fault::Redirect(307, format!("{}?sig={signature}", store.url("/x")))));
        let value = signature.to_owned();
        store.set_auth("/x", Some(Auth::Parameter { name: "sig".into(), value }));
    };
    sign("1");
    let mut options = WebOptions::default();
    options.user = Some(("me".into(), "secret".into()));
    options.headers.push(("X-Private".into(), "yes".into()));
    let object = open_with(&front.url("/start"), &options).unwrap().object;
    fetch(&object).unwrap();
    fetch(&object).unwrap();
    assert_eq!(
        (front.counts().requests, store.counts().requests),
        (1, 3),
        "the address is remembered"
    );
    assert!(front.log()[0].header("authorization").is_some());
    for request in store.log() {
        assert_eq!(request.header("authorization"), None, "another server gets no credentials");
        assert_eq!(request.header("x-private"), None);
    }
    // The signature expires: status 403 for the remembered address, and a new one from the first
    // server.
    sign("2");
    fetch(&object).unwrap();
    assert_eq!((front.counts().requests, store.counts().requests), (2, 5));
    // The store moves: the first server is asked again after a failed connection.
    let moved = server();
    let from = store.address();
    drop(store);
    front.clear();
    front.add(Rule::new(Fault::Redirect(302, moved.url("/x"))));
    assert!(
        matches!(fetch(&object).unwrap_err().kind, Kind::Connection(_) | Kind::Short),
        "{from}"
    );
    fetch(&object).unwrap();
    assert!(moved.counts().requests >= 1);
}

#[test]
fn a_stalled_request_does_not_hold_up_others() {
    let server = server();
    let object = open(&server);
    server.add(Rule::new(Fault::StallBeforeHeaders(Duration::from_secs(3600))).covering(0));
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| object.fetch(0, &mut [0; 10], soon()));
        while server.counts().requests < 2 {
            std::thread::yield_now();
        }
        fetch(&object).unwrap();
        assert!(!stalled.is_finished());
        drop(server);
        assert!(stalled.join().unwrap().is_err());
    });
}

#[test]
fn files_of_certificates_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pem");
    let mut options = TlsOptions::default();
    options.authorities = Some(path.clone());
    assert!(matches!(Client::new(&options), Err(Error::Credentials { .. })), "no file");
    std::fs::write(&path, "nothing").unwrap();
    assert!(matches!(Client::new(&options), Err(Error::Credentials { .. })), "no certificate");
    let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&path, wrong).unwrap();
    assert!(matches!(Client::new(&options), Err(Error::Credentials { .. })), "a wrong certificate");
    options.authorities = None;
    options.client = Some((path.clone(), path));
    assert!(matches!(Client::new(&options), Err(Error::Credentials { .. })), "no key");
}
