//! The options of `ferofs mount`, and how they open an image.

use std::ffi::OsStr;
use std::path::PathBuf;

use ferofs::escape::Escaped;
use ferofs::read::{Image, LowMemory, OpenOptions};

use crate::args::byte_size::human;
use crate::args::image::{ImageArgs, OpenFiles};
use crate::cmd::mount::memory::{MemoryArgs, MemoryFiles, ProfileRecording};
use crate::cmd::mount::options::{self, SortedOptions};
use crate::exit::{Concerning, Failure, warn};
use crate::print::output::{OUTPUT, message};

/// Limit of the cache for metadata, and of the cache for the packed inode, with --low-memory, in
/// bytes.
const LOW_CACHE: usize = 1 << 20;

/// The subtype of mounts, and the program that mount(8) starts for them.
pub(crate) const FEROFS: &str = "ferofs";

/// Mount an image: by the kernel if it can, otherwise through FUSE
///
/// By the kernel's EROFS driver if possible, otherwise through FUSE. Users who are not root mount
/// through FUSE. The mount is read-only: overlayfs over it takes changes.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// The directory to mount on
    pub(crate) dir: PathBuf,

    /// Apply this patch in memory
    ///
    /// The image file does not change. May be given several times: patches apply in this order.
    /// Implies --fuse.
    #[arg(long = "patch", value_name = "FILE", conflicts_with = "kernel")]
    pub(crate) patches: Vec<PathBuf>,

    /// Mount through FUSE
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) fuse: bool,

    /// Mount with the kernel's driver, or fail
    #[arg(long)]
    pub(crate) kernel: bool,

    /// Stay until the image is unmounted; implies --fuse
    #[arg(short, long, conflicts_with = "kernel")]
    pub(crate) foreground: bool,

    /// Mount options of mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,

    /// Mount on top of an image that is mounted there
    ///
    /// Without it, ferofs asks on a terminal, and fails elsewhere.
    #[arg(long)]
    pub(crate) over: bool,

    /// Number of threads of the FUSE daemon, 1 or more [default: one for each processor, at least
    /// 4]
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,

    /// Use small caches and small buffers in the FUSE daemon
    #[arg(long, hide_short_help = true)]
    pub(crate) low_memory: bool,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Do not confine the FUSE daemon: it keeps privileges that it does not need to serve the image
    #[arg(long, hide_short_help = true)]
    pub(crate) no_sandbox: bool,

    /// Append the messages of the FUSE daemon to this file [default: syslog, or standard error with
    /// --foreground]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// Write the process ID of the FUSE daemon to this file, which is not a symbolic link. The file
    /// is removed when the daemon ends
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Print how the image was mounted, and why
    #[arg(help_heading = OUTPUT, short, long)]
    pub(crate) verbose: bool,

    /// Set only when mount(8) calls this program
    #[arg(skip)]
    pub(crate) helper: HelperOptions,

    /// The type of a mount through FUSE is `fuse.` and this
    #[arg(skip = FEROFS)]
    pub(crate) subtype: &'static str,
}

/// Options that mount(8) gives to its helper `mount.erofs`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HelperOptions {
    /// Do everything except the mount itself.
    pub(crate) fake: bool,
    /// Ignore options that the kernel does not know.
    pub(crate) sloppy: bool,
    /// The caller is mount(8) or one of the programs that it starts. At a remount they give all
    /// options of the mount again.
    pub(crate) is_helper: bool,
    /// A wrong checksum of the superblock is a warning, as for erofsfuse of erofs-utils.
    pub(crate) ignores_checksum: bool,
}

impl Args {
    /// Sorts the options of `-o`, and sets those that options of the command line have, too.
    pub(crate) fn sort_options(&mut self) -> Result<SortedOptions, Failure> {
        let sorted = options::sort(&self.options, &mut self.image).concerning(&self.dir)?;
        self.low_memory |= sorted.low_memory;
        self.log_file = self.log_file.take().or_else(|| sorted.log_file.clone());
        self.pid_file = self.pid_file.take().or_else(|| sorted.pid_file.clone());
        self.threads = self.threads.or(sorted.max_threads);
        self.foreground |= sorted.debug;
        self.verbose |= sorted.debug;
        Ok(sorted)
    }

    pub(super) fn open_options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        self.memory.apply(&mut options.engine);
        options.verify_checksum = !self.helper.ignores_checksum;
        if self.low_memory {
            options.metadata_cache = LOW_CACHE;
            options.engine.packed_cache = LOW_CACHE;
            options.engine.low_memory = LowMemory::Always;
        }
        options
    }

    /// Decodes the open files: the image with its patches, and the access profiles.
    pub(super) fn open(
        &self,
        files: OpenFiles,
        memory_files: MemoryFiles,
        options: &OpenOptions,
    ) -> Result<(Image, Option<ProfileRecording>), Failure> {
        let image = files.decode(options)?;
        if self.helper.ignores_checksum
            && let Err(error) = image.verify_checksum()
        {
            let path = Escaped::path(&self.image.path);
            warn(format_args!(
                "{path}: {error}; mounted as by erofsfuse, ferofs check finds other damage"
            ))?;
        }
        let root = image.root().concerning(&self.image.path)?;
        if !root.is_dir() {
            return Err(Failure::about(&self.image.path, "the root is not a directory"));
        }
        if let Some(pinned) = memory_files.pin(&image)? {
            self.print_verbose(&format!(
                "pinned {} ranges, {}; {} are not in the image",
                pinned.ranges,
                human(pinned.bytes),
                pinned.missing
            ));
        }
        let recording = memory_files.record(&image)?;
        Ok((image, recording))
    }

    /// The given options that have no effect if the kernel mounts the image.
    pub(super) fn only_for_fuse(&self, options: &SortedOptions) -> Vec<&'static str> {
        let own = [
            (self.threads.is_some(), "--threads"),
            (self.low_memory, "--low-memory"),
            (self.no_sandbox, "--no-sandbox"),
            (self.log_file.is_some(), "--log-file"),
            (self.pid_file.is_some(), "--pid-file"),
        ];
        let own = own.into_iter().chain(self.memory.given());
        own.filter_map(|(given, name)| given.then_some(name))
            .chain(options.only_for_fuse())
            .collect()
    }

    /// The arguments of the daemon that a list of processes shows.
    pub(crate) fn shown(&self) -> [&OsStr; 3] {
        [OsStr::new("mount"), self.image.path.as_os_str(), self.dir.as_os_str()]
    }

    pub(super) fn print_verbose(&self, text: &str) {
        if self.verbose {
            message!("{}: {text}", Escaped::path(&self.image.path));
        }
    }
}
