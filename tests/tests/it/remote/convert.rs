//! `ferofs convert`, and `ferofs pull` of layers that are not EROFS images. The source is a
//! registry of the test, the target docker-registry.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferofs_test_server::{Auth, Fault, Object, Rule, Server};
use ferofs_tests::tar::{archive, dir, file, hard_link};
use ferofs_tests::{Outcome, Run, ferofs, ferofs_path, need};
use sha2::{Digest, Sha256};

use super::registry::registry;
use super::{assert_same_files, field, isolated};
use crate::common::fixture::Fixture;

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const EROFS: &str = "application/vnd.erofs.layer.v1";

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A layer: its type, its blob, and the digest of its content.
type Layer = (String, Vec<u8>, String);

fn tar_gzip(members: &[Vec<u8>]) -> Layer {
    let tar = archive(members);
    (format!("{TAR}+gzip"), gzip(&tar), digest(&tar))
}

fn base() -> Layer {
    tar_gzip(&[
        dir("data"),
        file("data/kept", b"kept\n"),
        file("data/gone", b"gone\n"),
        file("data/changed", b"first\n"),
        file("data/large", &b"0123456789abcdef".repeat(20_000)),
        dir("data/old"),
        file("data/old/a", b"a\n"),
    ])
}

fn upper() -> Layer {
    tar_gzip(&[
        dir("data"),
        file("data/.wh.gone", b""),
        file("data/changed", b"second\n"),
        hard_link("data/link", "data/changed"),
        dir("data/old"),
        file("data/old/.wh..wh..opq", b""),
        file("data/old/b", b"b\n"),
    ])
}

/// The files of both layers, as containers see them.
const FILES: &str = "data/changed\ndata/kept\ndata/large\ndata/link\ndata/old/b\n";

/// Puts an image with these layers into the registry. Returns the path of the last blob.
fn put(server: &Server, tag: &str, layers: &[Layer]) -> String {
    let mut last = String::new();
    let mut blob = |bytes: &[u8]| {
        last = format!("/v2/app/blobs/{}", digest(bytes));
        server.put(&last, Object::new(bytes).with_etag(None));
        format!(r#""digest":"{}","size":{}"#, digest(bytes), bytes.len())
    };
    let ids: Vec<String> = layers.iter().map(|(_, _, id)| format!("\"{id}\"")).collect();
    let config = format!(
        r#"{{"architecture":"riscv64","os":"linux","config":{{"Cmd":["/bin/sh"],"User":"app"}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        ids.join(",")
    );
    let config = format!(
        r#"{{"mediaType":"application/vnd.oci.image.config.v1+json",{}}}"#,
        blob(config.as_bytes())
    );
    let layers: Vec<String> = layers
        .iter()
        .map(|(kind, bytes, _)| format!(r#"{{"mediaType":"{kind}",{}}}"#, blob(bytes)))
        .collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{config},"layers":[{}],"annotations":{{"org.example.note":"kept"}}}}"#,
        layers.join(",")
    );
    server.put(&format!("/v2/app/manifests/{tag}"), manifest.into_bytes());
    last
}

fn name(server: &Server, tag: &str) -> String {
    format!("oci://{}/app:{tag}", server.address())
}

fn convert(fixture: &Fixture, from: &str, to: &str, with: &[&str]) -> Run {
    let cache = fixture.path("cache");
    isolated(fixture)
        .args(["convert", "--json", "--cache-dir"])
        .arg(cache)
        .args(with)
        .args([from, to])
}

fn pull(fixture: &Fixture, from: &str, to: &Path) -> Run {
    isolated(fixture).args(["pull", "--json", from]).arg(to)
}

/// The digests of the layers that a command printed.
fn layers_of(outcome: &Outcome) -> Vec<String> {
    let text = outcome.text();
    let list = text.split("\"layers\":[").nth(1).unwrap().split(']').next().unwrap().to_owned();
    list.split(',').map(|digest| digest.trim_matches('"').to_owned()).collect()
}

/// A blob that docker-registry has stored.
fn stored(fixture: &Fixture, digest: &str) -> PathBuf {
    let hex = digest.trim_start_matches("sha256:");
    fixture.path("registry/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data")
}

fn files_of(image: &Path) -> String {
    let found = ferofs().args(["ls", "-R"]).arg(image).success();
    let found = found.text();
    let is_file = |line: &&str| line.contains('/') && *line != "data/old";
    found.lines().filter(is_file).map(|line| format!("{line}\n")).collect()
}

/// Fails if the command has left temporary files.
fn assert_clean(folder: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("ferofs-layers")), "{left:?}");
}

#[test]
fn layers_become_one_image_with_the_same_program() {
    let fixture = Fixture::empty();
    let Some(target) = registry(&fixture, "") else { return };
    let source = Server::start().unwrap();
    put(&source, "1", &[base(), upper()]);
    let to = format!("oci://{}/app:1", target.address);
    let done = convert(&fixture, &name(&source, "1"), &to, &[]).success();
    assert_clean(&fixture.path("cache"));
    let layers = layers_of(&done);
    assert_eq!(layers.len(), 1);
    let layer = stored(&fixture, &layers[0]);
    ferofs()
        .arg("check")
        .arg(&layer)
        .args(["--roothash", &field(&done.stdout, "roothash")])
        .success();
    assert_eq!(files_of(&layer), FILES);
    for (path, content) in
        [("data/link", "second\n"), ("data/old/b", "b\n"), ("data/kept", "kept\n")]
    {
        let cat = ferofs().arg("cat").args([layer.as_path(), Path::new(path)]).success();
        assert_eq!(cat.text(), content, "{path}");
    }
    let manifest =
        std::fs::read_to_string(stored(&fixture, &field(&done.stdout, "manifest"))).unwrap();
    assert!(
        manifest.contains(r#""org.example.note":"kept""#) && manifest.contains(EROFS),
        "{manifest}"
    );
    let config = manifest.split(r#""digest":""#).nth(1).unwrap().split('"').next().unwrap();
    let config = std::fs::read_to_string(stored(&fixture, config)).unwrap();
    for part in [
        r#""Cmd":["/bin/sh"]"#,
        r#""User":"app""#,
        r#""riscv64""#,
        r#""os.features":["erofs"]"#,
        &layers[0],
    ] {
        assert!(config.contains(part), "{part}: {config}");
    }
    // The same image again: the same bytes, and nothing is sent.
    let again = convert(&fixture, &name(&source, "1"), &to, &[]).success();
    assert_eq!(field(&again.stdout, "manifest"), field(&done.stdout, "manifest"));
    assert!(again.text().contains("\"sent\":0,"));
    // `ferofs pull` makes the same file.
    let file = fixture.path("pulled");
    pull(&fixture, &name(&source, "1"), &file).success();
    assert_same_files(&layer, &file);
    assert_clean(&fixture.path("."));
    // The result can be read without fetching all of it.
    let cat = isolated(&fixture)
        .args(["cat", "--cache-dir"])
        .arg(fixture.path("cache"))
        .args([&to, "/data/kept"]);
    assert_eq!(cat.success().stdout, b"kept\n");
}

#[test]
fn images_on_the_same_base_share_its_layer() {
    let fixture = Fixture::empty();
    let Some(target) = registry(&fixture, "") else { return };
    let source = Server::start().unwrap();
    put(&source, "1", &[base(), upper()]);
    put(&source, "2", &[base(), tar_gzip(&[file("other", b"other\n")])]);
    let to = |tag: &str| format!("oci://{}/app:{tag}", target.address);
    let with = ["--layers", "-z", "lz4"];
    let first = layers_of(&convert(&fixture, &name(&source, "1"), &to("1"), &with).success());
    let second = convert(&fixture, &name(&source, "2"), &to("2"), &with).success();
    let (first, second, sent) = (first, layers_of(&second), second);
    assert_eq!((first.len(), second.len()), (2, 2));
    assert_eq!(first[0], second[0], "the base");
    let upper = std::fs::metadata(stored(&fixture, &second[1])).unwrap().len();
    assert!(sent.text().contains(&format!("\"sent\":{upper},")));
    // The upper layer has overlayfs' whiteouts.
    let shown = ferofs().args(["ls", "-l"]).arg(stored(&fixture, &first[1])).arg("data").success();
    let shown = shown.text();
    assert!(shown.lines().any(|line| line.starts_with('c') && line.ends_with("gone")), "{shown}");
    // All layers together are the image again.
    let (merged, both) = (fixture.path("merged"), fixture.path("both"));
    pull(&fixture, &to("1"), &merged).success();
    pull(&fixture, &name(&source, "1"), &both).success();
    assert_eq!(files_of(&merged), FILES);
    ferofs().arg("diff").args([&merged, &both]).success();
    let refused =
        isolated(&fixture).args(["ls", "--cache-dir"]).arg(fixture.path("cache")).arg(to("1"));
    assert!(refused.failure(1).stderr.contains("ferofs pull"));
    // Layers that are EROFS images already stay, and are taken from the other repository.
    let other = format!("oci://{}/other:1", target.address);
    let moved = convert(&fixture, &to("1"), &other, &with).success();
    assert_eq!(layers_of(&moved), first);
    assert!(moved.text().contains("\"sent\":0,"));
}

/// An image as a layer of the type `+zstd`.
fn zstd_layer(fixture: &Fixture) -> Option<(PathBuf, Layer)> {
    let zstd = need::tool("zstd")?;
    fixture.write("greeting", b"hello\n".repeat(10_000));
    let image = fixture.build("image.erofs", [] as [&str; 0]);
    let compressed = Run::new(zstd).arg("-c").arg(&image).success().stdout;
    let id = digest(&std::fs::read(&image).unwrap());
    Some((image, (format!("{EROFS}+zstd"), compressed, id)))
}

#[test]
fn layers_that_are_compressed_as_a_whole() {
    let fixture = Fixture::empty();
    let Some((image, layer)) = zstd_layer(&fixture) else { return };
    let source = Server::start().unwrap();
    put(&source, "1", std::slice::from_ref(&layer));
    let file = fixture.path("pulled");
    pull(&fixture, &name(&source, "1"), &file).success();
    assert_same_files(&image, &file);
    let refused = isolated(&fixture)
        .args(["ls", "--cache-dir"])
        .arg(fixture.path("cache"))
        .arg(name(&source, "1"));
    assert!(refused.failure(1).stderr.contains("ferofs pull"));
    // The configuration names another content.
    let (kind, bytes, _) = layer;
    put(&source, "2", &[(kind.clone(), bytes.clone(), digest(b"other"))]);
    let fails = |tag: &str, reason: &str| {
        let file = fixture.path("none");
        pull(&fixture, &name(&source, tag), &file).failure(1).says(reason);
        assert!(!file.exists());
        assert_clean(&fixture.path("."));
    };
    fails("2", "digest");
    // What is no Zstandard.
    put(&source, "3", &[(kind.clone(), b"no zstd".to_vec(), digest(b"x"))]);
    fails("3", "decompress");
    // The blob is another one than the manifest names.
    let path = put(&source, "4", &[(kind, bytes.clone(), digest(&std::fs::read(&image).unwrap()))]);
    let mut damaged = bytes;
    damaged[100] ^= 1;
    source.put(&path, Object::new(damaged).with_etag(None));
    fails("4", "digest");
    put(&source, "5", &[("text/plain".into(), b"x".to_vec(), digest(b"x"))]);
    fails("5", "no layer");
    put(&source, "6", &[base(), ("text/plain".into(), b"x".to_vec(), digest(b"x"))]);
    fails("6", "layer 1 is neither");
}

#[test]
fn a_conversion_survives_faults_or_leaves_nothing() {
    let fixture = Fixture::empty();
    let Some(target) = registry(&fixture, "") else { return };
    let to = format!("oci://{}/app:1", target.address);
    let start = || {
        let source = Server::start().unwrap();
        let blob = put(&source, "1", &[base(), upper()]);
        (source, blob)
    };
    let mut manifests = std::collections::BTreeSet::new();
    let passing = [
        Rule::new(Fault::Status(503)).header("Retry-After", "0").times(2),
        Rule::new(Fault::Status(429)).path("/v2/app/manifests/").times(1),
        Rule::new(Fault::Reset).path("/v2/app/blobs/").times(1),
        Rule::new(Fault::ResetInBody(100)).path("/v2/app/blobs/").times(3),
        Rule::new(Fault::Short(100)).path("/v2/app/blobs/").after(1).times(2),
    ];
    for rule in passing {
        let (source, _) = start();
        source.add(rule);
        let done = convert(&fixture, &name(&source, "1"), &to, &[]).success();
        assert!(source.counts().faults > 0);
        manifests.insert(field(&done.stdout, "manifest"));
    }
    assert_eq!(manifests.len(), 1, "the same image in each case");
    let lasting = [
        (Rule::new(Fault::Status(404)).path("/v2/app/manifests/"), "404"),
        (Rule::new(Fault::Status(403)).path("/v2/app/blobs/"), "403"),
        (Rule::new(Fault::FlippedBit(50)).path("/v2/app/blobs/"), "digest"),
        (Rule::new(Fault::Status(500)).path("/v2/app/blobs/").after(2), "500"),
    ];
    for (rule, reason) in lasting {
        let (source, _) = start();
        source.add(rule);
        let failed = convert(&fixture, &name(&source, "1"), &to, &["--timeout", "1"]).failure(1);
        failed.says(reason);
        assert_clean(&fixture.path("cache"));
    }
    // A registry that stops to answer while the layers are sent.
    let (source, _) = start();
    drop(target);
    convert(&fixture, &name(&source, "1"), &to, &["-z", "lz4"]).failure(1).says("connection");
    assert_clean(&fixture.path("cache"));
}

#[test]
fn an_interrupted_conversion_leaves_nothing() {
    let fixture = Fixture::empty();
    let source = Server::start().unwrap();
    let blob = put(&source, "1", &[base(), upper()]);
    source.add(Rule::new(Fault::StallInBody(10, Duration::from_secs(60))).path(&blob));
    let cache = fixture.path("cache");
    // Without timeout(1), which sends a signal twice: the second one ends the command at once.
    let wrapped = convert(&fixture, &name(&source, "1"), "oci://127.0.0.1:1/app:1", &[]).command();
    let mut process = Command::new(ferofs_path())
        .args(wrapped.get_args().skip(3))
        .envs(wrapped.get_envs().filter_map(|(key, value)| Some((key, value?))))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let has_temporary = || {
        std::fs::read_dir(&cache).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().contains("ferofs-layers"))
        })
    };
    while !has_temporary() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&process),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert!(!process.wait().unwrap().success());
    assert_clean(&cache);
}

/// A registry that wants a user and a password, under two names.
fn locked() -> (Server, [String; 2]) {
    let server = Server::start().unwrap();
    server.set_auth(
        "/v2/",
        Some(Auth::Header { value: "Basic none".into(), challenge: "Basic realm=x".into() }),
    );
    let names = ["127.0.0.1", "localhost"]
        .map(|host| format!("oci://{host}:{}/app:1", server.address().port()));
    (server, names)
}

#[test]
fn the_password_of_one_registry_does_not_go_to_another() {
    let fixture = Fixture::empty();
    let image = fixture.build("image", ["-z", "none"]);
    let (server, [here, elsewhere]) = locked();
    let gets_password = |run: Run| {
        server.reset();
        run.args(["--user", "me:secret"]).failure(1);
        server.log().iter().any(|request| request.header("authorization").is_some())
    };
    let convert = |from: &String, to: &String| isolated(&fixture).arg("convert").args([from, to]);
    assert!(gets_password(convert(&here, &here)));
    assert!(!gets_password(convert(&elsewhere, &here)));
    let push =
        |base: &String| isolated(&fixture).args(["push", "--base", base]).arg(&image).arg(&here);
    assert!(gets_password(push(&here)));
    assert!(!gets_password(push(&elsewhere)));
}
