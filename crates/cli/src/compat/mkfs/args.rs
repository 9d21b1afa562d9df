//! The command line of `mkfs.erofs` 1.9 with Android's additions. Every option is listed here, even
//! if ferofs ignores or refuses it; [`super`] converts the options to the library's.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{ArgAction, Parser};

use crate::compat::number::{number, size};

/// Build an EROFS image.
#[derive(Parser, Debug)]
#[command(name = "mkfs.erofs", version = crate::compat::version::MKFS.as_str(), disable_version_flag = true, max_term_width = 100)]
#[command(
    infer_long_args = true,
    args_override_self = true,
    override_usage = "mkfs.erofs [OPTIONS] IMAGE [SOURCE]..."
)]
pub(super) struct Args {
    /// The image to write: a file or a block device; - is standard output
    pub(super) image: PathBuf,

    /// The sources: a directory, a tar archive, or EROFS images; - is standard input
    #[arg(value_name = "SOURCE")]
    pub(super) sources: Vec<PathBuf>,

    /// Compress file data with X, one of the compressors at the end of this help [default: no
    /// compression]
    #[arg(short = 'z', value_name = "X[,level=#][,dictsize=#][:...]")]
    pub(super) compressor: Vec<String>,

    /// Block size in bytes: a power of two from 512 to 65536 [default: 4096; if data stays in the
    /// sources, their block size]
    #[arg(short = 'b', value_name = "#", value_parser = size::<u64>)]
    pub(super) block_size: Option<u64>,

    /// Largest compressed size of a pcluster in bytes: a multiple of the block size, up to 1M
    /// [default: the block size]
    #[arg(short = 'C', value_name = "#", value_parser = size::<u64>)]
    pub(super) pcluster_size: Option<u64>,

    /// Extended options, separated by commas; ^X turns X off: 48bit, all-fragments[=N], dedupe,
    /// dot-omitted, force-chunk-indexes, force-inode-blockmap, force-inode-compact,
    /// force-inode-extended, fragments[=N], holes (not in erofs-utils), inline_data,
    /// legacy-compress, noinline_data, nosbcrc, sbcrc, xattr-name-filter, ztailpacking; accepted
    /// without effect: fragdedupe[=inode|full], plain-xattr-prefixes
    #[arg(short = 'E', value_name = "X[,...]", allow_hyphen_values = true)]
    pub(super) extended: Vec<String>,

    /// Turn on extended options by number; # is a sum of: legacy-compress 1, ztailpacking 2,
    /// fragments 4, all-fragments 8, dedupe 16, fragdedupe 32 (without effect), 48bit 64,
    /// dot-omitted 128
    #[arg(long, value_name = "#", value_parser = number::<u32>)]
    pub(super) zfeature_bits: Option<u32>,

    /// Label of the image, at most 16 bytes; with 16 bytes the image needs Linux 6.15 [default:
    /// empty]
    #[arg(short = 'L', value_name = "X")]
    pub(super) label: Option<OsString>,

    /// Compress inodes, and the attributes and data after them, in pclusters of at most # bytes,
    /// with X or, if X is a number, that compressor of -z, the first one being 0 [default: 0].
    /// Without -z, X also compresses data, and without X nothing is compressed
    #[arg(short = 'm', value_name = "#[:X]")]
    pub(super) metadata: Option<String>,

    /// Set the build time of the image and the time of all files, in seconds since 1970 [default:
    /// now; files keep their times]. If $SOURCE_DATE_EPOCH is set, it is the build time instead,
    /// and later times of files become it
    #[arg(short = 'T', value_name = "#", value_parser = number::<i64>, allow_hyphen_values = true)]
    pub(super) time: Option<i64>,

    /// With -T: keep the times of the files
    #[arg(long, overrides_with = "all_time")]
    pub(super) mkfs_time: bool,

    /// With -T: also set the time of all files (default)
    #[arg(long, overrides_with = "mkfs_time")]
    pub(super) all_time: bool,

    /// UUID of the image; `clear` sets all zeroes, `random` a random UUID [default: random]
    #[arg(short = 'U', value_name = "X")]
    pub(super) uuid: Option<String>,

    /// Share an extended attribute if more than # files have it; -1 stores no attributes [default:
    /// share if this saves bytes]
    #[arg(short = 'x', value_name = "#", value_parser = number::<i64>, allow_hyphen_values = true)]
    pub(super) xattr_tolerance: Option<i64>,

    /// Level of messages: 0 prints only errors, and all other levels are the same
    #[arg(short = 'd', value_name = "#", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(super) debug: Option<u8>,

    /// Print only errors
    #[arg(long)]
    pub(super) quiet: bool,

    /// Compress directories that are larger than one block (1) or not (0) [default: 0]
    #[arg(long = "zD", value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(super) compress_directories: Option<String>,

    /// Accepted without effect: inodes (i) and directories (d) are always stored apart from file
    /// data
    #[arg(long = "MZ", value_name = "0|id", num_args = 0..=1, require_equals = true, default_missing_value = "id")]
    pub(super) metadata_zone: Option<String>,

    /// Set the owner and the group of all files to root
    #[arg(long)]
    pub(super) all_root: bool,

    /// Accepted without effect: the length of the queue follows from the number of workers
    #[arg(long, value_name = "#", value_parser = number::<u32>)]
    pub(super) async_queue_limit: Option<u32>,

    /// Write chunks to this file or block device; needs --chunksize
    #[arg(long, value_name = "X")]
    pub(super) blobdev: Option<PathBuf>,

    /// Store files uncompressed in chunks of this size, and equal chunks once: a power of two from
    /// the block size to 67108864 bytes
    #[arg(long, value_name = "#", value_parser = size::<u64>)]
    pub(super) chunksize: Option<u64>,

    /// Build a new image (default): `data` copies all data; `rvsp` reserves space for the data of a
    /// tar archive without copying it; `0` is the same as `data`
    #[arg(long, value_name = "data|rvsp|0", num_args = 0..=1, require_equals = true, default_missing_value = "data")]
    pub(super) clean: Option<String>,

    /// Add the source to an existing image, in place: its files replace files of the same name
    #[arg(long, value_name = "data|rvsp|0", num_args = 0..=1, require_equals = true, default_missing_value = "data")]
    pub(super) incremental: Option<String>,

    /// Read the pcluster size and the compressor for some files from X; each line is `SIZE [NUMBER]
    /// REGEX`
    #[arg(long, value_name = "X")]
    pub(super) compress_hints: Option<PathBuf>,

    /// Align the data of chunks to a multiple of this many blocks [default: 1]
    #[arg(long, value_name = "#", value_parser = number::<u32>)]
    pub(super) dsunit: Option<u32>,

    /// Exclude this path, relative to the source; may be given several times
    #[arg(long, value_name = "X")]
    pub(super) exclude_path: Vec<OsString>,

    /// Exclude paths that match this POSIX extended regular expression; may be given several times
    #[arg(long, value_name = "X")]
    pub(super) exclude_regex: Vec<String>,

    /// Set the SELinux labels that this file_contexts file gives
    #[arg(long, value_name = "X")]
    pub(super) file_contexts: Option<PathBuf>,

    /// Android: set the owners, modes and capabilities that this fs_config file gives
    #[arg(long, value_name = "X")]
    pub(super) fs_config_file: Option<PathBuf>,

    /// Android: ignored if --fs-config-file is given, and refused otherwise
    #[arg(long, value_name = "X")]
    pub(super) product_out: Option<PathBuf>,

    /// Android: write a list of the blocks of each file to X
    #[arg(long, value_name = "X")]
    pub(super) block_list_file: Option<PathBuf>,

    /// Directory on which the image will be mounted; labels, owners and block lists use paths below
    /// it
    #[arg(long, value_name = "X", default_value = "/")]
    pub(super) mount_point: OsString,

    /// Set the owner of all files to this user ID
    #[arg(long, value_name = "#", value_parser = number::<u32>)]
    pub(super) force_uid: Option<u32>,

    /// Set the group of all files to this group ID
    #[arg(long, value_name = "#", value_parser = number::<u32>)]
    pub(super) force_gid: Option<u32>,

    /// Round the size of the image up to a multiple of this many blocks, rounded up to a power of
    /// two [default: 1]
    #[arg(long, value_name = "#", value_parser = number::<u32>)]
    pub(super) fsalignblks: Option<u32>,

    /// Add # to the user ID of every file and to those in ACLs; # may be negative
    #[arg(long, value_name = "#", value_parser = number::<i64>, default_value_t = 0, allow_hyphen_values = true)]
    pub(super) uid_offset: i64,

    /// Add # to the group ID of every file and to those in ACLs; # may be negative
    #[arg(long, value_name = "#", value_parser = number::<i64>, default_value_t = 0, allow_hyphen_values = true)]
    pub(super) gid_offset: i64,

    /// Store each hard link as a separate file
    #[arg(long)]
    pub(super) hard_dereference: bool,

    /// Set the time of a file to the build time if its own time needs a larger inode
    #[arg(long, overrides_with = "preserve_mtime")]
    pub(super) ignore_mtime: bool,

    /// Keep each file's time (default)
    #[arg(long, overrides_with = "ignore_mtime")]
    pub(super) preserve_mtime: bool,

    /// Largest decoded size of an extent, in bytes; at least the block size [default: no limit]
    #[arg(long, value_name = "#", value_parser = size::<u64>)]
    pub(super) max_extent_bytes: Option<u64>,

    /// Start of the image in its file or block device, in bytes
    #[arg(long, value_name = "#", value_parser = size::<u64>, default_value_t = 0)]
    pub(super) offset: u64,

    /// Reserve at least this many bytes for the extended attributes of the root
    #[arg(long, value_name = "#", value_parser = size::<usize>, default_value_t = 0)]
    pub(super) root_xattr_isize: usize,

    /// Convert aufs whiteouts (`.wh.NAME`) to overlayfs whiteouts
    #[arg(long)]
    pub(super) aufs: bool,

    /// Remove overlayfs attributes and whiteouts (1) or keep them (0) [default: 0]
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(super) ovlfs_strip: Option<String>,

    /// Accepted without effect: the order of the data of a tar archive
    #[arg(long, value_name = "path|none")]
    pub(super) sort: Option<String>,

    /// The source is a tar archive: `f` copies its data, `i` or `0` refers to the data in the
    /// archive, `headerball` is an archive of headers without data
    #[arg(long, value_name = "f|i|headerball", num_args = 0..=1, require_equals = true, default_missing_value = "f")]
    pub(super) tar: Option<String>,

    /// The tar archive is compressed with gzip; also write it to X, decompressed
    #[arg(long, visible_alias = "gzip", value_name = "X", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) ungzip: Option<OsString>,

    /// The tar archive is compressed with xz, lzma or lzip; also write it to X, decompressed
    #[arg(long, visible_alias = "unlzma", value_name = "X", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) unxz: Option<OsString>,

    /// Refused: an index for random access to gzip data is not supported
    #[arg(long, value_name = "X", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) gzinfo: Option<OsString>,

    /// Refused: ferofs does not read object stores
    #[arg(long, value_name = "X")]
    pub(super) s3: Option<String>,

    /// The source is an OCI image layout on disk; its layers are merged. Registries are refused
    #[arg(long, value_name = "f[,platform=X]", num_args = 0..=1, require_equals = true, default_missing_value = "f")]
    pub(super) oci: Option<String>,

    /// Write a VMDK descriptor to X: virtual machines can use the image and its extra devices as
    /// one disk
    #[arg(long, value_name = "X")]
    pub(super) vmdk_desc: Option<PathBuf>,

    /// Number of worker threads; the image does not depend on it [default: one for each processor]
    #[arg(long, value_name = "#", value_parser = number::<usize>)]
    pub(super) workers: Option<usize>,

    /// Store the SHA-256 digest of each file as an extended attribute with this name
    #[arg(
        long,
        value_name = "X",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "erofs.fingerprint.v1"
    )]
    pub(super) xattr_inode_digest: Option<String>,

    /// Store this prefix of attribute names once, for example `trusted.overlay.` with the dot; may
    /// be given several times
    #[arg(long, value_name = "X")]
    pub(super) xattr_prefix: Vec<String>,

    /// Skip files and directories that cannot be read, with a warning, instead of failing (not in
    /// erofs-utils)
    #[arg(long)]
    pub(super) skip_unreadable: bool,

    /// Multiply the limits on the memory for archive headers, attributes, sparse maps and
    /// decompression, and on the size of holes, by # (not in erofs-utils)
    #[arg(long, value_name = "#", default_value = "1")]
    pub(super) archive_limits: NonZeroU32,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}
