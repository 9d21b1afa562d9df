//! Runs the examples of this crate.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

/// An image of these files.
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
    let mut server = Server(example("serve_http").arg(image).stdout(Stdio::piped()).spawn().unwrap());
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
