//! Reads the members of an archive: each header, together with the extended headers and long names
//! before it.

use ferofs_format::inode::{FileType, Rdev, Timestamp};

use super::header::{self, BLOCK, Header};
use super::limits::{Limits, PIECE};
use super::pax::Records;
use super::sparse::{MapParser, MapPlace, SparseMap, map_place};
use super::tar_stream::TarStream;
use crate::error::faults::TarFault;
use crate::error::{Error, Result};
use crate::paths::as_path;
use crate::sources::content::Contents;
use crate::tree::SourcePosition;

/// The most blocks of zeroes that are an empty archive: tar(1) writes as many.
const EMPTY_BLOCKS: usize = 20;

/// A member's headers. Its data was not read yet.
#[derive(Debug)]
pub(super) struct Member {
    /// Where its first header is, in bytes of the decompressed archive.
    pub(super) offset: u64,
    pub(super) path: Vec<u8>,
    pub(super) kind: MemberKind,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    pub(super) records: Records,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    Regular(Stored),
    Link(Vec<u8>),
    Symlink(Vec<u8>),
    Device(FileType, Rdev),
    Directory,
    Fifo,
    /// A type that no standard defines.
    Unknown(u8),
}

/// How a regular file's data are stored in the archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// The length of the data in the archive, without holes.
    bytes: u64,
    /// Where the map is, if the file is sparse.
    map_place: Option<MapPlace>,
}

/// Where a regular file's data is.
#[derive(Debug)]
pub(super) struct MemberData {
    pub(super) size: u64,
    /// The position of the first piece; the others follow it directly.
    pub(super) place: SourcePosition,
    /// Offset and length of each piece in the file; `None` if the file has no holes.
    pub(super) pieces: Option<Vec<(u64, u64)>>,
}

/// Why there are no more members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Two blocks of zeroes, as the format requires.
    Marked,
    /// Only one block of zeroes, at this position.
    SingleBlock(u64),
    /// The archive ends at this position without a block of zeroes.
    Missing(u64),
}

/// Reads the members of an archive in order.
#[derive(Debug)]
pub(super) struct Members<'a> {
    tar_stream: &'a mut TarStream,
    limits: Limits,
    global: Records,
    /// The number of bytes before the next header.
    rest: u64,
    /// The archive consists of headers, without data.
    without_data: bool,
}

/// The extended headers and long names before a member.
#[derive(Debug, Default)]
struct Extension {
    records: Records,
    /// The total size of the extended headers.
    bytes: u64,
    path: Option<Vec<u8>>,
    linkname: Option<Vec<u8>>,
}

impl<'a> Members<'a> {
    pub(super) fn new(tar_stream: &'a mut TarStream, limits: Limits, without_data: bool) -> Self {
        Self { tar_stream, limits, global: Records::default(), rest: 0, without_data }
    }

    /// How many bytes were read so far: of the archive's file, and of the decompressed archive.
    pub(super) fn bytes_read(&self) -> (u64, u64) {
        (self.tar_stream.packed_read(), self.tar_stream.position())
    }

    /// The error for a fault of the member `path`, whose header is at `offset`.
    pub(super) fn error(&self, path: Option<&[u8]>, offset: u64, fault: TarFault) -> Error {
        let member = path.filter(|path| !path.is_empty()).map(|path| as_path(path).to_owned());
        Error::Archive { archive: self.tar_stream.name.clone(), member, offset, fault }
    }

    pub(super) fn next(&mut self) -> Result<std::result::Result<Member, End>> {
        let rest = std::mem::take(&mut self.rest);
        let start = self.tar_stream.position();
        if !self.tar_stream.skip(rest)? {
            return Err(self.error(None, start, TarFault::Truncated));
        }
        let first = self.tar_stream.position();
        let mut extension = Extension::default();
        loop {
            let offset = self.tar_stream.position();
            let Some(block) = self.block(None, first)? else {
                let fault = if offset == 0 { TarFault::Empty } else { TarFault::Truncated };
                return match offset {
                    at if at > 0 && at == first => Ok(Err(End::Missing(at))),
                    _ => Err(self.error(None, first, fault)),
                };
            };
            let header = match Header::parse(&block) {
                Err(_) if offset == 0 => {
                    return Err(self.not_an_archive(&block, TarFault::Checksum));
                }
                header => header.map_err(|fault| self.error(None, offset, fault))?,
            };
            let Some(header) = header else {
                if offset == 0 {
                    return self.empty().map(Err);
                }
                if offset != first {
                    return Err(self.error(None, first, TarFault::Truncated));
                }
                let second = self.block(None, offset)?;
                let marked = second.is_some_and(|block| block.iter().all(|byte| *byte == 0));
                return Ok(Err(if marked { End::Marked } else { End::SingleBlock(offset) }));
            };
            let extends = self.extend(&header, &mut extension).map_err(|error| match error {
                MemberError::Fault(fault) => self.error(None, offset, fault),
                MemberError::Error(error) => error,
            })?;
            if extends {
                continue;
            }
            let records = std::mem::take(&mut extension.records).with_global(&self.global);
            let path = extension.path.take().or_else(|| records.text("path").map(<[u8]>::to_vec));
            let path = path.unwrap_or_else(|| header.name());
            let member = self.member(&header, path.clone(), first, records, extension);
            return match member {
                Ok(member) => Ok(Ok(member)),
                Err(MemberError::Fault(fault)) => Err(self.error(Some(&path), first, fault)),
                Err(MemberError::Error(error)) => Err(error),
            };
        }
    }

    /// Reads the rest of an archive that begins with a block of zeroes. Disk images begin so, too:
    /// in an empty archive nothing else follows.
    fn empty(&mut self) -> Result<End> {
        let mut start = vec![0; BLOCK * EMPTY_BLOCKS + 1];
        let len = BLOCK + self.tar_stream.read(&mut start[BLOCK..])?;
        start.truncate(len);
        match len {
            _ if len > BLOCK * EMPTY_BLOCKS || start.iter().any(|byte| *byte != 0) => {
                Err(self.not_an_archive(&start, TarFault::Zeroes))
            }
            BLOCK => Ok(End::SingleBlock(0)),
            _ => Ok(End::Marked),
        }
    }

    /// The error for an archive that is another file. `fault` is for one of an unknown format that
    /// begins with `start`.
    fn not_an_archive(&self, start: &[u8], fault: TarFault) -> Error {
        match self.tar_stream.known_format(start) {
            Ok(format) => self.error(None, 0, format.map_or(fault, TarFault::OtherFormat)),
            Err(error) => error,
        }
    }

    /// Reads a whole block; `None` at the archive's end.
    fn block(&mut self, path: Option<&[u8]>, offset: u64) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let is_first = self.tar_stream.position() == 0;
        match self.tar_stream.read(&mut block)? {
            0 => Ok(None),
            BLOCK => Ok(Some(block)),
            // Shorter than any archive.
            read if is_first => {
                Err(self.not_an_archive(block.get(..read).unwrap_or_default(), TarFault::Checksum))
            }
            _ => Err(self.error(path, offset, TarFault::Truncated)),
        }
    }

    /// Reads an extended header or a long name. Returns `false` if `header` is that of a member.
    fn extend(
        &mut self,
        header: &Header,
        extension: &mut Extension,
    ) -> std::result::Result<bool, MemberError> {
        match header.kind() {
            b'x' | b'X' => {
                extension.bytes = extension.bytes.saturating_add(header.unsigned(header::SIZE)?);
                self.limits.check_headers(extension.bytes)?;
                extension.records.read(&self.payload(header)?)?;
            }
            b'g' => {
                self.limits.check_headers(header.unsigned(header::SIZE)?)?;
                let payload = self.payload(header)?;
                self.global.read(&payload)?;
                // Sparse maps belong to one file, so they are not valid in a global header.
                self.global.pieces = Vec::new();
                self.limits.check_globals(self.global.byte_len())?;
            }
            b'L' => extension.path = Some(self.name(header)?),
            b'K' => extension.linkname = Some(self.name(header)?),
            // A volume label, and GNU's obsolete format of long names, which programs no longer
            // write.
            b'V' | b'N' => {
                let size = header.unsigned(header::SIZE)?.checked_next_multiple_of(BLOCK as u64);
                if !self.tar_stream.skip(size.ok_or(TarFault::Number("the size"))?)? {
                    return Err(TarFault::Truncated.into());
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a long name, which is the data after `header`.
    fn name(&mut self, header: &Header) -> std::result::Result<Vec<u8>, MemberError> {
        self.limits.check_name(header.unsigned(header::SIZE)?)?;
        Ok(until_nul(self.payload(header)?))
    }

    /// Reads the data of an extended header or a long name. The caller has checked the size.
    fn payload(&mut self, header: &Header) -> std::result::Result<Vec<u8>, MemberError> {
        let size = header.unsigned(header::SIZE)?;
        let mut payload = Vec::new();
        let mut left = size.next_multiple_of(BLOCK as u64);
        // Allocates for the bytes that were read, since the header may claim a wrong size.
        while left > 0 {
            let mut piece = [0; 16 * BLOCK];
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            if self.tar_stream.read(&mut piece[..wanted])? < wanted {
                return Err(TarFault::Truncated.into());
            }
            payload.extend_from_slice(&piece[..wanted]);
            left -= wanted as u64;
        }
        payload.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(payload)
    }

    fn member(
        &mut self,
        header: &Header,
        mut path: Vec<u8>,
        offset: u64,
        records: Records,
        extension: Extension,
    ) -> std::result::Result<Member, MemberError> {
        let linkname = extension.linkname.or_else(|| records.text("linkpath").map(<[u8]>::to_vec));
        let linkname = linkname.unwrap_or_else(|| header.linkname().to_vec());
        let rdev = |kind| {
            let major = records.number_u32("SCHILY.devmajor", "the device's major number")?;
            let minor = records.number_u32("SCHILY.devminor", "the device's minor number")?;
            let major = major.map_or_else(|| header.number_u32(header::DEVMAJOR), Ok)?;
            let minor = minor.map_or_else(|| header.number_u32(header::DEVMINOR), Ok)?;
            Ok::<_, TarFault>(MemberKind::Device(kind, Rdev { major, minor }))
        };
        let kind = match header.kind() {
            // Before ustar, a slash at the end of the name identified a directory. The header of a
            // sparse file has no such name, but one that is cut off at 100 bytes.
            0 | b'0' if path.ends_with(b"/") && records.text("GNU.sparse.name").is_none() => {
                MemberKind::Directory
            }
            0 | b'0' | b'7' | b'S' => {
                MemberKind::Regular(self.stored(header, &records, &mut path)?)
            }
            b'1' => MemberKind::Link(linkname),
            b'2' => MemberKind::Symlink(linkname),
            b'3' => rdev(FileType::CharDevice)?,
            b'4' => rdev(FileType::BlockDevice)?,
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            b'M' => return Err(TarFault::Volume.into()),
            other => MemberKind::Unknown(other),
        };
        // Data follows only regular files, members of unknown types, and GNU's directories of type
        // D: their lists of names. Other types have no data, even if their header has a size.
        if matches!(header.kind(), b'D') || matches!(kind, MemberKind::Unknown(_)) {
            let size = records
                .number("size", "the size")?
                .map_or_else(|| header.unsigned(header::SIZE), Ok)?;
            self.rest =
                size.checked_next_multiple_of(BLOCK as u64).ok_or(TarFault::Number("the size"))?;
        }
        // The root may have an empty name.
        if path.is_empty() && kind != MemberKind::Directory {
            return Err(TarFault::NoName.into());
        }
        let owner = |key, field| {
            let number = records.number_u32(key, "the owner")?;
            let id = number.map_or_else(|| header.number_u32(field), Ok)?;
            // It means "no ID" to Linux.
            if id == u32::MAX { Err(TarFault::Number("the owner")) } else { Ok(id) }
        };
        Ok(Member {
            offset,
            path,
            kind,
            permissions: (header.number(header::MODE)? & 0o7777) as u16,
            uid: owner("uid", header::UID)?,
            gid: owner("gid", header::GID)?,
            mtime: match records.mtime()? {
                Some(mtime) => mtime,
                None => Timestamp { secs: header.number(header::MTIME)?, nanos: 0 },
            },
            records,
        })
    }

    /// Combines a regular file's headers. A sparse file may have another name, which replaces
    /// `path`.
    fn stored(
        &mut self,
        header: &Header,
        records: &Records,
        path: &mut Vec<u8>,
    ) -> std::result::Result<Stored, MemberError> {
        let bytes = records
            .number("size", "the size")?
            .map_or_else(|| header.unsigned(header::SIZE), Ok)?;
        if i64::try_from(bytes).is_err() {
            return Err(TarFault::Number("the size").into());
        }
        let mut map_place = map_place(records)?;
        if map_place.is_some()
            && let Some(name) = records.text("GNU.sparse.name")
        {
            // The name in the header is a placeholder for programs without support for sparse
            // files.
            *path = name.to_vec();
        }
        if header.kind() == b'S' && map_place.is_none() {
            let mut map = SparseMap::default();
            let (size, mut more) = header.gnu_pieces(&mut map.pieces)?;
            map.size = size;
            while more {
                let block = self
                    .block(Some(path), self.tar_stream.position())?
                    .ok_or(TarFault::Truncated)?;
                more = header::more_gnu_pieces(&block, &mut map.pieces)?;
                self.check_pieces(map.pieces.len() as u64)?;
            }
            map_place = Some(MapPlace::Header(map));
        }
        let size = match &map_place {
            Some(MapPlace::Header(map)) => map.size,
            Some(MapPlace::BeforeData(size)) => *size,
            None => bytes,
        };
        if i64::try_from(size).is_err() {
            return Err(TarFault::Sparse.into());
        }
        if map_place.is_some() || self.without_data {
            self.limits.check_sparse_file(size)?;
        }
        if !self.without_data {
            self.rest = bytes.next_multiple_of(BLOCK as u64);
        }
        Ok(Stored { bytes, map_place })
    }

    /// Fails if a map of `count` pieces exceeds the memory limit.
    fn check_pieces(&self, count: u64) -> std::result::Result<(), TarFault> {
        self.limits.check_memory(count * PIECE, self.tar_stream.packed_read())
    }

    /// Finds a regular file's data after its header, and registers it in `contents` unless that is
    /// `None`.
    pub(super) fn data(
        &mut self,
        path: &[u8],
        offset: u64,
        stored: Stored,
        contents: Option<&mut Contents>,
    ) -> Result<MemberData> {
        self.find(stored, contents).map_err(|error| match error {
            MemberError::Fault(fault) => self.error(Some(path), offset, fault),
            MemberError::Error(error) => error,
        })
    }

    /// The first bytes, `most` at most, of what follows the header of a member.
    pub(super) fn start(&mut self, most: u64) -> Result<Vec<u8>> {
        let mut start = vec![0; self.rest.min(most) as usize];
        let read = self.tar_stream.read(&mut start)?;
        start.truncate(read);
        self.rest -= read as u64;
        Ok(start)
    }

    fn find(
        &mut self,
        stored: Stored,
        contents: Option<&mut Contents>,
    ) -> std::result::Result<MemberData, MemberError> {
        let Stored { mut bytes, map_place } = stored;
        let map = match map_place {
            None => None,
            Some(MapPlace::Header(map)) => Some(map),
            Some(MapPlace::BeforeData(size)) => {
                let mut parser = MapParser::default();
                loop {
                    if bytes < BLOCK as u64 {
                        return Err(TarFault::Sparse.into());
                    }
                    let mut block = [0; BLOCK];
                    if self.tar_stream.read(&mut block)? < BLOCK {
                        return Err(TarFault::Truncated.into());
                    }
                    bytes -= BLOCK as u64;
                    self.rest -= BLOCK as u64;
                    let is_complete = parser.push(&block)?;
                    self.check_pieces(parser.count())?;
                    if is_complete {
                        break Some(parser.map(size));
                    }
                }
            }
        };
        let map = map.map(|map| map.checked(bytes)).transpose()?;
        let place = match contents {
            Some(contents) => {
                let place = self.tar_stream.keep(bytes, contents)?.ok_or(TarFault::Truncated)?;
                self.rest -= bytes;
                place
            }
            None => SourcePosition::default(),
        };
        let size = map.as_ref().map_or(bytes, |map| map.size);
        Ok(MemberData { size, place, pieces: map.map(|map| map.pieces) })
    }
}

/// A fault to which the caller adds member and position, or a complete error.
#[derive(Debug)]
enum MemberError {
    Fault(TarFault),
    Error(Error),
}

impl From<TarFault> for MemberError {
    fn from(fault: TarFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Error> for MemberError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    text
}
