//! Programs that listen, among them a web server (nginx), and a browser (chromium).

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::need;
use crate::run::Run;

/// A server that does not answer after this time never will.
const STARTED: Duration = Duration::from_secs(60);

/// A running program that listens. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// Its address and port.
    pub address: String,
}

impl Server {
    /// Starts `program` and waits until it listens at `address`.
    ///
    /// # Panics
    /// If it cannot be started, or does not answer.
    pub fn start(
        program: &Path,
        address: String,
        arguments: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = Command::new(program);
        arguments(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let server = Self { process, address };
        let start = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            assert!(start.elapsed() < STARTED, "{}: does not answer", program.display());
            sleep(Duration::from_millis(10));
        }
        server
    }

    /// An nginx that serves the files in `root`, with further lines of its configuration: `listen`
    /// for what follows the address, and `more`. `dir` is for its own files. If there is no nginx,
    /// says that the test is skipped.
    ///
    /// # Panics
    /// As [`Self::start`], or if the configuration cannot be written.
    pub fn nginx(dir: &Path, root: &Path, [listen, more]: [&str; 2]) -> Option<Self> {
        let program = need::tool("nginx")?;
        let address = free_address();
        let (dir_text, root) = (dir.display(), root.display());
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = paths.map(|name| format!("{name}_temp_path {dir_text}/{name};")).concat();
        let user = if need::is_root() { "user root;" } else { "" };
        let types = "types { text/html html; application/wasm wasm; }";
        let config = format!(
            "{user} daemon off; master_process off; pid {dir_text}/pid; events {{}} http {{ access_log off; {paths} {types} \
             server {{ listen {address}{listen}; root {root}; {more} }} }}"
        );
        let file = dir.join("nginx.conf");
        std::fs::write(&file, config).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Some(Self::start(&program, address, |command| {
            command.arg("-c").arg(&file).arg("-e").arg(dir.join("errors"))
        }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended already, the test fails for that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of this machine with a port that is free now.
///
/// # Panics
/// If there is none.
pub fn free_address() -> String {
    // The port is free again when the listener is dropped.
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.unwrap_or_else(|error| panic!("127.0.0.1: {error}")).to_string()
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
