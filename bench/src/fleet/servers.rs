//! The servers: nginx, with and without TLS and as a caching proxy; docker-registry; moto as an S3 store.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use super::line::Traffic;
use crate::common::rounds::run_quietly;

/// A server that does not answer after this time never will.
const STARTED: Duration = Duration::from_secs(60);
/// Bytes of a part that the caching proxy fetches and keeps.
const SLICE: &str = "1m";

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    /// nginx's list of requests.
    log: Option<PathBuf>,
}

impl Server {
    /// nginx, which serves the files in `root`. `dir` is for its own files.
    pub(crate) fn nginx(dir: &Path, root: &Path, tls: Option<&Certificate>) -> Result<Self> {
        let listen = match tls {
            Some(_) => "ssl",
            None => "",
        };
        let keys = tls.map_or(String::new(), |Certificate { certificate, key }| {
            format!("ssl_certificate {}; ssl_certificate_key {};", certificate.display(), key.display())
        });
        start_nginx(dir, listen, "", &format!("{keys} root {};", root.display()))
    }

    /// nginx, which keeps what it fetches from `origin`, in slices.
    pub(crate) fn caching_proxy(dir: &Path, origin: SocketAddr) -> Result<Self> {
        let cache = format!("proxy_cache_path {}/cache keys_zone=images:10m max_size=20g;", dir.display());
        let location = format!(
            "location / {{ slice {SLICE}; proxy_cache images; proxy_cache_key $uri$slice_range; proxy_cache_valid 200 206 1d; \
             proxy_set_header Range $slice_range; proxy_cache_lock on; proxy_http_version 1.1; proxy_set_header Connection ''; \
             proxy_pass http://{origin}; }}"
        );
        start_nginx(dir, "", &cache, &location)
    }

    /// docker-registry, which keeps images in `dir`.
    pub(crate) fn registry(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let address = free_address()?;
        let config = format!(
            "version: 0.1\nlog: {{ level: error, accesslog: {{ disabled: true }} }}\n\
             storage: {{ filesystem: {{ rootdirectory: {}/data }} }}\nhttp: {{ addr: '{address}' }}\n",
            dir.display()
        );
        let file = dir.join("registry.yml");
        fs::write(&file, config)?;
        let program = need::find_tool("docker-registry").context("no docker-registry")?;
        start(Command::new(program).arg("serve").arg(file), address, None)
    }

    /// moto, an S3 store in memory; `None` if it is not installed (Debian does not have it).
    pub(crate) fn s3_store() -> Result<Option<Self>> {
        let Some(program) = need::find_tool("moto_server") else { return Ok(None) };
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
        start(&mut command, address, None).map(Some)
    }

    /// What nginx has answered so far. Requests count when they have ended.
    pub(crate) fn traffic(&self) -> Result<Traffic> {
        let log = self.log.as_ref().context("only nginx counts requests")?;
        parse_log(&fs::read_to_string(log)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended already, the benchmark fails for that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A certificate for 127.0.0.1, which signs itself.
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    pub(crate) fn make(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "30", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]);
        // ferofs accepts no certificate of an authority as that of a server.
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        run_quietly(openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate))?;
        Ok(Self { certificate, key })
    }
}

/// Stores a file as an object of an S3 store without passwords, in a new bucket.
pub(crate) fn store_object(store: SocketAddr, bucket: &str, file: &Path) -> Result<()> {
    let name = file.file_name().context("no name")?.to_string_lossy();
    let put = |path: &str, body: Option<&Path>| {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--silent", "--show-error", "--output", "/dev/null"]);
        match body {
            Some(body) => curl.arg("--upload-file").arg(body),
            None => curl.args(["--request", "PUT"]),
        };
        run_quietly(curl.arg(format!("http://{store}/{path}")))
    };
    put(bucket, None)?;
    put(&format!("{bucket}/{name}"), Some(file))
}

fn start_nginx(dir: &Path, listen: &str, global: &str, server: &str) -> Result<Server> {
    fs::create_dir_all(dir)?;
    let address = free_address()?;
    let (own, log) = (dir.display(), dir.join("requests"));
    // Old requests do not count.
    File::create(&log)?;
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|name| format!("{name}_temp_path {own}/{name};")).concat();
    let user = if need::is_root() { "user root;" } else { "" };
    let mut config = BufWriter::new(File::create(dir.join("nginx.conf"))?);
    write!(
        config,
        "{user} daemon off; master_process off; pid {own}/pid; error_log {own}/errors; events {{ worker_connections 8192; }}\n\
         http {{ log_format counts '$connection $bytes_sent $request_method $http_range'; access_log {own}/requests counts; {paths}\n\
         sendfile on; tcp_nopush on; keepalive_requests 1000000; {global}\n\
         server {{ listen {address} {listen}; {server} }} }}\n"
    )?;
    config.flush()?;
    let program = need::find_tool("nginx").context("no nginx")?;
    let mut command = Command::new(program);
    start(command.arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("errors")), address, Some(log))
}

fn start(command: &mut Command, address: SocketAddr, log: Option<PathBuf>) -> Result<Server> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn().with_context(|| format!("{:?}", command.get_program()))?;
    let mut server = Server { process, address, log };
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.process.try_wait()? {
            bail!("{command:?}: {status}");
        }
        if start.elapsed() > STARTED {
            bail!("{command:?}: does not answer");
        }
        sleep(Duration::from_millis(10));
    }
    Ok(server)
}

/// An address of this machine with a port that is free now.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Counts the lines of nginx's log.
fn parse_log(text: &str) -> Result<Traffic> {
    let mut traffic = Traffic::default();
    let mut connections = Vec::new();
    // The last line may be written now.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let mut words = line.split(' ');
        let (connection, bytes) = words.next().zip(words.next()).context("nginx's log")?;
        connections.push(connection.parse::<u64>().context("nginx's log")?);
        traffic.requests += 1;
        traffic.bytes += bytes.parse::<u64>().context("nginx's log")?;
    }
    connections.sort_unstable();
    connections.dedup();
    traffic.connections = connections.len() as u64;
    Ok(traffic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted() {
        let log = "7 4400 GET bytes=0-4095\n7 300 HEAD -\n9 1000 GET bytes=5-9\n9 10";
        assert_eq!(parse_log(log).unwrap(), Traffic { connections: 2, requests: 3, bytes: 5700 });
        assert!(parse_log("no log\n").is_err());
        assert_eq!(parse_log("").unwrap(), Traffic::default());
    }
}
