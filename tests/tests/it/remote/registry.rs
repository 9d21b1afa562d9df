//! docker-registry, and skopeo as the judge.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferofs_test_server::{Answer, Server};
use ferofs_tests::web::{Server as Service, free_address};
use ferofs_tests::{Run, need};

use super::{assert_same_files, field, isolated, sealed_image};
use crate::common::fixture::{Fixture, chmod};

/// User `me` with the password `secret`, as htpasswd -B writes it.
const HTPASSWD: &str = "me:$2b$04$lTwJdOo1V4v3RzhjpZdAQuUqeGZ7ZEAfTKttnOTNvcjIEX8a9..b.\n";

/// Starts docker-registry with this section `auth` of its configuration. If there is none, says
/// that `what` is skipped.
pub(super) fn registry(fixture: &Fixture, auth: &str) -> Option<Service> {
    let program = need::tool("docker-registry")?;
    let address = free_address();
    let storage = fixture.path("registry");
    let config = format!(
        "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }}, delete: {{ enabled: true }} }}\n\
         http: {{ addr: '{address}' }}\n{auth}",
        storage.display()
    );
    let file = fixture.path("registry.yml");
    std::fs::write(&file, config).unwrap();
    Some(Service::start(&program, address, |command| command.arg("serve").arg(&file)))
}

/// The same for users with the password of [`HTPASSWD`].
pub(super) fn registry_with_password(fixture: &Fixture) -> Option<Service> {
    let passwords = fixture.path("htpasswd");
    std::fs::write(&passwords, HTPASSWD).unwrap();
    let auth = format!("auth: {{ htpasswd: {{ realm: test, path: {} }} }}\n", passwords.display());
    registry(fixture, &auth)
}

fn push(fixture: &Fixture, image: &Path, to: &str, with: &[&str]) -> Run {
    isolated(fixture).args(["push", "--json"]).args(with).arg(image).arg(to)
}

#[test]
fn push_and_pull() {
    let fixture = Fixture::empty();
    let Some(registry) = registry(&fixture, "") else { return };
    let (image, root) = sealed_image(&fixture);
    let name = format!("oci://{}/team/app", registry.address);
    let first = push(&fixture, &image, &format!("{name}:1"), &[]).success();
    assert_eq!(field(&first.stdout, "roothash"), root);
    assert_eq!(first.stderr, "");
    // An image without a root hash, which mounts need.
    let unsealed = fixture.build("unsealed", ["-T0"]);
    push(&fixture, &unsealed, &format!("{name}:unsealed"), &[])
        .success()
        .says("seal it with `ferofs verity format`");
    let size = std::fs::metadata(&image).unwrap().len();
    assert!(first.text().contains(&format!("\"sent\":{size},")));
    // The same image has the same digest, and nothing is sent again.
    let again = push(&fixture, &image, &format!("{name}:2"), &[]).success();
    assert_eq!(field(&again.stdout, "manifest"), field(&first.stdout, "manifest"));
    assert!(again.text().contains("\"sent\":0,"));
    // Another repository takes the layer from the first one.
    let other = format!("oci://{}/other:1", registry.address);
    let mounted = push(&fixture, &image, &other, &["--mount-from", "team/app"]).success();
    assert!(mounted.text().contains("\"mounted\":true"));

    let pinned = format!("{name}@{}", field(&first.stdout, "manifest"));
    for (number, location) in [format!("{name}:1"), pinned.clone(), other].iter().enumerate() {
        let target = fixture.path(&format!("pulled{number}"));
        let pulled = isolated(&fixture).args(["pull", "--json", location]).arg(&target).success();
        assert!(pulled.text().contains("\"verified\":true"));
        assert_same_files(&image, &target);
    }
    // The root hash comes with the manifest.
    let cat = isolated(&fixture)
        .args(["cat", "--cache-dir"])
        .arg(fixture.path("cache"))
        .args([&pinned, "/greeting"]);
    assert_eq!(cat.success().stdout, b"hello\n");
    let missing =
        isolated(&fixture).args(["pull", &format!("{name}:3")]).arg(fixture.path("x")).failure(1);
    missing.says("404");
}

#[test]
fn chunks_and_profiles() {
    let fixture = Fixture::empty();
    let Some(registry) = registry(&fixture, "") else { return };
    // More than two chunks of 16 MiB.
    let bytes: Vec<u8> =
        (0..36_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fixture.write("data", bytes);
    let image = fixture.build("image.erofs", [] as [&str; 0]);
    let profile = fixture.path("profile");
    let to = format!("oci://{}/app:1", registry.address);
    // The mount would ignore it without a word.
    for wrong in ["", "a profile"] {
        std::fs::write(&profile, wrong).unwrap();
        push(&fixture, &image, &to, &["--profile", profile.to_str().unwrap()])
            .failure(1)
            .says("profile: not an access profile");
    }
    std::fs::write(&profile, "# ferofs access profile 1\n1 0 65536 /data\n").unwrap();
    let pushed = push(&fixture, &image, &to, &["--profile", profile.to_str().unwrap()]).success();
    let target = fixture.path("pulled");
    isolated(&fixture).args(["pull", &to]).arg(&target).success();
    assert_same_files(&image, &target);
    // The profile is listed under the tag of referrers: this registry has no other list.
    let Some(skopeo) = need::tool("skopeo") else { return };
    let tag = field(&pushed.stdout, "manifest").replace(':', "-");
    let raw = Run::new(skopeo)
        .args([
            "inspect",
            "--raw",
            "--tls-verify=false",
            &format!("docker://{}/app:{tag}", registry.address),
        ])
        .success();
    assert_eq!(field(&raw.stdout, "artifactType"), "application/vnd.ferofs.access-profile.v1");
}

#[test]
fn skopeo_accepts_what_was_pushed() {
    let fixture = Fixture::empty();
    let Some(registry) = registry(&fixture, "") else { return };
    let Some(skopeo) = need::tool("skopeo") else { return };
    let (image, _) = sealed_image(&fixture);
    let pushed =
        push(&fixture, &image, &format!("oci://{}/app:1", registry.address), &[]).success();
    let source = format!("docker://{}/app:1", registry.address);
    let inspect = Run::new(&skopeo).args(["inspect", "--tls-verify=false", &source]).success();
    let text = inspect.text().replace("\": \"", "\":\"");
    assert_eq!(field(text.as_bytes(), "Digest"), field(&pushed.stdout, "manifest"));
    assert!(text.contains(&field(&pushed.stdout, "layer")), "{text}");
    let layout = fixture.path("layout");
    let copied = Run::new(&skopeo)
        .args([
            "--insecure-policy",
            "copy",
            "--src-tls-verify=false",
            &source,
            &format!("oci:{}:1", layout.display()),
        ])
        .success();
    assert_eq!(copied.code, 0);
    let blob = layout.join("blobs/sha256").join(&field(&pushed.stdout, "layer")["sha256:".len()..]);
    assert_same_files(&image, &blob);
}

#[test]
fn two_images_of_a_registry_are_compared() {
    let fixture = Fixture::empty();
    let Some(registry) = registry_with_password(&fixture) else {
        return;
    };
    let tag = |tag: &str| format!("oci://{}/app:{tag}", registry.address);
    let user = ["--user", "me:secret"];
    let (old, _) = sealed_image(&fixture);
    push(&fixture, &old, &tag("1"), &user).success();
    fixture.write("added", "new");
    let (new, _) = fixture.build_sealed("new.erofs", &[]);
    push(&fixture, &new, &tag("2"), &user).success();
    let diff = |with: &[&str], first: &str, second: &str| {
        isolated(&fixture)
            .args(["diff", "--ignore", "times"])
            .args(with)
            .args([first, second])
            .run()
    };
    let local = diff(&[], old.to_str().unwrap(), new.to_str().unwrap());
    assert_eq!(
        (local.code, local.stdout.starts_with(b"+ /added (3 B)\n")),
        (1, true),
        "{}",
        local.stderr
    );
    assert_eq!(diff(&user, &tag("1"), &tag("2")).stdout, local.stdout);
    assert_eq!(diff(&user, old.to_str().unwrap(), &tag("2")).stdout, local.stdout);
    assert_eq!(diff(&user, &tag("2"), fixture.source().to_str().unwrap()).stdout, b"");
    let elsewhere = fixture.path("elsewhere");
    diff(&["--cache-dir", elsewhere.to_str().unwrap()], &tag("1"), &tag("2"))
        .failure(2)
        .says(&registry.address);
    // The page of a comparison asks for both with the same password.
    let page = fixture.path("page.html");
    let inspect = isolated(&fixture).args(["inspect", "--html"]).arg(&page).args(user);
    inspect.args(["--compare", &tag("1"), &tag("2")]).success();
    assert!(std::fs::read_to_string(&page).unwrap().contains(r#"["added",0,3]"#));
}

#[test]
fn passwords_in_the_files_of_docker() {
    let fixture = Fixture::empty();
    let Some(registry) = registry_with_password(&fixture) else {
        return;
    };
    let (image, _) = sealed_image(&fixture);
    let to = format!("oci://{}/app:1", registry.address);
    let refused = push(&fixture, &image, &to, &[]).failure(1);
    assert!(
        refused.stderr.contains("401") && refused.stderr.contains("docker login"),
        "{}",
        refused.stderr
    );
    let refused = push(&fixture, &image, &to, &["--user", "me:wr0ng"]).failure(1);
    refused.says("asks for other credentials (status 401)");
    assert!(!refused.stderr.contains("wr0ng"), "{}", refused.stderr);
    push(&fixture, &image, &to, &["--user", "me:secret"]).success();
    // "me:secret"
    let auths = format!(r#"{{"auths": {{"{}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#, registry.address);
    let file = fixture.path("auth.json");
    std::fs::write(&file, auths).unwrap();
    let target = fixture.path("pulled");
    isolated(&fixture).args(["pull", "--auth-file"]).arg(&file).arg(&to).arg(&target).success();
    assert_same_files(&image, &target);
    // A helper, as docker starts it.
    let helper = fixture.path("docker-credential-test");
    std::fs::write(
        &helper,
        "#!/bin/sh\nread server\necho '{\"ServerURL\":\"x\",\"Username\":\"me\",\"Secret\":\"secret\"}'\n",
    )
    .unwrap();
    make_executable(&helper);
    std::fs::write(&file, format!(r#"{{"credHelpers": {{"{}": "test"}}}}"#, registry.address))
        .unwrap();
    let path = format!("{}:{}", fixture.path(".").display(), std::env::var("PATH").unwrap());
    isolated(&fixture)
        .env("PATH", path)
        .args(["pull", "--auth-file"])
        .arg(&file)
        .arg(&to)
        .arg(fixture.path("y"))
        .success();
}

fn make_executable(path: &Path) {
    chmod(path, 0o755);
}

/// A key and a certificate with which tokens are signed.
fn token_key(fixture: &Fixture, openssl: &Path) -> (PathBuf, PathBuf) {
    let (key, certificate) = (fixture.path("token.key"), fixture.path("token.crt"));
    Run::new(openssl)
        .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=token -keyout".split(' '))
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .success();
    (key, certificate)
}

/// A JSON web token with access to the repository `app`, as docker-registry wants it.
fn token(openssl: &Path, key: &Path, certificate: &Path, actions: &[&str]) -> String {
    let pem = std::fs::read_to_string(certificate).unwrap();
    let chain: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let actions = actions.join("\",\"");
    let header = format!(r#"{{"typ":"JWT","alg":"RS256","x5c":["{chain}"]}}"#);
    let claims = format!(
        r#"{{"iss":"test","sub":"me","aud":"registry","exp":4102444800,"nbf":0,"iat":0,"jti":"1","access":[{{"type":"repository","name":"app","actions":["{actions}"]}}]}}"#
    );
    let text = format!("{}.{}", base64_url(header.as_bytes()), base64_url(claims.as_bytes()));
    let file = key.with_extension("text");
    std::fs::write(&file, &text).unwrap();
    let signed = Run::new(openssl).args(["dgst", "-sha256", "-sign"]).arg(key).arg(&file).success();
    format!("{text}.{}", base64_url(&signed.stdout))
}

fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let value = chunk.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(DIGITS[(value >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

#[test]
fn tokens() {
    let fixture = Fixture::empty();
    let Some(openssl) = need::tool("openssl") else { return };
    let (key, certificate) = token_key(&fixture, &openssl);
    let server = Server::start().unwrap();
    let auth = format!(
        "auth: {{ token: {{ realm: '{}', service: registry, issuer: test, rootcertbundle: {} }} }}\n",
        server.url("/token"),
        certificate.display()
    );
    let Some(registry) = registry(&fixture, &auth) else { return };
    let make = Arc::new(move |actions: &[&str]| token(&openssl, &key, &certificate, actions));
    server.route(move |request| {
        if request.path != "/token" || request.header("authorization") != Some("Basic bWU6c2VjcmV0")
        {
            return Some(Answer::new(401, ""));
        }
        let scopes =
            request.query.split('&').filter(|part| part.starts_with("scope=")).collect::<String>();
        let actions: &[&str] = if scopes.contains("push") { &["pull", "push"] } else { &["pull"] };
        Some(Answer::new(200, format!(r#"{{"token":"{}","expires_in":300}}"#, make(actions))))
    });
    let (image, _) = sealed_image(&fixture);
    let to = format!("oci://{}/app:1", registry.address);
    assert!(push(&fixture, &image, &to, &[]).failure(1).stderr.contains("401"));
    server.reset();
    push(&fixture, &image, &to, &["--user", "me:secret"]).success();
    assert!(server.counts().requests <= 2, "{:?}", server.log());
    let target = fixture.path("pulled");
    isolated(&fixture).args(["pull", "--user", "me:secret", &to]).arg(&target).success();
    assert_same_files(&image, &target);
}
