//! Recognises file systems, archives and other formats by their first bytes: to say what a source
//! is that cannot be read, and what an output would destroy. Sources: the formats' specifications,
//! and the table of file(1).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::{fmt, io};

use ferofs_format::units::to_u64;

/// Bytes in which all of these formats are recognised: the labels of ZFS end there.
const LEN: usize = 256 << 10;

/// A format of a file or block device that is neither a tar archive nor an EROFS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFormat {
    name: &'static str,
    advice: &'static str,
    is_storage: bool,
}

impl KnownFormat {
    /// The format of a file that begins with `bytes`. More formats are recognised in 256 KiB than
    /// in less.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let has =
            |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|bytes| bytes.starts_with(magic));
        let storage = |(name, places): &(&'static str, &[(usize, &[u8])])| {
            let found = places.iter().any(|(at, magic)| has(*at, magic));
            found.then_some(Self { name, advice: storage_advice(name), is_storage: true })
        };
        let file = |(name, magic, advice): &(&'static str, &[u8], &'static str)| {
            has(0, magic).then_some(Self { name, advice, is_storage: false })
        };
        let zfs = || {
            // Some of the 128 slots of a label have an uberblock, in the byte order of the machine
            // that wrote it.
            let mut slots = (128 << 10..LEN).step_by(1 << 10);
            let magic = 0x00ba_b10c_u64;
            slots
                .any(|at| has(at, &magic.to_le_bytes()) || has(at, &magic.to_be_bytes()))
                .then_some(Self { name: "a ZFS pool", advice: MOUNT, is_storage: true })
        };
        STORAGE.iter().find_map(storage).or_else(zfs).or_else(|| FILES.iter().find_map(file))
    }

    /// The format of a file or device, of which the first `start` bytes are left out.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(file: &File, start: u64) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; LEN];
        let mut len = 0;
        while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, start.saturating_add(to_u64(len))) {
                Ok(0) => break,
                Ok(read) => len = len.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(len);
        Ok(Self::of(&bytes))
    }

    /// Its name with an article: `an ext2, ext3 or ext4 file system`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether this is how a disk is used: a file system, a partition table, or a part of a volume.
    #[must_use]
    pub const fn is_storage(&self) -> bool {
        self.is_storage
    }

    /// Whether it is a partition table.
    #[must_use]
    pub fn is_partition_table(&self) -> bool {
        self.name == PARTITIONS
    }
}

/// The name, and how to build an image of what is in it.
impl fmt::Display for KnownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; use {}", self.advice) }
    }
}

const MOUNT: &str = "mount -o ro FILE DIR, then ferofs build DIR IMAGE";
/// A mount also keeps the owners for users who are not root, which unsquashfs does not.
const MOUNT_SQUASHFS: &str =
    "mount -o ro FILE DIR, or squashfuse FILE DIR, then ferofs build DIR IMAGE";
const SQUASHFS: &str = "a squashfs image";
const PARTITIONS: &str = "a disk with a partition table";

fn storage_advice(name: &str) -> &'static str {
    match name {
        SQUASHFS => MOUNT_SQUASHFS,
        PARTITIONS => "losetup -P -f --show FILE, mount the partition, then ferofs build DIR IMAGE",
        _ => MOUNT,
    }
}

/// Bytes that a format has at a position.
type Magic = (usize, &'static [u8]);

/// Formats of disks, with positions and magic numbers. Boot sectors of file systems look like those
/// of partition tables, so these are last.
const STORAGE: [(&str, &[Magic]); 21] = [
    ("an ext2, ext3 or ext4 file system", &[(1080, b"\x53\xef")]),
    ("an XFS file system", &[(0, b"XFSB")]),
    ("a Btrfs file system", &[(65600, b"_BHRfS_M")]),
    (
        "a bcachefs file system",
        &[(4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef")],
    ),
    ("an F2FS file system", &[(1024, b"\x10\x20\xf5\xf2")]),
    ("a JFS file system", &[(32768, b"JFS1")]),
    ("a ReiserFS file system", &[(65588, b"ReIsEr")]),
    (SQUASHFS, &[(0, b"hsqs"), (0, b"sqsh")]),
    ("a cramfs image", &[(0, b"\x45\x3d\xcd\x28"), (0, b"\x28\xcd\x3d\x45")]),
    ("a romfs image", &[(0, b"-rom1fs-")]),
    ("an exFAT file system", &[(3, b"EXFAT   ")]),
    ("an NTFS file system", &[(3, b"NTFS    ")]),
    ("a FAT file system", &[(54, b"FAT12   "), (54, b"FAT16   "), (82, b"FAT32   ")]),
    ("an ISO 9660 image", &[(32769, b"CD001")]),
    ("a UDF file system", &[(32769, b"BEA01")]),
    ("an encrypted LUKS volume", &[(0, b"LUKS\xba\xbe"), (0, b"SKUL\xba\xbe")]),
    (
        "a volume of LVM",
        &[(0, b"LABELONE"), (512, b"LABELONE"), (1024, b"LABELONE"), (1536, b"LABELONE")],
    ),
    ("a part of a RAID", &[(0, b"\xfc\x4e\x2b\xa9"), (4096, b"\xfc\x4e\x2b\xa9")]),
    ("a swap space", &[(4086, b"SWAPSPACE2"), (16374, b"SWAPSPACE2"), (65526, b"SWAPSPACE2")]),
    (PARTITIONS, &[(512, b"EFI PART"), (4096, b"EFI PART")]),
    (PARTITIONS, &[(510, b"\x55\xaa")]),
];

/// Formats of files, with magic number and advice.
const FILES: [(&str, &[u8], &str); 25] = [
    ("a ZIP archive", b"PK\x03\x04", "unzip FILE -d DIR, then ferofs build DIR IMAGE"),
    ("a 7z archive", b"7z\xbc\xaf\x27\x1c", "7z x FILE -oDIR, then ferofs build DIR IMAGE"),
    ("a RAR archive", b"Rar!", "unrar x FILE DIR/, then ferofs build DIR IMAGE"),
    ("a cpio archive", b"070701", CPIO),
    ("a cpio archive", b"070702", CPIO),
    ("a cpio archive", b"070707", CPIO),
    ("a cpio archive", b"\xc7\x71", CPIO),
    (
        "a Debian package or an ar archive",
        b"!<arch>\n",
        "dpkg-deb --fsys-tarfile FILE | ferofs build - IMAGE",
    ),
    ("an RPM package", b"\xed\xab\xee\xdb", "rpm2archive -n FILE | ferofs build - IMAGE"),
    ("a DwarFS image", b"DWARFS", "dwarfsextract -i FILE -f gnutar | ferofs build - IMAGE"),
    ("compressed with lz4", b"\x04\x22\x4d\x18", "lz4 -dc FILE | ferofs build - IMAGE"),
    ("compressed with lzop", b"\x89LZO\0", "lzop -dc FILE | ferofs build - IMAGE"),
    ("compressed with compress", b"\x1f\x9d", "gzip -dc FILE | ferofs build - IMAGE"),
    ("a qcow2 disk image", b"QFI\xfb", QEMU),
    ("a VMDK disk image", b"KDMV", QEMU),
    ("a VHDX disk image", b"vhdxfile", QEMU),
    ("an Android sparse image", b"\x3a\xff\x26\xed", "simg2img FILE RAW, then RAW"),
    ("a WIM image", b"MSWIM\0\0\0", "wimapply FILE 1 DIR, then ferofs build DIR IMAGE"),
    ("a PNG picture", b"\x89PNG", ""),
    ("a JPEG picture", b"\xff\xd8\xff", ""),
    ("a GIF picture", b"GIF8", ""),
    ("a PDF document", b"%PDF-", ""),
    ("an ELF program", b"\x7fELF", ""),
    ("a patch of ferofs", b"ferofspt", "ferofs patch apply"),
    ("a SQLite database", b"SQLite format 3\0", ""),
];

const CPIO: &str = "cpio -idm -D DIR < FILE, then ferofs build DIR IMAGE";
const QEMU: &str = "qemu-img convert -O raw FILE RAW, mount RAW, then ferofs build DIR IMAGE";
