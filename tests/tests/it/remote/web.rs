//! nginx with TLS, certificates of clients, and passwords.

use std::path::{Path, PathBuf};

use ferofs_tests::{Run, need};

use super::{Service, assert_same_files, free_address, isolated, sealed_image};
use crate::common::fixture::Fixture;

/// An authority, and what it has certified.
struct Certificates {
    openssl: PathBuf,
    folder: PathBuf,
}

impl Certificates {
    fn make(openssl: PathBuf, folder: PathBuf) -> Self {
        let certificates = Self { openssl, folder };
        certificates.run(&[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=Test authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
        ]);
        certificates
    }

    fn run(&self, arguments: &[&str]) {
        Run::new(&self.openssl).args(arguments).dir(&self.folder).run().success();
    }

    /// A key and a certificate for `name`.
    fn certify(&self, name: &str, extensions: &str) {
        let (key, request, certificate) =
            (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        self.run(&[
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        std::fs::write(self.folder.join("extensions"), extensions).unwrap();
        self.run(&[
            "x509",
            "-req",
            "-days",
            "2",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "extensions",
            "-in",
            &request,
            "-out",
            &certificate,
        ]);
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

fn nginx(program: &Path, fixture: &Fixture, certificates: &Certificates) -> Service {
    let address = free_address();
    let (folder, root) = (fixture.directory("nginx"), fixture.path("www"));
    let (dir, at) = (folder.display(), |name: &str| certificates.path(name));
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|name| format!("{name}_temp_path {dir}/{name};")).concat();
    let user = if need::is_root() { "user root;" } else { "" };
    std::fs::write(folder.join("passwords"), "me:{PLAIN}secret\n").unwrap();
    let config = format!(
        "{user} daemon off; master_process off; pid {dir}/pid; events {{}} http {{ access_log off; {paths} \
         server {{ listen {address} ssl; root {}; ssl_certificate {}; ssl_certificate_key {}; \
         ssl_client_certificate {}; ssl_verify_client optional; \
         location /private/ {{ auth_basic test; auth_basic_user_file {dir}/passwords; }} \
         location /client/ {{ if ($ssl_client_verify != SUCCESS) {{ return 403; }} }} }} }}",
        root.display(),
        at("server.crt"),
        at("server.key"),
        at("ca.crt"),
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    Service::start(program, address, |command| {
        command.arg("-c").arg(&file).arg("-e").arg(folder.join("errors"))
    })
}

#[test]
fn certificates_and_passwords() {
    let Some(program) = need::tool("nginx", "images on nginx") else { return };
    let Some(openssl) = need::tool("openssl", "images on nginx") else { return };
    let fixture = Fixture::empty();
    let (image, root) = sealed_image(&fixture);
    for folder in ["www", "www/private", "www/client"] {
        fixture.directory(folder);
        std::fs::copy(&image, fixture.path(folder).join("image")).unwrap();
    }
    let certificates = Certificates::make(openssl, fixture.directory("certificates"));
    certificates.certify("server", "subjectAltName=IP:127.0.0.1\n");
    certificates.certify("client", "extendedKeyUsage=clientAuth\n");
    let server = nginx(&program, &fixture, &certificates);
    let target = fixture.path("pulled");
    let pull = |path: &str, with: &[&str]| {
        let url = format!("https://{}{path}", server.address);
        isolated(&fixture).args(["pull", "--roothash", &root, &url]).arg(&target).args(with)
    };
    let authority = certificates.path("ca.crt");

    let unknown = pull("/image", &[]).run().failure(1);
    assert!(unknown.stderr.contains("TLS"), "{}", unknown.stderr);
    pull("/image", &["--cacert", &authority]).run().success();
    assert_same_files(&image, &target);
    pull("/image", &[]).env("SSL_CERT_FILE", &authority).run().success();
    pull("/image", &["--insecure-tls"]).run().success();

    let refused = pull("/private/image", &["--cacert", &authority]).run().failure(1);
    assert!(refused.stderr.contains("401"), "{}", refused.stderr);
    pull("/private/image", &["--cacert", &authority, "--user", "me:secret"]).run().success();
    std::fs::write(fixture.path("home/.netrc"), "machine 127.0.0.1 login me password secret\n").unwrap();
    pull("/private/image", &["--cacert", &authority, "--netrc"]).run().success();

    let refused = pull("/client/image", &["--cacert", &authority]).run().failure(1);
    assert!(refused.stderr.contains("403"), "{}", refused.stderr);
    let (certificate, key) = (certificates.path("client.crt"), certificates.path("client.key"));
    let client = ["--cacert", &authority, "--client-cert", &certificate, "--client-key", &key];
    pull("/client/image", &client).run().success();
    // A key that is not that of the certificate.
    let other = certificates.path("server.key");
    let wrong = ["--cacert", &authority, "--client-cert", &certificate, "--client-key", &other];
    let wrong = pull("/client/image", &wrong).run().failure(1);
    assert!(wrong.stderr.contains("server.key"), "{}", wrong.stderr);
}
