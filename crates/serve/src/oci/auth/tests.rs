use super::*;

#[test]
fn challenges() {
    let text = r#"Bearer realm="https://auth.x/token",service="reg, x",scope="repository:a/b:pull",error="invalid_token""#;
    let expected = Challenge::Bearer {
        realm: "https://auth.x/token".into(),
        service: Some("reg, x".into()),
        scope: Some("repository:a/b:pull".into()),
    };
    assert_eq!(Challenge::parse(text), Some(expected));
    assert_eq!(Challenge::parse("basic realm=x"), Some(Challenge::Basic));
    let bare = Challenge::Bearer { realm: "r".into(), service: None, scope: None };
    assert_eq!(Challenge::parse("bearer realm=r"), Some(bare));
    for wrong in ["", "Bearer", "Bearer service=\"x\"", "Bearer realm=\"x", "Negotiate abc"] {
        assert_eq!(Challenge::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn passwords_go_to_the_registry_or_over_tls() {
    let user = || Some(Credentials::User("me".into(), "secret".into()));
    let identity = || Some(Credentials::Identity("refresh".into()));
    let is_allowed = |registry: &str, credentials: Option<Credentials>, realm: &str| {
        let client = Client::new(&crate::http::TlsOptions::default()).unwrap();
        let registry = Url::parse(registry).unwrap();
        let auth = Auth::new(client, credentials, None, String::new(), Vec::new(), registry);
        Url::parse(realm).is_ok_and(|realm| auth.check_realm(&realm).is_ok())
    };
    let (remote, near, plain) =
        ("https://r.x/v2/a/", "http://localhost:5000/v2/a/", "http://r.x:5000/v2/a/");
    for (registry, realm, expected) in [
        (remote, "https://auth.y/token", true),
        (remote, "http://r.x/token", false),
        (remote, "http://localhost/token", false),
        (remote, "ftp://r.x/token", false),
        (remote, "file:///token", false),
        (remote, "/token", false),
        (near, "https://auth.y/token", true),
        (near, "http://localhost:5001/token", true),
        (near, "HTTP://LOCALHOST/token", true),
        (near, "http://127.0.0.1:5001/token", true),
        (near, "http://127.1/token", true),
        (near, "http://[::1]:5001/token", true),
        (near, "http://[::ffff:127.0.0.1]/token", true),
        (near, "http://auth.y/token", false),
        (near, "http://localhost.y/token", false),
        (near, "http://127.0.0.1.y/token", false),
        (near, "http://localhost@auth.y/token", false),
        (near, "http://auth.y/localhost", false),
        (near, "http://[::ffff:10.0.0.1]/token", false),
        (near, "http://0x0a000001/token", false),
        (near, "http://xn--lclhost-7ya/token", false),
        (near, "http://l\u{f6}calhost/token", false),
        (near, "//auth.y/token", false),
        (plain, "http://r.x:5001/token", true),
        (plain, "http://R.X/token", true),
        (plain, "http://127.0.0.1/token", true),
        (plain, "http://r.x.y/token", false),
        (plain, "http://a.r.x/token", false),
        (plain, "http://me:secret@r.y/token", false),
    ] {
        for credentials in [user(), identity()] {
            assert_eq!(is_allowed(registry, credentials, realm), expected, "{registry} {realm}");
        }
    }
    // Without credentials, the token of a registry without TLS may come without TLS.
    assert!(
        is_allowed(near, None, "http://auth.y/token")
            && !is_allowed(remote, None, "http://auth.y/token")
    );
}
