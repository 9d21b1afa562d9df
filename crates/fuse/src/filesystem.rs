//! Answers the kernel's requests from an open image.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferofs::Error;
use ferofs::read::{DirCookie, FileOffset, Image, Inode};
use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request,
};

use crate::attr::{Numbers, attributes, errno, kind};

/// As good as for ever: an image does not change.
const TTL: Duration = Duration::from_secs(1 << 31);
const NAME_MAX: u32 = 255;
const MAX_READ: u32 = 1 << 20;
/// At most one line of complaint in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// Where a thread of the session puts what it reads; it grows to the largest request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct ImageFilesystem {
    image: Image,
    name: String,
    numbers: Numbers,
    block_size: u32,
    started: Instant,
    /// Milliseconds from the start to the next line that may be logged.
    next_log: AtomicU64,
}

impl ImageFilesystem {
    pub(crate) fn new(image: Image, name: String) -> Self {
        let superblock = image.superblock();
        let numbers = Numbers::new(superblock.root);
        // Block sizes are at most 64 KiB.
        let block_size = u32::try_from(superblock.block_size.bytes64()).unwrap_or(4096);
        Self { image, name, numbers, block_size, started: Instant::now(), next_log: AtomicU64::new(0) }
    }

    fn inode(&self, ino: INodeNo) -> Result<Inode, Errno> {
        self.told(self.image.inode(self.numbers.nid(ino)))
    }

    /// The error number of a failure, which is logged when the image or the medium is to blame.
    fn told<T>(&self, result: ferofs::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| {
            if matches!(error, Error::Corrupt(_) | Error::Unsupported(_) | Error::Io { .. }) {
                self.log(&error);
            }
            errno(&error)
        })
    }

    fn log(&self, error: &Error) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = self.next_log.load(Ordering::Relaxed);
        let later = now.saturating_add(u64::try_from(LOG_INTERVAL.as_millis()).unwrap_or(u64::MAX));
        if now >= next
            && self.next_log.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            eprintln!("ferofs: {}: {error}", self.name);
        }
    }

    fn read_into(&self, ino: INodeNo, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.inode(ino)?;
        self.told(self.image.read_at(&inode, FileOffset::new(offset), buf))
    }

    fn list(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(INodeNo, u64, &ferofs::read::DirEntry) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let dir = self.inode(ino)?;
        let mut entries = self.told(self.image.read_dir_from(&dir, DirCookie::from_raw(offset)))?;
        let mut any = false;
        while let Some(entry) = entries.next() {
            // What was listed so far is given out; the damage is reported by the next request.
            let entry = match self.told(entry) {
                Err(_) if any => break,
                entry => entry?,
            };
            let full = add(self.numbers.ino(entry.nid), entries.cookie().to_raw(), &entry)?;
            if full {
                break;
            }
            any = true;
        }
        Ok(())
    }

    fn names(&self, ino: INodeNo) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        let mut names = Vec::new();
        for xattr in self.told(self.image.xattrs(&inode))? {
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
        Ok(names)
    }

    fn value(&self, ino: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        self.told(self.image.xattr(&inode, name.as_bytes()))?.ok_or(Errno::ENODATA)
    }
}

/// Answers a request for bytes whose size the kernel may want to know first.
fn reply_sized(bytes: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match bytes {
        Err(error) => reply.error(error),
        // Values have at most 64 KiB; names of one inode fit its 256 KiB of attributes.
        Ok(bytes) if size == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
    }
}

impl Filesystem for ImageFilesystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_MAX_PAGES;
        // What an older kernel lacks, it does without.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        // The kernel answers with what it allows; that is then in force.
        let _ = config.set_max_readahead(MAX_READ);
        let _ = config.set_max_write(MAX_READ);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let find = || {
            let dir = self.inode(parent)?;
            let Some(entry) = self.told(self.image.lookup(&dir, name.as_bytes()))? else { return Ok(None) };
            let ino = self.numbers.ino(entry.nid);
            Ok(Some(attributes(&self.inode(ino)?, ino, self.block_size)))
        };
        match find() {
            Ok(Some(attr)) => reply.entry(&TTL, &attr, Generation(0)),
            // An inode number of 0 makes the kernel remember that there is no such name.
            Ok(None) => reply.entry(&TTL, &absent(), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.inode(ino) {
            Ok(inode) => reply.attr(&TTL, &attributes(&inode, ino, self.block_size)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.inode(ino).and_then(|inode| self.told(self.image.read_link(&inode))) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    // Files and directories need no handle: the kernel then opens them by itself, and keeps their pages.
    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(2 * MAX_READ) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.read_into(ino, offset, &mut buffer[..size]) {
                Ok(len) => reply.data(&buffer[..len]),
                Err(error) => reply.error(error),
            }
        });
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.list(ino, offset, |ino, next, entry| {
            let file_type = match entry.file_type {
                Some(file_type) => file_type,
                None => self.inode(ino)?.file_type(),
            };
            Ok(reply.add(ino, next, kind(file_type), OsStr::from_bytes(&entry.name)))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(ino, offset, |ino, next, entry| {
            // The name of a damaged inode is listed all the same; looking at it then fails.
            let attr = match self.inode(ino) {
                Ok(inode) => attributes(&inode, ino, self.block_size),
                Err(_) => absent(),
            };
            Ok(reply.add(ino, next, OsStr::from_bytes(&entry.name), &TTL, &attr, Generation(0)))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let superblock = self.image.superblock();
        let (blocks, inodes) = (superblock.blocks, superblock.inodes);
        reply.statfs(blocks, 0, 0, inodes, 0, self.block_size, NAME_MAX, self.block_size);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_sized(self.value(ino, name), size, reply);
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_sized(self.names(ino), size, reply);
    }
}

/// The attributes of what is not there: inode number 0.
fn absent() -> fuser::FileAttr {
    let epoch = std::time::UNIX_EPOCH;
    fuser::FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
