//! Runs the example against nginx.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ferofs_tests::run::Run;
use ferofs_tests::{need, scratch};

/// nginx, which is killed when this is dropped.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        // It has ended already if it could not start, which the test reports.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts nginx on the files in `root`; returns its address.
fn serve(nginx: &Path, dir: &Path, root: &Path) -> (Nginx, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}/{name};", dir.display()))
        .concat();
    let user = if need::is_root() { "user root;" } else { "" };
    let config = format!(
        "{user} daemon off; master_process off; pid {dir}/pid; events {{}} http {{ access_log off; {paths} \
         server {{ listen {address}; root {root}; }} }}",
        dir = dir.display(),
        root = root.display()
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-c").arg(&file).arg("-e").arg(dir.join("errors")).stdin(Stdio::null());
    let server = Nginx(command.spawn().unwrap());
    let start = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "nginx does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
    (server, address)
}

#[test]
fn files_are_read_by_range_requests() {
    let Some(nginx) = need::tool("nginx", "reading over HTTP") else { return };
    let dir = scratch::scratch();
    let (source, root) = (dir.path().join("source"), dir.path().join("root"));
    std::fs::create_dir_all(source.join("docs")).unwrap();
    std::fs::create_dir(&root).unwrap();
    let wanted: String = (0..400_000).map(|line| format!("line {line}\n")).collect();
    std::fs::write(source.join("docs/wanted"), &wanted).unwrap();
    std::fs::write(source.join("other"), vec![7; 100]).unwrap();
    std::fs::write(
        source.join("unwanted"),
        (0..9_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    let mut options = ferofs_build::Options::new(source);
    options.data.compression = Some(ferofs_build::Compression::lz4(0).unwrap());
    let image = root.join("image.erofs");
    ferofs_build::build(&options, &image).unwrap();
    let (_server, address) = serve(&nginx, dir.path(), &root);

    let example = |arguments: &[&str]| {
        Run::new(env!("CARGO_BIN_EXE_ferofs-async-http-example")).arg(&address).args(arguments).run()
    };
    let list = example(&["/image.erofs"]).success();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(
        list.contains(&format!("{:>10} /docs/wanted\n", wanted.len())) && list.contains("/unwanted\n"),
        "{list}"
    );
    let file = example(&["/image.erofs", "docs/wanted"]).success();
    assert!(file.stdout == wanted.as_bytes());
    let fetched: u64 = file.stderr.split(' ').next().unwrap().parse().unwrap();
    let size = std::fs::metadata(&image).unwrap().len();
    assert!(fetched < size / 2, "{fetched} of {size} bytes were fetched: {}", file.stderr);
    assert_eq!(example(&["/missing"]).code, 1);
    assert_eq!(example(&["/image.erofs", "missing"]).code, 1);
}
