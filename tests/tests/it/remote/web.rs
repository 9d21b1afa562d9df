//! nginx with TLS, certificates of clients, and passwords.
//!
//! An S3 store: moto, from PyPI, since Debian has none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use ferofs_tests::web::{Server, free_address};
use ferofs_tests::{Run, need};

use super::{assert_same_files, isolated, sealed};
use crate::common::fixture::Fixture;

/// An authority, and what it has certified.
struct Certificates {
    openssl: PathBuf,
    folder: PathBuf,
}

impl Certificates {
    fn make(openssl: PathBuf, folder: PathBuf) -> Self {
        let certificates = Self { openssl, folder };
        certificates
            .run("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt");
        certificates
    }

    fn run(&self, arguments: &str) {
        Run::new(&self.openssl).args(arguments.split(' ')).dir(&self.folder).success();
    }

    /// A key and a certificate for `name`.
    fn certify(&self, name: &str, extensions: &str) {
        let new = "req -newkey rsa:2048 -nodes";
        self.run(&format!("{new} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        std::fs::write(self.folder.join("extensions"), extensions).unwrap();
        let sign = "x509 -req -days 2 -CA ca.crt -CAkey ca.key -CAcreateserial -extfile extensions";
        self.run(&format!("{sign} -in {name}.csr -out {name}.crt"));
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

fn nginx(fixture: &Fixture, certificates: &Certificates) -> Option<Server> {
    let (folder, root) = (fixture.directory("nginx"), fixture.path("www"));
    std::fs::write(folder.join("passwords"), "me:{PLAIN}secret\n").unwrap();
    let at = |name: &str| certificates.path(name);
    let more = format!(
        "ssl_certificate {}; ssl_certificate_key {}; ssl_client_certificate {}; ssl_verify_client optional; \
         location /private/ {{ auth_basic test; auth_basic_user_file {}/passwords; }} \
         location /client/ {{ if ($ssl_client_verify != SUCCESS) {{ return 403; }} }}",
        at("server.crt"),
        at("server.key"),
        at("ca.crt"),
        folder.display(),
    );
    Server::nginx(&folder, &root, [" ssl", &more])
}

#[test]
fn a_server_without_tls_is_named() {
    let fixture = Fixture::empty();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/image", listener.local_addr().unwrap());
    // It ends with the process of the test.
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 1000]);
            let _ = connection.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    isolated(&fixture)
        .args(["pull", &url])
        .arg(fixture.path("pulled"))
        .failure(1)
        .says("the server may speak http://");
}

#[test]
fn certificates_and_passwords() {
    let Some(openssl) = need::tool("openssl") else { return };
    let (fixture, image, root) = sealed();
    for folder in ["www", "www/private", "www/client"] {
        fixture.directory(folder);
        std::fs::copy(&image, fixture.path(folder).join("image")).unwrap();
    }
    let certificates = Certificates::make(openssl, fixture.directory("certificates"));
    certificates.certify("server", "subjectAltName=IP:127.0.0.1\n");
    certificates.certify("client", "extendedKeyUsage=clientAuth\n");
    let Some(server) = nginx(&fixture, &certificates) else { return };
    let target = fixture.path("pulled");
    let pull = |path: &str, with: &[&str]| {
        let url = format!("https://{}{path}", server.address);
        isolated(&fixture).args(["pull", "--roothash", &root, &url]).arg(&target).args(with)
    };
    let authority = certificates.path("ca.crt");

    pull("/image", &[]).failure(1).says("TLS");
    pull("/image", &["--cacert", &authority]).success();
    assert_same_files(&image, &target);
    pull("/image", &[]).env("SSL_CERT_FILE", &authority).success();
    pull("/image", &["--insecure-tls"]).success();

    pull("/private/image", &["--cacert", &authority]).failure(1).says("401");
    pull("/private/image", &["--cacert", &authority, "--user", "me:secret"]).success();
    std::fs::write(fixture.path("home/.netrc"), "machine 127.0.0.1 login me password secret\n")
        .unwrap();
    pull("/private/image", &["--cacert", &authority, "--netrc"]).success();

    pull("/client/image", &["--cacert", &authority]).failure(1).says("403");
    let (certificate, key) = (certificates.path("client.crt"), certificates.path("client.key"));
    let client = ["--cacert", &authority, "--client-cert", &certificate, "--client-key", &key];
    pull("/client/image", &client).success();
    // A key that is not that of the certificate.
    let other = certificates.path("server.key");
    let wrong = ["--cacert", &authority, "--client-cert", &certificate, "--client-key", &other];
    pull("/client/image", &wrong).failure(1).says("server.key");
}

/// As in Docker's instructions for a registry.
#[test]
fn a_certificate_that_is_its_own_authority() {
    let Some(openssl) = need::tool("openssl") else {
        return;
    };
    let (fixture, image, root) = sealed();
    std::fs::copy(&image, fixture.directory("www").join("image")).unwrap();
    let certificates = Certificates { openssl, folder: fixture.directory("certificates") };
    let make = |name: &str, address: &str| {
        certificates.run(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=server -addext subjectAltName=IP:{address} -keyout {name}.key -out {name}.crt"
        ));
    };
    // nginx wants a certificate of clients, too.
    make("ca", "127.0.0.1");
    make("other", "127.0.0.1");
    let target = fixture.path("pulled");
    for (address, refusal) in [("127.0.0.1", None), ("127.0.0.2", Some("not valid for name"))] {
        make("server", address);
        let _ = std::fs::remove_dir_all(fixture.path("nginx"));
        let Some(server) = nginx(&fixture, &certificates) else { return };
        let pull = |trusted: &str| {
            let url = format!("https://{}/image", server.address);
            let run = isolated(&fixture).args(["pull", "--roothash", &root, &url]).arg(&target);
            let certificate = certificates.path(trusted);
            [
                run.args(["--cacert", &certificate]).run(),
                isolated(&fixture)
                    .args(["pull", "--roothash", &root, &url])
                    .arg(&target)
                    .env("SSL_CERT_FILE", certificate)
                    .run(),
            ]
        };
        for run in pull("server.crt") {
            match refusal {
                None => drop(run.success()),
                Some(reason) => {
                    let run = run.failure(1);
                    run.says(reason);
                }
            }
        }
        for run in pull("other.crt") {
            run.failure(1).says("TLS");
        }
    }
}

pub(super) fn store() -> Option<Server> {
    let Some(program) = need::find_tool("moto_server") else {
        need::lacks(need::MOTO);
        return None;
    };
    let address = free_address();
    let port = address.rsplit(':').next().unwrap().to_owned();
    Some(Server::start(&program, address, |command| {
        command.args(["-H", "127.0.0.1", "-p", &port]).env("MOTO_IAM_ACCOUNT_POLICIES", "")
    }))
}

/// Sends a request without a signature, which moto accepts.
pub(super) fn put(address: &str, path: &str, body: &[u8]) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn objects_of_a_store() {
    let Some(store) = store() else { return };
    let (fixture, image, root) = sealed();
    put(&store.address, "/bucket", b"");
    put(&store.address, "/bucket/dir/an%20image.erofs", &std::fs::read(&image).unwrap());
    let name = "s3://bucket/dir/an image.erofs";
    let endpoint = format!("http://{}", store.address);
    let with_keys =
        |run: Run| run.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "hidden");
    let target = fixture.path("pulled");
    let pull = |run: Run| {
        run.args(["pull", "--s3-endpoint", &endpoint, "--roothash", &root, name]).arg(&target).run()
    };
    pull(with_keys(isolated(&fixture))).success();
    assert_same_files(&image, &target);
    // A profile instead of variables.
    let aws = fixture.path("home/.aws");
    std::fs::create_dir(&aws).unwrap();
    let config = format!("[profile test]\nregion = eu-west-1\nendpoint_url = {endpoint}\n");
    std::fs::write(aws.join("config"), config).unwrap();
    std::fs::write(
        aws.join("credentials"),
        "[test]\naws_access_key_id = key\naws_secret_access_key = hidden\n",
    )
    .unwrap();
    let cat = isolated(&fixture).args([
        "cat",
        "--s3-profile",
        "test",
        "--roothash",
        &root,
        "--cache-dir",
    ]);
    let cat = cat.arg(fixture.path("cache")).args([name, "/greeting"]).success();
    assert_eq!(cat.stdout, b"hello\n");
    let missing = with_keys(isolated(&fixture)).args([
        "pull",
        "--s3-endpoint",
        &endpoint,
        "s3://bucket/none",
    ]);
    let missing = missing.arg(&target).failure(1);
    assert!(
        missing.stderr.contains("404") && !missing.stderr.contains("hidden"),
        "{}",
        missing.stderr
    );
    let without =
        isolated(&fixture).args(["pull", "--s3-endpoint", &endpoint, name]).arg(&target).failure(1);
    without.says("--s3-anonymous");
}
