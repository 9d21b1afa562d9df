//! Reads tar archives into a [`LayeredTree`]: all dialects, plain or compressed, from a file or a
//! pipe.
//!
//! | module | what it does |
//! |---|---|
//! | [`tar_stream`] | reads the decompressed bytes of an archive in order, and stores content or its position |
//! | [`header`], [`pax`], [`sparse`] | parse headers, without I/O |
//! | [`members`] | combines the headers of each member |
//! | [`limits`] | limits what an archive may cost |
//!
//! Archives are not trusted: see [`TarFault`]. This is an own parser because no crate reads the
//! sparse formats of GNU and PAX and reports the positions of data and of malformed headers.

mod gzip;
mod header;
pub(crate) mod limits;
mod members;
mod pax;
mod sparse;
pub(crate) mod tar_stream;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::faults::{EntryFault, TarFault};
use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::options::source::{SourceData, SourceFormat, Whiteouts};
use crate::paths::as_path;
use crate::skopeo::{ContainerNames, MANIFEST, MANIFEST_READ};
use crate::sources::content::Contents;
use crate::tree::layered_tree::{self, Body, LayeredFile, LayeredTree};
use crate::tree::{Origin, SourcePosition, Span};
use ferofs_format::xattr::acl;
use limits::Limits;
use members::{End, Member, MemberData, MemberKind, Members};
use tar_stream::TarStream;

/// The prefix of whiteouts, in the convention of aufs and OCI layers.
const WHITEOUT: &[u8] = b".wh.";
/// The name that marks its directory as opaque: lower layers are not visible in it.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of aufs' internal files.
const AUFS_OWN: &[u8] = b".wh..wh.";

/// Reads an archive into the current layer.
struct ArchiveReader<'a> {
    options: &'a Options,
    contents: &'a mut Contents,
    layers: &'a mut LayeredTree,
    warnings: &'a mut Vec<Warning>,
    whiteouts: Whiteouts,
    limits: Limits,
    /// The cost of all holes so far, in bytes: see [`limits::cost_of_holes`].
    holes: u64,
}

/// Adds the members of an archive to the current layer of `layers`.
pub(crate) fn read(
    options: &Options,
    mut tar_stream: TarStream,
    whiteouts: Whiteouts,
    contents: &mut Contents,
    layers: &mut LayeredTree,
    warnings: &mut Vec<Warning>,
) -> Result<()> {
    let limits = Limits::new(options.source.archive_limit_factor);
    let mut members =
        Members::new(&mut tar_stream, limits, options.source.data == SourceData::Absent);
    let mut reader =
        ArchiveReader { options, contents, layers, warnings, whiteouts, limits, holes: 0 };
    let (mut is_empty, mut names) = (true, ContainerNames::default());
    let end = loop {
        options.run.cancel.check()?;
        let next = match members.next() {
            Err(Error::Archive { fault: TarFault::Empty, .. })
                if options.source.allow_empty_archives =>
            {
                Err(End::Missing(0))
            }
            next => next?,
        };
        match next {
            Ok(member) => {
                is_empty = false;
                add_name(&mut names, &member, &[]);
                reader.take(&mut members, member)?;
            }
            Err(end) => break end,
        }
    };
    let name = tar_stream.name.clone();
    let archive = || name.clone();
    // An empty layer of a container image is usual, and gives no warning.
    if is_empty && matches!(end, End::Marked) && options.source.format == SourceFormat::Tar {
        warnings.push(Warning::EmptyArchive { archive: archive() });
    }
    if names.is_image() && options.source.format == SourceFormat::Tar {
        warnings.push(Warning::ContainerArchive { archive: archive() });
    }
    match end {
        End::Marked => {}
        End::SingleBlock(offset) => {
            warnings.push(Warning::SingleZeroBlock { archive: archive(), offset })
        }
        End::Missing(offset) => {
            warnings.push(Warning::NoEndOfArchive { archive: archive(), offset })
        }
    }
    tar_stream.finish(contents)?;
    if tar_stream.has_bytes_after_gzip() {
        warnings.push(Warning::BytesAfterGzip { archive: archive() });
    }
    Ok(())
}

/// Registers the regular files of the archive `source` in `contents`; returns their positions and
/// lengths by name.
pub(crate) fn files(
    options: &Options,
    source: &Path,
    contents: &mut Contents,
) -> Result<BTreeMap<Vec<u8>, (SourcePosition, u64)>> {
    let mut tar_stream = TarStream::open(source, options, contents)?;
    let mut members =
        Members::new(&mut tar_stream, Limits::new(options.source.archive_limit_factor), false);
    let (mut files, mut links) = (BTreeMap::new(), Vec::new());
    while let Ok(member) = members.next()? {
        options.run.cancel.check()?;
        let name = layered_tree::clean(&member.path).join(&b'/');
        match member.kind {
            MemberKind::Regular(stored) => {
                let data = members.data(&member.path, member.offset, stored, Some(contents))?;
                if data.pieces.is_none() {
                    files.insert(name, (data.place, data.size));
                }
            }
            MemberKind::Link(target) => {
                links.push((name, layered_tree::clean(&target).join(&b'/')))
            }
            MemberKind::Symlink(target) => {
                let dir = name
                    .iter()
                    .rposition(|byte| *byte == b'/')
                    .map_or(&[][..], |slash| &name[..slash]);
                let target = layered_tree::clean(&[dir, b"/", &target].concat()).join(&b'/');
                links.push((name, target));
            }
            _ => {}
        }
    }
    // Old versions of docker store equal layers once, with links to files.
    for (name, target) in links {
        if let Some(file) = files.get(&target).copied() {
            files.insert(name, file);
        }
    }
    tar_stream.drain()?;
    Ok(files)
}

fn add_name(names: &mut ContainerNames, member: &Member, manifest: &[u8]) -> bool {
    let name = layered_tree::clean(&member.path).join(&b'/');
    names.add(&name, member.kind == MemberKind::Directory, manifest)
}

/// The first members of the archive `source`, as many as are needed to recognise a container image.
pub(crate) fn container_names(source: &Path) -> ContainerNames {
    let mut names = ContainerNames::default();
    let options = Options::new(source);
    let mut contents = Contents::archives(Path::new("."), source);
    let Ok(mut tar_stream) = TarStream::open(source, &options, &mut contents) else { return names };
    let mut members =
        Members::new(&mut tar_stream, Limits::new(options.source.archive_limit_factor), false);
    while let Ok(Ok(member)) = members.next() {
        let is_manifest = *layered_tree::clean(&member.path) == [MANIFEST.as_bytes()];
        let manifest = if is_manifest { members.start(MANIFEST_READ) } else { Ok(Vec::new()) };
        if !manifest.is_ok_and(|manifest| add_name(&mut names, &member, &manifest)) {
            break;
        }
    }
    names
}

impl ArchiveReader<'_> {
    fn take(&mut self, members: &mut Members<'_>, member: Member) -> Result<()> {
        self.options.run.progress.found.add(1);
        let (path, offset) = (member.path.clone(), member.offset);
        self.put(members, member)?;
        let (packed, plain) = members.bytes_read();
        let limits = self.limits;
        // The headers of one member are limited, so a check after each member is enough.
        let checked = limits.check_memory(self.layers.memory_used(), packed);
        let checked = checked.and_then(|()| limits.check_holes(self.holes, plain));
        checked.map_err(|fault| members.error(Some(&path), offset, fault))
    }

    fn put(&mut self, members: &mut Members<'_>, member: Member) -> Result<()> {
        let (path, offset) = (member.path.clone(), member.offset);
        if self.whiteouts != Whiteouts::Keep
            && let Some(result) = self.whiteout(&member)
        {
            return result.map_err(|fault| members.error(Some(&path), offset, fault.into()));
        }
        let wrong = |members: &Members<'_>, fault| members.error(Some(&path), offset, fault);
        let mut xattrs = member.records.xattrs().map_err(|fault| wrong(members, fault))?;
        let malformed: Vec<_> = xattrs
            .extract_if(.., |(name, value)| acl::is_malformed(name, value))
            .map(|(name, _)| name)
            .collect();
        let unsupported = member.records.unsupported_acls(&xattrs);
        for name in unsupported.chain(malformed.iter().map(Vec::as_slice)) {
            let name = ferofs_read::escape::Escaped(name).to_string();
            self.layers.count_memory(limits::WARNING + path.len() as u64);
            self.warnings.push(Warning::UnsupportedXattr { path: as_path(&path).to_owned(), name });
        }
        let xattrs = self.layers.attributes(xattrs);
        let body = match member.kind {
            MemberKind::Regular(stored) => {
                let copies =
                    matches!(self.options.source.data, SourceData::Copied | SourceData::External);
                let contents = copies.then_some(&mut *self.contents);
                let data = members.data(&path, offset, stored, contents)?;
                self.regular(&data, copies).map_err(|fault| wrong(members, fault))?
            }
            MemberKind::Link(target) => {
                let linked = self.layers.link(&path, &target);
                return linked.map_err(|fault| wrong(members, fault.into()));
            }
            MemberKind::Symlink(target) => Body::Symlink(target.into()),
            MemberKind::Device(kind, rdev) => Body::Device(kind, rdev),
            MemberKind::Directory => Body::Directory(Box::default()),
            MemberKind::Fifo => Body::Fifo,
            MemberKind::Unknown(kind) => {
                let path = as_path(&path).to_owned();
                self.layers.count_memory(limits::WARNING + path.as_os_str().len() as u64);
                self.warnings.push(Warning::UnknownMember { path, kind: kind.into() });
                return Ok(());
            }
        };
        let Member { permissions, uid, gid, .. } = member;
        let mtime = member.mtime.into();
        let layered_file =
            LayeredFile { body, permissions, uid, gid, mtime, xattrs, ignores_options: false };
        let is_whiteout = self.whiteouts == Whiteouts::Overlay && layered_file.is_whiteout();
        let put = self.layers.put(&path, layered_file);
        put.and_then(|()| if is_whiteout { self.layers.mark_whiteout(&path) } else { Ok(()) })
            .map_err(|fault| wrong(members, fault.into()))
    }

    fn regular(&mut self, data: &MemberData, copied: bool) -> Result<Body, TarFault> {
        let size = data.size;
        if let Some(pieces) = &data.pieces {
            self.layers.count_memory(pieces.len() as u64 * limits::PIECE);
            self.count_chunk_table(size, pieces);
            let stored = pieces.iter().map(|(_, len)| len).sum();
            self.holes = self.holes.saturating_add(limits::cost_of_holes(size, stored));
        } else if self.options.source.data == SourceData::Absent {
            self.count_chunk_table(size, &[]);
            self.holes = self.holes.saturating_add(limits::cost_of_holes(size, 0));
        }
        let origin = if size == 0 {
            Origin::None
        } else if !copied {
            Origin::Zeroes
        } else if let Some(pieces) = &data.pieces {
            let mut at = data.place.at;
            let spans = pieces.iter().map(|(offset, len)| {
                let span =
                    Span { offset: *offset, len: *len, place: SourcePosition { at, ..data.place } };
                at += len;
                span
            });
            self.contents.add_spans(spans).ok_or(EntryFault::TooManyFiles)?
        } else {
            Origin::At(data.place)
        };
        let is_reserved = self.options.source.data == SourceData::Reserved;
        let has_holes = data.pieces.is_some() || origin == Origin::Zeroes;
        Ok(Body::Regular { size, origin, sparse: has_holes && !is_reserved })
    }

    /// Counts the memory for the chunk table of a sparse file. If the data stays in the archive,
    /// the chunk size is the alignment of the pieces.
    fn count_chunk_table(&mut self, size: u64, pieces: &[(u64, u64)]) {
        if let Some(chunks) = &self.options.data.chunks {
            self.layers
                .count_memory((size / chunks.size.max(1)).saturating_mul(limits::CHUNK_ENTRY));
        } else if self.options.source.data == SourceData::External {
            let boundaries = pieces.iter().flat_map(|(offset, len)| [*offset, offset + len]);
            let bits =
                boundaries.filter(|at| *at != 0 && *at != size).map(u64::trailing_zeros).min();
            self.layers
                .count_memory((size >> bits.unwrap_or(40)).saturating_mul(limits::TABLE_ENTRY));
        }
    }

    /// Applies or converts a whiteout; `None` if `member` is not a whiteout.
    fn whiteout(&mut self, member: &Member) -> Option<Result<(), EntryFault>> {
        let path = member.path.strip_suffix(b"/").unwrap_or(&member.path);
        let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (dir, name) = path.split_at(at);
        if name == OPAQUE {
            return Some(match self.whiteouts {
                Whiteouts::Apply => self.layers.remove_lower_entries(dir),
                _ => self.layers.mark_opaque(dir),
            });
        }
        if path.split(|byte| *byte == b'/').any(|part| part.starts_with(AUFS_OWN)) {
            return Some(Ok(()));
        }
        let hidden = name.strip_prefix(WHITEOUT)?;
        if matches!(hidden, b"" | b"." | b"..") {
            return Some(Ok(()));
        }
        let path = [dir, hidden].concat();
        Some(match self.whiteouts {
            Whiteouts::Apply => self.layers.remove_lower(&path),
            _ => self.layers.put_whiteout(&path, member.mtime),
        })
    }
}
