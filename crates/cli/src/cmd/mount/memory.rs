//! What the FUSE daemon keeps in memory: options of `ferofs mount`, and the access profile that it writes or pins.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use ferofs::read::{
    EngineOptions, Image, LowMemory, OpenOptions, Pinned, Policy, Profile, Recording, Strategy,
};

use crate::args::byte_size;
use crate::args::image::{ImageArgs, OpenFiles};
use crate::exit::{About, Failure};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct MemoryArgs {
    /// Size of the FUSE daemon's page pool for decode buffers, in bytes (K, M and G are understood) [default: 256K]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pool: Option<usize>,

    /// Limit on the memory that the FUSE daemon uses for the open image, its page pool and its caches, in bytes (K, M and
    /// G are understood) [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<usize>,

    /// How the FUSE daemon decodes pclusters. The values other than auto exist for measurements [default: auto]
    #[arg(long, value_name = "POLICY")]
    decode: Option<Decode>,

    /// Count reads, and write an access profile to FILE when the image is unmounted. Implies --fuse
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    record_profile: Option<PathBuf>,

    /// Keep the most-read data of this access profile decoded in memory. Implies --fuse
    #[arg(long, value_name = "PROFILE", conflicts_with = "kernel")]
    pin: Option<PathBuf>,

    /// Limit on the memory for the data of --pin, in bytes (K, M and G are understood)
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16M", requires = "pin")]
    pin_memory: Option<usize>,
}

/// Policies and strategies, see [`Policy`] and [`Strategy`].
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Decode {
    Auto,
    Paper,
    Commercial,
    InPlace,
    Rolling,
    Vmap,
    Buffer,
    Direct,
}

/// The access profile in a file.
pub(crate) fn read_profile(path: &Path) -> Result<Profile, Failure> {
    let file = File::open(path).map_err(|e| Failure::about(path, e))?;
    Profile::read(BufReader::new(file)).map_err(|e| Failure::about(path, e))
}

/// An access profile in the making.
pub(crate) struct Record {
    path: PathBuf,
    file: File,
    recording: Recording,
    /// The same image once more, to find the files' names: the daemon has the other, and may open nothing later.
    image: Image,
}

impl MemoryArgs {
    /// Whether only the FUSE daemon does what is asked.
    pub(crate) const fn wants_fuse(&self) -> bool {
        self.record_profile.is_some() || self.pin.is_some()
    }

    /// Sets what is asked.
    pub(crate) fn apply(&self, options: &mut EngineOptions) {
        options.pool = self.pool.unwrap_or(options.pool);
        options.memory_limit = self.memory_limit;
        options.policy = self.decode.map_or(options.policy, Decode::policy);
        options.record = self.record_profile.is_some();
        options.low_memory = LowMemory::Auto;
    }

    /// Opens, and makes, the files that are asked for, while that is allowed.
    pub(crate) fn open_files(&self, args: &ImageArgs) -> Result<MemoryFiles, Failure> {
        let pin = self.pin.as_ref().map(|path| {
            let file = File::open(path).map_err(|e| Failure::about(path, e))?;
            Ok::<_, Failure>((path.clone(), file, self.pin_memory.unwrap_or(0)))
        });
        let record = self.record_profile.as_ref().map(|path| {
            // What is there is kept until there is a profile to replace it.
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|e| Failure::about(path, e))?;
            Ok::<_, Failure>((path.clone(), file, args.open_files(&[])?))
        });
        Ok(MemoryFiles { pin: pin.transpose()?, record: record.transpose()? })
    }
}

/// Open files of access profiles.
pub(crate) struct MemoryFiles {
    /// The profile that says what to keep decoded, and in how many bytes.
    pin: Option<(PathBuf, File, usize)>,
    /// Where a profile is to go, and the image once more.
    record: Option<(PathBuf, File, OpenFiles)>,
}

impl MemoryFiles {
    /// Pins what is asked.
    pub(crate) fn pin(&self, image: &mut Image) -> Result<Option<Pinned>, Failure> {
        let Some((path, file, bytes)) = &self.pin else { return Ok(None) };
        let profile = Profile::read(BufReader::new(file)).map_err(|e| Failure::about(path, e))?;
        image.pin(&profile, *bytes).about(path).map(Some)
    }

    /// Starts the profile that is asked for.
    pub(crate) fn record(self, image: &Image) -> Result<Option<Record>, Failure> {
        let (Some((path, file, image_files)), Some(recording)) = (self.record, image.recording()) else {
            return Ok(None);
        };
        Ok(Some(Record { path, file, recording, image: image_files.decode(&OpenOptions::default())? }))
    }
}

impl Record {
    /// Writes the profile.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let profile = self.recording.profile(&self.image).about(&self.path)?;
        let failed = |e| Failure::about(&self.path, e);
        if self.file.metadata().map_err(failed)?.is_file() {
            self.file.set_len(0).map_err(failed)?;
        }
        profile.write(BufWriter::new(self.file)).map_err(|e| Failure::about(&self.path, e))
    }
}

impl Decode {
    const fn policy(self) -> Policy {
        match self {
            Self::Auto => Policy::Auto,
            Self::Paper => Policy::Paper,
            Self::Commercial => Policy::Commercial,
            Self::InPlace => Policy::Always(Strategy::InPlace),
            Self::Rolling => Policy::Always(Strategy::Rolling),
            Self::Vmap => Policy::Always(Strategy::Vmap),
            Self::Buffer => Policy::Always(Strategy::Buffer),
            Self::Direct => Policy::Always(Strategy::Direct),
        }
    }
}

fn bytes(text: &str) -> Result<usize, &'static str> {
    byte_size::parse(text).ok_or("not a number of bytes")
}
