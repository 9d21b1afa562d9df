//! Parses the options of `-o`: those of mount(8), fstab(5) and erofsfuse. A new option is a field
//! of [`SortedOptions`], an arm in [`sort`], and its merge in `Args::sort_options`; if only FUSE
//! has it, also a line in `only_for_fuse`.

#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use ferofs::verity::{Digest, ParseDigestError};
use ferofs_fuse::Access;

use crate::args::byte_size;
use crate::args::image::ImageArgs;
use crate::args::seal::read_root;
use crate::exit::Failure;

/// Options without effect here: only mount(8) uses them, or the mount always has the property.
const IGNORED: [&str; 17] = [
    "auto",
    "noauto",
    "nouser",
    "nogroup",
    "nofail",
    "_netdev",
    "defaults",
    "default_permissions",
    // The unmount helper always does this.
    "auto_unmount",
    // The daemon knows when it can have a descriptor of the device for each thread.
    "clone_fd",
    // The kernel keeps names, attributes and pages for ever, and inodes have the image's numbers.
    "entry_timeout",
    "attr_timeout",
    "negative_timeout",
    "kernel_cache",
    "auto_cache",
    "remember",
    "use_ino",
];

/// The options, sorted by the program that handles them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SortedOptions {
    /// The users who may use the mount.
    pub(crate) access: Access,
    /// The source in the mount table, instead of the image.
    pub(crate) fsname: Option<String>,
    /// The type in the mount table is `fuse.` and this.
    pub(crate) subtype: Option<String>,
    /// Threads of the FUSE daemon.
    pub(crate) max_threads: Option<NonZeroUsize>,
    /// Stay in the foreground, and print how the image was mounted.
    pub(crate) debug: bool,
    /// Do not confine the FUSE daemon.
    pub(crate) no_sandbox: bool,
    /// Use small caches.
    pub(crate) low_memory: bool,
    /// The file for the messages of the FUSE daemon.
    pub(crate) log_file: Option<PathBuf>,
    /// The file for the process ID of the FUSE daemon.
    pub(crate) pid_file: Option<PathBuf>,
    /// The last one of `ro` and `rw` is `rw`. The mount is read-only anyway.
    pub(crate) asks_to_write: bool,
    /// Change the options of an existing mount.
    pub(crate) remount: bool,
    /// Use a loop device even if EROFS can read the file directly.
    pub(crate) force_loop: bool,
    /// Length of the image in its file, in bytes; `None`: up to the end of the file.
    pub(crate) size_limit: Option<u64>,
    /// All other options, for the kernel or fusermount3.
    pub(crate) passed: Vec<String>,
}

impl SortedOptions {
    /// Fails for an option that FUSE does not have. `reason` says why the kernel does not mount the
    /// image.
    pub(crate) fn check_fuse(&self, image: &Path, reason: Option<&str>) -> Result<(), Failure> {
        if self.size_limit.is_none() {
            return Ok(());
        }
        let reason = reason.map_or(String::new(), |text| format!("; {text}"));
        let reason =
            format!("only the kernel supports -o sizelimit; FUSE serves the whole file{reason}");
        Err(Failure::about(image, reason))
    }

    /// The given options that have no effect if the kernel mounts the image.
    pub(super) fn only_for_fuse(&self) -> impl Iterator<Item = &'static str> {
        let own = [
            (self.access == Access::OwnerAndRoot, "-o allow_root"),
            (self.fsname.is_some(), "-o fsname"),
            (self.subtype.is_some(), "-o subtype"),
            (self.no_sandbox, "-o no_sandbox"),
            (self.low_memory, "-o low_memory"),
            (self.log_file.is_some(), "-o log_file"),
            (self.pid_file.is_some(), "-o pid_file"),
            (self.max_threads.is_some(), "-o max_threads"),
        ];
        own.into_iter().filter_map(|(given, name)| given.then_some(name))
    }
}

/// Sorts `options`; each is a list separated by commas. `offset=`, `device=`, `roothash=`, and
/// `verity.` change `image`.
///
/// # Errors
/// An option whose value is not what it should be, for example a number of bytes or a root hash.
pub(crate) fn sort(
    options: &[String],
    image: &mut ImageArgs,
) -> Result<SortedOptions, InvalidOption> {
    let mut sorted = SortedOptions::default();
    for option in options.iter().flat_map(|list| split(list)) {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        let bytes = |value| {
            let invalid = || InvalidOption(option.to_owned(), "not a number of bytes".to_owned());
            byte_size::parse(value).ok_or_else(invalid)
        };
        let restrict = |sorted: &mut SortedOptions, flags: &[&str]| {
            sorted.passed.extend(flags.iter().map(|flag| (*flag).to_owned()));
        };
        match (name, value) {
            ("offset" | "fsoffset", Some(value)) => image.offset = bytes(value)?,
            ("sizelimit", Some(value)) => {
                sorted.size_limit = Some(bytes(value)?).filter(|limit| *limit != 0)
            }
            ("device", Some(value)) => image.devices.push(PathBuf::from(value)),
            // The names of mount(8); systemd and the command line say `roothash`.
            ("verity.roothash" | "roothash", Some(value)) => {
                image.seal.root = Some(root(value, option)?)
            }
            ("verity.roothashfile", Some(value)) => {
                let root = read_root(value.as_ref());
                image.seal.root =
                    Some(root.map_err(|error| InvalidOption(option.to_owned(), error))?);
            }
            ("verity.hashdevice", Some(value)) => image.seal.hash_file = Some(PathBuf::from(value)),
            ("verity.hashoffset", Some(value)) => image.seal.hash_offset = Some(bytes(value)?),
            (name, _) if name.starts_with("verity.") => {
                let known = "verity options are roothash, roothashfile, hashdevice and hashoffset";
                return Err(InvalidOption(option.to_owned(), known.to_owned()));
            }
            // Uses any free loop device, even if the option names one.
            ("loop", _) => sorted.force_loop = true,
            ("rw" | "ro", _) => sorted.asks_to_write = name == "rw",
            ("remount", None) => sorted.remount = true,
            ("allow_other", None) => sorted.access = Access::All,
            ("allow_root", None) => sorted.access = Access::OwnerAndRoot,
            ("fsname", Some(value)) => sorted.fsname = Some(unquoted(value).to_owned()),
            ("subtype", Some(value)) => sorted.subtype = Some(subtype(value, option)?),
            ("max_threads", Some(value)) => sorted.max_threads = Some(threads(value, option)?),
            // The daemon keeps all threads: an idle one costs almost nothing.
            ("max_idle_threads", Some(value)) => drop(threads(value, option)?),
            ("debug", None) => sorted.debug = true,
            ("no_sandbox", None) => sorted.no_sandbox = true,
            ("low_memory", None) => sorted.low_memory = true,
            ("log_file", Some(value)) => sorted.log_file = Some(value.into()),
            ("pid_file", Some(value)) => sorted.pid_file = Some(value.into()),
            // As mount(8): an image that a user may mount can contain harmful setuid files and
            // devices.
            ("user" | "users", _) => restrict(&mut sorted, &["nosuid", "nodev", "noexec"]),
            ("owner" | "group", None) => restrict(&mut sorted, &["nosuid", "nodev"]),
            ("", None) | ("comment" | "uhelper" | "helper", Some(_)) => {}
            // By convention, options for programs in user space, for example x-systemd.automount.
            (name, _)
                if name.starts_with("x-") || name.starts_with("X-") || IGNORED.contains(&name) => {}
            _ => sorted.passed.push(option.to_owned()),
        }
    }
    let seal = &image.seal;
    if seal.root().is_none() && (seal.hash_file.is_some() || seal.hash_offset.is_some()) {
        let missing = "needs a root hash: verity.roothash or verity.roothashfile";
        return Err(InvalidOption("verity.hashdevice".to_owned(), missing.to_owned()));
    }
    Ok(sorted)
}

/// A name that mount(8) can start as a program.
fn subtype(value: &str, option: &str) -> Result<String, InvalidOption> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+".contains(&byte);
    if value.is_empty() || !value.bytes().all(is_name) {
        let problem = "not a name of letters, digits, _, - and +";
        return Err(InvalidOption(option.to_owned(), problem.to_owned()));
    }
    Ok(value.to_owned())
}

fn threads(value: &str, option: &str) -> Result<NonZeroUsize, InvalidOption> {
    value.parse().map_err(|_| {
        InvalidOption(option.to_owned(), "not a number of threads, 1 or more".to_owned())
    })
}

fn root(value: &str, option: &str) -> Result<Digest, InvalidOption> {
    value
        .parse()
        .map_err(|error: ParseDigestError| InvalidOption(option.to_owned(), error.to_string()))
}

/// Splits a list at its commas, except between quotation marks: SELinux labels contain commas, for
/// example `context="system_u:object_r:tmp_t:s0:c1,c2"`.
pub(crate) fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

/// Removes the quotation marks of `"a,b"`: they only mean that the comma does not separate options.
pub(crate) fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// An option with a wrong value, and what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidOption(pub(crate) String, pub(crate) String);

impl std::fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "-o {}: {}", self.0, self.1)
    }
}

impl std::error::Error for InvalidOption {}
