//! Answers the requests of the kernel from an open image.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ferofs_read::access::page_reads::Ahead;
use ferofs_read::{
    DataLayout, DirCookie, DirEntry, Error, ExtentData, FileOffset, Image, Inode, InodeReader, Nid,
    ReadDir,
};
use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use crate::attr::{InodeNumbers, absent, attributes, errno, listed_kind, unreadable};
use crate::damage_log::DamageLog;
use crate::page_store::{PageStore, Plan, SMALL_READ};
use crate::stats::{self, MoreStats};
use crate::waiting_threads::WaitingThreads;

/// How long the kernel may cache names and attributes: practically forever, because an image does
/// not change.
const FOREVER: Duration = Duration::from_secs(1 << 31);
/// The longest name, in bytes.
const NAME_MAX: u8 = 255;

/// Whether Linux can have an attribute of this name. A damaged image can have others: a list of
/// names ends each with a zero byte, and no call finds a name that is only a prefix. A slash is
/// allowed.
fn is_xattr_name(name: &[u8]) -> bool {
    !name.contains(&0) && !matches!(name, b"user." | b"trusted." | b"security.")
}
/// After this time no further step of a stride is stored before a reply: the reader waits for it.
const MAX_AHEAD: Duration = Duration::from_millis(10);
/// The largest read request, in bytes: the maximum that the kernel allows.
const MAX_READ: u32 = 1 << 20;

thread_local! {
    /// The buffer of a thread for file data. It grows to the largest request of the thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The users who may use a mount. The permissions in the image limit them further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The user who mounts.
    #[default]
    Owner,
    /// The user who mounts, and root.
    OwnerAndRoot,
    /// Everybody.
    All,
}

/// An open image, and values that follow from its superblock.
pub(crate) struct Opened {
    image: Image,
    numbers: InodeNumbers,
    block_size: u32,
    more_stats: Option<MoreStats>,
}

impl Opened {
    pub(crate) fn new(image: Image, more_stats: Option<MoreStats>) -> Self {
        let superblock = image.superblock();
        let numbers = InodeNumbers::new(superblock.root);
        // Block sizes are at most 64 KiB.
        let block_size = u32::try_from(superblock.block_size.bytes64()).unwrap_or(4096);
        Self { image, numbers, block_size, more_stats }
    }

    pub(crate) const fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn nid(&self, ino: INodeNo) -> Nid {
        self.numbers.nid(ino)
    }
}

pub(crate) struct ImageFilesystem {
    /// Set before the first reply.
    opened: Arc<OnceLock<Opened>>,
    page_store: Arc<PageStore>,
    damage_log: DamageLog,
    threads: Arc<WaitingThreads>,
    /// How long the kernel may cache names and attributes.
    ttl: Duration,
}

impl ImageFilesystem {
    /// `opened` gets the image later. `name` is the name of the image in the log. `threads` answer
    /// requests.
    pub(crate) fn new(
        opened: Arc<OnceLock<Opened>>,
        name: String,
        access: Access,
        page_store: Arc<PageStore>,
        threads: Arc<WaitingThreads>,
    ) -> Self {
        // The kernel cannot check for the owner and root: fuser checks the user of each request, so
        // there must be one.
        let ttl = if access == Access::OwnerAndRoot { Duration::ZERO } else { FOREVER };
        Self { opened, page_store, damage_log: DamageLog::new(name), threads, ttl }
    }

    fn opened(&self) -> Result<&Opened, Errno> {
        self.opened.get().ok_or(Errno::EIO)
    }

    fn image(&self) -> Result<&Image, Errno> {
        self.opened().map(|opened| &opened.image)
    }

    fn inode(&self, ino: INodeNo) -> Result<Inode, Errno> {
        let Opened { image, numbers, .. } = self.opened()?;
        self.logged(ino, image.inode(numbers.nid(ino)))
    }

    fn attributes(&self, inode: &Inode, ino: INodeNo) -> Result<FileAttr, Errno> {
        Ok(attributes(inode, ino, self.opened()?.block_size))
    }

    /// Converts an error at `ino` to an error number, and logs it if the image is damaged or cannot
    /// be read.
    fn logged<T>(&self, ino: INodeNo, result: ferofs_read::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| {
            if matches!(
                error,
                Error::Corrupt(_) | Error::Unsupported(_) | Error::Io(_) | Error::Limit { .. }
            ) {
                self.page_store.counters.error();
                self.damage_log.log(ino.0, &error);
            }
            errno(&error)
        })
    }

    /// Reads the `wanted` range; returns the number of bytes.
    fn read_into(
        &self,
        file: &mut InodeReader<'_>,
        ino: INodeNo,
        wanted: &Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<usize, Errno> {
        let bytes = prepare(buffer, wanted.end.saturating_sub(wanted.start));
        self.logged(ino, file.read_at(FileOffset::new(wanted.start), bytes))
    }

    /// Stores the pages of the next steps of a stride before the reply. The data of the reply is at
    /// the start of `buffer` and must stay there.
    fn store_ahead(
        &self,
        file: &mut InodeReader<'_>,
        ino: INodeNo,
        wanted: &Range<u64>,
        ahead: Ahead,
        buffer: &mut Vec<u8>,
    ) {
        let Some(_permit) = self.page_store.start_ahead() else { return };
        // Another thread must be able to answer a read that has locked one of the pages.
        self.threads.wake_all();
        let len = wanted.end.saturating_sub(wanted.start);
        let both = prepare(buffer, len.saturating_mul(2));
        let (_, bytes) = both.split_at_mut(both.len() / 2);
        let (mut count, started) = (0u32, Instant::now());
        let mut at = wanted.start.saturating_add(ahead.step);
        // Damage in these pages must not make this read fail.
        while count < ahead.count
            && started.elapsed() < MAX_AHEAD
            && at.saturating_add(len) <= file.inode().size()
            && file.read_at(FileOffset::new(at), bytes).is_ok_and(|n| n == bytes.len())
            && self.page_store.store(ino, at, bytes)
        {
            count = count.saturating_add(1);
            at = at.saturating_add(ahead.step);
        }
        self.page_store.stored_ahead(file.inode(), wanted.start, Ahead { count, ..ahead });
    }

    /// The offset of the next hole or data at or after `offset`, as lseek(2) defines it.
    fn seek(&self, ino: INodeNo, offset: i64, whence: Whence) -> Result<i64, Errno> {
        let inode = self.inode(ino)?;
        let from =
            u64::try_from(offset).ok().filter(|from| *from < inode.size()).ok_or(Errno::ENXIO)?;
        let mut found = match whence {
            Whence::Data => from,
            Whence::Hole => inode.size(),
        };
        // Zeroes that are stored are reported as data.
        if inode.layout() == DataLayout::ChunkBased || inode.layout().is_compressed() {
            let wants_hole = matches!(whence, Whence::Hole);
            found = inode.size();
            let mut passed = from;
            for extent in self.logged(ino, self.image()?.extents(&inode, FileOffset::new(from)))? {
                let extent = match extent {
                    // The work limit is reached, and no data was found. lseek(2) may report the
                    // rest as data even if it is a hole, and it may omit a hole.
                    Err(Error::Limit { .. }) => {
                        found = if wants_hole { inode.size() } else { passed };
                        break;
                    }
                    extent => self.logged(ino, extent)?,
                };
                passed = extent.end();
                if matches!(extent.data, ExtentData::Hole) == wants_hole {
                    found = extent.start.get().max(from);
                    break;
                }
            }
            // The end of a file counts as a hole.
            if !wants_hole && found == inode.size() {
                return Err(Errno::ENXIO);
            }
        }
        i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
    }

    /// Calls `add` for the entries of a directory from the cookie `offset` on, until it returns
    /// that the reply is full.
    fn list(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(INodeNo, &DirEntry, &mut ReadDir<'_>) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let dir = self.inode(ino)?;
        let mut entries =
            self.logged(ino, self.image()?.read_dir_from(&dir, DirCookie::from_raw(offset)))?;
        let mut any = false;
        while let Some(entry) = entries.next() {
            // Reply with the entries so far; the next request reports the damage.
            let entry = match self.logged(ino, entry) {
                Err(_) if any => break,
                entry => entry?,
            };
            let number = self.opened()?.numbers.ino(entry.nid);
            if add(number, &entry, &mut entries)? {
                break;
            }
            any = true;
        }
        Ok(())
    }

    fn xattr_names(&self, ino: INodeNo) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        let mut names = Vec::new();
        for xattr in self.logged(ino, self.image()?.xattrs(&inode))? {
            if !is_xattr_name(&xattr.name) {
                continue;
            }
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
        Ok(names)
    }

    fn xattr_value(&self, ino: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if ino == INodeNo::ROOT && stats::is_stats(name) {
            let mut text = stats::text(&self.page_store.counters, self.image()?);
            if let Some(more) = &self.opened()?.more_stats {
                text.push_str(&more());
            }
            return Ok(text.into_bytes());
        }
        let inode = self.inode(ino)?;
        self.logged(ino, self.image()?.xattr(&inode, name.as_bytes()))?.ok_or(Errno::ENODATA)
    }
}

/// The searches of lseek(2). The kernel handles the other modes itself.
#[derive(Clone, Copy)]
enum Whence {
    Data,
    Hole,
}

impl Whence {
    /// From Linux's `SEEK_DATA` and `SEEK_HOLE`.
    const fn from_raw(raw: i32) -> Option<Self> {
        match raw {
            3 => Some(Self::Data),
            4 => Some(Self::Hole),
            _ => None,
        }
    }
}

/// The first `len` bytes of `buffer`, which grows as needed.
fn prepare(buffer: &mut Vec<u8>, len: u64) -> &mut [u8] {
    // Requests and windows have at most a few MiB.
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    buffer.split_at_mut(len).0
}

/// Answers a request for extended attributes. With `size` 0 the kernel asks for the length of the
/// value.
fn reply_sized(bytes: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match bytes {
        Err(error) => reply.error(error),
        // The conversion cannot fail: a value has at most 64 KiB, and the names of an inode have
        // less than 256 KiB.
        Ok(bytes) if size == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        Ok(bytes) if u32::try_from(bytes.len()).is_ok_and(|len| len <= size) => reply.data(&bytes),
        Ok(_) => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for ImageFilesystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_POSIX_ACL;
        // An error means that an older kernel does not have the capability, which is not needed.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        // An error means that the kernel has a lower limit, which it uses.
        let _ = config.set_max_readahead(MAX_READ);
        let _ = config.set_max_write(MAX_READ);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _answering = self.threads.answer(req.pid());
        let find = || {
            if name.len() > usize::from(NAME_MAX) {
                return Err(Errno::ENAMETOOLONG);
            }
            let dir = self.inode(parent)?;
            let Some(entry) = self.logged(parent, self.image()?.lookup(&dir, name.as_bytes()))?
            else {
                return Ok(None);
            };
            let ino = self.opened()?.numbers.ino(entry.nid);
            self.attributes(&self.inode(ino)?, ino).map(Some)
        };
        match Image::request(find) {
            Ok(Some(attr)) => reply.entry(&self.ttl, &attr, Generation(0)),
            // With inode number 0 the kernel caches that the name does not exist.
            Ok(None) => reply.entry(&self.ttl, &absent(), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _answering = self.threads.answer(req.pid());
        let get = || self.inode(ino).and_then(|inode| self.attributes(&inode, ino));
        match Image::request(get) {
            Ok(attr) => reply.attr(&self.ttl, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let _answering = self.threads.answer(req.pid());
        let read =
            || self.inode(ino).and_then(|inode| self.logged(ino, self.image()?.read_link(&inode)));
        match Image::request(read) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    // ENOSYS means that files need no handle. The kernel then opens them without a request, and
    // keeps their pages.
    fn open(&self, req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _answering = self.threads.answer(req.pid());
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _answering = self.threads.answer(req.pid());
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _answering = self.threads.answer(req.pid());
        BUFFER.with_borrow_mut(|buffer| {
            let read = || {
                let inode = self.inode(ino)?;
                let end = offset.saturating_add(size.min(2 * MAX_READ).into()).min(inode.size());
                let wanted = offset.min(end)..end;
                if u64::from(size) > SMALL_READ {
                    self.threads.wake_all();
                }
                let mut file = self.image()?.reader(&inode);
                // A direct read does not use the page cache.
                let plan = match wanted.is_empty() || flags.0 & libc::O_DIRECT != 0 {
                    true => Plan::Wanted,
                    false => self.page_store.plan(&mut file, &wanted, self.threads.is_busy()),
                };
                let len = self.read_into(&mut file, ino, &wanted, buffer)?;
                if let Plan::Ahead(ahead) = plan
                    && u64::try_from(len)
                        .is_ok_and(|len| len == wanted.end.saturating_sub(wanted.start))
                {
                    self.store_ahead(&mut file, ino, &wanted, ahead, buffer);
                }
                Ok((plan, len))
            };
            let (plan, len) = match Image::request(read) {
                Ok(read) => read,
                Err(error) => return reply.error(error),
            };
            self.page_store.counters.read(len);
            reply.data(buffer.split_at(len).0);
            if let Plan::Around(unit) = plan {
                self.page_store.store_later(ino, unit);
            }
        });
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _answering = self.threads.answer(req.pid());
        let found = match Whence::from_raw(whence) {
            Some(whence) => Image::request(|| self.seek(ino, offset, whence)),
            None => Err(Errno::EINVAL),
        };
        match found {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _answering = self.threads.answer(req.pid());
        let add = |ino, entry: &DirEntry, entries: &mut ReadDir<'_>| {
            let file_type = entry.file_type.or_else(|| Some(self.inode(ino).ok()?.file_type()));
            let next = entries.cookie().to_raw();
            Ok(reply.add(ino, next, listed_kind(file_type), OsStr::from_bytes(&entry.name)))
        };
        match Image::request(|| self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _answering = self.threads.answer(req.pid());
        let add = |ino, entry: &DirEntry, entries: &mut ReadDir<'_>| {
            // The name of a damaged inode is listed; a later lookup reports the damage. The kernel
            // takes attributes for those of the name.
            let attr = self.inode(ino).and_then(|inode| self.attributes(&inode, ino));
            let attr = attr.ok().filter(|_| entries.is_found(entry));
            let attr = attr.unwrap_or_else(|| unreadable(ino, entry.file_type));
            let next = entries.cookie().to_raw();
            Ok(reply.add(
                ino,
                next,
                OsStr::from_bytes(&entry.name),
                &self.ttl,
                &attr,
                Generation(0),
            ))
        };
        match Image::request(|| self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let _answering = self.threads.answer(req.pid());
        let Opened { image, block_size, .. } = match self.opened() {
            Ok(opened) => opened,
            Err(error) => return reply.error(error),
        };
        let superblock = image.superblock();
        let (blocks, inodes) = (superblock.blocks, superblock.inodes);
        reply.statfs(blocks, 0, 0, inodes, 0, *block_size, NAME_MAX.into(), *block_size);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _answering = self.threads.answer(req.pid());
        reply_sized(Image::request(|| self.xattr_value(ino, name)), size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _answering = self.threads.answer(req.pid());
        reply_sized(Image::request(|| self.xattr_names(ino)), size, reply);
    }
}
