//! Uploads to a registry that fails in the middle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use common::{digest, soon};
use ferofs_serve::http::{Client, TlsOptions};
use ferofs_serve::oci::{PushOptions, Pushed, Reference, RegistryImage, push};
use ferofs_serve::{Error, FetchErrorKind as Kind};
use ferofs_test_server::{Answer, Fault, Object, Request, Rule, Server};
use ferofs_write::{Attributes, Builder, Content};

/// Bytes of the image's file: more than two chunks of 16 MiB.
const SIZE: u32 = 36_000_000;

#[derive(Default)]
struct State {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, Vec<u8>>,
    uploads: Vec<Vec<u8>>,
    /// Bytes of bodies of PATCH and PUT.
    received: u64,
    /// A PATCH stores so many bytes of its body only, once, and fails.
    cut: Option<usize>,
    /// Whether blobs of other repositories are taken over.
    mounts: bool,
}

/// The answer of a registry (distribution specification, section "Push").
fn answer(state: &mut State, request: &Request) -> Option<Answer> {
    let path = request.path.strip_prefix("/v2/app/")?;
    let (method, kind) = (request.method.as_str(), path.split('/').next()?);
    let place = |number: usize| format!("/v2/app/blobs/uploads/{number}?state=x");
    let progress = |status: u16, number: usize, upload: &[u8]| {
        let range = format!("0-{}", upload.len().max(1) - 1);
        Answer::new(status, "").header("Location", &place(number)).header("Range", &range)
    };
    if matches!(method, "PATCH" | "PUT") {
        state.received += request.body.len() as u64;
    }
    if let Some(upload) = path.strip_prefix("blobs/uploads/") {
        let mount = request.parameter("mount").filter(|_| state.mounts);
        if let Some(digest) = mount {
            state.blobs.insert(digest.replace("%3A", ":"), Vec::new());
            return Some(Answer::new(201, ""));
        }
        if method == "POST" {
            state.uploads.push(Vec::new());
            return Some(progress(202, state.uploads.len() - 1, &[]));
        }
        let number: usize = upload.parse().ok()?;
        let State { uploads, cut, blobs, .. } = state;
        let bytes = uploads.get_mut(number)?;
        if let Some(start) = request.header("content-range") {
            let start: usize = start.split('-').next()?.parse().ok()?;
            if start != bytes.len() {
                return Some(progress(416, number, bytes));
            }
        }
        return Some(match method {
            "GET" => progress(204, number, bytes),
            "PATCH" => {
                if let Some(len) = cut.take() {
                    bytes.extend_from_slice(&request.body[..len]);
                    return Some(Answer::new(503, ""));
                }
                bytes.extend_from_slice(&request.body);
                progress(202, number, bytes)
            }
            "PUT" => {
                bytes.extend_from_slice(&request.body);
                let wanted = request.parameter("digest")?.replace("%3A", ":");
                if digest(bytes) != wanted {
                    return Some(Answer::new(400, "DIGEST_INVALID"));
                }
                blobs.insert(wanted, std::mem::take(bytes));
                Answer::new(201, "")
            }
            _ => return None,
        });
    }
    let name = path.split_once('/')?.1;
    Some(match (method, kind) {
        ("HEAD", "blobs") if state.blobs.contains_key(name) => Answer::new(200, ""),
        ("PUT", "manifests") => {
            state.manifests.insert(name.to_owned(), request.body.clone());
            Answer::new(201, "").header("Docker-Content-Digest", &digest(&request.body))
        }
        _ => Answer::new(404, ""),
    })
}

fn registry() -> (Server, Arc<Mutex<State>>) {
    let server = Server::start().unwrap();
    let state = Arc::new(Mutex::new(State::default()));
    let shared = Arc::clone(&state);
    server.route(move |request| answer(&mut shared.lock().unwrap(), request));
    (server, state)
}

/// An image with one file.
fn image(folder: &Path) -> PathBuf {
    let path = folder.join("image");
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut builder = Builder::new();
    builder.options().image.uuid = Some([7; 16]);
    builder.options().image.build_time = Some(0);
    builder.file("file", Content::bytes(bytes), Attributes::default());
    builder.build(&path).unwrap();
    path
}

fn push_to(server: &Server, image: &Path) -> Result<Pushed, Error> {
    let reference = Reference::parse(&format!("{}/app:1", server.address())).unwrap();
    let mut options = PushOptions::default();
    options.oci.anonymous = true;
    push(
        Client::new(&TlsOptions::default())?,
        &[image.to_owned()],
        &reference,
        &options,
        &|_, _| (),
    )
}

fn assert_stored(state: &Mutex<State>, image: &Path, pushed: &Pushed) {
    let state = state.lock().unwrap();
    assert!(state.blobs[&pushed.layers[0]] == std::fs::read(image).unwrap(), "wrong bytes");
    let manifest = String::from_utf8(state.manifests["1"].clone()).unwrap();
    assert_eq!(digest(manifest.as_bytes()), pushed.manifest);
    assert!(manifest.contains(&pushed.layers[0]), "{manifest}");
}

#[test]
fn chunks_continue_after_failures() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let faults = [
        Rule::new(Fault::Status(503)).header("Retry-After", "1"),
        Rule::new(Fault::Status(429)),
        Rule::new(Fault::Reset),
        Rule::new(Fault::Garbage),
    ];
    for fault in faults {
        let (server, state) = registry();
        // The second chunk fails before the registry has any of it.
        server.add(fault.method("PATCH").after(1).times(1));
        let pushed = push_to(&server, &image).unwrap();
        assert_stored(&state, &image, &pushed);
        assert_eq!(server.counts().faults, 1);
        let received = state.lock().unwrap().received;
        // The configuration and the manifest have less than 2000 bytes.
        let once = std::fs::metadata(&image).unwrap().len() + 2000;
        assert!(received < once, "{received}: bytes that arrived are not sent again");
    }
}

#[test]
fn a_chunk_that_arrived_in_part_is_not_sent_again_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let (server, state) = registry();
    state.lock().unwrap().cut = Some(5_000_000);
    let pushed = push_to(&server, &image).unwrap();
    assert_stored(&state, &image, &pushed);
    let patches: Vec<String> = server
        .log()
        .iter()
        .filter(|request| request.method == "PATCH")
        .map(|request| request.header("content-range").unwrap().to_owned())
        .collect();
    assert_eq!(patches[..2], ["0-16777215", "5000000-21777215"]);
}

#[test]
fn an_upload_that_is_lost_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let (server, state) = registry();
    // The last request fails: the registry has forgotten the upload.
    server.add(Rule::new(Fault::Reset).method("PUT").path("/v2/app/blobs/").times(1));
    let pushed = push_to(&server, &image).unwrap();
    assert_stored(&state, &image, &pushed);
    // Nothing is sent when the registry has the layer.
    assert_eq!(push_to(&server, &image).unwrap().sent, 0);
}

#[test]
fn an_upload_that_expires_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let unknown = || Rule::new(Fault::Status(404)).path("/v2/app/blobs/uploads/");
    // The second chunk, and the question for what has arrived; the second chunk of the next upload;
    // the last request of that one.
    for rules in [vec![("PATCH", 1), ("GET", 0)], vec![("PATCH", 0)], vec![("PUT", 0)]] {
        let (server, state) = registry();
        for (method, after) in &rules {
            server.add(unknown().method(method).after(*after).times(1));
        }
        let pushed = push_to(&server, &image).unwrap();
        assert_stored(&state, &image, &pushed);
        assert_eq!(server.counts().faults, rules.len() as u64);
    }
}

#[test]
fn a_token_that_expires_during_an_upload_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let (server, state) = registry();
    server.put("/token", br#"{"token":"new","expires_in":300}"#.to_vec());
    let challenge = format!("Bearer realm=\"{}\",service=\"test\"", server.url("/token"));
    let expired = || Rule::new(Fault::Status(401)).header("WWW-Authenticate", &challenge).times(1);
    server.add(expired().method("PATCH").after(1));
    let pushed = push_to(&server, &image).unwrap();
    assert_stored(&state, &image, &pushed);
    let with_token = |request: &Request| request.header("authorization") == Some("Bearer new");
    assert!(server.log().iter().any(|request| request.method == "PATCH" && with_token(request)));
    assert!(server.log().iter().filter(|request| request.method == "PUT").all(with_token));
}

#[test]
fn only_complete_images_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let (server, _) = registry();
    let refused = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        match push_to(&server, &path) {
            Err(Error::Image { problem, .. }) => problem,
            other => panic!("{name}: {other:?}"),
        }
    };
    let bytes = std::fs::read(&image).unwrap();
    assert!(refused("empty", b"").contains("not an EROFS image"));
    assert!(refused("zeroes", &[0; 8192]).contains("not an EROFS image"));
    assert!(refused("cut", &bytes[..bytes.len() - 4096]).contains("cut off"));
    let mut changed = bytes;
    // A byte of the superblock, which has a checksum.
    changed[1024 + 60] ^= 1;
    assert!(refused("changed", &changed).contains("not an EROFS image"));
    assert_eq!(server.counts().requests, 0);
}

#[test]
fn layers_of_a_base_are_mounted_and_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let (server, state) = registry();
    // The base, in another repository.
    let layer = digest(b"layer");
    let config = format!(
        r#"{{"config":{{"Cmd":["run"]}},"os":"linux","architecture":"arm64","rootfs":{{"diff_ids":["{layer}"]}}}}"#
    );
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.erofs.layer.v1","digest":"{layer}","size":5}}]}}"#,
        digest(config.as_bytes()),
        config.len()
    );
    server.put("/v2/base/manifests/1", manifest.into_bytes());
    server.put(
        &format!("/v2/base/blobs/{}", digest(config.as_bytes())),
        Object::new(config).with_etag(None),
    );
    let reference = |name: &str| Reference::parse(&format!("{}/{name}", server.address())).unwrap();
    let client = || Client::new(&TlsOptions::default()).unwrap();
    let mut options = PushOptions::default();
    options.oci.anonymous = true;
    let base = RegistryImage::open(client(), &reference("base:1"), &options.oci, soon()).unwrap();
    options.base = Some(Arc::new(base));
    let push_it = |to: &Reference, options: &PushOptions| {
        push(client(), std::slice::from_ref(&image), to, options, &|_, _| ())
    };
    // A registry that does not take blobs from other repositories begins an upload, which is given
    // up.
    let refused = push_it(&reference("app:1"), &options).unwrap_err();
    assert!(refused.to_string().contains("does not take layers from base"), "{refused}");
    assert!(server.log().iter().any(|request| request.method == "DELETE"));
    assert!(state.lock().unwrap().manifests.is_empty());
    state.lock().unwrap().mounts = true;
    let pushed = push_it(&reference("app:1"), &options).unwrap();
    assert_eq!(pushed.layers[0], layer);
    assert_eq!((pushed.layers.len(), pushed.sent), (2, pushed.size));
    let state = state.lock().unwrap();
    let configs = state.blobs.values().filter(|blob| blob.len() < 2000);
    let configs: Vec<_> = configs.map(|blob| String::from_utf8_lossy(blob).into_owned()).collect();
    let both = format!(r#""diff_ids":["{layer}","{}"]"#, pushed.layers[1]);
    assert!(
        configs.iter().any(|config| config.contains(&both) && config.contains("arm64")),
        "{configs:?}"
    );
    drop(state);
    // Another registry has no such repository.
    let elsewhere = Reference::parse("localhost:1/app:1").unwrap();
    assert!(matches!(push_it(&elsewhere, &options), Err(Error::Location { .. })));
}

#[test]
fn failures_that_do_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let kind = |rule: Rule| {
        let (server, _) = registry();
        server.add(rule);
        match push_to(&server, &image) {
            Err(Error::Fetch { error, .. }) => error.kind,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(kind(Rule::new(Fault::Status(401))), Kind::NoCredentials));
    assert!(matches!(kind(Rule::new(Fault::Status(403)).method("POST")), Kind::Forbidden));
    assert!(matches!(kind(Rule::new(Fault::Status(413)).method("PATCH")), Kind::Status(413)));
    let wrong = Rule::new(Fault::Status(201))
        .path("/v2/app/manifests")
        .header("Docker-Content-Digest", &digest(b""));
    assert!(matches!(kind(wrong), Kind::Digest));
    let (server, _) = registry();
    assert!(matches!(push_to(&server, &folder.path().join("none")), Err(Error::Io(_))));
    assert_eq!(server.counts().requests, 0);
}
