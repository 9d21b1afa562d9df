//! A web server (nginx) and a browser (chromium) for tests.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::need;
use crate::run::Run;

/// A server that does not answer after this time never will.
const STARTED: Duration = Duration::from_secs(60);

/// A running nginx, which ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// Its address and port.
    pub address: String,
}

impl Server {
    /// Serves the files in `root`. `dir` is for its own files. If there is no nginx, says that `what` is skipped.
    ///
    /// # Panics
    /// If nginx cannot be started, or does not answer.
    pub fn start(dir: &Path, root: &Path, what: &str) -> Option<Self> {
        let nginx = need::tool("nginx", what)?;
        let server = Self::start_program(&nginx, dir, root).unwrap_or_else(|error| panic!("nginx: {error}"));
        let start = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            assert!(start.elapsed() < STARTED, "nginx does not answer");
            sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn start_program(nginx: &Path, dir: &Path, root: &Path) -> io::Result<Self> {
        // The port is free again when the listener is dropped.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let (dir_text, root) = (dir.display(), root.display());
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = paths.map(|name| format!("{name}_temp_path {dir_text}/{name};")).concat();
        let user = if need::is_root() { "user root;" } else { "" };
        let types = "types { text/html html; application/wasm wasm; }";
        let config = format!(
            "{user} daemon off; master_process off; pid {dir_text}/pid; events {{}} http {{ access_log off; {paths} {types} \
             server {{ listen {address}; root {root}; }} }}"
        );
        let file = dir.join("nginx.conf");
        std::fs::write(&file, config)?;
        let mut command = Command::new(nginx);
        command.arg("-c").arg(&file).arg("-e").arg(dir.join("errors")).stdin(Stdio::null());
        Ok(Self { process: command.spawn()?, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended already, the test fails for that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The elements of the page at `url` after its scripts have run. `profile` is a new directory.
///
/// # Panics
/// If the browser fails.
pub fn page(browser: &Path, profile: &Path, url: &str) -> String {
    let options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--virtual-time-budget=4000",
    ];
    let outcome = Run::new(browser)
        .args(options)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(url)
        .run();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}
