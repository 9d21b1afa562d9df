//! What a tree shows, in the same form for Linux's mount and for our reader: names, modes, owners,
//! sizes, times, link targets, attributes and content, each with its digest or its error.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ferofs::read::{ExtentData, FileOffset, Image, Inode};
use rustix::fs::SeekFrom;

/// Files that are read at most, and levels of directories: a loop of directories has no end.
const MAX_FILES: usize = 300;
const MAX_LEVELS: usize = 8;
/// Names of a directory that are read at most.
const MAX_NAMES: usize = 1000;
/// Bytes up to which a file is read as a whole; of a larger one, this part and the last [`END`]
/// bytes.
const MAX_CONTENT: u64 = 2 << 20;
const END: u64 = 64 << 10;
/// A file of this name is read as programs copy sparse files: only what `SEEK_DATA` and `SEEK_HOLE`
/// find.
pub(crate) const SPARSE: &str = "sparse";
/// Bytes that are read of such a file at most: where Linux shows no holes, they could be terabytes.
const MAX_DATA: u64 = 2 << 30;
/// Blocks of zeroes of such a file count as holes, so that its digest does not depend on the holes
/// that are shown.
const BLOCK: u64 = 4096;
/// Linux shows this owner for the number that means "none".
const OVERFLOW_ID: u32 = 65534;

/// A property of a file: its path and a letter, and its digest or error.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) what: String,
    pub(crate) value: Result<u64, String>,
}

/// The digest of a whole tree. All errors are equal.
pub(crate) fn total(entries: &[Entry]) -> u64 {
    digest(
        &entries.iter().map(|entry| (&entry.what, entry.value.as_ref().ok())).collect::<Vec<_>>(),
    )
}

fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The fields of an inode that `stat` shows.
#[derive(Hash)]
struct Stat {
    mode: u32,
    owner: (u32, u32),
    size: u64,
    mtime: (i64, u32),
    device: u64,
}

type Read<T> = Result<T, String>;
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// A tree to read.
pub(crate) trait Tree {
    type Node;
    fn root(&self) -> Read<Self::Node>;
    fn names(&self, dir: &Self::Node) -> Read<Vec<Vec<u8>>>;
    fn child(&self, dir: &Self::Node, name: &[u8]) -> Read<Self::Node>;
    fn stat(&self, node: &Self::Node) -> Read<StatOf>;
    fn attributes(&self, node: &Self::Node) -> Read<Attributes>;
    fn link(&self, node: &Self::Node) -> Read<Vec<u8>>;
    fn read(&self, node: &Self::Node, offset: u64, buffer: &mut [u8]) -> Read<usize>;
    /// The range of data at or after `offset` that ends at a hole; none if only a hole follows.
    fn data(&self, node: &Self::Node, offset: u64) -> Read<Option<Range<u64>>>;
}

/// [`Stat`], opaque to the trait's users.
pub(crate) struct StatOf(Stat);

/// Reads all of `tree`, and continues after errors.
pub(crate) fn entries<T: Tree>(tree: &T) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut buffer = vec![0; 128 << 10];
    let mut pending = vec![(String::from("/"), 0, tree.root())];
    let mut files = 0;
    while let Some((path, level, node)) = pending.pop() {
        files += 1;
        if files > MAX_FILES {
            break;
        }
        let mut add = |letter: char, value: Read<u64>| {
            found.push(Entry { what: format!("{path}:{letter}"), value })
        };
        let stat = node.and_then(|node| Ok((tree.stat(&node)?, node)));
        let (stat, node) = match stat {
            Ok((StatOf(stat), node)) => (stat, node),
            Err(error) => {
                add('s', Err(error));
                continue;
            }
        };
        add('s', Ok(digest(&stat)));
        add(
            'x',
            tree.attributes(&node).map(|mut all| {
                all.sort();
                digest(&all)
            }),
        );
        match stat.mode >> 12 {
            0o04 => {
                let names =
                    tree.names(&node).map(|names| names.into_iter().collect::<BTreeSet<_>>());
                add('d', names.as_ref().map(digest).map_err(Clone::clone));
                for name in names.iter().flatten().rev().filter(|_| level < MAX_LEVELS) {
                    let path = format!("{}/{}", path.trim_end_matches('/'), name.escape_ascii())
                        .replace(' ', "\\x20");
                    pending.push((path, level + 1, tree.child(&node, name)));
                }
            }
            0o10 if path.rsplit('/').next() == Some(SPARSE) => {
                let ranges = data_ranges(tree, &node, stat.size);
                add('h', ranges.as_ref().map(digest).map_err(Clone::clone));
                add(
                    'c',
                    ranges.and_then(|ranges| sparse_content(tree, &node, &ranges, &mut buffer)),
                );
            }
            0o10 => add('c', content(tree, &node, stat.size, &mut buffer)),
            0o12 => add('l', tree.link(&node).map(|target| digest(&target))),
            _ => {}
        }
    }
    found
}

fn content<T: Tree>(tree: &T, node: &T::Node, size: u64, buffer: &mut [u8]) -> Read<u64> {
    let mut hasher = DefaultHasher::new();
    let last = match size > MAX_CONTENT {
        true => (size - END) / 4096 * 4096..size,
        false => 0..0,
    };
    for range in [0..size.min(MAX_CONTENT), last] {
        let mut at = range.start;
        while at < range.end {
            let len = buffer.len().min((range.end - at) as usize);
            let got = tree.read(node, at, &mut buffer[..len])?;
            if got == 0 {
                break;
            }
            hasher.write(&buffer[..got]);
            at += got as u64;
        }
        at.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The parts of a sparse file that are not holes.
fn data_ranges<T: Tree>(tree: &T, node: &T::Node, size: u64) -> Read<Vec<Range<u64>>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size
        && let Some(range) = tree.data(node, at)?
    {
        if range.end <= at {
            return Err(String::from("no-progress"));
        }
        at = range.end;
        ranges.push(range);
    }
    Ok(ranges)
}

/// The digest of the blocks with data, and of their offsets.
fn sparse_content<T: Tree>(
    tree: &T,
    node: &T::Node,
    ranges: &[Range<u64>],
    buffer: &mut [u8],
) -> Read<u64> {
    if ranges.iter().map(|range| range.end - range.start).sum::<u64>() > MAX_DATA {
        return Err(String::from("no-holes"));
    }
    let mut hasher = DefaultHasher::new();
    for range in ranges {
        let mut at = range.start / BLOCK * BLOCK;
        while at < range.end {
            let len = buffer.len().min((range.end - at) as usize);
            let got = tree.read(node, at, &mut buffer[..len])?;
            if got == 0 {
                return Err(String::from("short"));
            }
            for block in buffer[..got].chunks(BLOCK as usize) {
                if block.iter().any(|byte| *byte != 0) {
                    at.hash(&mut hasher);
                    hasher.write(block);
                }
                at += block.len() as u64;
            }
        }
    }
    Ok(hasher.finish())
}

/// A tree that Linux has mounted.
pub(crate) struct Mounted<'a>(pub(crate) &'a Path);

fn code(error: impl Into<std::io::Error>) -> String {
    error.into().raw_os_error().map_or_else(|| String::from("error"), |code| code.to_string())
}

impl Tree for Mounted<'_> {
    type Node = PathBuf;

    fn root(&self) -> Read<PathBuf> {
        Ok(self.0.to_owned())
    }

    fn names(&self, dir: &PathBuf) -> Read<Vec<Vec<u8>>> {
        let names = fs::read_dir(dir).map_err(code)?.take(MAX_NAMES);
        names.map(|entry| Ok(entry.map_err(code)?.file_name().into_vec())).collect()
    }

    fn child(&self, dir: &PathBuf, name: &[u8]) -> Read<PathBuf> {
        Ok(dir.join(std::ffi::OsStr::from_bytes(name)))
    }

    fn stat(&self, path: &PathBuf) -> Read<StatOf> {
        let found = fs::symlink_metadata(path).map_err(code)?;
        Ok(StatOf(Stat {
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            size: found.size(),
            mtime: (found.mtime(), found.mtime_nsec() as u32),
            device: found.rdev(),
        }))
    }

    fn attributes(&self, path: &PathBuf) -> Read<Attributes> {
        // Clearing a buffer for the longest list takes a virtual machine more time than reading a
        // small file.
        let mut list = vec![0; 4 << 10];
        let len = match rustix::fs::llistxattr(path, &mut list[..]) {
            Err(rustix::io::Errno::RANGE) => {
                list.resize(64 << 10, 0);
                rustix::fs::llistxattr(path, &mut list[..])
            }
            found => found,
        };
        let len = len.map_err(code)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut value = vec![0; 64 << 10];
        let names = list[..len].split_inclusive(|byte| *byte == 0);
        names
            .map(|name| {
                let name = name.strip_suffix(&[0]).unwrap_or(name);
                let len = rustix::fs::lgetxattr(path, name, &mut value[..]).map_err(code)?;
                Ok((name.to_vec(), value[..len].to_vec()))
            })
            .collect()
    }

    fn link(&self, path: &PathBuf) -> Read<Vec<u8>> {
        Ok(fs::read_link(path).map_err(code)?.into_os_string().into_vec())
    }

    fn read(&self, path: &PathBuf, offset: u64, buffer: &mut [u8]) -> Read<usize> {
        File::open(path).and_then(|file| file.read_at(buffer, offset)).map_err(code)
    }

    fn data(&self, path: &PathBuf, offset: u64) -> Read<Option<Range<u64>>> {
        let file = File::open(path).map_err(code)?;
        let start = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            start => start.map_err(code)?,
        };
        Ok(Some(start..rustix::fs::seek(&file, SeekFrom::Hole(start)).map_err(code)?))
    }
}

/// A tree as our reader shows it.
pub(crate) struct OurReader<'a>(pub(crate) &'a Image);

impl Tree for OurReader<'_> {
    type Node = Inode;

    fn root(&self) -> Read<Inode> {
        self.0.root().map_err(|error| error.to_string())
    }

    fn names(&self, dir: &Inode) -> Read<Vec<Vec<u8>>> {
        let names = self.0.read_dir(dir).map_err(|error| error.to_string())?;
        let names = names.map(|entry| entry.map(|entry| entry.name));
        let names = names.filter(|name| !matches!(name.as_deref(), Ok(b"." | b"..")));
        names.take(MAX_NAMES).collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    fn child(&self, dir: &Inode, name: &[u8]) -> Read<Inode> {
        let entry = self.0.lookup(dir, name).map_err(|error| error.to_string())?;
        let entry = entry.ok_or("not found")?;
        self.0.inode(entry.nid).map_err(|error| error.to_string())
    }

    fn stat(&self, inode: &Inode) -> Read<StatOf> {
        let disk = inode.on_disk();
        let owner = |id| if id == u32::MAX { OVERFLOW_ID } else { id };
        let device = inode.rdev().map_or(0, |rdev| rustix::fs::makedev(rdev.major, rdev.minor));
        Ok(StatOf(Stat {
            mode: disk.mode().into(),
            owner: (owner(disk.uid), owner(disk.gid)),
            size: disk.size,
            mtime: (disk.mtime.secs, disk.mtime.nanos),
            device,
        }))
    }

    fn attributes(&self, inode: &Inode) -> Read<Attributes> {
        let all = self.0.xattrs(inode).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(|xattr| (xattr.name, xattr.value)).collect())
    }

    fn link(&self, inode: &Inode) -> Read<Vec<u8>> {
        self.0.read_link(inode).map_err(|error| error.to_string())
    }

    fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Read<usize> {
        self.0.read_at(inode, FileOffset::new(offset), buffer).map_err(|error| error.to_string())
    }

    fn data(&self, inode: &Inode, offset: u64) -> Read<Option<Range<u64>>> {
        let extents =
            self.0.extents(inode, FileOffset::new(offset)).map_err(|error| error.to_string())?;
        let mut found: Option<Range<u64>> = None;
        for extent in extents {
            let extent = extent.map_err(|error| error.to_string())?;
            match (&mut found, extent.data) {
                (None, ExtentData::Hole) => {}
                (Some(_), ExtentData::Hole) => break,
                (None, _) => found = Some(extent.start.get().max(offset)..extent.end()),
                (Some(range), _) => range.end = extent.end(),
            }
        }
        Ok(found)
    }
}
