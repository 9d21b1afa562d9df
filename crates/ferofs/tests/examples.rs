//! Runs the examples of this crate.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use ferofs::build::{Attributes, Builder, Content, Rdev};
use ferofs::read::Image;
use ferofs_tests::{Mount, need};

/// An example that cargo built beside this test.
fn example(name: &str) -> Command {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.is_file(), "cargo test with --test builds no examples");
    Command::new(program)
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn image(dir: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let (source, image) = (dir.join(name), dir.join(name).with_extension("erofs"));
    for (file, content) in files {
        let path = source.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    ferofs::build::build(&ferofs::build::Options::new(source), &image).unwrap();
    image
}

#[test]
fn an_image_is_listed_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "tree", &[("etc/motd", "welcome\n"), ("empty", "")]);
    let list = text(example("list_and_read").arg(&image).output().unwrap());
    assert!(list.contains(" /etc/motd\n") && list.contains("Directory 0755"), "{list}");
    let file = text(example("list_and_read").arg(&image).arg("etc/motd").output().unwrap());
    assert_eq!(file, "welcome\n");
    assert!(!example("list_and_read").arg(&image).arg("none").output().unwrap().status.success());
}

#[test]
fn two_images_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let old = image(dir.path(), "old", &[("a", "one"), ("b", "two"), ("c", "four")]);
    let new = image(dir.path(), "new", &[("a", "one"), ("b", "2wo"), ("d", "five")]);
    let changes = text(example("compare").args([&old, &new]).output().unwrap());
    assert_eq!(changes, "* b\n- c\n+ d\n");
}

/// A running example, which is killed when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended already, the test fails for that.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn files_are_served_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "tree", &[("a b/c%d", "content"), ("<e>", "")]);
    let mut server =
        Server(example("serve_http").arg(image).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/a%20b/c%25d").ends_with("\r\nContent-Length: 7\r\n\r\ncontent"));
    let root = get("/");
    assert!(root.contains("<a href=\"a%20b/\">") && root.contains("\"%3ce%3e\""), "{root}");
    assert!(get("/none").starts_with("HTTP/1.0 404 "));
}

#[test]
fn an_image_is_built_from_memory_and_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let built = text(example("build_from_memory").arg(&image).output().unwrap());
    assert!(built.starts_with("2 files, "), "{built}");
    let list = text(example("list_and_read").arg(&image).output().unwrap());
    assert!(list.contains("CharDevice 0666") && list.contains(" /share/numbers\n"), "{list}");
    if !need::root() || !need::kernel_has_erofs() {
        return;
    }
    let mounted = dir.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    let mount = Mount::kernel(&image, &mounted).unwrap();
    assert_eq!(std::fs::read_to_string(mounted.join("hello")).unwrap(), "#!/bin/sh\necho hello\n");
    assert!(std::fs::read_to_string(mounted.join("share/numbers")).unwrap().ends_with("\n9999\n"));
    mount.unmount().unwrap();
}

#[test]
fn layers_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let lower = image(dir.path(), "lower", &[("a", "one"), ("b", "two"), ("c", "three")]);
    let upper = dir.path().join("upper.erofs");
    let mut builder = Builder::new();
    // A whiteout of overlayfs.
    builder.char_device("a", Rdev { major: 0, minor: 0 }, Attributes::default());
    builder.file("b", Content::bytes("new"), Attributes::default());
    builder.build(&upper).unwrap();
    let merged = dir.path().join("merged");
    let report =
        text(example("merge_layers").arg(&merged).args([&lower, &upper]).output().unwrap());
    assert_eq!(report, "2 layers, 3 files\n");
    let image = Image::open(std::fs::read(&merged).unwrap()).unwrap();
    assert_eq!(
        (image.read("b").unwrap(), image.read("c").unwrap()),
        (b"new".to_vec(), b"three".to_vec())
    );
    assert!(image.read("a").is_err());
    let names = String::from_utf8(image.read("layers.txt").unwrap()).unwrap();
    assert_eq!(names, format!("{}\n{}", lower.display(), upper.display()));
}
