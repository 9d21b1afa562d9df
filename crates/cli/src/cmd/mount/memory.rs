//! Options of `ferofs mount` about the memory of the FUSE daemon, and the access profiles that the
//! daemon records, pins or prefetches.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::thread::Builder;
use std::time::Duration;

use ferofs::NewFile;
use ferofs::read::{
    Cancel, EngineOptions, Image, LowMemory, OpenOptions, Pinned, Profile, Recording,
};

use crate::args::byte_size;
use crate::args::image::OpenFiles;
use crate::args::overwrite::open_without_waiting;
use crate::cmd::mount::unmount_helper;
use crate::exit::{About, Concerning, Failure};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct MemoryArgs {
    /// Size of the FUSE daemon's page pool for decode buffers [default: 256K]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = bytes)]
    pool: Option<usize>,

    /// Limit on the memory that the FUSE daemon uses for the open image, its page pool and its
    /// caches [default: no limit]
    ///
    /// Caches shrink to fit. Requests exceed it while they are served, each by the cluster that it
    /// decodes. The daemon itself takes some MiB more.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<usize>,

    /// Write to FILE at the end what was read, for --prefetch, --pin and `ferofs push`
    ///
    /// An access profile counts the reads of each file. It is written when the image is unmounted.
    /// Implies --fuse.
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    record_profile: Option<PathBuf>,

    /// Keep the most-read data of this access profile decoded
    ///
    /// In memory. Implies --fuse.
    #[arg(long, value_name = "PROFILE", conflicts_with = "kernel")]
    pin: Option<PathBuf>,

    /// Limit on the memory for the data of --pin
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = bytes, default_value = "16M", requires = "pin")]
    pin_memory: Option<usize>,

    #[cfg(feature = "remote")]
    #[command(flatten)]
    pub(crate) servers: crate::servers::mount::prefetch::PrefetchArgs,
}

/// Reads an access profile.
pub(crate) fn read_profile(path: &Path) -> Result<Profile, Failure> {
    let file = File::open(path).concerning(path)?;
    Profile::read(BufReader::new(file)).concerning(path)
}

/// An access profile that the daemon records; the unmount helper writes it at the end.
pub(crate) struct ProfileRecording {
    path: PathBuf,
    recording: Recording,
    /// A second view of the image, to find the names of files at the end: the FUSE session owns the
    /// first one, and the sandbox forbids opening files later.
    image: Image,
    /// Ends the search for names.
    cancel: Cancel,
}

/// How long the daemon looks for the names of files: their directories may have to be fetched from
/// a server that does not answer. Files that were not found are left out.
pub(super) const NAMES_TIME: Duration = Duration::from_secs(60);

impl MemoryArgs {
    pub(crate) fn record_profile(&self) -> Option<&Path> {
        self.record_profile.as_deref()
    }

    /// The profile to pin.
    pub(crate) fn pinned_profile(&self) -> Option<&Path> {
        self.pin.as_deref()
    }

    /// Whether an option is given that only the FUSE daemon supports.
    pub(crate) const fn needs_fuse(&self) -> bool {
        self.record_profile.is_some() || self.pin.is_some()
    }

    /// The options that change only how the FUSE daemon works, and whether they are given.
    pub(super) const fn given(&self) -> [(bool, &'static str); 2] {
        [(self.pool.is_some(), "--pool"), (self.memory_limit.is_some(), "--memory-limit")]
    }

    pub(crate) fn apply(&self, options: &mut EngineOptions) {
        options.pool = self.pool.unwrap_or(options.pool);
        options.memory_limit = self.memory_limit;
        options.record = self.record_profile.is_some();
        options.low_memory = LowMemory::Auto;
    }

    /// Opens the files of the options; `open_image` opens those of the image once more. Must be
    /// called before the sandbox starts: the sandbox forbids opening files.
    pub(crate) fn open_files(
        &self,
        open_image: impl FnOnce() -> Result<OpenFiles, Failure>,
    ) -> Result<MemoryFiles, Failure> {
        let pin = self.pin.as_ref().map(|path| {
            let file = File::open(path).concerning(path)?;
            Ok::<_, Failure>((path.clone(), file, self.pin_memory.unwrap_or(0)))
        });
        let record = self.record_profile.as_ref().map(|path| {
            check_profile(path)?;
            Ok::<_, Failure>((path.clone(), open_image()?))
        });
        Ok(MemoryFiles { pin: pin.transpose()?, record: record.transpose()? })
    }
}

/// Open files of access profiles.
pub(crate) struct MemoryFiles {
    /// The profile to pin, and the memory limit in bytes.
    pin: Option<(PathBuf, File, usize)>,
    /// The name of the recorded profile, and the files of a second view of the image.
    record: Option<(PathBuf, OpenFiles)>,
}

impl MemoryFiles {
    /// Pins the data of the profile of --pin.
    pub(crate) fn pin(&self, image: &Image) -> Result<Option<Pinned>, Failure> {
        let Some((path, file, bytes)) = &self.pin else { return Ok(None) };
        // Another daemon of this mount may have read it before.
        let mut file = file;
        file.rewind().concerning(path)?;
        let profile = Profile::read(BufReader::new(file)).concerning(path)?;
        image.pin(&profile, *bytes).about(path).map(Some)
    }

    /// Prepares the profile of --record-profile.
    pub(crate) fn record(self, image: &Image) -> Result<Option<ProfileRecording>, Failure> {
        let (Some((path, image_files)), Some(recording)) = (self.record, image.recording()) else {
            return Ok(None);
        };
        let cancel = Cancel::default();
        let mut options = OpenOptions::default();
        options.cancel = cancel.clone();
        Ok(Some(ProfileRecording { path, recording, image: image_files.decode(&options)?, cancel }))
    }
}

impl ProfileRecording {
    /// Sends the profile to the unmount helper.
    pub(crate) fn finish(self, helper_input: &ChildStdin) -> Result<(), Failure> {
        let cancel = self.cancel;
        // Without the thread, it takes as long as it takes.
        let _ = Builder::new().spawn(move || {
            std::thread::sleep(NAMES_TIME);
            cancel.cancel();
        });
        let profile = self.recording.profile(&self.image).about(&self.path)?;
        unmount_helper::send_profile(&profile, helper_input).concerning(&self.path)
    }
}

/// Fails if --record-profile cannot write this file, or would replace something else. An old
/// profile stays until the new one replaces it.
fn check_profile(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        let file = open_without_waiting(File::options().write(true), path)?;
        let found = file.metadata().concerning(path)?;
        if found.file_type().is_char_device() {
            return Ok(());
        }
        if !found.is_file() {
            return Err(Failure::about(path, "not a regular file: --record-profile needs one"));
        }
        if found.len() > 0 {
            read_profile(path).map_err(|_| {
                let reason =
                    "not an access profile, and --record-profile would replace it: choose another name";
                Failure::about(path, reason)
            })?;
        }
    }
    NewFile::create(path).map(drop).without_subject()
}

fn bytes(text: &str) -> Result<usize, String> {
    byte_size::argument(text)
}
