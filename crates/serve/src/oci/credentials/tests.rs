use super::*;

fn find_in_text(name: &str, text: &str) -> Result<Option<String>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let found = find(&Reference::parse(name).unwrap(), Some(file.path()))?;
    Ok(found.map(|credentials| match credentials {
        Credentials::User(user, password) => format!("{user}:{password}"),
        Credentials::Identity(token) => format!("<{token}>"),
    }))
}

#[test]
fn files_of_docker_and_podman() {
    let text = r#"{ "auths": {
            "https://index.docker.io/v1/": { "auth": "bWU6cHc=" },
            "h.x:5000": { "username": "you", "password": "a:b" },
            "h.x:5000/team": { "auth": "dGVhbTpwdw==" },
            "token.x": { "identitytoken": "refresh", "auth": "bWU6cHc=" },
            "empty.x": {} }, "HttpHeaders": {} }"#;
    let found = |name| find_in_text(name, text).unwrap();
    assert_eq!(found("debian").as_deref(), Some("me:pw"));
    assert_eq!(found("h.x:5000/app").as_deref(), Some("you:a:b"));
    assert_eq!(found("h.x:5000/team/app").as_deref(), Some("team:pw"));
    assert_eq!(found("h.x:5000/teams/app").as_deref(), Some("you:a:b"));
    assert_eq!(found("token.x/app").as_deref(), Some("<refresh>"));
    assert_eq!(found("empty.x/app"), None);
    assert_eq!(found("other.x/app"), None);
}

#[test]
fn logins_are_where_podman_and_docker_keep_them() {
    let files = |set: &[&str]| {
        let path = |name: &str| set.contains(&name).then(|| Path::new("/").join(name));
        let files = default_files(path);
        files.iter().map(|file| file.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG", "HOME"];
    let expected = [
        "/XDG_RUNTIME_DIR/containers/auth.json",
        "/XDG_CONFIG_HOME/containers/auth.json",
        "/DOCKER_CONFIG/config.json",
    ];
    assert_eq!(files(&all), expected);
    let expected = [
        "/XDG_RUNTIME_DIR/containers/auth.json",
        "/HOME/.config/containers/auth.json",
        "/HOME/.docker/config.json",
    ];
    assert_eq!(files(&["XDG_RUNTIME_DIR", "HOME"]), expected);
    // Without XDG_RUNTIME_DIR: a folder of the user's number.
    let of_user = format!("/run/containers/{}", rustix::process::geteuid().as_raw());
    let expected = std::fs::read_dir(&of_user).is_ok().then(|| format!("{of_user}/auth.json"));
    assert_eq!(files(&[]), Vec::from_iter(expected));
}

#[test]
fn wrong_files_are_reported_without_their_content() {
    for wrong in [
        r#"{"auths": {"h.x": {"auth": "c2VjcmV0"}}}"#,
        r#"{"auths": {"h.x": {"auth": "!secret"}}}"#,
        r#"{"auths": "secret""#,
    ] {
        let error = find_in_text("h.x/a", wrong).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
    let error = find_in_text("h.x/a", r#"{"credsStore": "../../bin/sh"}"#).unwrap_err().to_string();
    assert!(error.contains("not the name of a helper"), "{error}");
    assert!(find_in_text("h.x/a", r#"{"credHelpers": {"h.x": "none-of-this-name"}}"#).is_err());
    assert!(find(&Reference::parse("a").unwrap(), Some(Path::new("/nowhere/auth.json"))).is_err());
}
