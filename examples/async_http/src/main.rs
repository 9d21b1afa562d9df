//! Reads an image on a web server without blocking a thread, and without fetching all of it:
//! `async_http HOST:PORT /image.erofs [FILE]` lists the image, or prints a file of it.
//!
//! Reading has three separate steps here: find out what is missing ([`FetchedSource::attempt`],
//! [`Image::data_ranges`]), fetch it (tokio and HTTP range requests), and decode
//! ([`Image::read_at`]).

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use ferofs_read::{Attempt, FetchedSource, FileOffset, Image, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of a file that are fetched together and decoded.
const PIECE: usize = 1 << 20;

/// An image on a web server.
struct Remote {
    host: String,
    path: String,
    source: Arc<FetchedSource>,
}

/// Sends a request with these headers, and returns the headers and the body of the answer.
async fn request(
    host: &str,
    path: &str,
    method: &str,
    headers: &str,
) -> Result<(String, Vec<u8>), Failure> {
    let mut stream = TcpStream::connect(host).await?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .ok_or("an answer without headers")?;
    let body = answer.split_off(end + 4);
    Ok((String::from_utf8_lossy(&answer).to_lowercase(), body))
}

impl Remote {
    async fn open(host: &str, path: &str) -> Result<(Self, Image), Failure> {
        let (headers, _) = request(host, path, "HEAD", "").await?;
        let size = headers.lines().find_map(|line| line.strip_prefix("content-length: "));
        let size = size
            .filter(|_| headers.starts_with("http/1.1 200"))
            .ok_or("the server has no such file")?;
        let source = Arc::new(FetchedSource::new(size.trim().parse()?));
        let remote = Self { host: host.into(), path: path.into(), source: Arc::clone(&source) };
        let image = remote.run(|| Image::open(Arc::clone(&source))).await?;
        Ok((remote, image))
    }

    /// Fetches ranges of the image side by side.
    async fn fetch(&self, ranges: Vec<Range<u64>>) -> Result<(), Failure> {
        let fetches = ranges.into_iter().map(|range| {
            let (host, path) = (self.host.clone(), self.path.clone());
            tokio::spawn(async move {
                let wanted = format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
                let (headers, body) = request(&host, &path, "GET", &wanted).await?;
                let is_part = headers.starts_with("http/1.1 206")
                    && body.len() as u64 == range.end - range.start;
                if is_part {
                    Ok((range.start, body))
                } else {
                    Err(Failure::from("the server sent other bytes"))
                }
            })
        });
        for fetch in fetches.collect::<Vec<_>>() {
            let (start, body) = fetch.await??;
            self.source.insert(start, &body);
        }
        Ok(())
    }

    /// Runs `read` until it finds all bytes that it needs.
    async fn run<T>(&self, read: impl Fn() -> Result<T>) -> Result<T, Failure> {
        loop {
            match self.source.attempt(&read)? {
                Attempt::Done(done) => return Ok(done),
                Attempt::Missing(ranges) => self.fetch(ranges).await?,
            }
        }
    }

    /// Prints a file, a piece at a time.
    async fn print(&self, image: &Image, path: &str) -> Result<(), Failure> {
        let inode = self.run(|| image.metadata(path)).await?;
        let mut offset = FileOffset::new(0);
        while offset.get() < inode.size() {
            // All encoded bytes of the piece with one round of requests.
            let ranges = self.run(|| image.data_ranges(&inode, offset, PIECE as u64)).await?;
            let missing =
                ranges.iter().flat_map(|range| self.source.missing(range.start.get()..range.end()));
            self.fetch(missing.collect()).await?;
            let read = || {
                let mut piece = vec![0; PIECE];
                let len = image.read_at(&inode, offset, &mut piece)?;
                piece.truncate(len);
                Ok(piece)
            };
            let piece = self.run(read).await?;
            std::io::Write::write_all(&mut std::io::stdout(), &piece)?;
            offset = FileOffset::new(offset.get() + piece.len() as u64);
        }
        Ok(())
    }

    /// Prints all paths and sizes.
    async fn list(&self, image: &Image) -> Result<(), Failure> {
        let walk = || {
            image
                .walk()
                .map(|entry| entry.and_then(|entry| Ok((entry.path, entry.inode?.size()))))
                .collect()
        };
        let names: Vec<_> = self.run(walk).await?;
        for (path, size) in names {
            println!("{size:>10} /{}", path.display());
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (host, path, file) = match args.as_slice() {
        [host, path] => (host, path, None),
        [host, path, file] => (host, path, Some(file)),
        _ => return Err("usage: async_http HOST:PORT /IMAGE [FILE]".into()),
    };
    let (remote, image) = Remote::open(host, path).await?;
    match file {
        Some(file) => remote.print(&image, file).await?,
        None => remote.list(&image).await?,
    }
    eprintln!(
        "{} of {} bytes were fetched",
        remote.source.held(),
        ferofs_read::Source::size(&remote.source)
    );
    Ok(())
}
