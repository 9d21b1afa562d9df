//! The decompressed bytes of an archive, in order, from a file or standard input.
//!
//! The data stage reads content again later: from the archive if it is a plain file, else from the
//! spool, to which this module writes it.

use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferofs_read::{Cancel, Count};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::gzip::Gzip;
use super::limits::Limits;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sources::content::Contents;
use crate::sources::source_file::SourceFile;
use crate::tree::SourcePosition;
use ferofs_host::KnownFormat;
use ferofs_host::NewFile;

/// Bytes of the buffers before a decoder and for copying: enough to make system calls rare.
const BUFFER: usize = 256 << 10;
/// The pipe's size in bytes: the most that Linux allows every user. With a smaller pipe the two
/// processes switch more often.
const PIPE: usize = 1 << 20;
/// Bytes at the start of an archive that identify its compression.
const MAGIC: usize = 6;
/// Bytes that a decoder of xz, lzma or lzip needs in addition to its dictionary.
const XZ_EXTRA: u64 = 2 << 20;
/// The largest window that Zstandard's library can be allowed.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArchiveCompression {
    None,
    Gzip,
    Xz,
    /// The format of LZMA Utils, before xz.
    Lzma,
    Lzip,
    Zstd,
    Bzip2,
}

pub(crate) struct TarStream {
    pub(crate) name: PathBuf,
    input: Input,
    /// Bytes of the decompressed archive that were read or skipped.
    position: u64,
    buffer: Vec<u8>,
    /// The index of the device for a stream, if content stays in the sources.
    stays: Option<u16>,
    /// See [`Contents::archive_bytes`].
    packed_read: Arc<Count>,
    /// Whether bytes that are not gzip follow the gzip data.
    has_more: Arc<AtomicBool>,
}

enum Input {
    File { file: SourceFile, start: u64, size: u64 },
    Stream(Box<dyn Read>),
}

impl std::fmt::Debug for TarStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarStream")
            .field("name", &self.name)
            .field("position", &self.position)
            .finish()
    }
}

impl TarStream {
    /// Opens the archive `source`, `-` for standard input. Registers a plain file in
    /// `contents`.
    pub(crate) fn open(source: &Path, options: &Options, contents: &mut Contents) -> Result<Self> {
        let (file, name) = if source == Path::new("-") {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            (stdin.map(File::from), PathBuf::from("standard input"))
        } else {
            (File::open(source), source.to_owned())
        };
        let file = file.map_err(|e| Error::io("open", &name, e))?;
        let mut tar_stream = Self::new(file, name, options, contents)?;
        if let (true, Input::Stream(_)) = (contents.is_external, &tar_stream.input) {
            tar_stream.stays = Some(contents.add_stream(&tar_stream.name)?);
        }
        Ok(tar_stream)
    }

    fn new(file: File, name: PathBuf, options: &Options, contents: &mut Contents) -> Result<Self> {
        let io = |action| {
            let name = name.clone();
            move |e: io::Error| Error::io(action, name, e)
        };
        let limits = Limits::new(options.source.archive_limit_factor);
        let metadata = file.metadata().map_err(io("stat"))?;
        if metadata.is_dir() {
            return Err(Error::io("read", &name, Errno::ISDIR));
        }
        let mut magic = [0; MAGIC];
        if metadata.is_file() {
            // Standard input may be a file that another process has read in part.
            let start = rustix::fs::tell(&file).map_err(|e| io("seek in")(e.into()))?;
            let have = fill(&mut ReadFrom(&file, start), &mut magic).map_err(io("read"))?;
            let size = metadata.len().saturating_sub(start);
            let has_more = Arc::default();
            let input = match ArchiveCompression::of(&magic[..have]) {
                ArchiveCompression::None if options.source.plain_copy.is_none() => {
                    let file = contents.add_file(file, &name)?;
                    Input::File { file, start, size }
                }
                compression => {
                    let file = CountingReader::new(file, contents, options);
                    let stream = compression
                        .decoder(Box::new(file), limits, &has_more)
                        .map_err(io("read"))?;
                    Input::Stream(copied(stream, options)?)
                }
            };
            return Ok(Self::of(input, name, contents, has_more));
        }
        // Fails if this is not a pipe, or the user's limit for pipes is reached. A smaller pipe
        // works, too, with more system calls.
        let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE);
        let pipe = CancellablePipe { pipe: file.into(), cancel: options.run.cancel.clone() };
        Self::from_reader(pipe, name, options, contents)
    }

    /// Reads an archive, plain or compressed, from `reader`.
    pub(crate) fn from_reader(
        mut reader: impl Read + 'static,
        name: PathBuf,
        options: &Options,
        contents: &Contents,
    ) -> Result<Self> {
        let io = |e| Error::io("read", &name, e);
        let mut magic = [0; MAGIC];
        let have = fill(&mut reader, &mut magic).map_err(io)?;
        let compression = ArchiveCompression::of(&magic[..have]);
        let start = Cursor::new(magic).take(have as u64);
        let whole = Box::new(CountingReader::new(start.chain(reader), contents, options));
        let limits = Limits::new(options.source.archive_limit_factor);
        let has_more = Arc::default();
        let stream = copied(compression.decoder(whole, limits, &has_more).map_err(io)?, options)?;
        Ok(Self::of(Input::Stream(stream), name, contents, has_more))
    }

    fn of(input: Input, name: PathBuf, contents: &Contents, has_more: Arc<AtomicBool>) -> Self {
        let packed_read = Arc::clone(&contents.archive_bytes);
        Self { name, input, position: 0, buffer: Vec::new(), stays: None, packed_read, has_more }
    }

    /// Opens `size` bytes of a registered file as an archive with this `name`.
    pub(crate) fn within(
        options: &Options,
        contents: &Contents,
        place: SourcePosition,
        size: u64,
        name: PathBuf,
    ) -> Result<Self> {
        let limits = Limits::new(options.source.archive_limit_factor);
        let file = contents.file(place.file).clone();
        let mut magic = [0; MAGIC];
        let have = magic.len().min(usize::try_from(size).unwrap_or(MAGIC));
        contents.read_at(place, &mut magic[..have])?;
        let has_more = Arc::default();
        let input = match ArchiveCompression::of(&magic[..have]) {
            ArchiveCompression::None => Input::File { file, start: place.at, size },
            compression => {
                let part =
                    FilePart { file: Arc::clone(file.file()), at: place.at, end: place.at + size };
                let stream = compression.decoder(Box::new(part), limits, &has_more);
                Input::Stream(stream.map_err(|e| Error::io("read", &name, e))?)
            }
        };
        Ok(Self::of(input, name, contents, has_more))
    }

    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Whether bytes that are not gzip followed the gzip data, when all of it was read.
    pub(super) fn has_bytes_after_gzip(&self) -> bool {
        self.has_more.load(Ordering::Relaxed)
    }

    /// The format of an archive that is not a tar archive. `start` are its first bytes, which were
    /// read already.
    pub(super) fn known_format(&self, start: &[u8]) -> Result<Option<KnownFormat>> {
        match &self.input {
            Input::File { file, start, .. } => KnownFormat::of_file(file.file(), *start)
                .map_err(|e| Error::io("read", &self.name, e)),
            Input::Stream(_) => Ok(KnownFormat::of(start)),
        }
    }

    /// See [`Contents::archive_bytes`].
    pub(super) fn packed_read(&self) -> u64 {
        self.packed_read.get()
    }

    /// Reads up to `buf`'s length; fewer bytes only at the end.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let read = match &mut self.input {
            Input::Stream(stream) => fill(stream, buf),
            Input::File { file, start, size } => {
                let left = size.saturating_sub(self.position);
                let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                fill(&mut ReadFrom(file.file(), *start + self.position), &mut buf[..len])
            }
        };
        let read = read.map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::CANCELED) => Error::Interrupted,
            _ => Error::io("read", &self.name, e),
        })?;
        self.position += read as u64;
        Ok(read)
    }

    /// Skips `len` bytes; returns `false` if the archive ends before.
    pub(super) fn skip(&mut self, len: u64) -> Result<bool> {
        if let Input::File { size, .. } = self.input {
            let whole = size.saturating_sub(self.position) >= len;
            self.position = if whole { self.position + len } else { size };
            return Ok(whole);
        }
        self.each_piece(len, |_| Ok(()))
    }

    /// Keeps `len` bytes of content readable, and returns their position; `None` if the archive
    /// ends before.
    pub(super) fn keep(
        &mut self,
        len: u64,
        contents: &mut Contents,
    ) -> Result<Option<SourcePosition>> {
        if let Input::File { file, start, .. } = &self.input {
            let place = SourcePosition { file: file.id(), at: start + self.position };
            return Ok(self.skip(len)?.then_some(place));
        }
        if let Some(file) = self.stays {
            let place = SourcePosition { file, at: self.position };
            return Ok(self.skip(len)?.then_some(place));
        }
        let place = contents.spool_end()?;
        let whole = self.each_piece(len, |bytes| contents.append_to_spool(bytes))?;
        Ok(whole.then_some(place))
    }

    fn each_piece(&mut self, len: u64, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BUFFER, 0);
        let mut left = len;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER);
            let read = self.read(&mut buffer[..wanted])?;
            each(&buffer[..read])?;
            left -= read as u64;
            if read < wanted {
                break;
            }
        }
        self.buffer = buffer;
        Ok(left == 0)
    }

    /// Reads a stream to its end, so that the process that writes into a pipe does not fail, and
    /// checksums at the end are verified.
    pub(super) fn drain(&mut self) -> Result<()> {
        match self.input {
            Input::Stream(_) => self.skip(u64::MAX).map(drop),
            Input::File { .. } => Ok(()),
        }
    }

    /// Reads to the end, and registers the archive as a device if content stays in the sources.
    pub(super) fn finish(&mut self, contents: &mut Contents) -> Result<()> {
        self.drain()?;
        if contents.is_external {
            match (&self.input, self.stays) {
                (Input::File { file, start, size }, _) => {
                    contents.add_device(file.id(), start + size, false);
                }
                (Input::Stream(_), Some(file)) => contents.add_device(file, self.position, true),
                (Input::Stream(_), None) => {}
            }
        }
        Ok(())
    }
}

impl ArchiveCompression {
    fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Self::Xz,
            [b'L', b'Z', b'I', b'P', ..] => Self::Lzip,
            // The default properties and a dictionary of at least 64 KiB. In a tar archive, zeroes
            // follow a name that is "]".
            [0x5d, 0, 0, size @ .., _] if size.len() == 2 && size != [0, 0] => Self::Lzma,
            // A frame, or a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            _ => Self::None,
        }
    }

    /// `has_more` is set when bytes that are not gzip follow gzip data.
    fn decoder(
        self,
        packed: Box<dyn Read>,
        limits: Limits,
        has_more: &Arc<AtomicBool>,
    ) -> io::Result<Box<dyn Read>> {
        let window = limits.window();
        let packed = io::BufReader::with_capacity(BUFFER, packed);
        Ok(match self {
            Self::None => Box::new(packed),
            Self::Gzip => Box::new(Gzip::new(packed, Arc::clone(has_more))),
            Self::Xz | Self::Lzma | Self::Lzip => {
                use liblzma::stream::{CONCATENATED, Stream};
                let memory = window + XZ_EXTRA;
                let stream = match self {
                    Self::Xz => Stream::new_stream_decoder(memory, CONCATENATED),
                    Self::Lzma => Stream::new_lzma_decoder(memory),
                    _ => Stream::new_lzip_decoder(memory, CONCATENATED),
                };
                Box::new(WindowLimited(
                    liblzma::bufread::XzDecoder::new_stream(packed, stream?),
                    window,
                ))
            }
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(window.ilog2().min(ZSTD_WINDOW_LOG_MAX))?;
                Box::new(WindowLimited(decoder, window))
            }
            Self::Bzip2 => {
                let problem = "compressed with bzip2, which is not supported: bzip2 -dc FILE | ferofs build - IMAGE";
                return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
            }
        })
    }
}

/// Whether an archive that begins with `magic` is compressed.
pub(crate) fn is_compressed(magic: &[u8]) -> bool {
    ArchiveCompression::of(magic) != ArchiveCompression::None
}

/// `stream`, which also writes to [`crate::SourceOptions::plain_copy`] if that is set.
fn copied(stream: Box<dyn Read>, options: &Options) -> Result<Box<dyn Read>> {
    let Some(path) = &options.source.plain_copy else { return Ok(stream) };
    let copy = io::BufWriter::with_capacity(BUFFER, NewFile::create(path)?);
    Ok(Box::new(CopyingReader { stream, copy: Some(copy), path: path.clone() }))
}

/// A stream that also writes its bytes to a file.
struct CopyingReader {
    stream: Box<dyn Read>,
    /// `None` once it is complete.
    copy: Option<io::BufWriter<NewFile>>,
    path: PathBuf,
}

impl Read for CopyingReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buf)?;
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("{}: write: {e}", self.path.display()));
        match &mut self.copy {
            Some(copy) if read > 0 || buf.is_empty() => {
                copy.write_all(&buf[..read]).map_err(named)?
            }
            // `TarStream::drain` reads up to the end, so that this point is always reached.
            copy => {
                if let Some(copy) = copy.take() {
                    let file = copy.into_inner().map_err(|e| named(e.into_error()))?;
                    file.finish().map_err(io::Error::other)?;
                }
            }
        }
        Ok(read)
    }
}

/// A decoder and its largest window in bytes, for the error message: the libraries' messages do not
/// name the limit.
struct WindowLimited<R>(R, u64);

impl<R: Read> Read for WindowLimited<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| {
            let text = error.to_string();
            // Neither library has an error code for this case: these are parts of the messages of
            // zstd and liblzma.
            if !text.contains("too much memory") && !text.contains("memory limit") {
                return error;
            }
            let limit = self.1;
            io::Error::other(format!(
                "decompressing needs a window of more than {limit} bytes, the limit unless the limits for archives are raised"
            ))
        })
    }
}

/// Counts the bytes that are read from `source`.
/// Also ends when the build is cancelled.
struct CountingReader<R> {
    source: R,
    bytes: Arc<Count>,
    cancel: Cancel,
}

impl<R> CountingReader<R> {
    fn new(source: R, contents: &Contents, options: &Options) -> Self {
        let (bytes, cancel) = (Arc::clone(&contents.archive_bytes), options.run.cancel.clone());
        Self { source, bytes, cancel }
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(Errno::CANCELED.into());
        }
        let read = self.source.read(buf)?;
        if read > buf.len() {
            // It breaks the rules of `Read`.
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.bytes.add(read as u64);
        Ok(read)
    }
}

/// Reads until `buf` is full or the end comes.
fn fill(source: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match source.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Reads a file from this position on, independent of the file's own position.
struct ReadFrom<'a>(&'a File, u64);

impl Read for ReadFrom<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read_at(buf, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}

struct FilePart {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for FilePart {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// A pipe that can be cancelled while it waits for data.
struct CancellablePipe {
    pipe: OwnedFd,
    cancel: Cancel,
}

impl Read for CancellablePipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // A signal interrupts poll, and its handler may have set the flag.
        while let Ok(0) | Err(Errno::INTR) =
            poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&moment))
        {
            if self.cancel.is_cancelled() {
                return Err(Errno::CANCELED.into());
            }
        }
        Ok(rustix::io::read(&self.pipe, buf)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_stream(bytes: &[u8]) -> Result<TarStream> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        let options = Options::new("-");
        TarStream::new(
            file,
            "tar_stream".into(),
            &options,
            &mut Contents::archives(Path::new("."), "tar_stream"),
        )
    }

    #[test]
    fn compression_is_recognised() {
        let plain: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        xz.write_all(&plain).unwrap();
        let old = liblzma::stream::LzmaOptions::new_preset(0).unwrap();
        let old = liblzma::stream::Stream::new_lzma_encoder(&old).unwrap();
        let mut lzma = liblzma::write::XzEncoder::new_stream(Vec::new(), old);
        lzma.write_all(&plain).unwrap();
        let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
        zstd.include_checksum(true).unwrap();
        zstd.write_all(&plain).unwrap();
        let zstd = zstd.finish().unwrap();
        let lzma = lzma.finish().unwrap();
        for packed in
            [gzip.finish().unwrap(), xz.finish().unwrap(), lzma.clone(), zstd, plain.clone()]
        {
            let mut whole = tar_stream(&packed).unwrap();
            let mut out = vec![0; plain.len() + 1];
            assert_eq!(whole.read(&mut out[..1000]).unwrap(), 1000);
            assert!(whole.skip(1000).unwrap());
            assert_eq!(whole.read(&mut out[2000..]).unwrap(), plain.len() - 2000);
            assert!(out[..1000] == plain[..1000] && out[2000..plain.len()] == plain[2000..]);
            assert!(!whole.skip(1).unwrap());
            // Damage is found even in bytes that are only skipped. The old format has no checksum.
            if packed != plain && packed != lzma {
                let mut damaged = packed.clone();
                let end = packed.len() - 2;
                damaged[end] ^= 0x55;
                assert!(tar_stream(&damaged).unwrap().drain().is_err());
            }
        }
        assert!(matches!(tar_stream(b"BZh91AY&SY"), Err(Error::Io(_))));
    }
}
