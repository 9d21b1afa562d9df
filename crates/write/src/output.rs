//! Writes the image to a file, a block device or standard output. A file gets its name when the
//! image is complete.

mod background;
pub(crate) mod free_space;
pub(crate) mod spill;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, SeekFrom, copy_file_range, seek, sendfile};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::options::image::Sealer;
use crate::output::background::{Background, ImageWriter};
use crate::output::free_space::FreeSpace;
use ferofs_format::BlockSize;
use ferofs_host::PendingName;
use ferofs_read::FileSource;

/// Copies at most `most` bytes between files without a buffer of this process. Changes the position
/// of `to`. Returns the number of bytes.
fn copy_in_kernel(
    from: BorrowedFd<'_>,
    at: u64,
    to: &File,
    to_at: u64,
    most: usize,
) -> Result<usize, Errno> {
    match copy_file_range(from, Some(&mut { at }), to, Some(&mut { to_at }), most) {
        // Between file systems, to a block device, or below a filter of system calls.
        Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
            seek(to, SeekFrom::Start(to_at))?;
            sendfile(to, from, Some(&mut { at }), most)
        }
        copied => copied,
    }
}

/// Identifies a file: the numbers of its device and inode.
pub(crate) fn file_id(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// A file that a build writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnFile {
    /// As of [`file_id`].
    pub(crate) id: (u64, u64),
    /// Whether the user has named it; otherwise it is temporary.
    pub(crate) is_named: bool,
}

impl OwnFile {
    /// The file that has this name, if there is one. A device such as `/dev/null` stays in a tree:
    /// its bytes are not a part of one.
    pub(crate) fn with_name(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(Self { id: file_id(&meta), is_named: true })
    }
}

/// Bytes that are collected before a write: fewer system calls than with a smaller buffer; a larger
/// one is not faster.
const BUFFER: usize = 1 << 20;

/// A gap of at least this many bytes becomes a hole of the image's file: writing zeroes of this
/// length takes longer than a system call.
const HOLE: u64 = 1 << 20;

/// An image that is being written from start to end.
#[derive(Debug)]
pub(crate) struct Output {
    file: Arc<File>,
    path: PathBuf,
    target: Target,
    buffer: Vec<u8>,
    /// Bytes of the image that were written or are under way; the buffered ones follow.
    written: u64,
    /// Where the image starts in the file, in bytes.
    offset: u64,
    sealer: Option<Arc<dyn Sealer>>,
    writer: Arc<ImageWriter>,
    /// Writes full buffers; there is none before the first one.
    background: Option<Background>,
    /// Where content can go instead of the end.
    free_space: FreeSpace,
}

#[derive(Debug)]
enum Target {
    /// A block device, or the file of a descriptor, which is written in place.
    Device,
    /// A temporary file in this directory, which is copied to standard output at the end.
    Stream(PathBuf),
    /// A temporary file without a name, which the system deletes when it is closed.
    TemporaryFile,
    /// A file that gets its name when it is complete.
    Named(PendingName),
}

/// The error of a write to an output with this name. It is about the file that was written, not
/// about a stream that gets its content later.
fn write_error(target: &Target, path: &Path, error: std::io::Error) -> Error {
    match target {
        Target::Stream(dir) => Error::io("write a temporary file in", dir, error),
        Target::TemporaryFile => Error::io("write a temporary file in", path, error),
        Target::Device | Target::Named(_) => Error::io("write", path, error),
    }
}

impl Output {
    /// Opens `path` for writing. `-` is standard output. A file gets this name only with
    /// [`Self::finish`]; if it is a symbolic link, its target is replaced. The image starts at
    /// `offset`; the bytes of an existing file before that stay.
    pub(crate) fn create(path: &Path, offset: u64) -> Result<Self> {
        if path == Path::new("-") {
            return Self::create_stream(offset);
        }
        let (file, target) = match std::fs::metadata(path) {
            Ok(old) if old.file_type().is_block_device() => {
                let device = ferofs_host::open_device(path);
                (device.map_err(|e| Error::io("open", path, e))?, Target::Device)
            }
            Ok(old) if !old.is_file() => {
                let problem = match old.is_dir() {
                    true => std::io::ErrorKind::IsADirectory.into(),
                    false => std::io::Error::other("neither a file nor a block device"),
                };
                return Err(Error::io("write", path, problem));
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("stat", path, error));
            }
            // The file may have no name, and nothing may be created beside the name of the
            // descriptor.
            Ok(old) if old.is_file() && ferofs_host::is_descriptor(path) => {
                let file = ferofs_host::open_in_place(path);
                let file = file.map_err(|e| Error::io("open", path, e))?;
                file.set_len(offset).map_err(|e| Error::io("truncate", path, e))?;
                (file, Target::Device)
            }
            _ => {
                let (file, name) = PendingName::create(path)?;
                (file, Target::Named(name))
            }
        };
        let output = Self::new(file, path, target, offset);
        if offset > 0 && !matches!(output.target, Target::Device) {
            output.keep_start()?;
        }
        Ok(output)
    }

    fn new(file: File, path: &Path, target: Target, offset: u64) -> Self {
        let file = Arc::new(file);
        let writes_back = matches!(target, Target::Named(_) | Target::Device);
        let writer = Arc::new(ImageWriter::new(Arc::clone(&file), offset, writes_back));
        Self {
            file,
            path: path.to_owned(),
            target,
            buffer: Vec::with_capacity(BUFFER),
            written: 0,
            offset,
            sealer: None,
            writer,
            background: None,
            free_space: FreeSpace::default(),
        }
    }

    /// Shows what is written from now on to `sealer`.
    pub(crate) fn seal_with(&mut self, sealer: Option<Arc<dyn Sealer>>) {
        self.writer.seal_with(sealer.clone());
        self.sealer = sealer;
    }

    /// Lets the sealer append to the complete image.
    pub(crate) fn seal(&mut self) -> Result<()> {
        let Some(sealer) = self.sealer.take() else { return Ok(()) };
        self.pad_to(self.position().next_multiple_of(sealer.alignment().max(1)))?;
        self.flush()?;
        self.writer.seal_with(None);
        let (image, len) = (self.reader()?, self.position());
        let mut append = |bytes: &[u8]| self.append(bytes).map_err(std::io::Error::other);
        let sealed = sealer.finish(&image, len, &mut append);
        sealed.map_err(|e| Error::io("seal", &self.path, e))
    }

    /// Creates the output for the bytes that a patch appends to an image of `start` bytes: a
    /// temporary file in `dir`, which has a hole before `start`.
    pub(crate) fn region(dir: &Path, start: u64) -> Result<Self> {
        let file =
            spill::tempfile(dir).map_err(|e| Error::io("make a temporary file in", dir, e))?;
        let mut output = Self::new(file, dir, Target::TemporaryFile, 0);
        output.written = start;
        Ok(output)
    }

    /// Overwrites bytes that were appended before.
    pub(crate) fn overwrite(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        self.write(bytes, at)
    }

    /// The bytes that were appended, from `start` on.
    pub(crate) fn appended(&mut self, start: u64) -> Result<FileSource> {
        self.flush()?;
        let io = |e| Error::io("open", &self.path, e);
        FileSource::new(self.file.try_clone().map_err(io)?, start).map_err(io)
    }

    /// Creates the output for standard output. The image is built in a temporary file first, since
    /// the superblock is written last and a stream cannot seek back.
    fn create_stream(offset: u64) -> Result<Self> {
        if std::io::stdout().is_terminal() {
            let problem = "standard output is a terminal";
            return Err(Error::Option { option: "image", problem });
        }
        let dir = std::env::temp_dir();
        let file = tempfile::tempfile_in(&dir)
            .map_err(|e| Error::io("make a temporary file in", &dir, e))?;
        Ok(Self::new(file, Path::new("standard output"), Target::Stream(dir), offset))
    }

    /// Copies the bytes of the existing file before `offset`.
    fn keep_start(&self) -> Result<()> {
        let old = match File::open(&self.path) {
            Ok(old) => old,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // Writing zeroes there would destroy them.
            Err(error) => {
                return Err(Error::io("read the bytes before --offset of", &self.path, error));
            }
        };
        let mut to = &*self.file;
        std::io::copy(&mut old.take(self.offset), &mut to)
            .map(drop)
            .map_err(|e| Error::io("copy the start of", &self.path, e))
    }

    /// Files that must not become a part of the image: those that have the names of the outputs
    /// now, and this one.
    pub(crate) fn own_files(&self, options: &Options) -> Vec<OwnFile> {
        let device = options.data.chunks.as_ref().and_then(|chunks| chunks.device.as_ref());
        let has_name = matches!(self.target, Target::Named(_) | Target::Device);
        let image = has_name.then_some(&self.path);
        let names = image.into_iter().chain(device).chain(&options.output.others);
        let named = names.filter_map(|path| OwnFile::with_name(path));
        let stdout = matches!(self.target, Target::Stream(_)).then(std::io::stdout);
        let stdout = stdout.and_then(|stdout| rustix::fs::fstat(stdout).ok());
        let stdout = stdout.filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        let stdout = stdout.map(|stat| OwnFile { id: (stat.st_dev, stat.st_ino), is_named: true });
        let temporary = self.file.metadata().ok();
        let temporary = temporary.map(|meta| OwnFile { id: file_id(&meta), is_named: false });
        named.chain(stdout).chain(temporary).collect()
    }

    /// Bytes appended so far.
    pub(crate) const fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some((now, later)) = bytes.split_at_checked(BUFFER - self.buffer.len()) {
            self.buffer.extend_from_slice(now);
            self.write_buffer()?;
            bytes = later;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Has the full buffer written in the background.
    fn write_buffer(&mut self) -> Result<()> {
        let background = match &mut self.background {
            Some(background) => background,
            none => match Background::start(Arc::clone(&self.writer)) {
                Ok(started) => none.insert(started),
                // The system starts no more threads.
                Err(_) => return self.flush(),
            },
        };
        let len = self.buffer.len() as u64;
        background
            .write(&mut self.buffer, self.written)
            .map_err(|e| write_error(&self.target, &self.path, e))?;
        self.written += len;
        Ok(())
    }

    /// Waits until all full buffers are written.
    fn wait(&mut self) -> Result<()> {
        let waited = self.background.as_mut().map_or(Ok(()), Background::wait);
        waited.map_err(|e| write_error(&self.target, &self.path, e))
    }

    /// Appends `len` bytes of `source` from position `at` on. The kernel copies them if it can, in
    /// half the time of reading and writing them. Otherwise `read` fills a buffer from a position.
    pub(crate) fn copy(
        &mut self,
        source: BorrowedFd<'_>,
        at: u64,
        len: u64,
        read: &dyn Fn(&mut [u8], u64) -> Result<()>,
    ) -> Result<()> {
        self.flush()?;
        let started = Instant::now();
        let mut done = 0;
        // A sealer must see the bytes.
        while done < len && self.sealer.is_none() {
            let most = usize::try_from(len - done).unwrap_or(usize::MAX);
            match copy_in_kernel(source, at + done, &self.file, self.offset + self.written, most) {
                Err(Errno::INTR) => {}
                // The kernel cannot; or the file was truncated, which `read` reports.
                Ok(0) | Err(_) => break,
                Ok(copied) => {
                    done += copied as u64;
                    self.written += copied as u64;
                }
            }
        }
        self.writer.add_time(started.elapsed());
        let mut buffer = vec![0; (len - done).min(BUFFER as u64) as usize];
        while done < len {
            let piece = (len - done).min(BUFFER as u64) as usize;
            read(&mut buffer[..piece], at + done)?;
            self.append(&buffer[..piece])?;
            done += piece as u64;
        }
        Ok(())
    }

    /// Appends zeroes up to `position`.
    pub(crate) fn pad_to(&mut self, position: u64) -> Result<()> {
        const ZEROES: [u8; 4096] = [0; 4096];
        // A device has old bytes, and a sealer must see the zeroes.
        let can_have_hole = !matches!(self.target, Target::Device) && self.sealer.is_none();
        if can_have_hole && position.saturating_sub(self.position()) >= HOLE {
            self.flush()?;
            let len = self.offset + position;
            self.file.set_len(len).map_err(|e| write_error(&self.target, &self.path, e))?;
            self.written = position;
        }
        while let Some(missing) = position.checked_sub(self.position()).filter(|n| *n > 0) {
            self.append(&ZEROES[..missing.min(4096) as usize])?;
        }
        Ok(())
    }

    /// Goes back to `position` and drops everything that was appended after it.
    pub(crate) fn rewind(&mut self, position: u64) -> Result<()> {
        if let Some(kept) = position.checked_sub(self.written) {
            // The buffer is in memory, so its length fits.
            self.buffer.truncate(kept as usize);
            return Ok(());
        }
        self.wait()?;
        self.buffer.clear();
        self.written = position;
        if matches!(self.target, Target::Device) {
            return Ok(());
        }
        self.file.set_len(self.offset + position).map_err(|e| Error::io("truncate", &self.path, e))
    }

    /// Says where the bytes so far are free; returns how many were free before.
    pub(crate) fn set_free_space(&mut self, free_space: FreeSpace) -> u64 {
        std::mem::replace(&mut self.free_space, free_space).len()
    }

    /// Moves what was appended from `start` on into free space, at the same offset in a block.
    /// Returns where it is: `start` if content shall not go into free space, or does not fit there.
    pub(crate) fn move_to_free_space(&mut self, start: u64, block: BlockSize) -> Result<u64> {
        match self.free_space.take(self.position() - start, start, block) {
            Some(at) => self.move_from(start, at).map(|()| at),
            None => Ok(start),
        }
    }

    /// The start and the length of the longest free range, if content shall go into free space.
    pub(crate) fn longest_free(&self) -> Option<(u64, u64)> {
        self.free_space.longest_free()
    }

    /// Moves the last `len` bytes to the start of the free range at `at`, which is long enough.
    pub(crate) fn move_end(&mut self, len: u64, at: u64) -> Result<()> {
        self.free_space.take_start(at, len);
        self.move_from(self.position() - len, at)
    }

    /// Moves everything that was appended from `start` on to `at`, which is before it.
    fn move_from(&mut self, start: u64, at: u64) -> Result<()> {
        // Earlier bytes there may still be under way.
        self.wait()?;
        match start.checked_sub(self.written) {
            // The buffer is in memory, so its length fits.
            Some(buffered) => self.write(&self.buffer[buffered as usize..], at)?,
            None => {
                self.flush()?;
                let mut buffer = vec![0; (self.written - start).min(BUFFER as u64) as usize];
                let mut moved = 0;
                while moved < self.written - start {
                    let len = (self.written - start - moved).min(BUFFER as u64) as usize;
                    let piece = &mut buffer[..len];
                    let read = self.file.read_exact_at(piece, self.offset + start + moved);
                    read.map_err(|e| Error::io("read", &self.path, e))?;
                    self.write(piece, at + moved)?;
                    moved += len as u64;
                }
            }
        }
        self.rewind(start)
    }

    /// Writes everything that was appended.
    fn flush(&mut self) -> Result<()> {
        self.wait()?;
        if !self.buffer.is_empty() {
            self.write(&self.buffer, self.written)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.writer.write(bytes, at).map_err(|e| write_error(&self.target, &self.path, e))
    }

    /// How long writing took so far.
    pub(crate) fn time_writing(&self) -> Duration {
        self.writer.time()
    }

    /// The first `len` bytes of the image, as far as they have been appended.
    pub(crate) fn start(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.position()).unwrap_or(len).min(len)];
        self.flush()?;
        self.file
            .read_exact_at(&mut bytes, self.offset)
            .map_err(|e| Error::io("read", &self.path, e))?;
        Ok(bytes)
    }

    /// Overwrites the start of the image with the superblock area. After this the image is
    /// complete.
    pub(crate) fn write_superblock_area(&mut self, area: &[u8]) -> Result<()> {
        self.flush()?;
        self.write(area, 0)
    }

    /// Opens the image for reading.
    pub(crate) fn reader(&self) -> Result<FileSource> {
        let io = |e| Error::io("open", &self.path, e);
        FileSource::new(self.file.try_clone().map_err(io)?, self.offset).map_err(io)
    }

    /// Copies the image to `writer`. The inner result is that of the writer.
    pub(crate) fn copy_to(mut self, writer: &mut dyn Write) -> Result<std::io::Result<()>> {
        self.flush()?;
        let mut file = &*self.file;
        file.rewind().map_err(|e| Error::io("rewind", &self.path, e))?;
        Ok(std::io::copy(&mut file, writer).and_then(|_| writer.flush()))
    }

    /// Makes the image durable, and then gives it its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        if matches!(self.target, Target::Stream(_)) {
            let path = self.path.clone();
            return self
                .copy_to(&mut std::io::stdout().lock())?
                .map_err(|e| Error::io("write", path, e));
        }
        match self.target {
            Target::Named(name) => Ok(name.publish(&self.file)?),
            Target::Device | Target::TemporaryFile | Target::Stream(_) => {
                self.file.sync_all().map_err(|e| Error::io("sync", &self.path, e))
            }
        }
    }
}
