//! An S3 store: moto, from PyPI, since Debian has none.

use ferofs_tests::{Run, need};

use super::{Service, assert_same_files, free_address, isolated, sealed_image};
use crate::common::fixture::Fixture;

pub(super) fn store(what: &str) -> Option<Service> {
    let Some(program) = need::find_tool("moto_server") else {
        need::lacks(what, need::MOTO);
        return None;
    };
    let address = free_address();
    let port = address.rsplit(':').next().unwrap().to_owned();
    Some(Service::start(&program, address, |command| {
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
    let Some(store) = store("images in S3 stores") else { return };
    let fixture = Fixture::empty();
    let (image, root) = sealed_image(&fixture);
    put(&store.address, "/bucket", b"");
    put(&store.address, "/bucket/dir/an%20image.erofs", &std::fs::read(&image).unwrap());
    let name = "s3://bucket/dir/an image.erofs";
    let endpoint = format!("http://{}", store.address);
    let with_keys = |run: Run| run.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "hidden");
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
    let cat = isolated(&fixture).args(["cat", "--s3-profile", "test", "--roothash", &root, "--cache-dir"]);
    let cat = cat.arg(fixture.path("cache")).args([name, "/greeting"]).run().success();
    assert_eq!(cat.stdout, b"hello\n");
    let missing =
        with_keys(isolated(&fixture)).args(["pull", "--s3-endpoint", &endpoint, "s3://bucket/none"]);
    let missing = missing.arg(&target).run().failure(1);
    assert!(missing.stderr.contains("404") && !missing.stderr.contains("hidden"), "{}", missing.stderr);
    let without =
        isolated(&fixture).args(["pull", "--s3-endpoint", &endpoint, name]).arg(&target).run().failure(1);
    assert!(without.stderr.contains("--s3-anonymous"), "{}", without.stderr);
}
