//! Options of `ferofs build` for inodes, owners, extended attributes, the UUID and the layout of
//! the image.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ferofs::build::{ChunkOptions, DIGEST_NAME, InodeForm, Labels, Options, XattrOptions};
use ferofs::read::{ParseUuidError, Uuid};

use crate::args::byte_size;
use crate::args::text_file;
use crate::exit::{Concerning, Failure};

/// The group of these options in help.
const LAYOUT: &str = "Metadata and layout";

#[derive(clap::Args)]
pub(super) struct MetadataArgs {
    /// Store no extended attributes
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, conflicts_with = "file_contexts")]
    no_xattrs: bool,

    /// Share an extended attribute if more than N files have it [default: share if this saves
    /// bytes]
    #[arg(help_heading = LAYOUT, hide_short_help = true, short = 'x', long, value_name = "N")]
    inline_xattrs: Option<u32>,

    /// Store this prefix of attribute names once, for example `trusted.overlay.` with the dot; may
    /// be given several times (Linux 6.4)
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "PREFIX")]
    xattr_prefix: Vec<String>,

    /// Store the SHA-256 digest of each file as an extended attribute, for kernels that share their
    /// page cache between images. An image of an image with digests has them without this option
    /// [default name: erofs.fingerprint.v1]
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "NAME", num_args = 0..=1, require_equals = true,
          default_missing_value = "erofs.fingerprint.v1")]
    inode_digests: Option<String>,

    /// Set the SELinux labels that this file_contexts file gives
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,

    /// Directory on which the image will be mounted; --file-contexts matches paths below it
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "DIR", default_value = "/")]
    mount_point: String,

    /// Size of inodes
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_enum, default_value_t = Form::Smallest)]
    inodes: Form,

    /// Never store file data after the inode (DAX cannot map inline data)
    #[arg(help_heading = LAYOUT, hide_short_help = true, long)]
    no_inline_data: bool,

    /// Store each hard link as a separate file
    #[arg(help_heading = LAYOUT, hide_short_help = true, long)]
    hard_dereference: bool,

    /// Set file times later than SECS (seconds since 1970) to SECS [default: $SOURCE_DATE_EPOCH, if
    /// set]
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "SECS", allow_hyphen_values = true)]
    clamp_time: Option<i64>,

    /// Store files uncompressed in chunks of this size, and equal chunks once: a power of two from
    /// the block size to 64M (Linux 5.15)
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "BYTES", value_parser = byte_size::argument::<u64>)]
    chunk_size: Option<u64>,

    /// Write chunks to this file or block device, which becomes extra device 1 of the image (Linux
    /// 5.16)
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "FILE", requires = "chunk_size")]
    chunk_device: Option<PathBuf>,

    /// Start of the image in its file or block device: a multiple of the block size
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "BYTES", default_value_t = 0, value_parser = byte_size::argument::<u64>)]
    offset: u64,

    /// Round the size of the image up to a multiple of this many blocks
    #[arg(help_heading = LAYOUT, hide_short_help = true, long, value_name = "BLOCKS", default_value_t = NonZeroU32::MIN)]
    align_size: NonZeroU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// 32 bytes if the inode's values fit, otherwise 64 bytes
    Smallest,
    /// Always 32 bytes; files do not have their own times
    Compact,
    /// Always 64 bytes
    Extended,
}

impl MetadataArgs {
    /// Whether files are stored in chunks, which are not compressed.
    pub(super) const fn has_chunks(&self) -> bool {
        self.chunk_size.is_some()
    }

    pub(super) fn apply(&self, options: &mut Options) -> Result<(), Failure> {
        options.xattrs.keep = !self.no_xattrs;
        options.xattrs.inline_limit = self.inline_xattrs;
        for text in &self.xattr_prefix {
            let prefix = XattrOptions::prefix(text.as_bytes());
            let reason = "not a prefix of attribute names, for example trusted.overlay.";
            options
                .xattrs
                .prefixes
                .push(prefix.ok_or_else(|| Failure::about(text.as_ref(), reason))?);
        }
        let name = self.inode_digests.as_ref().map(String::as_bytes);
        options.xattrs.digest = name.and_then(|name| {
            XattrOptions::digest_name(if name.is_empty() { DIGEST_NAME } else { name })
        });
        if let Some(path) = &self.file_contexts {
            let text = text_file::read_text(path).concerning(path)?;
            options.attributes.target.labels = Some(Labels::parse(&text).concerning(path)?);
        }
        options.attributes.target.mount_point = self.mount_point.trim_matches('/').into();
        options.inodes.form = match self.inodes {
            Form::Smallest => InodeForm::Smallest,
            Form::Compact => InodeForm::Compact,
            Form::Extended => InodeForm::Extended,
        };
        options.inodes.keep_mtime = self.inodes != Form::Compact;
        options.inodes.inline_data = !self.no_inline_data;
        options.source.hard_dereference = self.hard_dereference;
        let epoch = source_date_epoch()?;
        options.attributes.newest_time =
            self.clamp_time.or(epoch.filter(|_| options.attributes.all_time.is_none()));
        options.image.build_time = options.image.build_time.or(epoch);
        options.data.chunks = self.chunk_size.map(|size| {
            let mut chunks = ChunkOptions::new(size);
            chunks.device.clone_from(&self.chunk_device);
            chunks
        });
        let block = options.image.block_size.bytes64();
        if !self.offset.is_multiple_of(block) {
            let reason = format!("{} is not a multiple of the block size, {block}", self.offset);
            return Err(Failure::usage(Path::new("--offset"), reason));
        }
        options.output.offset = self.offset;
        options.output.size_alignment = self.align_size;
        Ok(())
    }
}

/// Reads $SOURCE_DATE_EPOCH: the time to use instead of now, and instead of all later times
/// (reproducible-builds.org). Empty is the same as unset.
pub(crate) fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let text = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number
        .map(Some)
        .ok_or_else(|| Failure::about("$SOURCE_DATE_EPOCH".as_ref(), "not a number of seconds"))
}

/// Options for the owners of all files.
#[derive(clap::Args)]
pub(super) struct OwnerArgs {
    /// Set the owner of all files to this user ID
    #[arg(long, hide_short_help = true, value_name = "UID")]
    force_uid: Option<u32>,

    /// Set the group of all files to this group ID
    #[arg(long, hide_short_help = true, value_name = "GID")]
    force_gid: Option<u32>,

    /// All files belong to root
    #[arg(long, conflicts_with_all = ["force_uid", "force_gid"])]
    all_root: bool,

    /// Add N to the user ID of every file and to those in ACLs; N may be negative
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    uid_offset: i64,

    /// Add N to the group ID of every file and to those in ACLs; N may be negative
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    gid_offset: i64,
}

impl OwnerArgs {
    pub(super) fn apply(&self, options: &mut Options) {
        let root = self.all_root.then_some(0);
        options.attributes.force_uid = self.force_uid.or(root);
        options.attributes.force_gid = self.force_gid.or(root);
        options.attributes.uid_offset = self.uid_offset;
        options.attributes.gid_offset = self.gid_offset;
    }
}

/// Parses a UUID; `clear` is all zeroes.
pub(crate) fn parse_uuid(text: &str) -> Result<[u8; 16], ParseUuidError> {
    if text == "clear" { Ok([0; 16]) } else { text.parse().map(|Uuid(bytes)| bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_may_be_cleared() {
        assert_eq!(parse_uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap()[..2], [0x00, 0x11]);
        assert_eq!(parse_uuid("clear"), Ok([0; 16]));
        assert!(parse_uuid("0011").is_err());
    }
}
