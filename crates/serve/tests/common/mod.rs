//! A sealed image, a server that serves it, and readers of it.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(dead_code, reason = "each test program uses a part")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferofs_read::Source;
use ferofs_serve::Error;
use ferofs_serve::cache::{Cache, Entry, UNIT};
use ferofs_serve::fetch::{FetchOptions, Fetcher};
use ferofs_serve::http::{Access, Client, HttpObject, TlsOptions, WebAccess, WebOptions};
use ferofs_serve::open::{Connect, Connected, OpenRemote, RemoteImage};
use ferofs_serve::source::RemoteSource;
use ferofs_test_server::Server;
use ferofs_verity::{Digest, Params, Seal};
use sha2::{Digest as _, Sha256};

/// A sealed image.
pub(crate) struct Sealed {
    /// The image and its seal.
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) root: Digest,
    /// Where the seal starts.
    pub(crate) position: u64,
}

/// A read that takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// A server with a sealed image, and a fetcher of it.
pub(crate) struct Setup {
    pub(crate) sealed: Sealed,
    pub(crate) server: Server,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) fetcher: Arc<Fetcher>,
}

impl Setup {
    /// An image of `len` bytes.
    pub(crate) fn new(len: u64, options: FetchOptions) -> Self {
        // A server that restarts finds its port free: connections to it start at 127.0.0.1.
        let (sealed, server) = (Sealed::new(len, 1), Server::bind("127.0.0.2:0").unwrap());
        server.put("/image", sealed.bytes.to_vec());
        let folder = tempfile::tempdir().unwrap();
        let image = sealed.open(web(&server.url("/image")), &folder.path().join("cache")).unwrap();
        let fetcher = Arc::new(image.fetcher(options).unwrap());
        Self { sealed, server, folder, fetcher }
    }

    pub(crate) fn read(&self, start: u64, patience: Duration) -> std::io::Result<()> {
        self.sealed.read(&source(&self.fetcher, patience), start..start + 70_000, LIMIT)
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < LIMIT, "{what}: {:?}", self.fetcher.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn wait_until_idle(&self) {
        self.wait_until("something is still fetched", || self.fetcher.is_idle());
    }
}

/// Numbers that look random, and are the same in each run (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn range(&mut self, size: u64, longest: u64) -> Range<u64> {
        let (start, len) = (self.next() % size, self.next() % longest + 1);
        start..(start + len).min(size)
    }
}

impl Sealed {
    /// An image of `len` bytes, whole blocks, with its seal after it. Other seeds give other
    /// bytes.
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let mut random = Random(seed);
        let image: Vec<u8> = (0..len / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        Self::of(image, Params::default())
    }

    /// `image`, which has whole blocks, with its seal after it.
    pub(crate) fn of(image: Vec<u8>, params: Params) -> Self {
        let len = image.len() as u64;
        let file = tempfile::tempfile().unwrap();
        let (seal, root) = Seal::write(&image, len, params, None, 2, &file, len).unwrap();
        let mut bytes = image;
        let size = len + seal.byte_len().unwrap();
        bytes.resize(usize::try_from(size).unwrap(), 0);
        std::os::unix::fs::FileExt::read_exact_at(
            &file,
            &mut bytes[usize::try_from(len).unwrap()..],
            len,
        )
        .unwrap();
        Self { bytes: Arc::new(bytes), root, position: len }
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn part(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    pub(crate) fn open(&self, connect: Connect, folder: &Path) -> Result<RemoteImage, Error> {
        self.open_with(connect, folder, &[])
    }

    /// As [`Self::open`]; copies blocks of `files`.
    pub(crate) fn open_with(
        &self,
        connect: Connect,
        folder: &Path,
        files: &[PathBuf],
    ) -> Result<RemoteImage, Error> {
        let mut options = OpenRemote::default();
        options.reuse = files.to_vec();
        options.root = Some(self.root);
        options.hash_offset = Some(self.position);
        RemoteImage::open("test:image", connect, Cache::open(folder, None)?, &options)
    }

    /// Fails if the cache holds a byte that the image does not have.
    pub(crate) fn assert_stored_is_right(&self, entry: &Entry) -> u64 {
        let mut stored = 0;
        for start in (0..self.size()).step_by(UNIT as usize) {
            let unit = start..(start + UNIT).min(self.size());
            let mut buf = vec![0; (unit.end - unit.start) as usize];
            if entry.has(unit.clone()).unwrap() && entry.read(start, &mut buf).unwrap() {
                assert!(buf == self.part(&unit), "wrong bytes are stored at {start}");
                stored += 1;
            }
        }
        stored
    }

    /// Reads `range`. Fails with a wrong byte, and when the read takes longer than `limit`, which
    /// means that it hangs.
    pub(crate) fn read(
        &self,
        source: &dyn Source,
        range: Range<u64>,
        limit: Duration,
    ) -> std::io::Result<()> {
        let mut buf = vec![0; (range.end - range.start) as usize];
        let started = Instant::now();
        let result = source.read_exact_at(range.start, &mut buf);
        assert!(started.elapsed() < limit, "{range:?} took {:?}: {result:?}", started.elapsed());
        assert!(result.is_err() || buf == self.part(&range), "wrong bytes at {range:?}");
        result
    }
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// The digest of bytes, as registries write it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Connects to a web server without credentials.
pub(crate) fn web(url: &str) -> Connect {
    let url = url.to_owned();
    Box::new(move || connected(Arc::new(WebAccess::new(&url, &WebOptions::default())?)))
}

pub(crate) fn connected(access: Arc<dyn Access>) -> Result<Connected, Error> {
    let client = Client::new(&TlsOptions::default())?;
    let opened = HttpObject::open(client, access, Instant::now() + Duration::from_secs(5))?;
    Ok(Connected::new(Arc::new(opened.object), opened.first_bytes))
}

/// Retries soon, so that tests are short.
pub(crate) fn quick() -> FetchOptions {
    let mut options = FetchOptions::default();
    options.retry.request = Duration::from_millis(800);
    options.retry.slowest = 4 << 20;
    options.retry.first_pause = Duration::from_millis(10);
    options.retry.longest_pause = Duration::from_millis(200);
    options
}

pub(crate) fn source(fetcher: &Arc<Fetcher>, patience: Duration) -> RemoteSource {
    RemoteSource::new(Arc::clone(fetcher.entry()), Arc::clone(fetcher) as _, patience)
}
