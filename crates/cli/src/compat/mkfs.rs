//! `mkfs.erofs [OPTIONS] IMAGE SOURCE`.
//!
//! Callers glue values to short options (`-C65536`, `-zlz4hc,12`, `-EA,B`), put options after the
//! positional arguments, and look into `--help` for what is there; see the tests for their very lines.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use ferofs::build::{BlockSize, Compression, Exclude, Options, Timestamp};
use regex::bytes::Regex;

use crate::exit::{Failure, Outcome};

/// Make an EROFS image of a directory.
#[derive(Parser, Debug)]
#[command(name = "mkfs.erofs", version, disable_version_flag = true)]
#[command(after_help = "Available compressors / supported compressors: lz4, lz4hc")]
struct Args {
    /// The image to make: a file, or a block device
    image: PathBuf,

    /// The directory to make it of
    source: PathBuf,

    /// Compress: lz4, lz4hc[,LEVEL] or lz4hc[,level=LEVEL]
    #[arg(short = 'z', value_name = "X[,level=N]")]
    compressor: Option<String>,

    /// Block size in bytes
    #[arg(short = 'b', value_name = "SIZE", default_value_t = 4096)]
    block_size: u64,

    /// Largest physical cluster in bytes
    #[arg(short = 'C', value_name = "SIZE")]
    pcluster_size: Option<u64>,

    /// Extended options, separated by commas
    #[arg(short = 'E', value_name = "X[,...]", value_delimiter = ',')]
    extended: Vec<String>,

    /// Volume label, at most 15 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,

    /// The image's and all files' time, seconds since 1970
    #[arg(short = 'T', value_name = "SECONDS", allow_hyphen_values = true)]
    time: Option<i64>,

    /// With -T, keep the files' own times
    #[arg(long, overrides_with = "all_time")]
    mkfs_time: bool,

    /// With -T, set the time of all files too (default)
    #[arg(long)]
    all_time: bool,

    /// Set the UUID; `clear` for all zeroes, `random` for a random one
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,

    /// Accepted for its callers: which xattrs are shared is decided by size
    #[arg(short = 'x', value_name = "N", allow_hyphen_values = true)]
    xattr_tolerance: Option<i64>,

    /// Messages: 0 prints errors only
    #[arg(short = 'd', value_name = "LEVEL")]
    debug: Option<u8>,

    /// Print errors only
    #[arg(long)]
    quiet: bool,

    /// Leave out this path, relative to the source
    #[arg(long, value_name = "PATH")]
    exclude_path: Vec<OsString>,

    /// Leave out paths that match this POSIX extended regular expression
    #[arg(long, value_name = "REGEX")]
    exclude_regex: Vec<String>,

    /// Give all files to root
    #[arg(long)]
    all_root: bool,

    /// Give all files to this user
    #[arg(long, value_name = "UID")]
    force_uid: Option<u32>,

    /// Give all files to this group
    #[arg(long, value_name = "GID")]
    force_gid: Option<u32>,

    /// Add this to all users
    #[arg(long, value_name = "N", default_value_t = 0)]
    uid_offset: u32,

    /// Add this to all groups
    #[arg(long, value_name = "N", default_value_t = 0)]
    gid_offset: u32,

    /// Compress on this many threads
    #[arg(long, value_name = "N")]
    workers: Option<usize>,

    /// Use the build time for all files
    #[arg(long, conflicts_with = "preserve_mtime")]
    ignore_mtime: bool,

    /// Keep each file's time (default)
    #[arg(long)]
    preserve_mtime: bool,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// The compressors, as `--help` names them.
const COMPRESSORS: [&str; 2] = ["lz4", "lz4hc"];

/// Why an argument is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} {value}: {reason}")]
struct Refusal {
    option: &'static str,
    value: String,
    reason: &'static str,
}

const fn refusal(option: &'static str, value: String, reason: &'static str) -> Refusal {
    Refusal { option, value, reason }
}

impl Args {
    /// What the library is asked for.
    fn options(&self) -> Result<Options, Refusal> {
        let mut options = Options::new(&self.source);
        options.block_size = BlockSize::from_bytes(self.block_size)
            .ok_or_else(|| refusal("-b", self.block_size.to_string(), "no block size of EROFS"))?;
        if let Some(compressor) = &self.compressor {
            options.compression = parse_compressor(compressor)?;
        }
        if let Some(size) = self.pcluster_size.filter(|size| *size != self.block_size) {
            return Err(refusal("-C", size.to_string(), "only clusters of one block are supported"));
        }
        if let Some(feature) = self.extended.first() {
            return Err(refusal("-E", feature.clone(), "not supported"));
        }
        if let Some(tolerance) = self.xattr_tolerance.filter(|n| *n < 0) {
            return Err(refusal("-x", tolerance.to_string(), "leaving xattrs out is not supported"));
        }
        self.identity(&mut options)?;
        self.ownership(&mut options);
        options.build_time = self.time;
        let all = self.time.filter(|_| !self.mkfs_time);
        options.all_time = all.map(|secs| Timestamp { secs, nanos: 0 });
        options.workers = self.workers.and_then(NonZeroUsize::new);
        options.excludes = self.exclude_path.iter().map(|path| Exclude::Path(path.into())).collect();
        for text in &self.exclude_regex {
            let regex = Regex::new(text)
                .map_err(|_| refusal("--exclude-regex", text.clone(), "no regular expression"))?;
            options.excludes.push(Exclude::Regex(regex));
        }
        Ok(options)
    }

    fn identity(&self, options: &mut Options) -> Result<(), Refusal> {
        options.uuid = match self.uuid.as_deref() {
            None | Some("random") => None,
            Some(text) => {
                let uuid = crate::cmd::build::uuid(text);
                Some(uuid.map_err(|reason| refusal("-U", text.to_owned(), reason))?)
            }
        };
        if let Some(label) = &self.label {
            options.label = label.as_bytes().to_vec();
            if options.label.len() > 16 {
                let label = label.to_string_lossy().into_owned();
                return Err(refusal("-L", label, "labels have at most 16 bytes"));
            }
        }
        Ok(())
    }

    fn ownership(&self, options: &mut Options) {
        let root = self.all_root.then_some(0);
        options.force_uid = self.force_uid.or(root);
        options.force_gid = self.force_gid.or(root);
        options.uid_offset = self.uid_offset;
        options.gid_offset = self.gid_offset;
    }
}

/// A compressor as `-z` names it: `lz4`, `lz4hc,9`, `lz4hc,level=9`.
fn parse_compressor(text: &str) -> Result<Compression, Refusal> {
    let refuse = |reason| refusal("-z", text.to_owned(), reason);
    if text.contains(':') {
        return Err(refuse("several compressors in one image are not supported"));
    }
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    if !COMPRESSORS.contains(&name) {
        return Err(refuse("no such compressor; there are lz4 and lz4hc"));
    }
    let mut level = if name == "lz4hc" { 9 } else { 0 };
    for part in parts {
        let number = part.strip_prefix("level=").unwrap_or(part);
        level = number.parse().map_err(|_| refuse("the level is no number"))?;
    }
    if level > 12 {
        return Err(refuse("levels go from 0 to 12"));
    }
    Ok(Compression::Lz4 { level })
}

/// Runs `mkfs.erofs` with these arguments, the program's name first.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args = Args::try_parse_from(args).unwrap_or_else(|error| error.exit());
    let options = args.options().map_err(|refusal| Failure::about(&args.image, refusal))?;
    let quiet = args.quiet || args.debug == Some(0);
    crate::cmd::build::execute(&options, &args.image, quiet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, Refusal> {
        let args = Args::try_parse_from(line.split_whitespace()).map_err(|e| panic!("{line}: {e}"));
        args.unwrap().options()
    }

    #[test]
    fn takes_the_lines_that_callers_use() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let repart =
            options(&format!("mkfs.erofs -U {uuid} --quiet -zlz4hc,level=12 -b 4096 IMG DIR")).unwrap();
        assert_eq!(repart.compression, Compression::Lz4 { level: 12 });
        assert_eq!(repart.uuid.unwrap()[..4], [1, 0x23, 0x45, 0x67]);
        let archiso =
            options(&format!("mkfs.erofs -U {uuid} -zlz4hc,12 --workers=4 -T0 -- IMG DIR")).unwrap();
        assert_eq!(archiso.workers.unwrap().get(), 4);
        assert_eq!(archiso.all_time, Some(Timestamp { secs: 0, nanos: 0 }));
        let late = options("mkfs.erofs IMG DIR -z lz4 -C4096 -x 2 -T 5 --mkfs-time").unwrap();
        assert_eq!(late.source, PathBuf::from("DIR"));
        assert_eq!((late.build_time, late.all_time), (Some(5), None));
        let isar =
            options("mkfs.erofs -z lz4hc,12 --exclude-regex ^dir/.* --exclude-path=a/b IMG DIR").unwrap();
        assert_eq!(isar.excludes.len(), 2);
        let owned = options("mkfs.erofs --all-root --force-gid=7 -L nix-store IMG DIR").unwrap();
        assert_eq!((owned.force_uid, owned.force_gid), (Some(0), Some(7)));
    }

    #[test]
    fn refuses_by_name_what_it_cannot_do() {
        let reason = |line: &str| options(line).map(drop).unwrap_err().to_string();
        assert_eq!(reason("mkfs.erofs -Efragments I D"), "-E fragments: not supported");
        assert_eq!(reason("mkfs.erofs -zlz5 I D"), "-z lz5: no such compressor; there are lz4 and lz4hc");
        assert_eq!(reason("mkfs.erofs -zlz4hc,13 I D"), "-z lz4hc,13: levels go from 0 to 12");
        assert_eq!(reason("mkfs.erofs -b 1000 I D"), "-b 1000: no block size of EROFS");
        assert!(reason("mkfs.erofs -U xyz I D").starts_with("-U xyz: not a UUID"));
        assert_eq!(reason("mkfs.erofs -C65536 I D"), "-C 65536: only clusters of one block are supported");
    }
}
