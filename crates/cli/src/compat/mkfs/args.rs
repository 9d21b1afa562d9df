//! The command line of `mkfs.erofs` 1.9, and Android's additions to it: every flag has its place here, whether
//! it can be followed or not. [`super`] says what becomes of them.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{ArgAction, Parser};

/// Make an EROFS image.
#[derive(Parser, Debug)]
#[command(name = "mkfs.erofs", version = crate::compat::version::MKFS, disable_version_flag = true, max_term_width = 100)]
#[command(infer_long_args = true, override_usage = "mkfs.erofs [OPTIONS] IMAGE [SOURCE]...")]
pub(super) struct Args {
    /// The image to make: a file, or a block device; - is standard output
    pub(super) image: PathBuf,

    /// What to make it of
    #[arg(value_name = "SOURCE")]
    pub(super) sources: Vec<PathBuf>,

    /// Compress: X is one of the compressors named below
    #[arg(short = 'z', value_name = "X[,level=N][,dictsize=N][:...]")]
    pub(super) compressor: Option<String>,

    /// Block size in bytes, from 512 to 65536 [default: 4096; where content stays in its sources, theirs]
    #[arg(short = 'b', value_name = "SIZE", value_parser = size)]
    pub(super) block_size: Option<u64>,

    /// Largest physical cluster in bytes
    #[arg(short = 'C', value_name = "SIZE", value_parser = size)]
    pub(super) pcluster_size: Option<u64>,

    /// Extended options, separated by commas; ^X switches one off: 48bit, all-fragments[=N], dedupe,
    /// dot-omitted, force-chunk-indexes, force-inode-blockmap, force-inode-compact, force-inode-extended,
    /// fragdedupe[=inode|full], fragments[=N], inline_data, legacy-compress, noinline_data, nosbcrc,
    /// plain-xattr-prefixes, sbcrc, xattr-name-filter, ztailpacking
    #[arg(short = 'E', value_name = "X[,...]", allow_hyphen_values = true)]
    pub(super) extended: Vec<String>,

    /// The same by number: legacy-compress 1, ztailpacking 2, fragments 4, all-fragments 8, dedupe 16,
    /// fragdedupe 32, 48bit 64, dot-omitted 128
    #[arg(long, value_name = "BITS")]
    pub(super) zfeature_bits: Option<u32>,

    /// Volume label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub(super) label: Option<OsString>,

    /// Compress inodes and what follows them, in clusters of this many bytes, by -z's first compressor or by X
    #[arg(short = 'm', value_name = "SIZE[:X]")]
    pub(super) metadata: Option<String>,

    /// The image's and all files' time, seconds since 1970
    #[arg(short = 'T', value_name = "SECONDS", allow_hyphen_values = true)]
    pub(super) time: Option<i64>,

    /// With -T, keep the files' own times
    #[arg(long, overrides_with = "all_time")]
    pub(super) mkfs_time: bool,

    /// With -T, set the time of all files too (default)
    #[arg(long, overrides_with = "mkfs_time")]
    pub(super) all_time: bool,

    /// Set the UUID; `clear` for all zeroes, `random` for a random one
    #[arg(short = 'U', value_name = "UUID")]
    pub(super) uuid: Option<String>,

    /// Share attributes that more than N files have; -1 stores none [default: share where it saves bytes]
    #[arg(short = 'x', value_name = "N", allow_hyphen_values = true)]
    pub(super) xattr_tolerance: Option<i64>,

    /// Messages: 0 prints errors only
    #[arg(short = 'd', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(super) debug: Option<u8>,

    /// Print errors only
    #[arg(long)]
    pub(super) quiet: bool,

    /// Compress directories of more than a block
    #[arg(long = "zD", value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(super) compress_directories: Option<String>,

    /// Accepted; inodes (i) and directories (d) always stand in a zone of their own
    #[arg(long = "MZ", value_name = "0|id", num_args = 0..=1, require_equals = true, default_missing_value = "id")]
    pub(super) metadata_zone: Option<String>,

    /// Give all files to root
    #[arg(long)]
    pub(super) all_root: bool,

    /// Accepted; the queue is bounded by the number of workers
    #[arg(long, value_name = "N")]
    pub(super) async_queue_limit: Option<u32>,

    /// Put chunks on this device
    #[arg(long, value_name = "FILE")]
    pub(super) blobdev: Option<PathBuf>,

    /// Store files as chunks of this many bytes, equal ones once
    #[arg(long, value_name = "BYTES")]
    pub(super) chunksize: Option<u64>,

    /// Build anew (default): data takes all content, rvsp reserves room for that of a tar; 0 is taken as data
    #[arg(long, value_name = "data|rvsp|0", num_args = 0..=1, require_equals = true, default_missing_value = "data")]
    pub(super) clean: Option<String>,

    /// Add to the image, in place: what the source holds is laid over what it shows
    #[arg(long, value_name = "data|rvsp|0", num_args = 0..=1, require_equals = true, default_missing_value = "data")]
    pub(super) incremental: Option<String>,

    /// Cluster sizes and compressors by pattern
    #[arg(long, value_name = "FILE")]
    pub(super) compress_hints: Option<PathBuf>,

    /// Align data to this many blocks
    #[arg(long, value_name = "BLOCKS")]
    pub(super) dsunit: Option<u32>,

    /// Leave out this path, relative to the source
    #[arg(long, value_name = "PATH")]
    pub(super) exclude_path: Vec<OsString>,

    /// Leave out paths that match this POSIX extended regular expression
    #[arg(long, value_name = "REGEX")]
    pub(super) exclude_regex: Vec<String>,

    /// Set SELinux labels by this file_contexts file
    #[arg(long, value_name = "FILE")]
    pub(super) file_contexts: Option<PathBuf>,

    /// Android: set owners, modes and capabilities by this file
    #[arg(long, value_name = "FILE")]
    pub(super) fs_config_file: Option<PathBuf>,

    /// Android: where its own tables are; needs --fs-config-file, which takes their place
    #[arg(long, value_name = "DIR")]
    pub(super) product_out: Option<PathBuf>,

    /// Android: write the blocks of each file to this file
    #[arg(long, value_name = "FILE")]
    pub(super) block_list_file: Option<PathBuf>,

    /// Where the image will be mounted: for labels, owners and block lists
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(super) mount_point: OsString,

    /// Give all files to this user
    #[arg(long, value_name = "UID")]
    pub(super) force_uid: Option<u32>,

    /// Give all files to this group
    #[arg(long, value_name = "GID")]
    pub(super) force_gid: Option<u32>,

    /// Align the image's size to this many blocks
    #[arg(long, value_name = "BLOCKS")]
    pub(super) fsalignblks: Option<u32>,

    /// Add this to all users
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    pub(super) uid_offset: i64,

    /// Add this to all groups
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    pub(super) gid_offset: i64,

    /// Store each name of a hard-linked file as a file of its own
    #[arg(long)]
    pub(super) hard_dereference: bool,

    /// Use the build time for files whose own would take larger inodes
    #[arg(long, overrides_with = "preserve_mtime")]
    pub(super) ignore_mtime: bool,

    /// Keep each file's time (default)
    #[arg(long, overrides_with = "ignore_mtime")]
    pub(super) preserve_mtime: bool,

    /// Largest extent, in bytes of content
    #[arg(long, value_name = "BYTES")]
    pub(super) max_extent_bytes: Option<u64>,

    /// Start the image at this byte
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(super) offset: u64,

    /// Keep this many bytes for the root's attributes, at least
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(super) root_xattr_isize: usize,

    /// Turn AUFS' whiteouts into overlayfs'
    #[arg(long)]
    pub(super) aufs: bool,

    /// Leave out overlayfs' own attributes and whiteouts
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(super) ovlfs_strip: Option<String>,

    /// Order of a tar's data
    #[arg(long, value_name = "path|none")]
    pub(super) sort: Option<String>,

    /// The source is a tar: f takes its content, i points into it, headerball has none
    #[arg(long, value_name = "f|i|headerball", num_args = 0..=1, require_equals = true, default_missing_value = "f")]
    pub(super) tar: Option<String>,

    /// The tar is compressed with gzip; write it to FILE too, decompressed
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) ungzip: Option<OsString>,

    /// The tar is compressed with xz; write it to FILE too, decompressed
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) unxz: Option<OsString>,

    /// Refused: an index for reading gzip at random
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) gzinfo: Option<OsString>,

    /// Refused: an image of an object store
    #[arg(long, value_name = "X")]
    pub(super) s3: Option<String>,

    /// The source is an OCI image layout on disk, which is flattened; registries are refused
    #[arg(long, value_name = "f[,platform=X]", num_args = 0..=1, require_equals = true, default_missing_value = "f")]
    pub(super) oci: Option<String>,

    /// Describe the image and its extra devices, as one disk, in this file, for VMware and others
    #[arg(long, value_name = "FILE")]
    pub(super) vmdk_desc: Option<PathBuf>,

    /// Compress on this many threads; the image does not depend on it [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(super) workers: Option<usize>,

    /// Record each file's digest as an attribute of this name
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "erofs.fingerprint.v1"
    )]
    pub(super) xattr_inode_digest: Option<String>,

    /// Store this prefix of attribute names once, such as trusted.overlay.
    #[arg(long, value_name = "PREFIX")]
    pub(super) xattr_prefix: Vec<String>,

    /// Leave out what cannot be read, with a warning, instead of failing (not in erofs-utils)
    #[arg(long)]
    pub(super) skip_unreadable: bool,

    /// Multiply the limits on what a tar's headers, attributes, sparse maps and holes may cost (not in erofs-utils)
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) archive_limits: NonZeroU32,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// A number of bytes as erofs-utils reads it: decimal, octal after 0, hexadecimal after 0x, and K, M or G behind it.
fn size(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "not a number of bytes";
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let hexadecimal = number.strip_prefix("0x").or_else(|| number.strip_prefix("0X"));
    let octal = number.strip_prefix('0').filter(|digits| !digits.is_empty());
    let bytes = match (hexadecimal, octal) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) => u64::from_str_radix(digits, 8),
        (None, None) => number.parse(),
    };
    bytes.ok().and_then(|bytes: u64| bytes.checked_mul(unit)).ok_or(WRONG)
}
