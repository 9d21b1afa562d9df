//! `ferofs verity format`: makes the hash tree of an image.
//!
//! The tree is made in a temporary file first, so a run that is interrupted while it hashes has
//! changed nothing. Then it is copied to the image. Until the copy is complete, the image has a
//! mark in the place of the superblock ([`Unfinished`]), by which the next run knows what an
//! interrupted one has written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ferofs::NewFile;
use ferofs::host::open_in_place;
use ferofs::read::{Cancel, FileSource, Source, Uuid};
use ferofs::verity::{HashAlgorithm, Params, SUPERBLOCK_SIZE, Seal, Unfinished, appended_position};

use super::sidecar::{self, Sidecar};
use crate::args::outputs::refuse_as_outputs;
use crate::args::overwrite::{OutputKind, OverwriteArgs};
use crate::args::{byte_size, threads};
use crate::exit::{About, Failure, Outcome};
use crate::print::output::{OUTPUT, OutputArgs, json_text};
use crate::print::progress::CountedSource;
use crate::signals::{GRACE_PERIOD_IN_PLACE, cancel_on_signals};

/// Bytes after an image in which other data is looked for.
const SEARCHED: u64 = 64 << 20;
/// The usual block: a seal that follows an image starts at a multiple of it.
const BLOCK: u64 = 4096;

/// Make the hash tree of an image, and print its root hash
///
/// The tree follows the image in its file, or goes to --hash-file. A tree that follows the image
/// already is replaced, and so are the remains of an interrupted run. If the image does not end at
/// a block of 4 KiB, or of --data-block-size if that is smaller and the tree goes to another file,
/// zeroes are added. The image is changed when all of it is hashed.
#[derive(clap::Args)]
pub(super) struct FormatArgs {
    /// The image
    image: PathBuf,

    /// Write the hash tree to this file instead
    #[arg(long, value_name = "FILE")]
    hash_file: Option<PathBuf>,

    #[command(flatten)]
    params: ParamsArgs,

    /// UUID of the seal [default: from the root hash]
    #[arg(long)]
    uuid: Option<Uuid>,

    /// Also write the root hash to this file
    #[arg(long, value_name = "FILE")]
    roothash_file: Option<PathBuf>,

    #[command(flatten)]
    overwrite: OverwriteArgs,

    /// Write the files in which another program looks for the seal
    #[arg(long, value_enum, value_name = "PROGRAM")]
    sidecar: Option<Sidecar>,

    /// Print the result as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,

    #[command(flatten)]
    shown: OutputArgs,
}

/// A failure of the system concerning `path`.
fn about(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::about(path, error)
}

/// The bytes that a seal of the image covers: those of the image, which may be followed by zeroes,
/// by another seal, or by the remains of an interrupted run. Other bytes that follow are not part
/// of the image.
pub(super) fn sealed_len(path: &Path, file: &FileSource) -> Result<u64, Failure> {
    let end = appended_position(file).about(path)?.min(file.size());
    if Seal::read(file, end).is_err() {
        let former = former_len(file, end).map_err(about(path))?;
        refuse_other_data(path, file, end, end.saturating_add(former))?;
    }
    Ok(end)
}

/// Bytes from `end` on of a former seal, or those that an interrupted run has written, or would
/// have written.
fn former_len(file: &FileSource, end: u64) -> io::Result<u64> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if file.size().saturating_sub(end) < bytes.len() as u64 {
        return Ok(0);
    }
    file.read_exact_at(end, &mut bytes)?;
    if let Some(unfinished) = Unfinished::parse(&bytes) {
        return Ok(unfinished.byte_len);
    }
    Ok(Seal::read(file, end).and_then(|seal| seal.byte_len()).unwrap_or(0))
}

/// Fails if not only zeroes follow from byte `start` on, which a new tree would overwrite or
/// remove.
fn refuse_other_data(path: &Path, file: &FileSource, end: u64, start: u64) -> Result<(), Failure> {
    let (mut at, mut buffer) = (start, vec![0; 1 << 20]);
    // A device is larger than its image.
    let last = file.size().min(start.saturating_add(SEARCHED));
    while at < last {
        let len = usize::try_from(last - at).map_or(buffer.len(), |len| len.min(buffer.len()));
        file.read_exact_at(at, &mut buffer[..len]).map_err(about(path))?;
        if let Some(used) = buffer[..len].iter().position(|byte| *byte != 0) {
            let pos = at + used as u64;
            let reason = format!(
                "the image ends at byte {end}, but other data follows from byte {pos} on: if it is not needed, truncate the file to \
                 {end} bytes"
            );
            return Err(Failure::about(path, reason));
        }
        at += len as u64;
    }
    Ok(())
}

pub(super) fn run(args: &FormatArgs) -> Outcome {
    args.shown.apply();
    let image = open(&args.image)?;
    let params = args.params.params();
    params.check().about(&args.image)?;
    let len = sealed_len(&args.image, &image)?;
    let former = former_len(&image, len).map_err(about(&args.image))?;
    let hash_file = args.hash_file.clone().or_else(|| args.sidecar?.hash_file(&args.image));
    let root_file = args.sidecar.map(|sidecar| sidecar.root_file(&args.image));
    let outputs = hash_file.iter().chain(&args.roothash_file).chain(&root_file);
    refuse_as_outputs(&outputs.map(PathBuf::as_path).collect::<Vec<_>>(), &[&args.image])?;
    hash_file.iter().try_for_each(|file| args.overwrite.check(file, OutputKind::HashTree))?;
    let root_files = args.roothash_file.iter().chain(&root_file);
    root_files.into_iter().try_for_each(|file| args.overwrite.check(file, OutputKind::RootHash))?;
    if hash_file.is_none() && u64::from(params.data_block_size.max(params.hash_block_size)) > BLOCK
    {
        let reason =
            "a tree with blocks larger than 4096 bytes needs a file of its own: --hash-file";
        return Err(Failure::usage(&args.image, reason));
    }
    if args.sidecar == Some(Sidecar::Containerd) && hash_file.is_some() {
        let reason = "containerd looks for the hash tree in the image, not in --hash-file";
        return Err(Failure::usage(&args.image, reason));
    }
    let unit = if hash_file.is_some() { u64::from(params.data_block_size) } else { BLOCK };
    let end = len.checked_next_multiple_of(unit).unwrap_or(len);
    if end != len && (unit > BLOCK || image.size() > len) {
        let reason = format!(
            "its size, {len}, is not a multiple of the data block size: choose a smaller one"
        );
        return Err(Failure::about(&args.image, reason));
    }
    if hash_file.is_none() {
        refuse_other_data(&args.image, &image, len, len.saturating_add(former))?;
    }
    let is_changed = hash_file.is_none() || end != len;
    let (image, changed) = if is_changed {
        // Its descriptors would count as uses.
        drop(image);
        let opened = open_in_place(&args.image).and_then(|file| {
            let image = FileSource::new(file.try_clone()?, 0)?;
            Ok((image, Some(file)))
        });
        let (image, changed) = opened.map_err(about(&args.image))?;
        let known = (len, former);
        let len = sealed_len(&args.image, &image)?;
        if (len, former_len(&image, len).map_err(about(&args.image))?) != known {
            return Err(Failure::about(
                &args.image,
                "another process has changed the image: seal it again",
            ));
        }
        (image, changed)
    } else {
        (image, None)
    };
    let cancel = Cancel::default();
    cancel_on_signals(&cancel, GRACE_PERIOD_IN_PLACE)?;
    let target = hash_file.as_ref().unwrap_or(&args.image);
    let mut made = temporary(target).map_err(about(target))?;
    let input = Input { file: image, end, cancel: cancel.clone() };
    let input = CountedSource::new(input, "hashed");
    let sealed =
        Seal::write(&input, end, params, args.uuid, threads(args.params.threads), &made, 0);
    let (seal, root) = match sealed {
        Err(_) if cancel.is_cancelled() => {
            return Err(Failure::about(&args.image, ferofs::Error::Interrupted));
        }
        sealed => sealed.about(&args.image)?,
    };
    drop(input);
    made.seek(SeekFrom::Start(0)).map_err(about(target))?;
    let position = match &hash_file {
        Some(path) => {
            pad(changed.as_ref(), end).map_err(about(&args.image))?;
            write_hash_file(path, &mut made)?;
            0
        }
        None => {
            if let Some(file) = &changed {
                append(file, len, end, former, &mut made).map_err(about(&args.image))?;
            }
            end
        }
    };
    if let Some(path) = &args.roothash_file {
        sidecar::write(path, &root.to_string())?;
    }
    if let Some(sidecar) = args.sidecar {
        sidecar.write(&args.image, root, position)?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        let object = serde_json::json!({
            "roothash": root.to_string(),
            "hashoffset": position,
            "datablocks": seal.superblock.data_blocks,
            "uuid": seal.superblock.uuid.to_string(),
        });
        writeln!(out, "{}", json_text(&object))?;
    } else {
        writeln!(out, "{root}")?;
    }
    Ok(0)
}

/// The hashed bytes: the image, and zeroes up to the end of its last block. Reads fail when the
/// command is interrupted.
struct Input {
    file: FileSource,
    end: u64,
    cancel: Cancel,
}

impl Source for Input {
    fn size(&self) -> u64 {
        self.end
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("interrupted"));
        }
        let stored = usize::try_from(self.file.size().saturating_sub(pos)).unwrap_or(usize::MAX);
        let (stored, zeroes) = buf.split_at_mut(stored.min(buf.len()));
        zeroes.fill(0);
        self.file.read_exact_at(pos, stored)
    }
}

/// A file without a name on the file system of `target`, or where the system has temporary files.
fn temporary(target: &Path) -> io::Result<File> {
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The directory of devices is in memory.
    let is_device = std::fs::metadata(target).is_ok_and(|metadata| !metadata.is_file());
    let beside = (!is_device).then(|| tempfile::tempfile_in(dir).ok()).flatten();
    beside.map_or_else(tempfile::tempfile, Ok)
}

/// Adds zeroes to an image that does not end with a block, up to the end of its last one.
fn pad(image: Option<&File>, end: u64) -> io::Result<()> {
    image.map_or(Ok(()), |file| file.set_len(end).and_then(|()| file.sync_all()))
}

/// Writes superblock and tree to a file of their own.
fn write_hash_file(path: &Path, made: &mut File) -> Result<(), Failure> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        let mut device = ferofs::host::open_device(path).map_err(about(path))?;
        io::copy(made, &mut device).and_then(|_| device.sync_all()).map_err(about(path))
    } else {
        let mut file = NewFile::create(path).without_subject()?;
        io::copy(made, &mut file).map_err(about(path))?;
        file.finish().without_subject()
    }
}

/// Writes superblock and tree after an image of `len` bytes, from `end` on, where a former tree
/// may have `former` bytes. A failure leaves the image without a tree.
fn append(file: &File, len: u64, end: u64, former: u64, made: &mut File) -> io::Result<()> {
    let (before, byte_len) = (file.metadata()?, made.metadata()?.len());
    if before.is_file() {
        // Nothing has been overwritten if there is no room.
        if let Err(
            error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG),
        ) = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), end, byte_len)
        {
            file.set_len(before.len())?;
            return Err(error.into());
        }
    }
    let mut write = || {
        file.write_all_at(&Unfinished { byte_len: byte_len.max(former) }.to_bytes(), end)?;
        file.sync_all()?;
        if before.is_file() {
            // A former tree may have been longer.
            file.set_len(end.saturating_add(byte_len))?;
        }
        let mut superblock = [0; SUPERBLOCK_SIZE];
        made.read_exact(&mut superblock)?;
        let mut at = end.saturating_add(superblock.len() as u64);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let len = made.read(&mut buffer)?;
            if len == 0 {
                break;
            }
            file.write_all_at(&buffer[..len], at)?;
            at = at.saturating_add(len as u64);
        }
        file.sync_all()?;
        file.write_all_at(&superblock, end)?;
        file.sync_all()
    };
    write().inspect_err(|_| {
        if before.is_file() {
            // If this fails, too, the mark stays, and the next run removes it.
            let _ = file.set_len(len);
        }
    })
}

/// How a hash tree is made.
#[derive(clap::Args)]
pub(super) struct ParamsArgs {
    /// Hash algorithm
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = ["sha256", "sha512"])]
    hash: String,

    /// Bytes that are hashed before each block, as hexadecimal digits. Without a salt, the tree is
    /// that of fs-verity, too
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true)]
    salt: Bytes,

    /// Bytes of a block of the image
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = byte_size::argument::<u32>)]
    pub(super) data_block_size: u32,

    /// Bytes of a block of the hash tree
    #[arg(long, hide_short_help = true, value_name = "BYTES", default_value_t = 4096, value_parser = byte_size::argument::<u32>)]
    hash_block_size: u32,

    /// Number of threads [default: one for each processor]
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
}

impl ParamsArgs {
    pub(super) fn params(&self) -> Params {
        let mut params = Params::default();
        params.algorithm = HashAlgorithm::from_name(&self.hash).unwrap_or_default();
        params.data_block_size = self.data_block_size;
        params.hash_block_size = self.hash_block_size;
        params.salt.clone_from(&self.salt.0);
        params
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // veritysetup's name for no salt.
        let text = if text == "-" { "" } else { text };
        if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("not pairs of hexadecimal digits");
        }
        let pairs = text.as_bytes().chunks_exact(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16));
        bytes.collect::<Result<_, _>>().map(Self).map_err(|_| "not pairs of hexadecimal digits")
    }
}

/// Opens an image, or a file with a hash tree.
pub(super) fn open(path: &Path) -> Result<FileSource, Failure> {
    FileSource::open(path, 0).without_subject()
}
