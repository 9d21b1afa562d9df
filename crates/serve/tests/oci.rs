//! Registries over real sockets: tokens, manifests, blobs with redirects, and what a wrong registry
//! sends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{digest, soon};
use ferofs_serve::http::{Client, TlsOptions};
use ferofs_serve::oci::{self, OciOptions, Reference};
use ferofs_serve::open::Connected;
use ferofs_serve::{Error, FetchErrorKind as Kind, Location, Options, Validator};
use ferofs_test_server::{Answer, Auth, Fault, Object, Rule, Server};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn layer() -> Vec<u8> {
    (0..200_000u32).map(|at| (at / 7 % 251) as u8).collect()
}

fn manifest(kind: &str, annotations: &str) -> String {
    let layer = layer();
    format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{{"mediaType":"x","digest":"{0}","size":2}},"layers":[{{"mediaType":"{kind}","digest":"{0}","size":{1},"annotations":{{{annotations}}}}}]}}"#,
        digest(&layer),
        layer.len(),
    )
}

/// A registry with the image `app:1`.
fn registry(manifest: &str) -> Server {
    let server = Server::start().unwrap();
    let layer = layer();
    server.put("/v2/app/manifests/1", manifest.as_bytes().to_vec());
    server.put(
        &format!("/v2/app/manifests/{}", digest(manifest.as_bytes())),
        manifest.as_bytes().to_vec(),
    );
    server.put(&format!("/v2/app/blobs/{}", digest(&layer)), Object::new(layer).with_etag(None));
    server
}

fn options() -> OciOptions {
    let mut options = OciOptions::default();
    options.anonymous = true;
    options
}

fn open_named(server: &Server, name: &str, options: &OciOptions) -> Result<Connected, Error> {
    let reference = Reference::parse(&format!("{}/{name}", server.address())).unwrap();
    oci::open(Client::new(&TlsOptions::default())?, &reference, options, soon())
}

fn open(server: &Server) -> Result<Connected, Error> {
    open_named(server, "app:1", &options())
}

fn fetch(connected: &Connected) -> Result<(), Kind> {
    let mut buf = [0; 1000];
    connected.object.fetch(100_000, &mut buf, soon()).map_err(|error| error.kind)?;
    assert!(buf == layer()[100_000..101_000], "wrong bytes");
    Ok(())
}

const EROFS: &str = "application/vnd.erofs.layer.v1";

#[test]
fn an_image_is_opened_by_one_request() {
    let root = "ab".repeat(32);
    let annotations = format!(
        r#""org.erofs.dmverity.root_digest":"sha256:{root}","org.erofs.dmverity.hash_offset":"4096","org.ferofs.profile.digest":"{}","org.ferofs.profile.size":"7""#,
        digest(b"profile")
    );
    let server = registry(&manifest(EROFS, &annotations));
    let connected = open(&server).unwrap();
    assert_eq!(server.counts().requests, 1);
    assert_eq!(connected.object.size(), 200_000);
    assert_eq!(connected.root.unwrap().to_string(), root);
    assert_eq!(connected.hash_offset, Some(4096));
    assert_eq!(connected.profile.as_ref().unwrap().size(), 7);
    assert_eq!(*connected.object.validator(), Validator::Sha256(digest(&layer())[7..].into()));
    fetch(&connected).unwrap();
    let location = Location::parse(&format!("oci://{}/app:1", server.address())).unwrap();
    let mut all = Options::default();
    all.oci = options();
    fetch(&location.open(&all, soon()).unwrap()).unwrap();
}

#[test]
fn digests_pin_and_are_verified() {
    let text = manifest(EROFS, "");
    let server = registry(&text);
    let pinned = format!("app@{}", digest(text.as_bytes()));
    fetch(&open_named(&server, &pinned, &options()).unwrap()).unwrap();
    // The registry sends another document for the digest.
    server.put(
        &format!("/v2/app/manifests/{}", digest(text.as_bytes())),
        text.replace("200000", "200001").into_bytes(),
    );
    let error = open_named(&server, &pinned, &options()).err().unwrap();
    assert!(matches!(error, Error::Fetch { error, .. } if matches!(error.kind, Kind::Digest)));
    // The header names another digest than the body has.
    server.add(
        Rule::new(Fault::FlippedBit(20)).header("Docker-Content-Digest", &digest(text.as_bytes())),
    );
    let error = open(&server).err().unwrap();
    assert!(matches!(error, Error::Fetch { error, .. } if matches!(error.kind, Kind::Digest)));
}

#[test]
fn documents_that_cannot_be_used() {
    let problem = |text: &str| open(&registry(text)).err().unwrap();
    assert!(matches!(problem("no json"), Error::Document { document: "manifest", .. }));
    assert!(matches!(problem(&"x".repeat(5 << 20)), Error::Document { document: "manifest", .. }));
    let tar = problem(&manifest("application/vnd.oci.image.layer.v1.tar+gzip", ""));
    assert!(matches!(tar, Error::TarLayers { layers: 1, .. }));
    assert!(tar.to_string().contains("ferofs convert"), "{tar}");
    let wrong_root = manifest(EROFS, r#""org.erofs.dmverity.root_digest":"zz""#);
    assert!(matches!(problem(&wrong_root), Error::Document { .. }));
    let missing = open_named(&registry(""), "other:1", &options()).err().unwrap();
    assert!(
        matches!(missing, Error::Fetch { error, .. } if matches!(error.kind, Kind::NotFound(404)))
    );
    let index = r#"{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":1,"platform":{"os":"plan9","architecture":"mips"}}]}"#;
    let error = problem(index).to_string();
    assert!(error.contains("plan9/mips"), "{error}");
}

/// A registry with a token server: tokens are numbered, and only the newest one is accepted.
/// Returns the number of tokens given.
fn with_tokens(server: &Server, expires: u64) -> Arc<AtomicU32> {
    let given = Arc::new(AtomicU32::new(0));
    let (counter, handle) = (Arc::clone(&given), server.handle());
    let challenge = format!(
        "Bearer realm=\"{}\",service=\"test\",scope=\"repository:app:pull\"",
        server.url("/token")
    );
    let accept = move |number: u32| {
        let value = format!("Bearer token-{number}");
        handle.set_auth("/v2/", Some(Auth::Header { value, challenge: challenge.clone() }));
    };
    accept(u32::MAX);
    server.route(move |request| {
        if request.path != "/token" {
            return None;
        }
        assert_eq!(request.parameter("service"), Some("test"));
        assert_eq!(request.parameter("scope"), Some("repository%3Aapp%3Apull"));
        if request.header("authorization") != Some("Basic bWU6c2VjcmV0") {
            return Some(Answer::new(401, ""));
        }
        let number = counter.fetch_add(1, Ordering::SeqCst);
        accept(number);
        Some(Answer::new(200, format!(r#"{{"token":"token-{number}","expires_in":{expires}}}"#)))
    });
    given
}

fn with_user(password: &str) -> OciOptions {
    let mut options = OciOptions::default();
    options.user = Some(("me".into(), password.into()));
    options
}

/// As a server with TLS answers a request without.
#[test]
fn a_registry_on_this_machine_that_refuses_http_may_be_asked_by_https() {
    let server = registry(&manifest(EROFS, ""));
    server.add(Rule::new(Fault::Status(400)));
    let error = |plain_http| {
        let mut options = OciOptions::default();
        options.plain_http = plain_http;
        open_named(&server, "app:1", &options).err().unwrap().to_string()
    };
    assert!(error(None).contains("--plain-http=false"), "{}", error(None));
    assert!(
        error(Some(true)).ends_with("the server answered with status 400"),
        "{}",
        error(Some(true))
    );
}

#[test]
fn tokens_are_asked_for_and_asked_for_again() {
    let server = registry(&manifest(EROFS, ""));
    let given = with_tokens(&server, 3600);
    let wrong = open_named(&server, "app:1", &with_user("wrong")).err().unwrap();
    assert!(
        matches!(&wrong, Error::Fetch { error, .. } if matches!(error.kind, Kind::Unauthorized)),
        "{wrong}"
    );
    assert!(!wrong.to_string().contains("wrong"));
    // Without a user, the token server gives none.
    let mut anonymous = OciOptions::default();
    anonymous.anonymous = true;
    let none = open_named(&server, "app:1", &anonymous).err().unwrap();
    assert!(
        matches!(&none, Error::Fetch { error, .. } if matches!(error.kind, Kind::NoCredentials)),
        "{none}"
    );
    let connected = open_named(&server, "app:1", &with_user("secret")).unwrap();
    for _ in 0..3 {
        fetch(&connected).unwrap();
    }
    assert_eq!(given.load(Ordering::SeqCst), 1, "one token serves all requests");
    // The registry forgets the token: status 401, and a new one. A token that is a moment old is
    // taken as the one before.
    std::thread::sleep(Duration::from_millis(1100));
    let challenge = format!(
        "Bearer realm=\"{}\",service=\"test\",scope=\"repository:app:pull\"",
        server.url("/token")
    );
    server.set_auth("/v2/", Some(Auth::Header { value: "Bearer none".into(), challenge }));
    fetch(&connected).unwrap();
    assert_eq!(given.load(Ordering::SeqCst), 2);
}

#[test]
fn tokens_are_renewed_before_they_expire() {
    let server = registry(&manifest(EROFS, ""));
    let given = with_tokens(&server, 0);
    let connected = open_named(&server, "app:1", &with_user("secret")).unwrap();
    server.reset();
    fetch(&connected).unwrap();
    assert_eq!(given.load(Ordering::SeqCst), 2);
    assert!(
        server
            .log()
            .iter()
            .all(|request| request.path == "/token" || request.header("range").is_some())
    );
    assert_eq!(server.counts().requests, 2, "a token, and the bytes: no request with the old one");
}

#[test]
fn blobs_in_a_store_get_no_token() {
    let (server, store) = (registry(&manifest(EROFS, "")), Server::start().unwrap());
    with_tokens(&server, 3600);
    store.put("/blob", layer());
    server.add(Rule::new(Fault::Redirect(307, store.url("/blob?sig=1"))).path("/v2/app/blobs/"));
    let connected = open_named(&server, "app:1", &with_user("secret")).unwrap();
    fetch(&connected).unwrap();
    fetch(&connected).unwrap();
    assert_eq!(store.counts().requests, 2);
    assert!(store.log().iter().all(|request| request.header("authorization").is_none()));
    let to_blobs = server.log().iter().filter(|request| request.path.contains("/blobs/")).count();
    assert_eq!(to_blobs, 1, "the store's address is remembered");
}

#[test]
fn a_registry_without_tls_elsewhere_is_not_asked_in_the_clear() {
    let mut options = options();
    let name = Reference::parse("registry.invalid/app:1").unwrap();
    let client = Client::new(&TlsOptions::default()).unwrap();
    let error = oci::open(client.clone(), &name, &options, soon()).err().unwrap();
    assert!(matches!(error, Error::Fetch { error, .. } if matches!(error.kind, Kind::Name(_))));
    // On this machine, https can be asked for.
    let server = registry("");
    options.plain_http = Some(false);
    let name = Reference::parse(&format!("{}/app:1", server.address())).unwrap();
    let error = oci::open(client, &name, &options, soon()).err().unwrap();
    assert!(matches!(error, Error::Fetch { .. }), "{error}");
    assert_eq!(
        server.counts().requests,
        0,
        "the server does not understand TLS, and got nothing else"
    );
}
