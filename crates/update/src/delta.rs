//! Applies exact deltas: the new image comes out byte for byte, in order, from the old image and a
//! stream. Layout: docs/PATCH_FORMAT.md.

pub(crate) mod files;
mod sink;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ferofs_codec::Params;
use ferofs_format::units::{to_u64, to_usize};
use ferofs_read::{Cancel, FileSource, Hex, Image, OpenOptions, Source};
use sha2::{Digest as _, Sha256};

use self::sink::DeltaSink;
pub use self::sink::{Applied, DeltaOutput};
use crate::error::{Error, PatchFault, Result};
use crate::format::delta_file::{CHUNK, DeltaHeader, DeltaPiece, check_end};
use crate::format::delta_memory::PieceMemory;
use crate::format::header::RawMethod;
use crate::format::piece::base::Base;
use crate::format::piece::{Buffers, StoredPiece};
use crate::format::plan::{Plan, Reference};
use crate::format::prediction::{Predict, Prediction};
use crate::format::reencode::{Encoders, work_limit};
use crate::image::digest::Digest;

/// Bytes of memory for reading the old image, with its caches.
pub(crate) const READER: usize = 4 << 20;

/// Work of a piece, and of a reference, whatever they have, in units of 100 ns: decoders and
/// buffers, a read and finding an inode. Honest deltas have a piece for each 16 KiB of the new
/// image at most.
const PIECE_WORK: u64 = 2000;
const REFERENCE_WORK: u64 = 50;

/// A delta whose header was read.
pub struct Delta<R> {
    header: DeltaHeader,
    methods: Vec<RawMethod>,
    digest: Digest,
    stream: R,
    /// Fail if the stream has bytes after the delta. Otherwise they are not read.
    is_whole_stream: bool,
}

/// The files that applying a delta reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Old,
    Delta,
    New,
}

/// A result whose error is about one of the files.
type Tagged<T> = Result<T, (Role, Error)>;

/// Tags an error of work on the file `role`. What is wrong with the delta shows everywhere.
fn of(role: Role) -> impl Fn(Error) -> (Role, Error) {
    move |error| match error.is_about_patch() {
        true => (Role::Delta, error),
        false => (role, error),
    }
}

impl<R: Read> Delta<R> {
    /// Reads the header of a delta.
    ///
    /// # Errors
    /// [`PatchFault`] if it is not a delta, or one that this program cannot apply.
    pub fn read(mut stream: R) -> Result<Self> {
        let (header, methods, digest) = DeltaHeader::read(&mut stream)?;
        Ok(Self { header, methods, digest, stream, is_whole_stream: false })
    }

    /// What the delta says about itself.
    pub const fn header(&self) -> &DeltaHeader {
        &self.header
    }

    /// The digest that is signed: BLAKE3 of all bytes before the pieces. They have the size and
    /// digest of both images, the digest of each MiB of the new one, the root hash, and the memory.
    /// So a signature covers each byte that [`Self::apply`] writes.
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Reads all pieces, without decoding them, and fails if bytes follow.
    ///
    /// # Errors
    /// [`PatchFault::CutOff`], [`PatchFault::BytesAfter`], [`PatchFault::Malformed`],
    /// [`Error::Io`].
    pub fn check_length(&mut self) -> Result<()> {
        for _ in 0..self.header.pieces {
            DeltaPiece::read(&mut self.stream, |_| Ok(()))?;
        }
        check_end(&mut self.stream)
    }

    /// Makes the new image from `old`. The SHA-256 of `old` is compared before the first byte is
    /// written, that of the new image at the end. `written` is told the number of bytes so far.
    ///
    /// # Errors
    /// [`PatchFault`] for another old image or a damaged delta; [`Error::Io`];
    /// [`Error::Interrupted`] after [`Cancel::cancel`].
    pub fn apply(
        self,
        old: &Arc<dyn Source>,
        output: DeltaOutput<'_>,
        written: impl FnMut(u64),
        cancel: &Cancel,
    ) -> Result<Applied> {
        self.apply_tagged(old, output, written, cancel).map_err(|(_, error)| error)
    }

    fn apply_tagged(
        self,
        old: &Arc<dyn Source>,
        output: DeltaOutput<'_>,
        mut written: impl FnMut(u64),
        cancel: &Cancel,
    ) -> Tagged<Applied> {
        let Self { mut header, methods, mut stream, is_whole_stream, .. } = self;
        let methods = methods.iter().map(RawMethod::params).collect::<Result<Vec<Params>>>();
        let methods = methods.map_err(of(Role::Delta))?;
        check_old(&**old, &header, cancel).map_err(of(Role::Old))?;
        let mut options = OpenOptions::default();
        options.metadata_cache = READER / 4;
        options.engine.memory_limit = Some(READER);
        // References may name the same content again and again: a small delta could take hours.
        options.work_limit = Some(1);
        options.work_size = Some(header.new_size);
        let image = Image::open_with(Box::new(Arc::clone(old)), Vec::new(), &options);
        let image = image.map_err(|e| of(Role::Old)(e.into()))?;
        let relocations = header.relocations.take();
        let mut memory =
            PieceMemory::new(methods.len(), relocations.as_ref(), image.superblock().inodes);
        let prediction = relocations.map(|list| Prediction::of_rebuilt(list, &image));
        let prediction = prediction.transpose().map_err(of_work)?;
        let base = Base {
            source: &**old,
            size: header.old_size,
            image: &image,
            prediction: prediction.as_ref().map(|prediction| -> &dyn Predict { prediction }),
            threads: 1,
            longest_extent: header.longest_extent.into(),
        };
        let mut encoders = [Encoders::limited(&methods, work_limit(header.new_size))];
        let (mut buffers, mut made, mut copied) = (Buffers::default(), Vec::new(), Vec::new());
        let check = || Ok(cancel.check()?);
        let mut sink = DeltaSink::new(&header, output).map_err(of(Role::Delta))?;
        sink.skip_present(check).map_err(of(Role::New))?;
        let tree = sink.tree_len();
        let is_stated = |memory: &PieceMemory| match memory.total(&header, &methods, tree)
            <= header.memory
        {
            true => Ok(()),
            false => Err(Error::Patch(PatchFault::Malformed("it takes more memory than it says"))),
        };
        for _ in 0..header.pieces {
            check().map_err(of(Role::New))?;
            image.budget().charge(PIECE_WORK).map_err(|e| of_work(e.into()))?;
            let accept = |buffers| {
                memory.add_buffers(buffers);
                is_stated(&memory)
            };
            let piece = DeltaPiece::read(&mut stream, accept).map_err(of(Role::Delta))?;
            if sink.pass_over(piece.len()) {
                continue;
            }
            made.clear();
            if piece.made_len > 0 {
                let plan = Plan::decode(&piece.plan, memory.plan_max(&header, &methods, tree));
                let (plan_len, plan) = plan.map_err(of(Role::Delta))?;
                memory.add_plan(plan_len, &plan);
                is_stated(&memory).map_err(of(Role::Delta))?;
                let decoded = plan_len
                    .saturating_add(to_u64(piece.payload_len.saturating_add(piece.delta_len)));
                charge(&image, &plan, decoded).map_err(of_work)?;
                let stored = StoredPiece {
                    plan: &plan,
                    payload: &piece.payload,
                    payload_len: piece.payload_len,
                    region_len: piece.made_len,
                    compressed: piece.compressed,
                    delta_len: piece.delta_len,
                };
                stored
                    .decode(&base, &mut encoders, &mut buffers, &mut made, check)
                    .map_err(of_work)?;
            }
            let mut rest = &made[..];
            for copy in &piece.copies {
                // The copies of a piece lie within what it makes.
                let (before, after) =
                    rest.split_at_checked(to_usize(copy.after)).unwrap_or((rest, &[]));
                rest = after;
                sink.put(before).map_err(of(Role::New))?;
                let mut at = copy.pos;
                let end = copy.pos.saturating_add(copy.len);
                if end > header.old_size {
                    let fault = PatchFault::Malformed("it copies bytes after the old image");
                    return Err((Role::Delta, Error::Patch(fault)));
                }
                while at < end {
                    check().map_err(of(Role::New))?;
                    copied.resize(to_usize(end.saturating_sub(at).min(to_u64(CHUNK))), 0);
                    old.read_exact_at(at, &mut copied)
                        .map_err(|e| (Role::Old, Error::io_unnamed("read", e)))?;
                    sink.put(&copied).map_err(of(Role::New))?;
                    at = at.saturating_add(to_u64(copied.len()));
                }
            }
            sink.put(rest).map_err(of(Role::New))?;
            written(sink.len());
        }
        if is_whole_stream {
            check_end(&mut stream).map_err(of(Role::Delta))?;
        }
        sink.finish().map_err(of(Role::New))
    }
}

impl<R: Read> Delta<R> {
    /// As [`Self::apply`], to a file or a device, which is open for reading and writing. With
    /// `resume`, the right bytes at its start are not written again. After success all bytes are
    /// durable, and a file ends with the new image.
    ///
    /// # Errors
    /// As [`Self::apply`]; [`PatchFault::NoSpace`] for a device that is too small.
    pub fn apply_to_file(
        self,
        old: &Arc<dyn Source>,
        file: &File,
        resume: bool,
        written: impl FnMut(u64),
        cancel: &Cancel,
    ) -> Result<Applied> {
        self.apply_to_tagged(old, file, resume, written, cancel).map_err(|(_, error)| error)
    }

    fn apply_to_tagged(
        self,
        old: &Arc<dyn Source>,
        file: &File,
        resume: bool,
        written: impl FnMut(u64),
        cancel: &Cancel,
    ) -> Tagged<Applied> {
        let io = |action| move |e| (Role::New, Error::io_unnamed(action, e));
        let is_file = file.metadata().map_err(io("stat"))?.is_file();
        let clone = file.try_clone().map_err(io("open"))?;
        let present = FileSource::new(clone, 0).map_err(io("read"))?;
        let (needed, available) = (self.header.new_size, present.size());
        if !is_file && available < needed {
            return Err((
                Role::New,
                Error::Patch(PatchFault::NoSpace { is_file, needed, available }),
            ));
        }
        let none: &[u8] = &[];
        let present: &dyn Source = if resume { &present } else { &none };
        let mut write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at);
        let applied =
            self.apply_tagged(old, DeltaOutput::Resume(present, &mut write), written, cancel)?;
        if is_file {
            file.set_len(needed).map_err(io("truncate"))?;
        }
        file.sync_all().map_err(io("sync"))?;
        Ok(applied)
    }
}

impl<R> std::fmt::Debug for Delta<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delta").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Counts the work of a piece's plan, except that of reading files. `bytes` are those of its
/// decoded plan, payload and delta: parsing and encoding them takes at least 6 ns each.
fn charge(image: &Image, plan: &Plan, bytes: u64) -> Result<()> {
    let references = &plan.references;
    let stored = references.iter().map(|reference| match reference {
        Reference::Image { len, .. } => u64::from(*len),
        _ => 0,
    });
    let each = to_u64(references.len()).saturating_mul(REFERENCE_WORK);
    image.budget().charge((bytes / 16).saturating_add(each))?;
    Ok(image.budget().charge_bytes(stored.fold(0, u64::saturating_add))?)
}

/// Tags an error of making a piece from the old image.
fn of_work(error: Error) -> (Role, Error) {
    match error {
        Error::Read(ferofs_read::Error::Limit { .. }) => {
            let fault =
                PatchFault::Malformed("it takes more work than a new image of this size needs");
            (Role::Delta, Error::Patch(fault))
        }
        error => of(Role::Old)(error),
    }
}

/// Fails unless the first bytes of `old`, which may be a longer device, are the image that the
/// delta was made from.
fn check_old(old: &dyn Source, header: &DeltaHeader, cancel: &Cancel) -> Result<()> {
    let (expected, found) = (header.old_size, old.size());
    if found < expected {
        return Err(Error::Patch(PatchFault::Truncated { expected, found }));
    }
    let mut hasher = Sha256::new();
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < expected {
        cancel.check()?;
        buffer.resize(to_usize(expected.saturating_sub(at).min(to_u64(CHUNK))), 0);
        old.read_exact_at(at, &mut buffer).map_err(|e| Error::io_unnamed("read", e))?;
        hasher.update(&buffer);
        at = at.saturating_add(to_u64(buffer.len()));
    }
    let found = hasher.finalize();
    if found[..] == header.old_digest {
        return Ok(());
    }
    let (expected, found) = (Hex(&header.old_digest).to_string(), Hex(&found).to_string());
    Err(Error::Patch(PatchFault::OtherOld { expected, found }))
}
