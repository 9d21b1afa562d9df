//! What is served: bytes in memory, or a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An object with its bytes and validators.
#[derive(Clone, Debug)]
pub struct Object {
    pub(crate) bytes: Bytes,
    /// The ETag with its quotes.
    pub etag: Option<String>,
    /// The time of the last change, as in the header.
    pub last_modified: Option<String>,
}

impl Object {
    /// Bytes with a strong ETag that follows from them.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Vec<u8> = bytes.into();
        let etag = Some(format!("\"{:x}-{:x}\"", bytes.len(), hash(&bytes)));
        Self { bytes: Bytes::from(bytes), etag, last_modified: None }
    }

    /// A file; the ETag follows from its size and time.
    ///
    /// # Errors
    /// If it cannot be opened, or is no regular file.
    pub fn file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let time = meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let etag = Some(format!("\"{:x}-{:x}\"", meta.len(), time.as_nanos()));
        Ok(Self { bytes: Bytes::File(Arc::new(file), meta.len()), etag, last_modified: None })
    }

    /// With this ETag, or none.
    #[must_use]
    pub fn with_etag(mut self, etag: Option<&str>) -> Self {
        self.etag = etag.map(str::to_owned);
        self
    }

    /// With this time of the last change.
    #[must_use]
    pub fn with_last_modified(mut self, time: &str) -> Self {
        self.last_modified = Some(time.to_owned());
        self
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Memory(Arc<[u8]>),
    File(Arc<File>, u64),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes.into())
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    /// Fills `buf`. The range must be within the object.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.read_exact_at(buf, at),
            Self::Memory(bytes) => {
                let at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
                let part = bytes.get(at..at + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                buf.copy_from_slice(part);
                Ok(())
            }
        }
    }
}

/// FNV-1a: equal bytes have equal tags, also in other processes.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
