//! Which servers get credentials: that of the image, and none that it redirects to or that gives
//! itself another name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod common;

use common::{digest, soon};
use ferofs_serve::http::{Client, TlsOptions};
use ferofs_serve::oci::{self, OciOptions, PushOptions, Reference};
use ferofs_serve::{Location, Options};
use ferofs_test_server::{Answer, Auth, Fault, Object, Rule, Server};

/// `me:secret`, as it is sent.
const BASIC: &str = "Basic bWU6c2VjcmV0";

fn user() -> Option<(String, String)> {
    Some(("me".into(), "secret".into()))
}

/// A server that wants everything with other credentials, and names a token server of its own.
fn thief() -> Server {
    let server = Server::start().unwrap();
    server.put("/image", vec![7; 100_000]);
    let challenge = format!("Bearer realm=\"{}\",service=\"x\"", server.url("/token"));
    server.route(|request| {
        (request.path == "/token").then(|| Answer::new(200, r#"{"token":"stolen"}"#))
    });
    server.set_auth("/image", Some(Auth::Header { value: "Bearer stolen".into(), challenge }));
    server
}

/// Fails if the server got the password or a token of the registry.
fn assert_got_nothing(server: &Server, what: &str) {
    for request in server.log() {
        let header = request.header("authorization").unwrap_or_default();
        assert!(header != BASIC && !header.contains("token-of-registry"), "{what}: {header}");
        assert!(!String::from_utf8_lossy(&request.body).contains("secret"), "{what}");
    }
}

/// Addresses of `thief` that a server at `own` may redirect to. No other server must answer these.
fn others(own: &Server, thief: &Server) -> Vec<String> {
    let port = thief.address().port();
    let same_port = own.address().port();
    let mut all: Vec<String> = [
        "http://127.0.0.1:P/image",
        "HTTP://127.0.0.1:P/image",
        "//127.0.0.1:P/image",
        "http://localhost:P/image",
        "http://LOCALHOST:P/image",
        "http://localhost.:P/image",
        "http://127.1:P/image",
        "http://0x7f000001:P/image",
        "http://2130706433:P/image",
        "http://[::ffff:127.0.0.1]:P/image",
        "http://127.0.0.2:P/image",
        "http://other:password@127.0.0.1:P/image",
        "http://127.0.0.1:1@127.0.0.1:P/image",
        "http:\\\\127.0.0.1:P/image",
        "http://127.0.0.1:P/image?to=http://me@host/",
        "http://127.0.0.1:P/image#fragment",
    ]
    .iter()
    .map(|address| address.replace(":P", &format!(":{port}")))
    .collect();
    // The same server by another name is another host.
    all.push(format!("http://localhost:{same_port}/elsewhere"));
    all.push(format!("http://127.0.0.2:{same_port}/elsewhere"));
    all
}

#[test]
fn a_redirect_to_another_host_takes_no_password_along() {
    let thief = thief();
    let open = |own: &Server, to: &str| {
        own.put("/image", vec![7; 100_000]);
        own.set_auth(
            "/image",
            Some(Auth::Header { value: BASIC.into(), challenge: "Basic realm=x".into() }),
        );
        own.add(Rule::new(Fault::Redirect(307, to.to_owned())).path("/first"));
        let mut options = Options::default();
        options.web.user = user();
        options.web.headers = vec![("X-Key".into(), "secret".into())];
        Location::parse(&own.url("/first")).unwrap().open(&options, soon()).map(drop)
    };
    let start = || Server::start().unwrap();
    for to in others(&start(), &thief) {
        let own = start();
        let to = to.replace("/elsewhere", "/image");
        let opened = open(&own, &to);
        assert!(opened.is_err(), "{to}");
        assert_got_nothing(&thief, &to);
        assert!(thief.log().iter().all(|request| request.header("x-key").is_none()), "{to}");
        let seen =
            own.log().iter().filter(|request| request.header("authorization").is_some()).count();
        assert!(own.log().iter().any(|request| request.path == "/first") && seen > 0, "{to}");
        assert!(!opened.unwrap_err().to_string().contains("secret"));
    }
    // Within the server, it is sent.
    let paths: [fn(&Server) -> String; 4] = [
        |_| "/image".into(),
        |_| "./image".into(),
        |own| own.url("/image"),
        |own| format!("http://127.1:{}/image", own.address().port()),
    ];
    for to in paths {
        let own = start();
        open(&own, &to(&own)).unwrap();
    }
}

#[test]
fn the_server_of_a_blob_does_not_say_where_passwords_are_sent() {
    let layer = vec![5; 200_000];
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"x","digest":"{0}","size":2}},"layers":[{{"mediaType":"application/vnd.erofs.layer.v1","digest":"{0}","size":{1}}}]}}"#,
        digest(&layer),
        layer.len(),
    );
    let thief = thief();
    let own = Server::start().unwrap();
    own.put("/v2/app/manifests/1", manifest.into_bytes());
    own.put(&format!("/v2/app/blobs/{}", digest(&layer)), Object::new(layer).with_etag(None));
    let challenge = format!("Bearer realm=\"{}\",service=\"x\"", own.url("/token"));
    own.set_auth(
        "/v2/",
        Some(Auth::Header { value: "Bearer token-of-registry".into(), challenge }),
    );
    own.route(|request| {
        let is_user = request.header("authorization") == Some(BASIC);
        (request.path == "/token" && is_user)
            .then(|| Answer::new(200, r#"{"token":"token-of-registry","expires_in":3600}"#))
    });
    let reference = Reference::parse(&format!("{}/app:1", own.address())).unwrap();
    for to in others(&own, &thief) {
        own.clear();
        own.add(Rule::new(Fault::Redirect(307, to.clone())).path("/v2/app/blobs/"));
        let mut options = OciOptions::default();
        options.user = user();
        let client = Client::new(&TlsOptions::default()).unwrap();
        let connected = oci::open(client, &reference, &options, soon()).unwrap();
        let mut buf = [0; 1000];
        assert!(connected.object.fetch(0, &mut buf, soon()).is_err(), "{to}");
        assert_got_nothing(&thief, &to);
        let elsewhere = own.log().into_iter().filter(|request| request.path == "/elsewhere");
        assert!(
            elsewhere.into_iter().all(|request| request.header("authorization").is_none()),
            "{to}"
        );
    }
    assert!(thief.counts().requests > 8, "the other server was asked");
}

#[test]
fn the_server_of_an_upload_does_not_say_where_passwords_are_sent() {
    let thief = thief();
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    ferofs_write::Builder::new().build(&image).unwrap();
    let own = Server::start().unwrap();
    let place = thief.url("/image");
    own.route(move |request| {
        Some(match request.method.as_str() {
            _ if request.header("authorization") != Some(BASIC) => {
                Answer::new(401, "").header("WWW-Authenticate", "Basic realm=x")
            }
            "POST" => Answer::new(202, "").header("Location", &place),
            _ => Answer::new(404, ""),
        })
    });
    let mut options = PushOptions::default();
    options.oci.user = user();
    let reference = Reference::parse(&format!("{}/app:1", own.address())).unwrap();
    let client = Client::new(&TlsOptions::default()).unwrap();
    let pushed = push_to(client, &image, &reference, &options);
    assert!(!pushed.unwrap_err().to_string().contains("secret"));
    assert_got_nothing(&thief, "upload");
    assert!(
        thief.log().iter().any(|request| request.method == "PUT"),
        "the other server was asked"
    );
    assert!(thief.log().iter().all(|request| request.path != "/token"), "{:?}", thief.counts());
}

fn push_to(
    client: Client,
    image: &std::path::Path,
    reference: &Reference,
    options: &PushOptions,
) -> Result<oci::Pushed, ferofs_serve::Error> {
    oci::push(client, &[image.to_owned()], reference, options, &|_, _| {})
}

#[test]
fn a_token_server_elsewhere_without_tls_gets_no_password() {
    let own = Server::start().unwrap();
    for host in ["auth.invalid", "localhost.invalid", "127.0.0.1.invalid", "127.0.0.1@auth.invalid"]
    {
        let challenge = format!("Bearer realm=\"http://{host}/token\"");
        own.set_auth("/v2/", Some(Auth::Header { value: "Bearer none".into(), challenge }));
        let reference = Reference::parse(&format!("{}/app:1", own.address())).unwrap();
        let open = |user: Option<(String, String)>| {
            let mut options = OciOptions::default();
            (options.anonymous, options.user) = (user.is_none(), user);
            let client = Client::new(&TlsOptions::default()).unwrap();
            oci::open(client, &reference, &options, soon()).err().unwrap().to_string()
        };
        let refused = open(user());
        assert!(refused.contains("no secure address") && refused.contains(".invalid"), "{refused}");
        // Without a password it is asked: it has no such name.
        assert!(!open(None).contains("no secure address"), "{host}");
    }
}
