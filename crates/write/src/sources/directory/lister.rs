//! Lists one directory at a time, for one worker: names, inodes, xattrs. The first step of
//! [`super`].

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ferofs_format::inode::{FileType, Rdev, Timestamp};
use parking_lot::Mutex;
use rustix::fs::{OFlags, RawDir, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result, Warning};
use crate::options::Options;
use crate::output::OwnFile;
use crate::paths::{as_path, join};
use crate::sources::directory::unmapped::{UnmappedIds, check_acls};
use crate::tree::Identity;
use crate::tree::compact::{Arena, Text};
use crate::tree::xattr::{Attributes, encode_set};
use ferofs_host::stat::{
    allocated, file_system_type, keeps_inode_numbers, mtime, size, stat_at, stat_fd, wait_for_tick,
};
use ferofs_host::{open_dir, open_file};

/// Bytes of the buffer for xattrs: Linux's limit on the list of a file's names (`XATTR_LIST_MAX`),
/// and on one value (`XATTR_SIZE_MAX`).
const XATTR_BYTES: usize = 64 << 10;
/// Bytes of the buffer for the entries of a directory: enough to make system calls rare.
const DIRENT_BYTES: usize = 32 << 10;

/// The files of a directory, sorted by name.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) files: Vec<ListedFile>,
    /// Names, targets and sets of xattrs.
    pub(super) texts: Arena,
}

/// A file of a listing. Its texts are in that listing. The whole tree may be listed before its
/// first file has a number, so it is kept small.
pub(super) struct ListedFile {
    pub(super) name: Text,
    /// The encoded set of xattrs.
    pub(super) xattrs: Text,
    pub(super) body: ListedBody,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) mtime: Timestamp,
    pub(super) identity: Identity,
}

/// The type of a file, with the fields of that type.
pub(super) enum ListedBody {
    Regular {
        size: u64,
        sparse: bool,
    },
    /// The number of its listing.
    Directory(u32),
    Symlink(Text),
    Device(FileType, Rdev),
    Fifo,
    Socket,
}

/// State that all workers share.
pub(super) struct Context<'a> {
    pub(super) options: &'a Options,
    /// The name of the directory, for messages.
    pub(super) source: &'a Path,
    pub(super) root: BorrowedFd<'a>,
    /// Files that the tree leaves out, because the build writes them.
    pub(super) avoid: &'a [OwnFile],
    /// Whether `/proc/self/fd` exists.
    pub(super) proc: bool,
    pub(super) unmapped: UnmappedIds,
    /// The devices of file systems whose files do not tell their size.
    pub(super) size_less: Mutex<BTreeSet<u64>>,
}

/// Lists directories for one worker, and reuses its buffers.
pub(super) struct Lister<'a> {
    context: &'a Context<'a>,
    dirents: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
    /// The device of the last directory.
    file_system: Option<u64>,
    /// Whether its files keep their inode numbers.
    keeps_numbers: bool,
    pub(super) warnings: Vec<Warning>,
}

impl<'a> Lister<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            dirents: Vec::with_capacity(DIRENT_BYTES),
            names: vec![0; XATTR_BYTES],
            value: vec![0; XATTR_BYTES],
            file_system: None,
            keeps_numbers: true,
            warnings: Vec::new(),
        }
    }

    /// The directory that is walked, as the only file of a listing.
    pub(super) fn root(&mut self) -> Result<Listing> {
        let (root, source) = (self.context.root, self.context.source);
        let stat = stat_fd(root).map_err(|e| Error::io("stat", source, e))?;
        let mut listing = Listing::default();
        self.enter_file_system(root, &stat, source);
        self.add(root, b".", &stat, source, &mut listing)?;
        if let Some(root) = listing.files.first_mut() {
            root.name = Text::default();
        }
        Ok(listing)
    }

    /// Lists the directory `path`.
    pub(super) fn list(&mut self, path: &[u8]) -> Result<Listing> {
        let source = self.context.source;
        let here = if path.is_empty() { source.to_owned() } else { source.join(as_path(path)) };
        let io = |action, e: Errno| Error::io(action, &here, e);
        let dir = open_dir(self.context.root, path, OFlags::RDONLY).map_err(|e| io("open", e))?;
        let before = stat_fd(dir.as_fd()).map_err(|e| io("stat", e))?;
        if self.context.options.source.one_file_system
            && !self.is_on_file_system_of_root(&before)?
        {
            return Ok(Listing::default());
        }
        self.enter_file_system(dir.as_fd(), &before, &here);
        let expected = Identity::of_file(&before, self.keeps_numbers);
        wait_for_tick(expected.ctime());
        let mut found = Arena::default();
        let mut names = Vec::new();
        let mut dirents = std::mem::take(&mut self.dirents);
        let mut entries = RawDir::new(&dir, dirents.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| io("read directory", e))?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(found.push(name)),
            }
        }
        self.dirents = dirents;
        names.sort_unstable_by_key(|name| found.get(*name));
        let mut listing = Listing { files: Vec::with_capacity(names.len()), ..Listing::default() };
        for name in names {
            let name = found.get(name);
            let below = join(path, name);
            if self.context.options.is_excluded(&below, || is_dir(dir.as_fd(), name)) {
                continue;
            }
            let full = source.join(as_path(&below));
            match self.file(dir.as_fd(), name, &full, &mut listing) {
                Ok(()) => {}
                Err(error)
                    if self.context.options.source.skip_unreadable && error.is_unreadable() =>
                {
                    self.warnings.push(Warning::Skipped(error));
                }
                Err(error) => return Err(error),
            }
        }
        let after = stat_fd(dir.as_fd()).map_err(|e| io("stat", e))?;
        if !expected.is_of(&after) {
            // The listing may lack a name, or have one twice.
            return Err(Error::SourceChanged(here));
        }
        listing.files.shrink_to_fit();
        Ok(listing)
    }

    /// Learns what the file system of a directory does not tell. Warns if its files have a size of
    /// 0 and content all the same, once for each file system.
    fn enter_file_system(&mut self, dir: BorrowedFd<'_>, stat: &Stat, path: &Path) {
        /// PROC, CGROUP2, DEBUGFS and TRACEFS of Linux's `magic.h`.
        const MAGIC: [u32; 4] = [0x9fa0, 0x6367_7270, 0x6462_6720, 0x7472_6163];
        if self.file_system.replace(stat.st_dev) == Some(stat.st_dev) {
            return;
        }
        let magic = file_system_type(dir);
        self.keeps_numbers = keeps_inode_numbers(magic);
        let is_size_less = magic.is_some_and(|magic| MAGIC.contains(&magic));
        if is_size_less && self.context.size_less.lock().insert(stat.st_dev) {
            self.warnings.push(Warning::SizeLess { path: path.to_owned() });
        }
    }

    fn is_on_file_system_of_root(&self, stat: &Stat) -> Result<bool> {
        let root =
            stat_fd(self.context.root).map_err(|e| Error::io("stat", self.context.source, e))?;
        Ok(root.st_dev == stat.st_dev)
    }

    fn file(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        full: &Path,
        listing: &mut Listing,
    ) -> Result<()> {
        let stat = stat_at(dir, name).map_err(|e| Error::io("stat", full, e))?;
        if let Some(own) =
            self.context.avoid.iter().find(|own| own.id == (stat.st_dev, stat.st_ino))
        {
            self.warnings
                .extend(own.is_named.then(|| Warning::OwnOutput { path: full.to_owned() }));
            return Ok(());
        }
        self.add(dir, name, &stat, full, listing)
    }

    /// Adds the file `name` of `dir` to `listing`.
    fn add(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
        full: &Path,
        listing: &mut Listing,
    ) -> Result<()> {
        let rdev =
            Rdev { major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
        // The upper bits are the type.
        let mode = stat.st_mode as u16;
        let body = match FileType::from_mode(mode) {
            Some(FileType::Regular) => {
                ListedBody::Regular { size: size(stat), sparse: allocated(stat) < size(stat) }
            }
            Some(FileType::Directory) => ListedBody::Directory(0),
            Some(FileType::Symlink) => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())
                    .map_err(|e| Error::io("read link", full, e))?;
                ListedBody::Symlink(listing.texts.push(target.as_bytes()))
            }
            Some(kind @ (FileType::CharDevice | FileType::BlockDevice)) => {
                ListedBody::Device(kind, rdev)
            }
            Some(FileType::Fifo) => ListedBody::Fifo,
            Some(FileType::Socket) => ListedBody::Socket,
            None => return Err(Error::io("stat", full, Errno::INVAL)),
        };
        self.warnings.extend(self.context.unmapped.warning(stat.st_uid, stat.st_gid, full));
        let readable = matches!(body, ListedBody::Regular { .. } | ListedBody::Directory(_));
        let xattrs = self.xattrs(dir, name, readable, full)?;
        // Neighbours often have the same xattrs.
        let same = listing.files.last().map(|file| file.xattrs);
        let xattrs = match same.filter(|same| listing.texts.get(*same) == xattrs) {
            Some(same) => same,
            None => listing.texts.push(&xattrs),
        };
        listing.files.push(ListedFile {
            name: listing.texts.push(name),
            xattrs,
            body,
            permissions: mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink as u32,
            dev: stat.st_dev,
            ino: stat.st_ino,
            mtime: mtime(stat),
            identity: Identity::of_file(stat, self.keeps_numbers),
        });
        Ok(())
    }

    /// The encoded set of attributes of `name`.
    fn xattrs(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        readable: bool,
        full: &Path,
    ) -> Result<Vec<u8>> {
        if !self.context.options.xattrs.keep {
            return Ok(Vec::new());
        }
        let result = if self.context.proc {
            // Before Linux 6.13 no system call takes a directory and a name.
            let mut path = Vec::with_capacity(40 + name.len());
            let _ = write!(path, "/proc/self/fd/{}/", dir.as_raw_fd());
            path.extend_from_slice(name);
            self.xattrs_by_path(path)
        } else if readable {
            self.xattrs_by_fd(dir, name)
        } else {
            // Only files and directories can be opened to read attributes.
            self.xattrs_by_path(full.as_os_str().as_bytes().to_vec())
        };
        match result {
            Ok(attributes) if attributes.is_empty() => Ok(Vec::new()),
            Ok(mut attributes) => {
                check_acls(&attributes, full)?;
                let changed = self.context.options.attributes.change_acls(&mut attributes);
                changed.map_err(|fault| Error::Entry { path: full.to_owned(), fault })?;
                self.note_foreign(&attributes, full);
                encode_set(attributes).map_err(|too_large| too_large.of(full))
            }
            Err(Errno::NOTSUP) => Ok(Vec::new()),
            Err(e) => Err(Error::io("read extended attributes", full, e)),
        }
    }

    fn note_foreign(&mut self, attributes: &[(Vec<u8>, Vec<u8>)], full: &Path) {
        use ferofs_format::xattr::NamePrefix;
        for (name, _) in attributes.iter().filter(|(name, _)| NamePrefix::split(name).is_none()) {
            let name = ferofs_read::escape::Escaped(name).to_string();
            self.warnings.push(Warning::UnsupportedXattr { path: full.to_owned(), name });
        }
    }

    fn xattrs_by_path(&mut self, path: Vec<u8>) -> Result<Attributes, Errno> {
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        let len = rustix::fs::llistxattr(&*path, &mut self.names[..])?;
        let value = &mut self.value;
        read_values(&self.names[..len], |name| {
            let len = rustix::fs::lgetxattr(&*path, name, &mut value[..])?;
            Ok(value[..len].to_vec())
        })
    }

    fn xattrs_by_fd(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Attributes, Errno> {
        let file = open_file(dir, name)?;
        let len = rustix::fs::flistxattr(&file, &mut self.names[..])?;
        let value = &mut self.value;
        read_values(&self.names[..len], |name| {
            let len = rustix::fs::fgetxattr(&file, name, &mut value[..])?;
            Ok(value[..len].to_vec())
        })
    }
}

/// Reads the values of NUL-terminated `names`. Attributes that were removed after the names were
/// read are left out.
fn read_values(
    names: &[u8],
    mut get: impl FnMut(&[u8]) -> Result<Vec<u8>, Errno>,
) -> Result<Attributes, Errno> {
    let mut attributes = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        match get(name) {
            Ok(value) => attributes.push((name.to_vec(), value)),
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(attributes)
}

/// Whether `name` in `dir` is a directory. A name that cannot be read is none: the walk reports it.
fn is_dir(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    stat_at(dir, name).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}
