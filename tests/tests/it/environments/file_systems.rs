//! Trees on file systems that are not like those of Linux.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use std::{fs, io};

use ferofs_tests::{Mount, Run, ferofs, need, tree};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyXattr, Request,
};
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, lgetxattr, llistxattr, mknodat};

use crate::common::fixture::Fixture;

/// Shows a directory with fields of stat(2) that tell nothing: no blocks, blocks of one byte, one
/// type for all names, and another inode number at each look unless a file has several names.
struct OddFields {
    /// The file of each number that was shown, from 1 on.
    shown: Mutex<Vec<PathBuf>>,
}

impl OddFields {
    fn path(&self, number: INodeNo) -> PathBuf {
        self.shown.lock()[usize::try_from(number.0 - 1).unwrap()].clone()
    }

    fn look(&self, path: PathBuf) -> Result<FileAttr, Errno> {
        let found = fs::symlink_metadata(&path)?;
        let mut shown = self.shown.lock();
        shown.push(path);
        let nanos = Duration::new(found.ctime().unsigned_abs(), found.ctime_nsec() as u32);
        Ok(FileAttr {
            ino: INodeNo(shown.len() as u64),
            size: found.len(),
            blocks: 0,
            atime: found.accessed()?,
            mtime: found.modified()?,
            ctime: UNIX_EPOCH + nanos,
            crtime: UNIX_EPOCH,
            kind: FileType::from_std(found.file_type()).ok_or(Errno::EIO)?,
            perm: (found.mode() & 0o7777) as u16,
            nlink: found.nlink() as u32,
            uid: found.uid(),
            gid: found.gid(),
            rdev: found.rdev() as u32,
            blksize: 1,
            flags: 0,
        })
    }
}

/// Answers with an attribute, or with its size.
fn answer(reply: ReplyXattr, size: u32, read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) {
    let mut value = vec![0; 1 << 16];
    match read(&mut value) {
        Ok(len) if size == 0 => reply.size(len as u32),
        Ok(len) if len <= size as usize => reply.data(&value[..len]),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(io::Error::from(error).into()),
    }
}

impl Filesystem for OddFields {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look(self.path(parent).join(name)) {
            Ok(attributes) => reply.entry(&Duration::ZERO, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let path = self.path(ino);
        match self.look(path.clone()) {
            Ok(mut attributes) => {
                if attributes.nlink > 1 && attributes.kind != FileType::Directory {
                    attributes.ino = INodeNo(fs::symlink_metadata(path).unwrap().ino());
                }
                reply.attr(&Duration::ZERO, &attributes);
            }
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match fs::read_link(self.path(ino)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match fs::File::open(self.path(ino)).and_then(|file| file.read_at(&mut bytes, offset)) {
            Ok(len) => reply.data(&bytes[..len]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut names: Vec<_> =
            fs::read_dir(self.path(ino)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for (next, name) in (1..).zip(&names).skip(offset as usize) {
            if reply.add(ino, next, FileType::Socket, name) {
                break;
            }
        }
        reply.ok();
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer(reply, size, |value| lgetxattr(self.path(ino), name, value));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        answer(reply, size, |names| llistxattr(self.path(ino), names));
    }
}

#[test]
fn a_source_on_fuse_gives_the_image_of_the_plain_directory() {
    require!(need::fuse());
    let fixture = Fixture::new(&tree::Options::small());
    fs::rename(fixture.build("inner", ["-T0"]), fixture.source().join("image")).unwrap();
    let dir = fixture.directory("mount");
    let server = OddFields { shown: Mutex::new(vec![fixture.source()]) };
    let _mount = fuser::spawn_mount(server, &dir, &Config::default()).unwrap();
    for (options, source) in [(&["-znone"][..], ""), (&["--verify"], ""), (&["-zlz4"], "image")] {
        let build = |from: &Path| {
            let image = fixture.path("built");
            let build =
                ferofs().args(["build", "--quiet", "--force", "-T0", "-Uclear"]).args(options);
            let printed = build.arg(from.join(source)).arg(&image).success().stderr;
            assert_eq!(printed, "");
            fs::read(image).unwrap()
        };
        assert!(build(&dir) == build(&fixture.source()), "{options:?}");
    }
}

#[test]
fn extraction_to_exfat_names_what_is_lost_and_keeps_the_rest() {
    require!(need::root() && need::fuse() && need::tool("mount.exfat-fuse").is_some());
    let Some(format) = need::tool("mkfs.exfat") else { return };
    let fixture = Fixture::empty();
    let path = |name: &str| fixture.source().join(name);
    for name in ["README", "dir/file", "DIR/other", "readme"] {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), name).unwrap();
    }
    chown(path("README"), Some(1), Some(2)).unwrap();
    fs::hard_link(path("README"), path("second")).unwrap();
    symlink("README", path("link")).unwrap();
    mknodat(CWD, path("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    let image = fixture.build("image", ["-T0"]);
    let (volume, dir) = (fixture.path("volume"), fixture.directory("mount"));
    fs::File::create(&volume).unwrap().set_len(32 << 20).unwrap();
    Run::new(format).arg(&volume).success();
    Run::new("mount").args(["-t", "exfat-fuse", "-o", "loop"]).args([&volume, &dir]).success();
    let mount = Mount::adopt(&dir);
    for option in ["--quiet", "--overwrite", "--skip-existing"] {
        let target = dir.join(option);
        let run = ferofs().args(["extract", "--workers=1", option]).args([&image, &target]).run();
        let told = run.failure(1).stderr;
        for lost in [
            "README: chown: ",
            "second: copied instead of linked: ",
            "link: create a link or special file: ",
            "fifo: create a link or special file: ",
            "readme: create: the directory has this name in another case",
            "dir: create: the directory has this name in another case",
        ] {
            assert!(told.contains(lost), "{option}: {lost}: {told}");
        }
        for (name, content) in
            [("README", "README"), ("second", "README"), ("DIR/other", "DIR/other")]
        {
            assert_eq!(
                fs::read(target.join(name)).unwrap(),
                content.as_bytes(),
                "{option}: {name}"
            );
        }
    }
    mount.unmount().unwrap();
}
